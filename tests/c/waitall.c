/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 4
// Row WT5: Waitall returns IN_STATUS; good ones SUCCESS, failed ones their class
// Row WT6: the same without statuses
// Row WT3: Waitany prefers a good one
// Row WT8: Waitsome returns all requests that have ended
/* All eight calls that end requests, and the arrays they leave. */
#include "expect.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MANY = 100 };
static int ranks, calls, last_class;
static MPI_Comm last_comm;

static void noting(MPI_Comm *comm, int *code, ...)
{
    calls++;
    last_class = *code;
    last_comm = *comm;
}

static void all_good(MPI_Comm comm)
{
    MPI_Request requests[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, sent[MANY], received[MANY], count, flag;
    for (int i = 0; i < MANY; i++) {
        sent[i] = rank * 1000 + i;
        received[i] = -1;
        /* In reverse order, so that the first message matches the last receive. */
        MPI_Irecv(&received[i], 1, MPI_INT, from, MANY - 1 - i, comm, &requests[i]);
    }
    for (int i = 0; i < MANY; i++)
        MPI_Isend(&sent[i], 1, MPI_INT, to, i, comm, &requests[MANY + i]);
    expect("Waitall", MPI_Waitall(2 * MANY, requests, statuses), MPI_SUCCESS);
    for (int i = 0; i < MANY; i++) {
        expect("what came", received[i], from * 1000 + MANY - 1 - i);
        expect("its source", statuses[i].MPI_SOURCE, from);
        expect("its tag", statuses[i].MPI_TAG, MANY - 1 - i);
        MPI_Get_count(&statuses[i], MPI_INT, &count);
        expect("its count", count, 1);
    }
    for (int i = 0; i < 2 * MANY; i++)
        expect("every handle is null", requests[i] == MPI_REQUEST_NULL, 1);
    expect("Waitall of null requests", MPI_Waitall(2 * MANY, requests, statuses), MPI_SUCCESS);
    expect("its status is empty", statuses[3].MPI_SOURCE, MPI_ANY_SOURCE);
    expect("Waitall of nothing", MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    expect("Testall of null requests", MPI_Testall(2, requests, &flag, statuses), MPI_SUCCESS);
    expect("its flag", flag, 1);
    expect("Waitany of null requests", MPI_Waitany(2, requests, &count, statuses), MPI_SUCCESS);
    expect("its index", count, MPI_UNDEFINED);
    expect("Waitsome of null requests", MPI_Waitsome(2, requests, &count, &flag, statuses), MPI_SUCCESS);
    expect("its count", count, MPI_UNDEFINED);
}

/* Requests of two communicators; the first and the third are too short. */
static void some_bad(MPI_Comm one, MPI_Comm other, MPI_Status *statuses)
{
    MPI_Request requests[4];
    char buffers[4][16], data[16] = "fifteen letters";
    MPI_Irecv(buffers[0], 16, MPI_CHAR, 0, 0, one, &requests[0]);
    MPI_Irecv(buffers[1], 1, MPI_CHAR, 0, 1, other, &requests[1]);
    MPI_Irecv(buffers[2], 16, MPI_CHAR, 0, 2, one, &requests[2]);
    MPI_Irecv(buffers[3], 2, MPI_CHAR, 0, 3, one, &requests[3]);
    MPI_Send(data, 16, MPI_CHAR, 0, 3, one);
    MPI_Send(data, 16, MPI_CHAR, 0, 1, other);
    MPI_Send(data, 16, MPI_CHAR, 0, 2, one);
    MPI_Send(data, 16, MPI_CHAR, 0, 0, one);
    calls = 0;
    expect("Waitall with failed ones", MPI_Waitall(4, requests, statuses), MPI_ERR_IN_STATUS);
    expect("calls of the handler", calls, 1);
    expect("with the class of the first that failed", last_class, MPI_ERR_TRUNCATE);
    expect("on its communicator", last_comm == other, 1);
    for (int i = 0; i < 4; i++)
        expect("every handle is null", requests[i] == MPI_REQUEST_NULL, 1);
    if (statuses != MPI_STATUSES_IGNORE) {
        expect("a good one", statuses[0].MPI_ERROR, MPI_SUCCESS);
        expect("a failed one", statuses[1].MPI_ERROR, MPI_ERR_TRUNCATE);
        expect("its tag", statuses[1].MPI_TAG, 1);
        expect("another good one", statuses[2].MPI_ERROR, MPI_SUCCESS);
        expect("another failed one", statuses[3].MPI_ERROR, MPI_ERR_TRUNCATE);
    }
    expect("what a good one got", memcmp(buffers[0], data, 16), 0);
}

static void any_and_some(MPI_Comm comm)
{
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int numbers[3] = {-1, -1, -1}, index = -1, flag = -1, indices[3], count = -1, sent = 42;
    for (int i = 0; i < 3; i++)
        MPI_Irecv(&numbers[i], 1, MPI_INT, 0, i, comm, &requests[i]);
    expect("Testany of none", MPI_Testany(3, requests, &index, &flag, statuses), MPI_SUCCESS);
    expect("its flag", flag, 0);
    expect("its index", index, MPI_UNDEFINED);
    expect("Testsome of none", MPI_Testsome(3, requests, &count, indices, statuses), MPI_SUCCESS);
    expect("its count", count, 0);
    expect("Testall of none", MPI_Testall(3, requests, &flag, statuses), MPI_SUCCESS);
    expect("its flag", flag, 0);
    MPI_Send(&sent, 1, MPI_INT, 0, 1, comm);
    statuses[0].MPI_ERROR = 4711;
    expect("Waitany", MPI_Waitany(3, requests, &index, statuses), MPI_SUCCESS);
    expect("its index", index, 1);
    expect("its tag", statuses[0].MPI_TAG, 1);
    expect("the error of a single status is the user's", statuses[0].MPI_ERROR, 4711);
    expect("what came", numbers[1], 42);
    MPI_Send(&sent, 1, MPI_INT, 0, 2, comm);
    MPI_Send(&sent, 1, MPI_INT, 0, 0, comm);
    int seen = 0;
    while (seen < 2) {
        expect("Waitsome", MPI_Waitsome(3, requests, &count, indices, statuses), MPI_SUCCESS);
        for (int i = 0; i < count; i++)
            expect("its tag", statuses[i].MPI_TAG, indices[i]);
        seen += count;
    }
    expect("all are over", requests[0] == MPI_REQUEST_NULL && requests[2] == MPI_REQUEST_NULL, 1);
    MPI_Irecv(numbers, 1, MPI_INT, MPI_PROC_NULL, 0, comm, requests);
    do
        MPI_Test(requests, &flag, statuses);
    while (!flag);
    expect("the source of a receive from MPI_PROC_NULL", statuses[0].MPI_SOURCE, MPI_PROC_NULL);
}

int main(void)
{
    MPI_Comm one, other;
    MPI_Errhandler handler;
    MPI_Status statuses[4];
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    all_good(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_SELF, &one);
    MPI_Comm_dup(MPI_COMM_SELF, &other);
    MPI_Comm_create_errhandler(noting, &handler);
    MPI_Comm_set_errhandler(one, handler);
    MPI_Comm_set_errhandler(other, handler);
    some_bad(one, other, statuses);
    some_bad(one, other, MPI_STATUSES_IGNORE);
    any_and_some(one);
    MPI_Comm_free(&one);
    MPI_Comm_free(&other);
    MPI_Errhandler_free(&handler);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
