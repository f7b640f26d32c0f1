/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A barrier; then all ranks but the first are blocked in a receive until stdin of rank 0 ends, so that the test can measure
 * memory, descriptors and processor time of ranks that are idle inside MPI. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, word = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ready\n");
        fflush(stdout);
        while (getchar() != EOF) {
        }
        for (int to = 1; to < size; to++)
            MPI_Send(&word, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
        printf("No errors\n");
    } else {
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
