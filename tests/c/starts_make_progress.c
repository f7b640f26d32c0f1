/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
// timeout: 60
/* A program that only starts, frees and cancels operations makes progress: what it sends arrives, what was sent to it is received. */
#include "expect.h"
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { MESSAGES = 2000, CANCELS_MAX = 1000000 };

static volatile sig_atomic_t arrived;

static void on_signal(int signal)
{
    (void)signal;
    arrived = 1;
}

/* Starts and frees sends, and calls nothing else of MPI, until a signal of the receiver says that enough have arrived. */
static void send_until_told(void)
{
    static const int seven = 7;
    int pid = getpid(), sent = 0;
    signal(SIGUSR1, on_signal);
    MPI_Send(&pid, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    for (; !arrived; sent++) {
        MPI_Request request;
        MPI_Isend(&seven, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        sched_yield();
    }
    MPI_Send(&sent, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
}

static void receive_until_enough(void)
{
    int pid, value = 0, sent, received = 0;
    MPI_Recv(&pid, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (; received < MESSAGES; received++)
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect("a message", value, 7);
    kill(pid, SIGUSR1);
    MPI_Recv(&sent, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (; received < sent; received++)
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Receives by starting and cancelling alone. */
static void receive_by_cancelling(void)
{
    int value = 0, cancelled = 1;
    for (int i = 0; i < CANCELS_MAX && cancelled; i++) {
        MPI_Request request;
        MPI_Status status;
        MPI_Irecv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
    }
    expect("cancelled every time", cancelled, 0);
    expect("the message", value, 9);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        int nine = 9;
        send_until_told();
        MPI_Send(&nine, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
    } else {
        receive_until_enough();
        receive_by_cancelling();
    }
    int all = 0;
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
