/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* A program that makes and frees intercommunicators for ever, with a tag of its own for each, takes no more memory with time. */
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>

/* Tables grow up to the largest number of communicators that wait for another rank's confirmation at one time: on a loaded machine it may
 * take some batches to see that number. */
enum { BATCHES = 20, ROUNDS = 1000, ALLOWED = 8192 };

static int rank, tag;
static MPI_Comm local;

static int a_batch_grows(void)
{
    size_t before = mallinfo2().uordblks, after;
    int grows, some_grow;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm inter;
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, tag++, &inter);
        MPI_Comm_free(&inter);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    after = mallinfo2().uordblks;
    grows = after > before + ALLOWED;
    MPI_Allreduce(&grows, &some_grow, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return some_grow;
}

int main(void)
{
    int batch = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank != 0, rank, &local);
    a_batch_grows();
    while (batch < BATCHES && a_batch_grows())
        batch++;
    if (rank == 0 && batch == BATCHES)
        fprintf(stderr, "each of %d batches takes more memory, now %zu bytes\n", BATCHES, (size_t)mallinfo2().uordblks);
    if (rank == 0 && batch < BATCHES)
        printf("No errors\n");
    MPI_Finalize();
    return batch == BATCHES;
}
