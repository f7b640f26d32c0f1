/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* Calls that create communicators of members of which some have died: rows CC1 to CC5, WT15, WT16 and SH13 of docs/dev/semantics.md. The
 * highest rank dies in each round; where it dies in the middle of a creation, tests/deaths/creations.c shows. */
#include "deaths.h"

#include <malloc.h>
#include <mpi-ext.h>

enum { KINDS = 8, BATCHES = 20, FAILED_CREATIONS = 200, ALLOWED = 8192 };

static int handled, handled_class;
static MPI_Comm handled_comm;

static void handler(MPI_Comm *comm, int *code, ...)
{
    handled++;
    handled_comm = *comm;
    handled_class = class_of(*code);
}

static MPI_Group group_of(MPI_Comm comm, int first, int last)
{
    MPI_Group all, group;
    int range[1][3] = {{first, last, 1}};
    MPI_Comm_group(comm, &all);
    MPI_Group_range_incl(all, 1, range, &group);
    MPI_Group_free(&all);
    return group;
}

/* Call number `kind` that creates a communicator of all members. */
static int create(int kind, MPI_Comm comm, MPI_Comm *made)
{
    MPI_Request request;
    MPI_Group group;
    int size, code;
    *made = MPI_COMM_WORLD;
    MPI_Comm_size(comm, &size);
    switch (kind) {
    case 0: return MPI_Comm_dup(comm, made);
    case 1: return MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, made);
    case 2: return MPI_Comm_split(comm, 0, -rank, made);
    case 3: return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, made);
    case 4:
        MPI_Comm_group(comm, &group);
        code = MPI_Comm_create(comm, group, made);
        MPI_Group_free(&group);
        return code;
    case 5:
        group = group_of(comm, 0, size - 1);
        code = MPI_Comm_create_group(comm, group, 3, made);
        MPI_Group_free(&group);
        return code;
    case 6:
        code = MPI_Comm_idup(comm, made, &request);
        break;
    default: code = MPI_Comm_idup_with_info(comm, MPI_INFO_NULL, made, &request);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect("the request is final", request == MPI_REQUEST_NULL, 1);
    }
    return code;
}

/* Rows CC1 and WT15: nobody knows of the death yet, or some do. WT15: the wait is never told of a pending failure. */
static void no_communicator_is_made_with_the_dead(int kind, MPI_Comm comm)
{
    MPI_Comm made;
    expect("a creation with a dead member", class_of(create(kind, comm, &made)), MPI_ERR_PROC_FAILED);
    expect("its handle", made == MPI_COMM_NULL, 1);
    expect("who died is known", known(comm), 1);
}

/* Row WT16: the error goes to the handler of the parent, once, also where a request ends with it. */
static void the_parents_handler_is_called(MPI_Comm comm)
{
    MPI_Errhandler mine;
    MPI_Comm made;
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(comm, mine);
    MPI_Errhandler_free(&mine);
    for (int kind = 0; kind < KINDS; kind++) {
        handled = 0;
        expect("the class", class_of(create(kind, comm, &made)), MPI_ERR_PROC_FAILED);
        expect("calls of the handler", handled, 1);
        expect("with the class", handled_class, MPI_ERR_PROC_FAILED);
        expect("with the parent", handled_comm == comm, 1);
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

/* Row CC2: who calls is all that counts; others of the communicator may be dead. */
static void the_living_make_theirs(MPI_Comm comm, MPI_Comm living)
{
    MPI_Comm made;
    MPI_Group group = group_of(comm, 0, alive - 1);
    int one = 1, sum = 0;
    expect("create_group of the living", MPI_Comm_create_group(comm, group, 1, &made), MPI_SUCCESS);
    MPI_Group_free(&group);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made);
    expect("its sum", sum, alive);
    MPI_Comm_free(&made);
    for (int kind = 0; kind < KINDS; kind++) {
        expect("a creation of the living", create(kind, living, &made), MPI_SUCCESS);
        expect("its Barrier", MPI_Barrier(made), MPI_SUCCESS);
        MPI_Comm_free(&made);
    }
}

/* Row CC5: what failed leaves nothing behind. Tables may grow for some batches. */
static void failed_creations_take_no_memory(MPI_Comm comm)
{
    int batch = 0, steady = 0;
    for (; batch < BATCHES && !steady; batch++) {
        size_t before = mallinfo2().uordblks;
        for (int at = 0; at < FAILED_CREATIONS; at++) {
            MPI_Comm made;
            expect("again", class_of(create(at % KINDS, comm, &made)), MPI_ERR_PROC_FAILED);
        }
        steady = mallinfo2().uordblks <= before + ALLOWED;
        expect("agree", class_of(MPIX_Comm_agree(comm, &steady)), MPI_ERR_PROC_FAILED);
    }
    expect("a batch of failed creations takes no memory", steady, 1);
}

/* Rows SH13 and CC5: after the creations have failed, the communicator can be shrunk, and all kinds of children made. */
static MPI_Comm shrinks_after_failed_creations(MPI_Comm comm)
{
    MPI_Comm shrunk, made;
    int size = -1;
    expect("shrink", MPIX_Comm_shrink(comm, &shrunk), MPI_SUCCESS);
    MPI_Comm_size(shrunk, &size);
    expect("the survivors", size, alive);
    for (int kind = 0; kind < KINDS; kind++) {
        expect("a creation after it", create(kind, shrunk, &made), MPI_SUCCESS);
        expect("its Barrier", MPI_Barrier(made), MPI_SUCCESS);
        MPI_Comm_free(&made);
    }
    return shrunk;
}

/* Rows CC3 and CC4: neither waits for the dead, also with operations that have not ended. */
static void can_be_freed_and_disconnected(MPI_Comm *comm, MPI_Comm *other)
{
    MPI_Request pending, sent;
    int in, out = rank;
    expect("Irecv of the dead", MPI_Irecv(&in, 1, MPI_INT, alive, 2, *comm, &pending), MPI_SUCCESS);
    expect("Isend to the dead", MPI_Isend(&out, 1, MPI_INT, alive, 2, *comm, &sent), MPI_SUCCESS);
    expect("Comm_free", MPI_Comm_free(comm), MPI_SUCCESS);
    expect("the wait after it", class_of(MPI_Wait(&pending, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    MPI_Irecv(&in, 1, MPI_INT, alive, 2, *other, &pending);
    expect("Comm_disconnect", MPI_Comm_disconnect(other), MPI_SUCCESS);
    expect("its handle", *other == MPI_COMM_NULL, 1);
    expect("what it waited for", class_of(MPI_Wait(&pending, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
}

int main(void)
{
    MPI_Comm comm;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; alive > 1; round++) {
        MPI_Comm copies[KINDS], other, shrunk;
        for (int kind = 0; kind < KINDS; kind++)
            MPI_Comm_dup(comm, &copies[kind]);
        MPI_Comm_dup(comm, &other);
        meet();
        if (rank == --alive)
            die();
        if (rank % 2)
            until_known(comm, 1);
        for (int kind = 0; kind < KINDS; kind++)
            no_communicator_is_made_with_the_dead(kind, copies[(kind + round) % KINDS]);
        the_parents_handler_is_called(comm);
        failed_creations_take_no_memory(comm);
        shrunk = shrinks_after_failed_creations(comm);
        the_living_make_theirs(comm, shrunk);
        can_be_freed_and_disconnected(&comm, &other);
        for (int kind = 0; kind < KINDS; kind++)
            MPI_Comm_free(&copies[kind]);
        comm = shrunk;
    }
    MPI_Comm_free(&comm);
    return end();
}
