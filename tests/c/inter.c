/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* Intercommunicators without failures: creation, messages, repair calls, merging, and what is refused. */
#include "expect.h"

#include <mpi-ext.h>
#include <stdlib.h>

enum { TAG = 7, LONG = 100000, MANY = 30 };
static int ranks, evens, odds;
static int out[LONG], in[LONG];

/* The even ranks and the odd ones; the leaders are the last of each. Rank r of WORLD is rank r / 2 of its group. */
static MPI_Comm make(MPI_Comm *local)
{
    MPI_Comm made = MPI_COMM_WORLD;
    int odd = rank % 2, leader = (odd ? odds : evens) - 1, other = odd ? 2 * (evens - 1) : 2 * (odds - 1) + 1;
    expect("split", MPI_Comm_split(MPI_COMM_WORLD, odd, rank, local), MPI_SUCCESS);
    expect("create", MPI_Intercomm_create(*local, leader, MPI_COMM_WORLD, other, TAG, &made), MPI_SUCCESS);
    return made;
}

static int others(void)
{
    return rank % 2 ? evens : odds;
}

static int ours(void)
{
    return rank % 2 ? odds : evens;
}

/* A value for that of a process of the other group. */
static int exchanged(int value, MPI_Comm inter)
{
    int got = -1;
    expect("an exchange", MPI_Sendrecv(&value, 1, MPI_INT, 0, TAG, &got, 1, MPI_INT, 0, TAG, inter, MPI_STATUS_IGNORE),
           MPI_SUCCESS);
    return got;
}

static void it_has_two_groups(MPI_Comm inter, MPI_Comm local)
{
    int got = -1, first = 0, at = -1;
    MPI_Group group, remote, world;
    expect("test_inter", MPI_Comm_test_inter(inter, &got), MPI_SUCCESS);
    expect("is one", got, 1);
    MPI_Comm_test_inter(local, &got);
    expect("is none", got, 0);
    MPI_Comm_size(inter, &got);
    expect("size", got, ours());
    MPI_Comm_rank(inter, &got);
    expect("rank", got, rank / 2);
    expect("remote_size", MPI_Comm_remote_size(inter, &got), MPI_SUCCESS);
    expect("its value", got, others());
    expect("remote_size of an intracommunicator", class_of(MPI_Comm_remote_size(local, &got)), MPI_ERR_COMM);
    MPI_Comm_group(inter, &group);
    MPI_Comm_remote_group(inter, &remote);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_translate_ranks(group, 1, &first, world, &at);
    expect("the first of the local group", at, rank % 2);
    MPI_Group_translate_ranks(remote, 1, &first, world, &at);
    expect("the first of the remote group", at, 1 - rank % 2);
    MPI_Group_free(&group);
    MPI_Group_free(&remote);
    MPI_Group_free(&world);
}

static void it_is_compared_by_both_groups(MPI_Comm inter, MPI_Comm local)
{
    MPI_Comm dup;
    int got = -1;
    MPI_Comm_compare(inter, inter, &got);
    expect("itself", got, MPI_IDENT);
    MPI_Comm_compare(inter, local, &got);
    expect("the local communicator", got, MPI_UNEQUAL);
    expect("dup", MPI_Comm_dup(inter, &dup), MPI_SUCCESS);
    MPI_Comm_compare(inter, dup, &got);
    expect("a duplicate", got, MPI_CONGRUENT);
    MPI_Comm_test_inter(dup, &got);
    expect("a duplicate is one, too", got, 1);
    if (rank / 2 == 0)
        expect("what came over it", exchanged(rank, dup), 1 - rank % 2);
    expect("free", MPI_Comm_free(&dup), MPI_SUCCESS);
}

/* Each process sends to each of the other group, in all modes, and receives from any source. */
static void messages_name_ranks_of_the_remote_group(MPI_Comm inter)
{
    MPI_Request *requests = malloc((size_t)others() * 3 * sizeof *requests);
    int got = -1, count = 0;
    MPI_Status status;
    for (int to = 0; to < others(); to++) {
        MPI_Isend(&rank, 1, MPI_INT, to, 1, inter, &requests[count++]);
        MPI_Issend(&rank, 1, MPI_INT, to, 2, inter, &requests[count++]);
        MPI_Isend(out, LONG, MPI_INT, to, 3, inter, &requests[count++]);
    }
    for (int from = 0; from < others(); from++) {
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 1, inter, &status);
        expect("the source of any", got / 2, status.MPI_SOURCE);
        expect("is of the other group", got % 2, 1 - rank % 2);
        MPI_Probe(from, 2, inter, &status);
        expect("a probed source", status.MPI_SOURCE, from);
        MPI_Recv(&got, 1, MPI_INT, from, 2, inter, &status);
        expect("from a named one", got, 2 * from + 1 - rank % 2);
        in[LONG - 1] = -1;
        MPI_Recv(in, LONG, MPI_INT, from, 3, inter, MPI_STATUS_IGNORE);
        expect("the last of many", in[LONG - 1], LONG - 1);
    }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    free(requests);
    expect("a rank beyond the remote group", class_of(MPI_Send(&got, 1, MPI_INT, others(), 1, inter)), MPI_ERR_RANK);
    expect("no process", MPI_Send(&got, 1, MPI_INT, MPI_PROC_NULL, 1, inter), MPI_SUCCESS);
}

/* Row AG9 */
static void each_group_gets_the_flags_of_the_other(MPI_Comm inter)
{
    int flag = rank % 2 ? 6 : 3;
    MPI_Request request;
    expect("agree", MPIX_Comm_agree(inter, &flag), MPI_SUCCESS);
    expect("the flag of the others", flag, rank % 2 ? 3 : 6);
    flag = rank < 2 ? 0 : 1;
    expect("iagree", MPIX_Comm_iagree(inter, &flag, &request), MPI_SUCCESS);
    expect("its end", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("one of them said no", flag, 0);
}

/* MPI-5.0 §7.6.2 */
static void merging_orders_the_groups(MPI_Comm inter)
{
    for (int high = 0; high < 4; high++) {
        int mine = rank % 2 ? high & 1 : high >> 1, got = -1, one = 1, evens_first = high != 2, wanted;
        MPI_Comm merged = MPI_COMM_NULL;
        expect("merge", MPI_Intercomm_merge(inter, mine, &merged), MPI_SUCCESS);
        MPI_Comm_rank(merged, &got);
        wanted = rank / 2 + (rank % 2 == evens_first ? others() : 0);
        expect("rank in the merged one", got, wanted);
        MPI_Comm_test_inter(merged, &got);
        expect("the merged one is none", got, 0);
        MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, merged);
        expect("all are in it", one, ranks);
        MPI_Comm_free(&merged);
    }
}

/* Row SH10 */
static void a_shrink_without_failures_is_congruent(MPI_Comm inter)
{
    MPI_Comm shrunk = MPI_COMM_NULL;
    int got = -1;
    expect("shrink", MPIX_Comm_shrink(inter, &shrunk), MPI_SUCCESS);
    MPI_Comm_compare(inter, shrunk, &got);
    expect("congruent", got, MPI_CONGRUENT);
    if (rank / 2 == 0)
        expect("what came over it", exchanged(rank, shrunk), 1 - rank % 2);
    expect("disconnect", MPI_Comm_disconnect(&shrunk), MPI_SUCCESS);
}

static void what_is_not_supported_is_refused(MPI_Comm inter)
{
    int value = 1, sum = 0;
    MPI_Comm made = MPI_COMM_WORLD;
    MPI_Group group;
    MPI_Comm_group(inter, &group);
    expect("Barrier", class_of(MPI_Barrier(inter)), MPI_ERR_COMM);
    expect("Allreduce", class_of(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter)), MPI_ERR_COMM);
    expect("Bcast", class_of(MPI_Bcast(&value, 1, MPI_INT, 0, inter)), MPI_ERR_COMM);
    expect("split", class_of(MPI_Comm_split(inter, 0, 0, &made)), MPI_ERR_COMM);
    expect("its handle", made == MPI_COMM_NULL, 1);
    expect("create", class_of(MPI_Comm_create(inter, group, &made)), MPI_ERR_COMM);
    expect("create_group", class_of(MPI_Comm_create_group(inter, group, 1, &made)), MPI_ERR_COMM);
    expect("merge of an intracommunicator", class_of(MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &made)), MPI_ERR_COMM);
    expect("one of an intercommunicator", class_of(MPI_Intercomm_create(inter, 0, MPI_COMM_WORLD, 0, TAG, &made)),
           MPI_ERR_COMM);
    expect("a leader beyond the group", class_of(MPI_Intercomm_create(MPI_COMM_SELF, 1, MPI_COMM_WORLD, 0, TAG, &made)),
           MPI_ERR_RANK);
    expect("both leaders are one", class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, rank, TAG, &made)),
           MPI_ERR_COMM);
    expect("another leader beyond", class_of(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, ranks, TAG, &made)),
           MPI_ERR_RANK);
    expect("no handle", made == MPI_COMM_NULL, 1);
    MPI_Group_free(&group);
}

/* The calls of two processes pair in their order, also if one side never saw the other's earlier ones. */
static void pairs_of_processes_connect_again_and_again(void)
{
    for (int at = 0; at < MANY && rank < 2; at++) {
        MPI_Comm pair = MPI_COMM_NULL;
        expect("a pair", MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, at % 2, &pair), MPI_SUCCESS);
        expect("its message", exchanged(at, pair), at);
        MPI_Comm_free(&pair);
    }
}

/* Row CC1: whoever has a revoked communicator gives up, and the other side is told; what was said in that call is not taken for the next. */
static void a_call_that_gave_up_leaves_nothing_to_the_next(void)
{
    MPI_Comm own, pair;
    MPI_Comm_dup(MPI_COMM_SELF, &own);
    if (rank == 0)
        MPIX_Comm_revoke(own);
    for (int at = 0; at < MANY && rank < 2; at++) {
        pair = MPI_COMM_WORLD;
        expect("a revoked side", class_of(MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - rank, TAG, &pair)), MPI_ERR_REVOKED);
        expect("its handle", pair == MPI_COMM_NULL, 1);
        if (at % 3)
            continue;
        expect("the next", MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - rank, TAG, &pair), MPI_SUCCESS);
        expect("its message", exchanged(at, pair), at);
        MPI_Comm_free(&pair);
    }
    MPI_Comm_free(&own);
}

/* Row RV4: also the side on which nobody revoked it. */
static void revoking_reaches_both_groups(MPI_Comm inter)
{
    int got = -1, flag = 1, revoked = 0;
    MPI_Comm shrunk = MPI_COMM_NULL;
    if (rank == 0)
        expect("revoke", MPIX_Comm_revoke(inter), MPI_SUCCESS);
    else
        expect("a receive", class_of(MPI_Recv(&got, 1, MPI_INT, 0, TAG + 9, inter, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
    MPIX_Comm_is_revoked(inter, &revoked);
    expect("is revoked", revoked, 1);
    expect("agree works", MPIX_Comm_agree(inter, &flag), MPI_SUCCESS);
    expect("merge does not", class_of(MPI_Intercomm_merge(inter, 0, &shrunk)), MPI_ERR_REVOKED);
    expect("shrink does", MPIX_Comm_shrink(inter, &shrunk), MPI_SUCCESS);
    MPIX_Comm_is_revoked(shrunk, &revoked);
    expect("is usable", revoked, 0);
    MPI_Comm_free(&shrunk);
}

int main(int argc, char **argv)
{
    MPI_Comm inter, local;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    evens = (ranks + 1) / 2;
    odds = ranks / 2;
    for (int at = 0; at < LONG; at++)
        out[at] = at;
    inter = make(&local);
    it_has_two_groups(inter, local);
    it_is_compared_by_both_groups(inter, local);
    messages_name_ranks_of_the_remote_group(inter);
    each_group_gets_the_flags_of_the_other(inter);
    merging_orders_the_groups(inter);
    a_shrink_without_failures_is_congruent(inter);
    what_is_not_supported_is_refused(inter);
    pairs_of_processes_connect_again_and_again();
    a_call_that_gave_up_leaves_nothing_to_the_next();
    for (int at = 0; at < MANY; at++) {
        MPI_Comm again_local, again = make(&again_local);
        expect("disconnect", MPI_Comm_disconnect(&again), MPI_SUCCESS);
        MPI_Comm_free(&again_local);
    }
    revoking_reaches_both_groups(inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        puts("No errors");
    return errors ? 120 : 0;
}
