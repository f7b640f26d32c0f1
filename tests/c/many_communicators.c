/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3
/* A program that makes and frees communicators for ever takes no more memory with time: no number of an identity is lost, and none
 * is stored one by one. */
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>

/* A word lost for each communicator would be 72,000 bytes in each batch of rounds. Tables grow up to the largest number of communicators
 * that wait for another rank's confirmation at one time: on a loaded machine it may take some batches to see that number. */
enum { BATCHES = 20, ROUNDS = 3000, ALLOWED = 8192 };

static int rank;

static void make_and_free(int round)
{
    MPI_Comm duplicate, part, own;
    MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
    MPI_Comm_split(duplicate, round % 2 ? rank % 2 : 0, -rank, &part);
    MPI_Comm_dup(MPI_COMM_SELF, &own);
    /* Otherwise a rank that names what it makes would run ahead of those that answer. */
    MPI_Barrier(duplicate);
    MPI_Comm_free(&duplicate);
    MPI_Comm_free(&part);
    MPI_Comm_free(&own);
}

/* Whether a batch of rounds has made the memory of some rank grow. */
static int a_batch_grows(void)
{
    size_t before = mallinfo2().uordblks, after;
    int grows, some_grow;
    for (int round = 0; round < ROUNDS; round++)
        make_and_free(round);
    MPI_Barrier(MPI_COMM_WORLD);
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
