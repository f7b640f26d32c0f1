/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 5
/* Communicators: dup, split, compare, names, attributes; messages on one never match receives on another. */
#include "expect.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int ranks;

static int compared(MPI_Comm one, MPI_Comm other)
{
    int result = -1;
    MPI_Comm_compare(one, other, &result);
    return result;
}

static void kinds(void)
{
    MPI_Comm dup, odd, backwards, nobody;
    int size = -1, mine = -1, flag = -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    expect("WORLD and itself", compared(MPI_COMM_WORLD, MPI_COMM_WORLD), MPI_IDENT);
    expect("WORLD and its dup", compared(MPI_COMM_WORLD, dup), MPI_CONGRUENT);
    MPI_Comm_split(dup, rank % 2, 0, &odd);
    MPI_Comm_size(odd, &size);
    MPI_Comm_rank(odd, &mine);
    expect("the size of half", size, rank % 2 ? ranks / 2 : (ranks + 1) / 2);
    expect("our rank in it", mine, rank / 2);
    MPI_Comm_split(MPI_COMM_WORLD, 3, -rank, &backwards);
    MPI_Comm_rank(backwards, &mine);
    expect("our rank backwards", mine, ranks - 1 - rank);
    expect("WORLD and backwards", compared(MPI_COMM_WORLD, backwards), ranks == 1 ? MPI_CONGRUENT : MPI_SIMILAR);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 0 : MPI_UNDEFINED, 0, &nobody);
    expect("those without a color get none", nobody != MPI_COMM_NULL, rank == 0);
    if (nobody != MPI_COMM_NULL)
        MPI_Comm_free(&nobody);
    MPI_Comm_test_inter(dup, &flag);
    expect("it is no intercommunicator", flag, 0);
    MPI_Comm_get_parent(&nobody);
    expect("nobody spawned us", nobody == MPI_COMM_NULL, 1);
    MPI_Comm_free(&backwards);
    MPI_Comm_free(&odd);
    MPI_Comm_free(&dup);
}

static void names_and_attributes(void)
{
    MPI_Comm dup;
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1, flag = -1, *value = NULL;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    expect("the name of WORLD", strcmp(name, "MPI_COMM_WORLD"), 0);
    MPI_Comm_dup(MPI_COMM_SELF, &dup);
    MPI_Comm_get_name(dup, name, &length);
    expect("a new one has no name", length, 0);
    MPI_Comm_set_name(dup, "Terry");
    MPI_Comm_get_name(dup, name, &length);
    expect("its name", strcmp(name, "Terry"), 0);
    expect("its length", length, 5);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    expect("the largest tag", flag && *value == 2147483647, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag);
    expect("whether clocks are one", flag && *value == 0, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    expect("who does I/O", flag, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &value, &flag);
    expect("who is the host", flag && *value == MPI_PROC_NULL, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag);
    expect("the size of the universe", flag && *value == ranks, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag);
    expect("the last used code", flag && *value == MPI_ERR_LASTCODE, 1);
    MPI_Comm_free(&dup);
}

/* The same source and tag on three communicators, received in another order than sent. */
static void apart(void)
{
    MPI_Comm comms[3];
    MPI_Request requests[3];
    int sent[3], received[3] = {-1, -1, -1}, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_dup(comms[1], &comms[2]);
    for (int i = 0; i < 3; i++) {
        sent[i] = rank * 10 + i;
        MPI_Isend(&sent[i], 1, MPI_INT, to, 7, comms[i], &requests[i]);
    }
    for (int i = 2; i >= 0; i--)
        MPI_Recv(&received[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i], MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++)
        expect("what came on a communicator", received[i], from * 10 + i);
    MPI_Comm_free(&comms[2]);
    MPI_Comm_free(&comms[1]);
}

static void many(void)
{
    for (int i = 0; i < 200; i++) {
        MPI_Comm comm;
        int size = -1;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_size(comm, &size);
        expect("the size of one of many", size, ranks);
        MPI_Comm_free(&comm);
    }
}

int main(void)
{
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    kinds();
    names_and_attributes();
    apart();
    many();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
