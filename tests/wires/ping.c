/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* ping SECONDS: two ranks exchange numbered messages for so long, while the harness breaks the way between them. Each message comes once and
 * in order. Prints the error class in which the exchange ended, 0 if in none. Errors are returned: the ranks compare nothing after one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;

/* One round: rank 0 sends number and whether it is the last one, and gets the number back. Returns an error code. */
static int round_trip(long number, long *last)
{
    long message[2] = { number, *last }, back = number;
    MPI_Status status;
    int error;
    if (rank == 0) {
        error = MPI_Send(message, 2, MPI_LONG, 1, 0, MPI_COMM_WORLD);
        if (error == MPI_SUCCESS)
            error = MPI_Recv(&back, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, &status);
    } else {
        error = MPI_Recv(message, 2, MPI_LONG, 0, 0, MPI_COMM_WORLD, &status);
        if (error == MPI_SUCCESS)
            error = MPI_Send(message, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
    }
    if (error == MPI_SUCCESS && (back != number || message[0] != number)) {
        fprintf(stderr, "rank %d: message %ld came as %ld and %ld\n", rank, number, message[0], back);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    *last = message[1];
    return error;
}

int main(int argc, char **argv)
{
    int error = MPI_SUCCESS, class;
    long number = 0, last = 0;
    double end;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    end = MPI_Wtime() + atof(argv[1]);
    while (error == MPI_SUCCESS && !last) {
        last = MPI_Wtime() >= end;
        error = round_trip(number++, &last);
    }
    MPI_Error_class(error, &class);
    printf("rank %d: class %d\n", rank, class);
    MPI_Finalize();
    return 0;
}
