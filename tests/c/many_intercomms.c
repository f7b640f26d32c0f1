/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* A program that makes and frees intercommunicators for ever, with a tag of its own for each, takes no more memory with time. */
#include "growth.h"

static int rank, tag;
static MPI_Comm local;

static void make_and_free(int round)
{
    MPI_Comm inter;
    (void)round;
    MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, tag++, &inter);
    MPI_Comm_free(&inter);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(void)
{
    int failed;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank != 0, rank, &local);
    failed = ends_growing(rank, make_and_free, 1000);
    MPI_Finalize();
    return failed;
}
