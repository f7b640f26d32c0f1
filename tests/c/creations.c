/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4 8
/* Calls that create communicators, without failures: who is a member, in which order, and what works meanwhile. */
#include "expect.h"

enum { TAG = 9, MANY = 20 };
static int ranks;

/* A communicator with `size` members in which this process is number `place` works, and messages on it match on no other. */
static void is_usable(MPI_Comm comm, int size, int place)
{
    int got = -1, one = 1, sum = -1, token = -1, next = (place + 1) % size, last = (place + size - 1) % size;
    MPI_Request other;
    MPI_Comm_size(comm, &got);
    expect("its size", got, size);
    MPI_Comm_rank(comm, &got);
    expect("its rank", got, place);
    expect("Allreduce", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    expect("its sum", sum, size);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &other);
    MPI_Sendrecv(&place, 1, MPI_INT, next, TAG, &token, 1, MPI_INT, last, TAG, comm, MPI_STATUS_IGNORE);
    expect("what came", token, last);
    MPI_Cancel(&other);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
}

/* MPI-5.0 §7.4.2: by key, and processes with the same key by their rank in the parent. */
static void a_split_is_ordered_by_key_and_then_by_rank(void)
{
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made);
    is_usable(made, ranks, ranks - 1 - rank);
    MPI_Comm_free(&made);
    MPI_Comm_split(MPI_COMM_WORLD, 5, 7, &made);
    is_usable(made, ranks, rank);
    MPI_Comm_free(&made);
    /* Even ranks behind odd ones. */
    MPI_Comm_split(MPI_COMM_WORLD, 1, rank % 2 ? -1 : 1, &made);
    is_usable(made, ranks, rank % 2 ? rank / 2 : ranks / 2 + rank / 2);
    MPI_Comm_free(&made);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &made);
    is_usable(made, rank / 2 * 2 + 1 < ranks ? 2 : 1, rank % 2);
    MPI_Comm_free(&made);
}

static void who_gives_no_color_gets_no_communicator(void)
{
    MPI_Comm made = MPI_COMM_WORLD;
    expect("split", MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 3, 0, &made), MPI_SUCCESS);
    expect("none without a color", made == MPI_COMM_NULL, rank == 0);
    if (rank != 0) {
        is_usable(made, ranks - 1, rank - 1);
        MPI_Comm_free(&made);
    }
    made = MPI_COMM_WORLD;
    expect("nobody has a color", MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &made), MPI_SUCCESS);
    expect("none at all", made == MPI_COMM_NULL, 1);
}

/* MPI-5.0 §7.4.2: all ranks are on one host. */
static void split_by_type(void)
{
    MPI_Comm made = MPI_COMM_WORLD;
    MPI_Info info;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &made);
    is_usable(made, ranks, ranks - 1 - rank);
    MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    expect("none without a type", made == MPI_COMM_NULL, rank == 0);
    if (rank != 0)
        MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, MPI_INFO_NULL, &made);
    expect("no smaller resource than the host", made == MPI_COMM_NULL, 1);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &made);
    is_usable(made, ranks, rank);
    MPI_Comm_free(&made);
    MPI_Info_free(&info);
    expect("no such type", class_of(MPI_Comm_split_type(MPI_COMM_WORLD, 4711, 0, MPI_INFO_NULL, &made)), MPI_ERR_ARG);
}

static MPI_Group group_of(int first, int last)
{
    MPI_Group world, group;
    int range[1][3] = {{first, last, 1}};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &group);
    MPI_Group_free(&world);
    return group;
}

/* All members of the parent call, also those that are not in the group. */
static void create_of_a_group(void)
{
    MPI_Comm made = MPI_COMM_WORLD;
    MPI_Group group = group_of(0, ranks / 2);
    MPI_Comm_create(MPI_COMM_WORLD, group, &made);
    expect("members of the group alone", made == MPI_COMM_NULL, rank > ranks / 2);
    if (made != MPI_COMM_NULL) {
        is_usable(made, ranks / 2 + 1, rank);
        MPI_Comm_free(&made);
    }
    MPI_Group_free(&group);
    MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &made);
    expect("nobody's", made == MPI_COMM_NULL, 1);
}

/* Each pair of neighbours creates its communicator: groups overlap, and only their members call. */
static void overlapping_groups_create_theirs_with_tags(void)
{
    MPI_Comm made[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    for (int round = 0; round < MANY; round++) {
        for (int lower = rank - 1; lower <= rank; lower++) {
            MPI_Group group;
            if (lower < 0 || lower + 1 >= ranks)
                continue;
            group = group_of(lower, lower + 1);
            expect("create_group", MPI_Comm_create_group(MPI_COMM_WORLD, group, lower, &made[lower - rank + 1]), MPI_SUCCESS);
            MPI_Group_free(&group);
        }
        for (int at = 0; at < 2; at++)
            if (made[at] != MPI_COMM_NULL) {
                is_usable(made[at], 2, at == 0);
                MPI_Comm_free(&made[at]);
            }
    }
}

/* The same group creates many; each has its members' messages alone. */
static void one_group_creates_several_with_one_tag(void)
{
    MPI_Comm made[3];
    MPI_Group group = group_of(0, ranks - 1);
    for (int at = 0; at < 3; at++)
        MPI_Comm_create_group(MPI_COMM_WORLD, group, TAG, &made[at]);
    MPI_Group_free(&group);
    for (int at = 2; at >= 0; at--) {
        is_usable(made[at], ranks, rank);
        MPI_Comm_free(&made[at]);
    }
}

/* Several at once, beside other operations on the parent; the requests end in any order. */
static void duplicates_at_once_with_other_operations(void)
{
    MPI_Comm made[4], part;
    MPI_Request requests[4];
    int one = 1, sum = 0, index, result = -1;
    for (int at = 0; at < 4; at++)
        expect("idup", MPI_Comm_idup(MPI_COMM_WORLD, &made[at], &requests[at]), MPI_SUCCESS);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect("a sum meanwhile", sum, ranks);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &part);
    is_usable(part, (ranks + (rank + 1) % 2) / 2, rank / 2);
    for (int at = 0; at < 2; at++)
        expect("Waitany", MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("Waitall", MPI_Waitall(4, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    for (int at = 0; at < 4; at++) {
        MPI_Comm_compare(MPI_COMM_WORLD, made[at], &result);
        expect("compare", result, MPI_CONGRUENT);
        is_usable(made[at], ranks, rank);
        MPI_Comm_free(&made[at]);
    }
    MPI_Comm_free(&part);
}

/* The parent may be freed as soon as the calls have returned; and, while duplicates are made of it, its handle. */
static void children_outlive_their_parent(void)
{
    MPI_Comm parent, child, grandchild;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    MPI_Comm_split(parent, 0, 0, &child);
    MPI_Comm_free(&parent);
    MPI_Comm_idup(child, &grandchild, &request);
    MPI_Comm_free(&child);
    expect("Wait", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    is_usable(grandchild, ranks, rank);
    expect("disconnect", MPI_Comm_disconnect(&grandchild), MPI_SUCCESS);
    expect("its handle", grandchild == MPI_COMM_NULL, 1);
}

int main(void)
{
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < MANY; round++) {
        a_split_is_ordered_by_key_and_then_by_rank();
        who_gives_no_color_gets_no_communicator();
        split_by_type();
        create_of_a_group();
        one_group_creates_several_with_one_tag();
        duplicates_at_once_with_other_operations();
        children_outlive_their_parent();
    }
    overlapping_groups_create_theirs_with_tags();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && all == 0)
        printf("No errors\n");
    return all != 0;
}
