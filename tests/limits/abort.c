/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* All ranks exchange large messages, so that outboxes are full of data and mapped; when stdin of rank 0 ends, rank 0 dies by
 * abort(), which dumps core where that is allowed. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES (4 << 20)

int main(int argc, char **argv)
{
    int rank, size, word = 0;
    char *out = calloc(BYTES, 1), *in = calloc(BYTES, 1);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int shift = 1; shift < size; shift++)
        MPI_Sendrecv(out, BYTES, MPI_BYTE, (rank + shift) % size, 1, in, BYTES, MPI_BYTE, (rank + size - shift) % size, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ready %ld\n", (long)getpid());
        fflush(stdout);
        while (getchar() != EOF) {
        }
        abort();
    }
    MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
