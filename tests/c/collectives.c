/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3 4 7
/* The collective operations of this version, from every root, in place and not, with types of several sizes. */
#include "expect.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ranks;

static void rooted(int root, int count)
{
    int *mine = malloc(sizeof *mine * count), *all = malloc(sizeof *all * count * ranks), sum = ranks * (ranks - 1) / 2;
    for (int i = 0; i < count; i++)
        mine[i] = rank == root ? i : -1;
    MPI_Bcast(mine, count, MPI_INT, root, MPI_COMM_WORLD);
    expect("Bcast", mine[count - 1], count - 1);
    for (int i = 0; i < count; i++)
        mine[i] = rank * 1000 + i;
    MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < ranks * count; i++)
        expect("Gather", all[i], i / count * 1000 + i % count);
    for (int i = 0; i < ranks * count; i++)
        all[i] = root * 7 + i;
    MPI_Scatter(all, count, MPI_INT, rank == root ? MPI_IN_PLACE : mine, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; rank != root && i < count; i++)
        expect("Scatter", mine[i], root * 7 + rank * count + i);
    for (int i = 0; i < count; i++)
        mine[i] = rank + i;
    MPI_Reduce(rank == root ? MPI_IN_PLACE : mine, mine, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < count; i++)
        expect("Reduce in place", mine[i], sum + ranks * i);
    free(mine);
    free(all);
}

static void unrooted(int count)
{
    double *mine = malloc(sizeof *mine * count), *result = malloc(sizeof *result * count);
    long *from = malloc(sizeof *from * count * ranks), *to = malloc(sizeof *to * count * ranks);
    for (int i = 0; i < count; i++)
        mine[i] = rank + i * 0.5;
    MPI_Allreduce(mine, result, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    expect("Allreduce of maxima", result[count - 1] == ranks - 1 + (count - 1) * 0.5, 1);
    MPI_Allreduce(MPI_IN_PLACE, mine, count, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    expect("Allreduce of minima in place", mine[count - 1] == (count - 1) * 0.5, 1);
    for (int i = 0; i < count * ranks; i++) {
        from[i] = rank * 100000L + i;
        to[i] = -1;
    }
    MPI_Alltoall(from, count, MPI_LONG, to, count, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++)
        expect("Alltoall", to[i], i / count * 100000L + rank * count + i % count);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, from, count, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++)
        expect("Alltoall in place", from[i], to[i]);
    MPI_Allgather(from, count, MPI_LONG, to, count, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < count * ranks; i++)
        expect("Allgather", to[i], i);
    free(mine);
    free(result);
    free(from);
    free(to);
}

static void locations(void)
{
    struct { double value; int index; } mine = {(rank * 3) % 5, rank}, best;
    int bits = 1 << rank, all = 0, best_rank = 0;
    for (int i = 0; i < ranks; i++)
        if (i * 3 % 5 > best_rank * 3 % 5)
            best_rank = i;
    MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    expect("where the maximum is", best.index, best_rank);
    MPI_Allreduce(&bits, &all, 1, MPI_INT, MPI_BOR, MPI_COMM_WORLD);
    expect("everybody's bit", all, (1 << ranks) - 1);
}

int main(void)
{
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int root = 0; root < ranks; root++) {
        rooted(root, 1);
        rooted(root, 3000);
    }
    unrooted(1);
    unrooted(5000);
    locations();
    for (int i = 0; i < 100; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
