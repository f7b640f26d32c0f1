/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 4 7
/* Groups, operations on them (MPI-5.0 §7.3), and communicators made from groups. */
#include "expect.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ranks;

static int size_of(MPI_Group group)
{
    int size = -1;
    MPI_Group_size(group, &size);
    return size;
}

static int compared(MPI_Group one, MPI_Group other)
{
    int result = -1;
    MPI_Group_compare(one, other, &result);
    return result;
}

static void sets(MPI_Group world)
{
    MPI_Group low, high, both, common, rest, reversed, empty, stride;
    int half = ranks / 2, *list = malloc(sizeof *list * ranks), *there = malloc(sizeof *there * ranks);
    for (int i = 0; i < ranks; i++)
        list[i] = ranks - 1 - i;
    MPI_Group_incl(world, ranks, list, &reversed);
    expect("everybody backwards", compared(world, reversed), ranks == 1 ? MPI_IDENT : MPI_SIMILAR);
    MPI_Group_translate_ranks(world, ranks, list, reversed, there);
    for (int i = 0; i < ranks; i++)
        expect("a rank in the reversed group", there[i], i);
    int low_range[1][3] = {{0, half, 1}}, high_range[1][3] = {{ranks - 1, half, -1}}, steps[1][3] = {{0, ranks - 1, 2}};
    MPI_Group_range_incl(world, 1, low_range, &low);
    MPI_Group_range_incl(world, 1, high_range, &high);
    MPI_Group_range_excl(world, 1, steps, &stride);
    expect("the odd ones", size_of(stride), ranks / 2);
    MPI_Group_union(low, high, &both);
    MPI_Group_intersection(low, high, &common);
    MPI_Group_difference(low, high, &rest);
    expect("size of the union", size_of(both), ranks);
    expect("size of the intersection", size_of(common), 1);
    expect("size of the difference", size_of(rest), half);
    MPI_Group_difference(low, low, &empty);
    expect("an empty group is the empty group", empty == MPI_GROUP_EMPTY, 1);
    MPI_Group_rank(rest, &there[0]);
    expect("our rank in the difference", there[0], rank < half ? rank : MPI_UNDEFINED);
    int asked[2] = {0, MPI_PROC_NULL}, answered[2] = {-9, -9};
    MPI_Group_translate_ranks(world, 2, asked, MPI_GROUP_EMPTY, answered);
    expect("a rank in the empty group", answered[0], MPI_UNDEFINED);
    expect("nobody stays nobody", answered[1], MPI_PROC_NULL);
    int wild[2] = {0, 0};
    MPI_Group bad;
    expect("a rank named twice", MPI_Group_incl(world, 2, wild, &bad), MPI_ERR_RANK);
    wild[0] = ranks;
    expect("a rank too high", MPI_Group_excl(world, 1, wild, &bad), MPI_ERR_RANK);
    MPI_Group *all[] = {&low, &high, &both, &common, &rest, &reversed, &empty, &stride};
    for (int i = 0; i < 8; i++)
        expect("freeing a group", MPI_Group_free(all[i]), MPI_SUCCESS);
    expect("a freed group is null", low == MPI_GROUP_NULL, 1);
    free(list);
    free(there);
}

static void communicators(MPI_Group world)
{
    MPI_Group odd, back;
    MPI_Comm comm;
    int steps[1][3] = {{1, ranks - 1, 2}}, mine = -1, size = -1, sum = 0, in_order = -1;
    if (ranks == 1)
        return;
    MPI_Group_range_incl(world, 1, steps, &odd);
    MPI_Comm_create(MPI_COMM_WORLD, odd, &comm);
    expect("only members get it", comm != MPI_COMM_NULL, rank % 2);
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_rank(comm, &mine);
        MPI_Comm_size(comm, &size);
        expect("our rank in it", mine, rank / 2);
        expect("its size", size, ranks / 2);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect("the sum of the odd ranks", sum, (ranks / 2) * (ranks / 2));
        MPI_Comm_group(comm, &back);
        MPI_Group_compare(back, odd, &in_order);
        expect("its group", in_order, MPI_IDENT);
        MPI_Group_free(&back);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&odd);
}

int main(void)
{
    MPI_Group world;
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    sets(world);
    communicators(world);
    MPI_Group_free(&world);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
