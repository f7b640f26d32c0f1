/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* A wait for a send that was cancelled returns, whatever the receiver does (MPI-5.0 §3.8.4): here it receives nothing before. What was
 * not cancelled it receives afterwards, and nothing else. */
#include "expect.h"
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, ROUNDS = 20 };

static const int lengths[] = {0, 8, 1000, 100000, LARGEST};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static int receiver;
static char *buffer, *room;

/* Whether the send was cancelled. */
static int cancelled_send(int length, int tag, int synchronous)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled = -1;
    memset(buffer, tag, length);
    if (synchronous)
        MPI_Issend(buffer, length, MPI_CHAR, receiver, tag, MPI_COMM_WORLD, &request);
    else
        MPI_Isend(buffer, length, MPI_CHAR, receiver, tag, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    /* The buffer is the program's again. */
    memset(buffer, -1, length);
    return cancelled;
}

static void receive(int length, int tag, int cancelled)
{
    MPI_Status status;
    int count = -1, flag = -1;
    if (cancelled) {
        MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &status);
        expect("a cancelled message that has come", flag, 0);
        return;
    }
    MPI_Recv(room, length, MPI_CHAR, 0, tag, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    expect("its length", count, length);
    for (int at = 0; at < length; at += 997)
        expect("its bytes", room[at], (char) tag);
}

static void round_of(int length, int tag, int synchronous)
{
    int cancelled = 0;
    MPI_Request told;
    if (rank == receiver && rank == 0)
        MPI_Irecv(&cancelled, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &told);
    if (rank == 0) {
        int word = cancelled_send(length, tag, synchronous);
        MPI_Send(&word, 1, MPI_INT, receiver, 0, MPI_COMM_WORLD);
    }
    if (rank == receiver) {
        if (rank == 0)
            MPI_Wait(&told, MPI_STATUS_IGNORE);
        else
            MPI_Recv(&cancelled, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        receive(length, tag, cancelled);
    }
}

int main(void)
{
    int size;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    receiver = size - 1;
    buffer = malloc(LARGEST);
    room = malloc(LARGEST);
    for (int round = 0; round < ROUNDS; round++)
        for (int at = 0; at < LENGTHS; at++)
            for (int synchronous = 0; synchronous < 2; synchronous++)
                round_of(lengths[at], 1 + (round * LENGTHS + at) * 2 + synchronous, synchronous);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
