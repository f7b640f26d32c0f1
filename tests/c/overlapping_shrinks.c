/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 4 8
/* Nonblocking agreements, shrinks and duplicates with deaths: rows WT15, SH8, SH9 and SH12 of docs/dev/semantics.md. The highest rank
 * dies in each round. */
#include "deaths.h"

#include <mpi-ext.h>

enum { COMMS = 3, ROUNDS = 50 };

/* Overlapping communicators: all, all but rank 0 and all but rank 1. MPI_COMM_NULL where this process is no member. */
static void make(MPI_Comm parent, MPI_Comm comms[COMMS])
{
    MPI_Comm_dup(parent, &comms[0]);
    MPI_Comm_split(parent, rank == 0 ? MPI_UNDEFINED : 0, rank, &comms[1]);
    MPI_Comm_split(parent, rank == 1 ? MPI_UNDEFINED : 0, rank, &comms[2]);
}

static int members(int which)
{
    return which == 0 ? alive : alive > 1 ? alive - 1 : alive - (rank + 1 == which);
}

/* Row SH12: each rank begins and waits in an order of its own; with an agreement on each before. */
static void shrink_in_any_order(MPI_Comm comms[COMMS], MPI_Comm made[COMMS], int round)
{
    MPI_Request agrees[COMMS], shrinks[COMMS];
    int flags[COMMS];
    for (int step = 0; step < COMMS; step++) {
        int at = (rank + round + step) % COMMS;
        agrees[at] = shrinks[at] = MPI_REQUEST_NULL;
        made[at] = MPI_COMM_NULL;
        if (comms[at] == MPI_COMM_NULL)
            continue;
        flags[at] = at | rank << 8;
        expect("iagree", MPIX_Comm_iagree(comms[at], &flags[at], &agrees[at]), MPI_SUCCESS);
        expect("ishrink", MPIX_Comm_ishrink(comms[at], &made[at], &shrinks[at]), MPI_SUCCESS);
    }
    for (int step = 0; step < COMMS; step++) {
        int at = (2 * rank + step) % COMMS, got;
        expect("the wait for a shrink", MPI_Wait(&shrinks[at], MPI_STATUS_IGNORE), MPI_SUCCESS);
        if (comms[at] == MPI_COMM_NULL)
            continue;
        /* Row WT15: PF, never PFP. */
        got = class_of(MPI_Wait(&agrees[at], MPI_STATUS_IGNORE));
        expect("the wait for an agreement", got == MPI_SUCCESS || got == MPI_ERR_PROC_FAILED, 1);
        expect("its flag", flags[at] & 0xff, at);
        expect("it is null then", agrees[at] == MPI_REQUEST_NULL, 1);
    }
}

/* Row WT15: of a duplicate too, by each call that completes requests, and with a request on which a failure is pending beside it. */
static void requests_of_creations_are_never_pending(MPI_Comm comm)
{
    MPI_Comm made;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int token, flag = 0, code;
    MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &requests[0]);
    MPI_Comm_idup(comm, &made, &requests[1]);
    do
        code = MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
    while (code == MPI_SUCCESS && !flag);
    expect("Test of a duplicate", class_of(code), MPI_ERR_PROC_FAILED);
    expect("its request is null", requests[1] == MPI_REQUEST_NULL, 1);
    expect("its handle", made == MPI_COMM_NULL, 1);
    MPI_Comm_idup(comm, &made, &requests[1]);
    expect("Waitall", MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS);
    expect("the receive", class_of(statuses[0].MPI_ERROR), MPI_ERR_PROC_FAILED_PENDING);
    expect("the duplicate", class_of(statuses[1].MPI_ERROR), MPI_ERR_PROC_FAILED);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    meet();
    MPIX_Comm_revoke(comm);
    code = MPI_Comm_idup(comm, &made, &requests[1]);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    expect("a duplicate of a revoked one", class_of(code), MPI_ERR_REVOKED);
}

static void are_whole(MPI_Comm made[COMMS])
{
    for (int at = 0; at < COMMS; at++) {
        int size = -1, one = 1, sum = -1;
        if (made[at] == MPI_COMM_NULL)
            continue;
        MPI_Comm_size(made[at], &size);
        expect("its members", size, members(at));
        expect("a sum", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made[at]), MPI_SUCCESS);
        expect("its result", sum, size);
    }
}

static void free_all(MPI_Comm comms[COMMS])
{
    for (int at = 0; at < COMMS; at++)
        if (comms[at] != MPI_COMM_NULL)
            MPI_Comm_free(&comms[at]);
}

int main(void)
{
    MPI_Comm comms[COMMS], made[COMMS], again[COMMS], parent, dying;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &parent);
    for (int round = 0; round < ROUNDS; round++) {
        make(parent, comms);
        shrink_in_any_order(comms, made, round);
        are_whole(made);
        free_all(made);
        free_all(comms);
    }
    while (alive > 2) {
        make(parent, comms);
        MPI_Comm_dup(parent, &dying);
        meet();
        if (rank == --alive)
            die();
        /* Some know of it. A death that nobody knows may leave the dead in: the second time it is known. */
        if (rank % 2)
            until_known(MPI_COMM_WORLD, ranks - alive);
        shrink_in_any_order(comms, made, alive);
        until_known(MPI_COMM_WORLD, ranks - alive);
        shrink_in_any_order(made, again, alive + 1);
        are_whole(again);
        requests_of_creations_are_never_pending(dying);
        free_all(comms);
        free_all(made);
        MPI_Comm_free(&parent);
        parent = again[0];
        again[0] = MPI_COMM_NULL;
        free_all(again);
        MPI_Comm_free(&dying);
    }
    MPI_Comm_free(&parent);
    return end();
}
