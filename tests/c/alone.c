/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 4
/* Rank 0 is alone, first on a communicator without rank 1, then everywhere: rank 2 has finalized, rank 3 has died. Rank 0 can still
 * send to itself, also a message for a receive from MPI_ANY_SOURCE (Row PP17, Row AK7). Only a call that waits for that receive,
 * with no other thread that could send, returns an error. */
#include "deaths.h"

enum { TAG = 7, BYTES = 100000, TESTS = 2000 };
static unsigned char out[BYTES], in[BYTES];

/* Waits until this process knows that `other` has left: a receive that names it ends with an error. */
static void until_left(int other)
{
    MPI_Request request;
    int code, flag = 0;
    MPI_Irecv(NULL, 0, MPI_BYTE, other, TAG + 1, MPI_COMM_WORLD, &request);
    do
        code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    while (code == MPI_SUCCESS && !flag);
    expect("a receive from one who has left", class_of(code), MPI_ERR_OTHER);
}

/* A receive that is only tested stays active, also while other calls make progress, and takes a message from oneself. */
static void a_receive_from_anybody_takes_our_own_message(int bytes)
{
    MPI_Request receive, send;
    MPI_Status status;
    int flag = -1, wrong = 0;
    MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &receive);
    for (int test = 0; test < TESTS; test++) {
        wrong += MPI_Test(&receive, &flag, &status) != MPI_SUCCESS || flag;
        wrong += MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &status) != MPI_SUCCESS || flag;
    }
    expect("tests that were wrong", wrong, 0);
    fill(out, bytes, 9);
    MPI_Isend(out, bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &send);
    expect("the receive", MPI_Wait(&receive, &status), MPI_SUCCESS);
    expect("whose it was", status.MPI_SOURCE, 0);
    expect("its bytes", holds(in, bytes, 9), 1);
    expect("the send", MPI_Wait(&send, MPI_STATUS_IGNORE), MPI_SUCCESS);
}

/* No process is left that could end these calls. */
static void a_call_that_waits_raises(int class)
{
    MPI_Request request;
    expect("Recv", class_of(MPI_Recv(in, 1, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), class);
    expect("Probe", class_of(MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), class);
    MPI_Irecv(in, 1, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    expect("Wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), class);
}

/* A call that also waits for another request, or only for another one, does not end the receive: rank 1 lives. */
static void a_call_that_waits_for_a_living_rank_ends_nothing_else(MPI_Comm lonely)
{
    MPI_Request requests[2];
    MPI_Status status;
    int index = -1, flag = -1, token = 0;
    MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, lonely, &requests[0]);
    MPI_Irecv(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    expect("Waitany", MPI_Waitany(2, requests, &index, &status), MPI_SUCCESS);
    expect("its index", index, 1);
    MPI_Send(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    expect("Recv", MPI_Recv(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    expect("Test", MPI_Test(&requests[0], &flag, &status), MPI_SUCCESS);
    expect("its flag", flag, 0);
    fill(out, 100, 3);
    MPI_Send(out, 100, MPI_BYTE, 0, TAG, lonely);
    expect("Wait", MPI_Wait(&requests[0], &status), MPI_SUCCESS);
    expect("its bytes", holds(in, 100, 3), 1);
}

static void answer(void)
{
    int token;
    for (int question = 0; question < 2; question++) {
        MPI_Recv(&token, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Long enough for rank 0 to fall asleep, though the test does not depend on it. */
        usleep(20000);
        MPI_Send(&token, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
}

int main(void)
{
    MPI_Comm lonely;
    begin();
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, rank, &lonely);
    /* A death ends a split that has not returned at every rank. */
    meet();
    if (rank == 3)
        die();
    if (rank == 1)
        answer();
    if (rank > 0)
        return end();
    MPI_Comm_set_errhandler(lonely, MPI_ERRORS_RETURN);
    until_known(MPI_COMM_WORLD, ranks - 3);
    MPI_Comm_failure_ack(MPI_COMM_WORLD);
    MPI_Comm_failure_ack(lonely);
    until_left(2);
    a_call_that_waits_for_a_living_rank_ends_nothing_else(lonely);
    until_left(1);
    a_receive_from_anybody_takes_our_own_message(100);
    a_receive_from_anybody_takes_our_own_message(BYTES);
    a_call_that_waits_raises(ranks > 3 ? MPI_ERR_PROC_FAILED : MPI_ERR_OTHER);
    return end();
}
