/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* exchange FOLDER: two ranks exchange numbered messages, short and long ones, until the harness says stop, and meanwhile it breaks the way
 * between them. Each message comes once, whole and in order. Prints the class of the error in which the exchange ended. */
#include "meeting.h"

enum { LONG_BYTES = 300000, LONG_EVERY = 16, LOOK_EVERY = 8 };

static unsigned char data[LONG_BYTES];

static void wrong(long number)
{
    fprintf(stderr, "rank %d: message %ld came wrong\n", rank, number);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A long message one way, and back. */
static int exchange_long(long number)
{
    unsigned char first = (unsigned char)number;
    int error = MPI_SUCCESS;
    for (int turn = 0; turn < 2 && error == MPI_SUCCESS; turn++) {
        if (turn == rank) {
            for (int i = 0; i < LONG_BYTES; i++)
                data[i] = (unsigned char)(first + i * 7);
            error = MPI_Send(data, LONG_BYTES, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD);
        } else {
            error = MPI_Recv(data, LONG_BYTES, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < LONG_BYTES && error == MPI_SUCCESS; i++)
                if (data[i] != (unsigned char)(first + i * 7))
                    wrong(number);
        }
    }
    return error;
}

/* One round: rank 0 sends number and whether it is the last one, and gets the number back. */
static int exchange(long number, long *last)
{
    long message[2] = { number, *last }, back = number;
    int error;
    if (rank == 0) {
        error = MPI_Send(message, 2, MPI_LONG, 1, 0, MPI_COMM_WORLD);
        if (error == MPI_SUCCESS)
            error = MPI_Recv(&back, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        error = MPI_Recv(message, 2, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (error == MPI_SUCCESS)
            error = MPI_Send(message, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
    }
    if (error == MPI_SUCCESS && (back != number || message[0] != number))
        wrong(number);
    *last = message[1];
    if (error == MPI_SUCCESS && number % LONG_EVERY == 0)
        error = exchange_long(number);
    return error;
}

int main(int argc, char **argv)
{
    int error = MPI_SUCCESS;
    long number = 0, last = 0;
    double longest = 0, begun, took;
    begin(&argc, &argv);
    while (error == MPI_SUCCESS && !last) {
        if (number % LOOK_EVERY == 0)
            compute_if_told();
        last = number % LOOK_EVERY == 0 && exists("stop");
        begun = MPI_Wtime();
        error = exchange(number, &last);
        took = MPI_Wtime() - begun;
        longest = took > longest ? took : longest;
        if (number++ == 0 && rank == 0)
            announce("running");
    }
    printf("rank %d: error %s\n", rank, class_of(error));
    if (rank == 0)
        printf("%ld rounds, the longest %.3f s\n", number, longest);
    MPI_Finalize();
    return 0;
}
