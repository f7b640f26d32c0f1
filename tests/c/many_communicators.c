/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3
/* A program that makes and frees communicators for ever takes no more memory with time: no number of an identity is lost, and none
 * is stored one by one. */
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>

/* A word lost for each communicator would be 72,000 bytes. */
enum { ROUNDS = 3000, ALLOWED = 16384 };

static int errors, rank;

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

int main(void)
{
    size_t before, after;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < ROUNDS; round++)
        make_and_free(round);
    MPI_Barrier(MPI_COMM_WORLD);
    before = mallinfo2().uordblks;
    for (int round = 0; round < ROUNDS; round++)
        make_and_free(round);
    MPI_Barrier(MPI_COMM_WORLD);
    after = mallinfo2().uordblks;
    if (after > before + ALLOWED) {
        fprintf(stderr, "rank %d: %zu bytes in use, and %zu after as many communicators again\n", rank, before, after);
        errors++;
    }
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
