/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
// timeout: 120
// Row WT13: a thread that is blocked is not disturbed by what another does
/* While the main threads of two ranks exchange messages and ask for their rank, 16 threads of each are blocked in receives of
 * their own. A blocked thread sleeps, so each wake-up shows as a voluntary context switch when it falls asleep again. */
#define _GNU_SOURCE
#include "expect.h"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 2000, TAG = 100 };
static pid_t tids[THREADS];
static pthread_barrier_t started;

static void *blocked(void *argument)
{
    int thread = *(int *)argument, data = -1;
    tids[thread] = gettid();
    pthread_barrier_wait(&started);
    int code = MPI_Recv(&data, 1, MPI_INT, 1 - rank, TAG + thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect("a blocked thread's receive", code, MPI_SUCCESS);
    expect("what it received", data, thread);
    return NULL;
}

/* The thread's voluntary context switches. */
static long switches(pid_t tid)
{
    char name[64], line[256];
    long count = -1;
    snprintf(name, sizeof name, "/proc/self/task/%d/status", (int)tid);
    FILE *status = fopen(name, "r");
    while (status && fgets(line, sizeof line, status))
        sscanf(line, "voluntary_ctxt_switches: %ld", &count);
    if (status)
        fclose(status);
    expect("the kernel counts switches", count >= 0, 1);
    return count;
}

static void exchange(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        int data = i, mine = -1;
        if (rank == 0) {
            MPI_Send(&data, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&data, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
        expect("an exchanged message", data, i);
        MPI_Comm_rank(MPI_COMM_WORLD, &mine);
        expect("the rank", mine, rank);
    }
}

static int ascending(const void *left, const void *right)
{
    long a = *(const long *)left, b = *(const long *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    int provided, numbers[THREADS], all = 0;
    long woken[THREADS];
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    expect("the level of threads", provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    pthread_barrier_init(&started, NULL, THREADS + 1);
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, blocked, &numbers[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    pthread_barrier_wait(&started);
    for (int t = 0; t < THREADS; t++)
        woken[t] = switches(tids[t]);
    exchange();
    for (int t = 0; t < THREADS; t++)
        woken[t] = switches(tids[t]) - woken[t];
    /* The other rank has counted too. From here on threads receive and end. */
    MPI_Barrier(MPI_COMM_WORLD);
    /* One of them may be the deputy, which wakes periodically to check that the main thread makes progress; so the median is used. */
    qsort(woken, THREADS, sizeof *woken, ascending);
    if (woken[THREADS / 2] > ROUNDS / 10)
        expect("how often half of the blocked threads were woken at most", (int)woken[THREADS / 2], 0);
    for (int t = 0; t < THREADS; t++)
        MPI_Send(&t, 1, MPI_INT, 1 - rank, TAG + t, MPI_COMM_WORLD);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        puts("No errors");
    MPI_Finalize();
    return all != 0;
}
