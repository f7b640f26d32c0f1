/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* For the report about a job that may hang: rank 2 skips what the others wait in, for `argv[2]` seconds. It is outside MPI, or for
 * `receive` in a receive, which rank 0 satisfies afterwards. For `disconnect` rank 2 alone is in MPI, and waits for such a receive. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, token = 0, seconds = argc > 2 ? atoi(argv[2]) : 0;
    int receives = argc > 1 && strcmp(argv[1], "receive") == 0;
    int disconnects = argc > 1 && strcmp(argv[1], "disconnect") == 0;
    MPI_Comm dup;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (disconnects) {
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        if (rank == 2)
            MPI_Irecv(&token, 1, MPI_INT, 0, 14, dup, &request);
        else
            sleep(seconds);
        if (rank == 0)
            MPI_Send(&token, 1, MPI_INT, 2, 14, dup);
        MPI_Comm_disconnect(&dup);
        if (rank == 2)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (receives && rank == 0) {
        sleep(seconds);
        MPI_Send(&token, 1, MPI_INT, 2, 14, MPI_COMM_WORLD);
    }
    if (rank == 2 && receives)
        MPI_Recv(&token, 1, MPI_INT, 0, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 2 && !receives && !disconnects)
        sleep(seconds);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0)
        puts("No errors");
    return 0;
}
