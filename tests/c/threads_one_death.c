/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 4
// timeout: 60
// Row WT13, Row PP6, Row PP9, Row PP10, Row WT5, Row CO1, Row CO5: threads blocked in different calls, and one death
/* Eight threads of each surviving rank wait in eight different calls when the last rank dies: each call returns the class of its
 * row; the one that needs nothing from the dead rank goes on waiting. */
#include <mpi-ext.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECEIVE, WILDCARD, PROBE, WAIT, WAITALL, WAITANY, BARRIER, BARRIER_OF_THE_LIVING, THREADS };
static const char *const names[THREADS] = {"Recv", "Recv of any", "Probe", "Wait", "Waitall",
                                           "Waitany", "Barrier", "Barrier of the living"};
static int rank, ranks, last, errors;
static MPI_Comm comms[THREADS], living;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t start;

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void expect(int thread, const char *what, int got, int wanted)
{
    pthread_mutex_lock(&lock);
    if (got != wanted && errors++ < 20)
        fprintf(stderr, "rank %d, %s: %s: %d, not %d\n", rank, names[thread], what, got, wanted);
    pthread_mutex_unlock(&lock);
}

/* Posts a receive from the dead rank, and one from oneself, whose message is sent after the call has returned. */
static void post(MPI_Comm comm, int data[2], MPI_Request requests[2])
{
    MPI_Irecv(&data[0], 1, MPI_INT, last, 1, comm, &requests[0]);
    MPI_Irecv(&data[1], 1, MPI_INT, rank, 2, comm, &requests[1]);
}

static void give(MPI_Comm comm)
{
    int data = rank;
    MPI_Send(&data, 1, MPI_INT, rank, 2, comm);
}

static void *blocked(void *argument)
{
    int thread = *(int *)argument, data[2] = {-1, -1}, code, index = -1;
    MPI_Comm comm = comms[thread];
    MPI_Request requests[2];
    MPI_Status status, statuses[2];
    pthread_barrier_wait(&start);
    switch (thread) {
    case RECEIVE:
        code = MPI_Recv(data, 1, MPI_INT, last, 1, comm, &status);
        break;
    case WILDCARD:
        /* Trap 6: the blocking receive raises PROC_FAILED and leaves nothing posted. */
        code = MPI_Recv(data, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &status);
        break;
    case PROBE:
        code = MPI_Probe(last, 1, comm, &status);
        break;
    case WAIT:
        MPI_Irecv(data, 1, MPI_INT, last, 1, comm, &requests[0]);
        code = MPI_Wait(&requests[0], &status);
        expect(thread, "the request is gone", requests[0] == MPI_REQUEST_NULL, 1);
        break;
    case WAITALL:
        post(comm, data, requests);
        code = MPI_Waitall(2, requests, statuses);
        expect(thread, "the class of the call", class_of(code), MPI_ERR_IN_STATUS);
        expect(thread, "the other's class", class_of(statuses[1].MPI_ERROR), MPI_ERR_PENDING);
        code = statuses[0].MPI_ERROR;
        give(comm);
        expect(thread, "the other, later", class_of(MPI_Wait(&requests[1], &status)), MPI_SUCCESS);
        expect(thread, "what it gave", data[1], rank);
        break;
    case WAITANY:
        post(comm, data, requests);
        code = MPI_Waitany(2, requests, &index, &status);
        expect(thread, "the index", index, 0);
        give(comm);
        expect(thread, "the other, later", class_of(MPI_Wait(&requests[1], &status)), MPI_SUCCESS);
        break;
    case BARRIER:
        code = MPI_Barrier(comm);
        break;
    default:
        /* Only rank 0 enters this barrier before the main threads have seen all other calls return. */
        if (rank == 0)
            expect(thread, "the class", class_of(MPI_Barrier(living)), MPI_SUCCESS);
        return NULL;
    }
    expect(thread, "the class", class_of(code), MPI_ERR_PROC_FAILED);
    return NULL;
}

static void survive(void)
{
    pthread_t threads[THREADS];
    static int numbers[THREADS];
    int failed = -1;
    MPI_Group group;
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        if (pthread_create(&threads[t], NULL, blocked, &numbers[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    pthread_barrier_wait(&start);
    /* Now the threads are in their calls, or about to enter them: the last rank may die. */
    MPI_Send(&rank, 1, MPI_INT, last, 0, MPI_COMM_WORLD);
    for (int t = 0; t < THREADS - 1; t++)
        pthread_join(threads[t], NULL);
    if (rank != 0)
        expect(BARRIER_OF_THE_LIVING, "the class", class_of(MPI_Barrier(living)), MPI_SUCCESS);
    pthread_join(threads[BARRIER_OF_THE_LIVING], NULL);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &group);
    MPI_Group_size(group, &failed);
    expect(RECEIVE, "how many failed", failed, 1);
    MPI_Group_free(&group);
    int all = 0;
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, living);
    if (rank == 0 && all == 0)
        printf("No errors\n");
}

int main(int argc, char **argv)
{
    int provided, ready;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    last = ranks - 1;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
    MPI_Comm_split(MPI_COMM_WORLD, rank == last ? MPI_UNDEFINED : 0, rank, &living);
    if (rank == last) {
        for (int other = 0; other < last; other++)
            MPI_Recv(&ready, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Long enough for most threads to fall asleep, though the test does not depend on it. */
        usleep(30000);
        kill(getpid(), SIGKILL);
    }
    survive();
    MPI_Finalize();
    return errors != 0;
}
