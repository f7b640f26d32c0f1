/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3
/* A program that makes and frees communicators for ever takes no more memory with time: no number of an identity is lost, and none
 * is stored one by one. A word lost for each communicator would be 72,000 bytes in each batch of rounds. */
#include "growth.h"

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

int main(void)
{
    int failed;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    failed = ends_growing(rank, make_and_free, 3000);
    MPI_Finalize();
    return failed;
}
