/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4
// timeout: 60
/* fork, vfork, posix_spawn and system in ranks, with messages in flight: the traffic goes on, the children may end in any way,
 * and inherit neither our shared memory nor our descriptors. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 40000 };
extern char **environ;
static int rank, ranks, errors;
static int sent[COUNT], got[COUNT];

static void wrong(const char *what, long number, long wanted)
{
    if (errors++ < 5)
        fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, number, wanted);
}

/* How many descriptors this process has open. */
static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* How many mappings of memory files this process has: every outbox is one. */
static int memory_files(void)
{
    char line[1024];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, "memfd:") != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

/* The code that a child ended with. */
static int code_of(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* Starts a ring step with large messages, calls `meanwhile`, and completes the step. */
static void around(int round, void (*meanwhile)(void))
{
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];
    for (int i = 0; i < COUNT; i++) {
        sent[i] = rank * 31 + round * 1009 + i;
        got[i] = -1;
    }
    MPI_Irecv(got, COUNT, MPI_INT, before, round, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent, COUNT, MPI_INT, next, round, MPI_COMM_WORLD, &requests[1]);
    meanwhile();
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++)
        if (got[i] != before * 31 + round * 1009 + i) {
            wrong("a number of the ring", got[i], before * 31 + round * 1009 + i);
            break;
        }
}

/* The child writes to its copy of the buffers, checks that it has no shared memory of ours, and calls exit. */
static void a_child_that_exits(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        memset(sent, 0, sizeof sent);
        memset(got, 0, sizeof got);
        exit(memory_files() == 0 ? 7 : 8);
    }
    int code = code_of(child);
    if (code != 7)
        wrong("the exit code of a child (8: it has our shared memory)", code, 7);
}

static void a_child_that_leaves_at_once(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(9);
    int code = code_of(child);
    if (code != 9)
        wrong("the exit code of a child that leaves at once", code, 9);
}

static void a_child_that_dies(void)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0)
        raise(SIGKILL);
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status))
        wrong("the status of a child that dies", status, SIGKILL);
}

/* A child may abort after a failed exec. That must not end the job, and the child must not go on as if it were the rank. */
static void a_child_that_aborts(void)
{
    pid_t child = fork();
    if (child == 0) {
        MPI_Abort(MPI_COMM_WORLD, 11);
        _exit(12);
    }
    int code = code_of(child);
    if (code != 11)
        wrong("the exit code of a child that aborts", code, 11);
}

static void a_shell(void)
{
    int code = system("exit 3");
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 3)
        wrong("the code of system()", code, 3 << 8);
}

static void a_spawned_program(void)
{
    char *arguments[] = {"sh", "-c", "exit 5", NULL};
    pid_t child;
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) != 0) {
        wrong("posix_spawn", errno, 0);
        return;
    }
    int code = code_of(child);
    if (code != 5)
        wrong("the code of a spawned program", code, 5);
}

/* Descriptors that a program started from a rank has: as many as one started before MPI_Init. */
static int descriptors_of_a_program(void)
{
    int count = -1;
    FILE *listing = popen("ls /proc/self/fd | wc -l", "r");
    if (listing == NULL || fscanf(listing, "%d", &count) != 1)
        count = -1;
    if (listing != NULL)
        pclose(listing);
    return count;
}

int main(int argc, char **argv)
{
    int before_init = descriptors_of_a_program(), all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    void (*meanwhile[])(void) = {a_child_that_exits, a_child_that_leaves_at_once, a_child_that_dies,
                                 a_child_that_aborts,  a_shell,                      a_spawned_program};
    for (int round = 0; round < 20; round++)
        around(round, meanwhile[round % 6]);

    MPI_Barrier(MPI_COMM_WORLD);
    int ours = descriptors_of_a_program();
    if (ours > before_init)
        wrong("descriptors that a program started from a rank inherits", ours, before_init);
    /* The counting functions find something in a rank; otherwise a 0 in a child would prove nothing. */
    if (memory_files() == 0)
        wrong("mappings of memory files in a rank", 0, 1);
    int open_now = descriptors();
    if (open_now < 3)
        wrong("descriptors of a rank", open_now, 3);
    for (int round = 20; round < 40; round++)
        around(round, a_shell);
    /* Over a network a peer may have connected meanwhile. */
    if (descriptors() > open_now + ranks)
        wrong("descriptors after twenty shells", descriptors(), open_now);

    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    a_child_that_exits();
    return all != 0;
}
