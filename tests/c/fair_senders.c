/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 8
// timeout: 120
/* Seven ranks send messages of 8 bytes to rank 0 as fast as they can, and it receives them from any source: of every 100,000
 * no rank sends more than three times as many as another, also where ranks share processors. */
#include "expect.h"

enum { RANKS = 8, MESSAGES = 100000, WINDOWS = 3, BATCH = 1000, DATA = 1, STOP = 2 };

static void receive_window(int window)
{
    int counts[RANKS] = {0}, least = MESSAGES, most = 0;
    for (int number = 0; number < MESSAGES; number++) {
        long long value;
        MPI_Status status;
        MPI_Recv(&value, sizeof value, MPI_BYTE, MPI_ANY_SOURCE, DATA, MPI_COMM_WORLD, &status);
        counts[status.MPI_SOURCE]++;
    }
    for (int sender = 1; sender < RANKS; sender++) {
        least = counts[sender] < least ? counts[sender] : least;
        most = counts[sender] > most ? counts[sender] : most;
    }
    if (most > 3 * least)
        for (int sender = 1; sender < RANKS; sender++)
            fprintf(stderr, "window %d: %d messages of rank %d\n", window, counts[sender], sender);
    expect("no rank sends more than three times as many as another", most <= 3 * least, 1);
}

/* Rank 0: three windows, then the messages still in flight; the last message of each sender is negative. */
static void receive_all(void)
{
    long long value = 0;
    for (int window = 0; window < WINDOWS; window++)
        receive_window(window);
    for (int sender = 1; sender < RANKS; sender++)
        MPI_Send(&value, sizeof value, MPI_BYTE, sender, STOP, MPI_COMM_WORLD);
    for (int ended = 0; ended < RANKS - 1; ended += value < 0)
        MPI_Recv(&value, sizeof value, MPI_BYTE, MPI_ANY_SOURCE, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send_until_told(void)
{
    long long value = 1, last = -1, ignored;
    int stop = 0;
    MPI_Request stop_request;
    MPI_Irecv(&ignored, sizeof ignored, MPI_BYTE, 0, STOP, MPI_COMM_WORLD, &stop_request);
    while (!stop) {
        for (int number = 0; number < BATCH; number++)
            MPI_Send(&value, sizeof value, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
        MPI_Test(&stop_request, &stop, MPI_STATUS_IGNORE);
    }
    MPI_Send(&last, sizeof last, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        receive_all();
    else
        send_until_told();
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors > 0;
}
