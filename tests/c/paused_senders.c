/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4
// args: 150
// timeout: 120
/* paused_senders COUNT: each rank but the first sends it COUNT messages that are as long as a frame may be. A child of each sender stops it now and
 * then, often in the middle of a frame, while the others go on. Every byte is checked. */
#define _GNU_SOURCE
#include "expect.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 8000, AT_ONCE = 32, PAUSE_US = 4000, BETWEEN_US = 3000 };

static uint64_t buffers[AT_ONCE][WORDS];

static uint64_t word(int sender, int number, int at)
{
    return ((uint64_t)sender << 56) + (uint64_t)number * 0x9e3779b97f4a7c15u + (uint64_t)at;
}

/* Stops and continues the process until it ends. */
static void pause_again_and_again(pid_t process)
{
    while (getppid() == process) {
        kill(process, SIGSTOP);
        usleep(PAUSE_US);
        kill(process, SIGCONT);
        usleep((useconds_t)(BETWEEN_US + process % 7 * 500));
    }
}

static void send_all(int count)
{
    MPI_Request requests[AT_ONCE];
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        pause_again_and_again(own);
        _exit(0);
    }
    expect("the child's number is positive", child > 0, 1);
    for (int first = 0; first < count; first += AT_ONCE) {
        int these = count - first < AT_ONCE ? count - first : AT_ONCE;
        for (int i = 0; i < these; i++) {
            for (int at = 0; at < WORDS; at++)
                buffers[i][at] = word(rank, first + i, at);
            MPI_Isend(buffers[i], WORDS, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(these, requests, MPI_STATUSES_IGNORE);
    }
    kill(child, SIGKILL);
    kill(own, SIGCONT);
    waitpid(child, NULL, 0);
}

static void receive_all(int count, int senders)
{
    int *next = calloc((size_t)senders + 1, sizeof *next);
    for (int i = 0; i < count * senders; i++) {
        MPI_Status status;
        int wrong = 0;
        MPI_Recv(buffers[0], WORDS, MPI_UINT64_T, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
        for (int at = 0; at < WORDS; at++)
            wrong += buffers[0][at] != word(status.MPI_SOURCE, next[status.MPI_SOURCE], at);
        expect("wrong words of a message", wrong, 0);
        next[status.MPI_SOURCE]++;
    }
    free(next);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 150, size, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        receive_all(count, size - 1);
    else
        send_all(count);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        puts("No errors");
    MPI_Finalize();
    return all != 0;
}
