/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4
/* Row LC7: ten thousand times revoke, agree, shrink and free take no memory and no descriptor. One rank dies before, so that each
 * shrink leaves a failed process out of a parent that has one (with 2 ranks and more). */
#include "deaths.h"

#include <dirent.h>
#include <malloc.h>
#include <mpi-ext.h>

/* A word that is lost in each shrink would be 16,000 bytes in a batch. Tables may grow in some batches: to the largest number of
 * communicators of which other members have not confirmed yet that they stopped using them. */
enum { BATCHES = 5, ROUNDS = 2000, ALLOWED = 8192 };

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* One recovery of `comm`, which has a failed member. */
static void recover(MPI_Comm comm, int round)
{
    MPI_Comm child, shrunk;
    int flag = 3, size = -1, one = 1, sum = 0;
    expect("shrink", MPIX_Comm_shrink(comm, &child), MPI_SUCCESS);
    MPI_Comm_size(child, &size);
    expect("the survivors", size, alive);
    if (rank == round % alive)
        MPIX_Comm_revoke(child);
    expect("agree", MPIX_Comm_agree(child, &flag), MPI_SUCCESS);
    expect("its flag", flag, 3);
    expect("shrink again", MPIX_Comm_shrink(child, &shrunk), MPI_SUCCESS);
    expect("a sum", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, shrunk), MPI_SUCCESS);
    expect("its result", sum, alive);
    MPI_Comm_free(&child);
    MPI_Comm_free(&shrunk);
}

/* Whether no rank's memory has grown in a batch. */
static int a_batch_takes_none(MPI_Comm comm)
{
    size_t before = mallinfo2().uordblks;
    int steady;
    for (int round = 0; round < ROUNDS; round++)
        recover(comm, round);
    steady = mallinfo2().uordblks <= before + ALLOWED;
    MPIX_Comm_failure_ack(comm);
    expect("agree on the memory", MPIX_Comm_agree(comm, &steady), MPI_SUCCESS);
    return steady;
}

int main(void)
{
    int open_before, steady = 0;
    begin();
    if (ranks > 1)
        lose_one();
    a_batch_takes_none(MPI_COMM_WORLD);
    open_before = descriptors();
    for (int batch = 1; batch < BATCHES; batch++)
        steady += a_batch_takes_none(MPI_COMM_WORLD);
    expect("batches that take no memory", steady > 0, 1);
    expect("descriptors", descriptors(), open_before);
    return end();
}
