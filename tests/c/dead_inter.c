/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 5 8
/* Intercommunicators of which members have died: rows AK9, AG9, SH10, DY6, CC1, PP8 and PP10 of docs/dev/semantics.md. The even ranks are one
 * group, the odd ones the other. The highest rank dies in each round; where it dies in the middle of a creation,
 * tests/deaths/inter_deaths.c shows. */
#include "deaths.h"

#include <mpi-ext.h>

enum { TAG = 7 };

static int side(void)
{
    return rank % 2;
}

static int members(int of_side, int of_ranks)
{
    return of_side ? of_ranks / 2 : (of_ranks + 1) / 2;
}

/* The groups of the living ranks, which have lost nobody. */
static MPI_Comm connected(MPI_Comm living, MPI_Comm *local)
{
    MPI_Comm made = MPI_COMM_WORLD;
    expect("split", MPI_Comm_split(living, side(), rank, local), MPI_SUCCESS);
    expect("create", MPI_Intercomm_create(*local, 0, living, 1 - side(), TAG, &made), MPI_SUCCESS);
    return made;
}

/* Rows PP8, PP10 and AK9: a death in the other group is pending for a receive from any of it, one in the own group is not. */
static void a_receive_from_any_waits_for_the_other_group(MPI_Comm inter, int lost, MPI_Request *posted)
{
    int flag = -1, count = -1, value = -1, mine = lost % 2 == side(), all = members(0, ranks) + members(1, ranks);
    MPI_Group failed, world;
    int at = -1, zero = 0;
    expect("who died is known", known(inter), 1);
    MPI_Comm_get_failed(inter, &failed);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(failed, 1, &zero, world, &at);
    expect("it is that one", at, lost);
    MPI_Group_free(&failed);
    MPI_Group_free(&world);
    expect("a test", class_of(MPI_Test(posted, &flag, MPI_STATUS_IGNORE)), mine ? MPI_SUCCESS : MPI_ERR_PROC_FAILED_PENDING);
    expect("is not over", flag, 0);
    if (!mine) {
        expect("a receive from the dead", class_of(MPI_Recv(&value, 1, MPI_INT, lost / 2, TAG, inter, MPI_STATUS_IGNORE)),
               MPI_ERR_PROC_FAILED);
        expect("a synchronous send to it", class_of(MPI_Ssend(&value, 1, MPI_INT, lost / 2, TAG, inter)), MPI_ERR_PROC_FAILED);
        expect("another from any", class_of(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG + 1, inter, MPI_STATUS_IGNORE)),
               MPI_ERR_PROC_FAILED);
    }
    expect("more than there are", class_of(MPI_Comm_ack_failed(inter, all + 1, &count)), MPI_ERR_ARG);
    expect("ack_failed", MPI_Comm_ack_failed(inter, all, &count), MPI_SUCCESS);
    expect("is acknowledged", count, 1);
    meet();
    /* Each of the first ones of both groups sends to all of the other group. */
    if (rank < 2)
        for (int to = 0; to < members(1 - side(), alive); to++)
            expect("a send", MPI_Send(&rank, 1, MPI_INT, to, TAG, inter), MPI_SUCCESS);
    expect("the receive goes on", MPI_Wait(posted, MPI_STATUS_IGNORE), MPI_SUCCESS);
}

/* Row AG9: the flag is that of the other group, and the error the same in both, until all have acknowledged. */
static void an_agreement_names_the_dead_in_both_groups(MPI_Comm dup)
{
    int flag = side() ? 6 : 3, count = -1;
    expect("agree", class_of(MPIX_Comm_agree(dup, &flag)), MPI_ERR_PROC_FAILED);
    expect("its flag", flag, side() ? 3 : 6);
    MPI_Comm_ack_failed(dup, 1, &count);
    flag = side() ? 6 : 3;
    expect("agree on what is known", MPIX_Comm_agree(dup, &flag), MPI_SUCCESS);
    expect("its flag", flag, side() ? 3 : 6);
}

/* Rows DY6 and CC1 */
static void nothing_is_made_with_the_dead(MPI_Comm inter, MPI_Comm local, int lost)
{
    MPI_Comm made = MPI_COMM_WORLD;
    expect("merge", class_of(MPI_Intercomm_merge(inter, side(), &made)), MPI_ERR_PROC_FAILED);
    expect("its handle", made == MPI_COMM_NULL, 1);
    made = MPI_COMM_WORLD;
    expect("dup", class_of(MPI_Comm_dup(inter, &made)), MPI_ERR_PROC_FAILED);
    expect("its handle", made == MPI_COMM_NULL, 1);
    /* Of the group with the dead the leader alone calls: the others have left for recovery. */
    if (lost % 2 != side() || rank < 2) {
        made = MPI_COMM_WORLD;
        expect("create", class_of(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - side(), TAG, &made)),
               MPI_ERR_PROC_FAILED);
        expect("its handle", made == MPI_COMM_NULL, 1);
    }
}

/* Row SH10: returns the living part; MPI_COMM_NULL if a group has lost its last member. */
static MPI_Comm shrunk(MPI_Comm inter)
{
    MPI_Comm made = MPI_COMM_WORLD;
    int size = -1, remote = -1, one = members(1, alive) > 0;
    expect("shrink", MPIX_Comm_shrink(inter, &made), MPI_SUCCESS);
    expect("both groups have members", made != MPI_COMM_NULL, one);
    if (one) {
        MPI_Comm_size(made, &size);
        MPI_Comm_remote_size(made, &remote);
        expect("the size", size, members(side(), alive));
        expect("the remote size", remote, members(1 - side(), alive));
        MPI_Comm_rank(made, &size);
        expect("the rank", size, rank / 2);
    }
    return made;
}

/* Row DY6: a shrunken intercommunicator can be merged, time after time. */
static void it_can_be_merged(MPI_Comm inter)
{
    MPI_Comm merged = MPI_COMM_NULL;
    int place = -1, sum = 1;
    expect("merge", MPI_Intercomm_merge(inter, side(), &merged), MPI_SUCCESS);
    MPI_Comm_rank(merged, &place);
    expect("the place", place, rank / 2 + (side() ? members(0, alive) : 0));
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, merged);
    expect("all are in it", sum, alive);
    MPI_Comm_free(&merged);
}

int main(void)
{
    MPI_Comm inter, local, dup, next;
    MPI_Request posted;
    int value = -1;
    begin();
    inter = connected(MPI_COMM_WORLD, &local);
    expect("dup", MPI_Comm_dup(inter, &dup), MPI_SUCCESS);
    expect("post", MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, inter, &posted), MPI_SUCCESS);
    meet();
    lose_one();
    a_receive_from_any_waits_for_the_other_group(inter, alive, &posted);
    an_agreement_names_the_dead_in_both_groups(dup);
    nothing_is_made_with_the_dead(inter, local, alive);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&local);
    while (alive > 1) {
        next = shrunk(inter);
        MPI_Comm_free(&inter);
        inter = next;
        it_can_be_merged(inter);
        meet();
        lose_one();
    }
    expect("the last is alone", shrunk(inter) == MPI_COMM_NULL, 1);
    MPI_Comm_free(&inter);
    return end();
}
