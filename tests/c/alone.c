/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 4
/* Rank 0 is alone, first on a communicator without rank 1, then everywhere: rank 2 has left in order, rank 3 has died. It can still
 * send to itself, also what a receive from anybody waits for (Row PP17, Row AK7): only a call that waits for that receive, with no
 * other thread to send, is told that nobody is left. */
#include "deaths.h"

enum { TAG = 7, BYTES = 100000, TESTS = 2000 };
static unsigned char out[BYTES], in[BYTES];

/* As far as this process knows: a receive that names one who has left ends. */
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

/* What is tested for goes on, whatever else turns the crank meanwhile, and takes our own message. */
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

/* Nobody is left who could end these. */
static void who_waits_is_told(int class)
{
    MPI_Request request;
    expect("Recv", class_of(MPI_Recv(in, 1, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), class);
    expect("Probe", class_of(MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), class);
    MPI_Irecv(in, 1, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    expect("Wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), class);
}

/* A call that waits for something else as well, or only for something else, ends nothing: rank 1 lives. */
static void who_waits_for_the_living_loses_nothing(MPI_Comm lonely)
{
    MPI_Request requests[2];
    MPI_Status status;
    int index = -1, flag = -1, told = 0;
    MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, lonely, &requests[0]);
    MPI_Irecv(&told, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(&told, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    expect("Waitany", MPI_Waitany(2, requests, &index, &status), MPI_SUCCESS);
    expect("its index", index, 1);
    MPI_Send(&told, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    expect("Recv", MPI_Recv(&told, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    expect("Test", MPI_Test(&requests[0], &flag, &status), MPI_SUCCESS);
    expect("its flag", flag, 0);
    fill(out, 100, 3);
    MPI_Send(out, 100, MPI_BYTE, 0, TAG, lonely);
    expect("Wait", MPI_Wait(&requests[0], &status), MPI_SUCCESS);
    expect("its bytes", holds(in, 100, 3), 1);
}

static void answer(void)
{
    int told;
    for (int question = 0; question < 2; question++) {
        MPI_Recv(&told, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Long enough for rank 0 to sleep; either way is right. */
        usleep(20000);
        MPI_Send(&told, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
}

int main(void)
{
    MPI_Comm lonely;
    begin();
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 0, rank, &lonely);
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
    who_waits_for_the_living_loses_nothing(lonely);
    until_left(1);
    a_receive_from_anybody_takes_our_own_message(100);
    a_receive_from_anybody_takes_our_own_message(BYTES);
    who_waits_is_told(ranks > 3 ? MPI_ERR_PROC_FAILED : MPI_ERR_OTHER);
    return end();
}
