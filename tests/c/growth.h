/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The body of a program that repeats one round for ever and must take no more memory with time. */
#ifndef GROWTH_H
#define GROWTH_H

#include <malloc.h>
#include <mpi.h>
#include <stdio.h>

/* Tables grow up to the largest number of communicators that wait for another rank's confirmation at one time: on a loaded machine it may
 * take some batches to see that number. ALLOWED: bytes that a batch may take. */
enum { BATCHES = 20, ALLOWED = 8192 };

/* Whether a batch of rounds has made the memory of some rank grow. */
static int a_batch_grows(void (*round)(int), int rounds)
{
    size_t before = mallinfo2().uordblks, after;
    int grows, some_grow;
    for (int i = 0; i < rounds; i++)
        round(i);
    MPI_Barrier(MPI_COMM_WORLD);
    after = mallinfo2().uordblks;
    grows = after > before + ALLOWED;
    MPI_Allreduce(&grows, &some_grow, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return some_grow;
}

/* Repeats batches of rounds until one takes no more memory; the first may. Returns what main returns. */
static int ends_growing(int rank, void (*round)(int), int rounds)
{
    int batch = 0;
    a_batch_grows(round, rounds);
    while (batch < BATCHES && a_batch_grows(round, rounds))
        batch++;
    if (rank == 0 && batch == BATCHES)
        fprintf(stderr, "each of %d batches takes more memory, now %zu bytes\n", BATCHES, (size_t)mallinfo2().uordblks);
    if (rank == 0 && batch < BATCHES)
        printf("No errors\n");
    return batch == BATCHES;
}

#endif
