/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4
// timeout: 120
// Row WT13: threads wait in calls of their own
/* MPI_THREAD_MULTIPLE: threads that share a communicator and use different tags, threads that block while others send what they
 * wait for, several threads that receive with the same arguments, and concurrent collectives. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 2000, COLLECTIVES = 300, SHARED = 400 };

static int rank, ranks;
static MPI_Comm comms[THREADS];
static int errors;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void wrong(const char *what, int thread, long got, long wanted)
{
    pthread_mutex_lock(&lock);
    if (errors++ < 5)
        fprintf(stderr, "rank %d, thread %d: %s: %ld, not %ld\n", rank, thread, what, got, wanted);
    pthread_mutex_unlock(&lock);
}

static void run(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    static int numbers[THREADS];
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, body, &numbers[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
}

/* Each thread exchanges messages in a ring with the threads of the same number; only the tag separates them. */
static void *by_tag(void *argument)
{
    int thread = *(int *)argument, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < ROUNDS; i++) {
        int sent = rank * 1000000 + thread * 100000 + i, got = -1, wanted = sent + (before - rank) * 1000000;
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(&got, 1, MPI_INT, before, thread, MPI_COMM_WORLD, &request);
        MPI_Send(&sent, 1, MPI_INT, next, thread, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        if (got != wanted)
            wrong("by tag", thread, got, wanted);
        if (status.MPI_TAG != thread || status.MPI_SOURCE != before)
            wrong("status by tag", thread, status.MPI_TAG, thread);
    }
    return NULL;
}

/* Thread 0 is blocked until thread 1 sends to it, within the same rank; 2 and 3 likewise, by a synchronous send. */
static void *to_oneself(void *argument)
{
    int thread = *(int *)argument;
    for (int i = 0; i < ROUNDS / 10; i++) {
        int value = i;
        if (thread == 0) {
            MPI_Recv(&value, 1, MPI_INT, rank, 100, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != i)
                wrong("to oneself", thread, value, i);
        } else if (thread == 1) {
            MPI_Send(&value, 1, MPI_INT, rank, 100, MPI_COMM_WORLD);
        } else if (thread == 2) {
            MPI_Ssend(&value, 1, MPI_INT, rank, 101, MPI_COMM_WORLD);
        } else {
            MPI_Status status;
            MPI_Probe(rank, 101, MPI_COMM_WORLD, &status);
            MPI_Recv(&value, 1, MPI_INT, rank, 101, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (value != i)
                wrong("to oneself, synchronous", thread, value, i);
        }
    }
    return NULL;
}

/* All threads receive from MPI_ANY_SOURCE with one tag: together they get every message once. */
static long shared_sum;
static void *shared(void *argument)
{
    int next = (rank + 1) % ranks, thread = *(int *)argument;
    long sum = 0;
    for (int i = 0; i < SHARED; i++) {
        int sent = thread * SHARED + i, got = -1;
        MPI_Request request;
        MPI_Isend(&sent, 1, MPI_INT, next, 200, comms[0], &request);
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 200, comms[0], MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sum += got;
    }
    pthread_mutex_lock(&lock);
    shared_sum += sum;
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Each thread runs collectives on a separate communicator of all ranks. */
static void *collectives(void *argument)
{
    int thread = *(int *)argument;
    MPI_Comm comm = comms[thread];
    for (int i = 0; i < COLLECTIVES; i++) {
        int root = i % ranks, value = rank == root ? i * 7 + thread : -1, one = rank + i, sum = 0;
        MPI_Bcast(&value, 1, MPI_INT, root, comm);
        if (value != i * 7 + thread)
            wrong("bcast", thread, value, i * 7 + thread);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (sum != ranks * (ranks - 1) / 2 + ranks * i)
            wrong("allreduce", thread, sum, ranks * (ranks - 1) / 2 + ranks * i);
        MPI_Barrier(comm);
    }
    return NULL;
}

/* Communicators are created and freed in one thread while others use theirs. */
static void *duplicates(void *argument)
{
    int thread = *(int *)argument, size = 0;
    for (int i = 0; i < 30; i++) {
        MPI_Comm young;
        MPI_Comm_dup(comms[thread], &young);
        MPI_Comm_size(young, &size);
        if (size != ranks)
            wrong("size of a duplicate", thread, size, ranks);
        MPI_Barrier(young);
        MPI_Comm_free(&young);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = -1, all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (provided != MPI_THREAD_MULTIPLE)
        wrong("level of threads", -1, provided, MPI_THREAD_MULTIPLE);
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);

    run(by_tag);
    run(to_oneself);
    run(shared);
    long messages = THREADS * SHARED;
    if (shared_sum != messages * (messages - 1) / 2)
        wrong("sum of what all threads received", -1, shared_sum, messages * (messages - 1) / 2);
    MPI_Barrier(MPI_COMM_WORLD);
    run(collectives);
    run(duplicates);

    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comms[t]);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
