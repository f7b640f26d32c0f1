/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Every pair of ranks exchanges messages of all sizes up to 1 MiB; every byte is checked. If memory does not suffice, MPI says
 * so, by an error class or by ending the job; nobody is killed by a signal. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (1 << 20)

static unsigned char pattern(int from, int to, int at) { return (unsigned char)(from * 31 + to * 7 + at); }

int main(int argc, char **argv)
{
    int rank, size, errors = 0, total = 0;
    unsigned char *out = malloc(LARGEST), *in = malloc(LARGEST);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int bytes = 1; bytes <= LARGEST; bytes *= 4) {
        for (int shift = 0; shift < size; shift++) {
            int to = (rank + shift) % size, from = (rank + size - shift) % size;
            for (int i = 0; i < bytes; i++)
                out[i] = pattern(rank, to, i);
            MPI_Sendrecv(out, bytes, MPI_BYTE, to, 1, in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < bytes; i++)
                errors += in[i] != pattern(from, rank, i);
        }
    }
    MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(total == 0 ? "No errors\n" : "%d wrong bytes\n", total);
    MPI_Finalize();
    free(out);
    free(in);
    return total != 0;
}
