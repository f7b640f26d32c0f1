/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* Revocations that meet messages, creations and later communicators at any moment: rows RV2, RV7, RV9, RV13 and RV14 of
 * docs/dev/semantics.md. Nobody dies until the last part. */
#include "deaths.h"

#include <mpi-ext.h>

enum { TAG = 8, LONG = 60000, ROUNDS = 300, CYCLES = 3000, KINDS = 3 };
static int out[LONG], in[KINDS][LONG];

static int is_revoked(MPI_Comm comm)
{
    int flag = -1;
    expect("is_revoked", MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS);
    return flag;
}

static int is_one_of(int class, int one, int other)
{
    return class == one || class == other;
}

/* Each rank sends a short, a synchronous and a long message to the next one; somebody revokes meanwhile. Row RV9: what was matched, or
 * eager, succeeds; the rest ends with RV. Row RV8: a synchronous or long send that succeeds has its receive. */
static void messages_on_their_way(MPI_Comm comm, int round)
{
    static const int counts[KINDS] = {1, 1, LONG};
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, sent[KINDS], there[KINDS];
    MPI_Request requests[2 * KINDS];
    for (int kind = 0; kind < KINDS; kind++)
        MPI_Irecv(in[kind], counts[kind], MPI_INT, last, kind, comm, &requests[kind]);
    MPI_Isend(out, 1, MPI_INT, next, 0, comm, &requests[KINDS]);
    if (rank == round % ranks && round % 3 == 0)
        MPIX_Comm_revoke(comm);
    MPI_Issend(out, 1, MPI_INT, next, 1, comm, &requests[KINDS + 1]);
    if (rank == round % ranks && round % 3 == 1)
        MPIX_Comm_revoke(comm);
    MPI_Isend(out, LONG, MPI_INT, next, 2, comm, &requests[KINDS + 2]);
    if (rank == round % ranks && round % 3 == 2)
        MPIX_Comm_revoke(comm);
    for (int kind = 0; kind < KINDS; kind++) {
        int got = class_of(MPI_Wait(&requests[kind], MPI_STATUS_IGNORE));
        expect("a receive", is_one_of(got, MPI_SUCCESS, MPI_ERR_REVOKED), 1);
        expect("its first and last number", got == MPI_SUCCESS ? in[kind][0] + in[kind][counts[kind] - 1] : 2 * last, 2 * last);
        sent[kind] = class_of(MPI_Wait(&requests[KINDS + kind], MPI_STATUS_IGNORE));
        expect("a send", is_one_of(sent[kind], MPI_SUCCESS, MPI_ERR_REVOKED), 1);
        /* What was sent says whether its receive must have succeeded. */
        MPI_Sendrecv(&sent[kind], 1, MPI_INT, next, TAG, &there[kind], 1, MPI_INT, last, TAG, aside, MPI_STATUS_IGNORE);
        if (kind > 0 && there[kind] == MPI_SUCCESS)
            expect("the receive of a send that succeeded", got, MPI_SUCCESS);
    }
    /* Row RV2: everybody sees it. */
    expect("an operation then", class_of(MPI_Recv(in[0], 1, MPI_INT, next, TAG, comm, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
}

/* Row RV7: local, and true although no call has raised RV. */
static void it_is_seen_without_another_call(MPI_Comm comm, int round)
{
    if (rank == round % ranks)
        MPIX_Comm_revoke(comm);
    while (!is_revoked(comm)) {
    }
}

/* Row RV14: revoked by whoever gets it first, while others are still in the call that creates it. */
static void a_communicator_is_revoked_while_it_is_made(int round)
{
    MPI_Comm made = MPI_COMM_NULL;
    int got;
    if (round % 3 == 0)
        got = MPI_Comm_dup(aside, &made);
    else if (round % 3 == 1)
        got = MPI_Comm_split(aside, 0, -rank, &made);
    else
        got = MPIX_Comm_shrink(aside, &made);
    expect("its creation", got, MPI_SUCCESS);
    if (rank == round / 3 % ranks)
        MPIX_Comm_revoke(made);
    expect("an operation on it", class_of(MPI_Recv(in[0], 1, MPI_INT, MPI_ANY_SOURCE, TAG, made, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
    MPI_Comm_free(&made);
}

/* Row RV14: the parent is revoked by one who does not call. All others get the error, and no communicator. */
static void the_parent_is_revoked_meanwhile(MPI_Comm parent, int round)
{
    MPI_Comm made = MPI_COMM_WORLD;
    MPI_Request request;
    int got;
    if (rank == round % ranks)
        MPIX_Comm_revoke(parent);
    if (round % 2) {
        got = MPI_Comm_dup(parent, &made);
    } else {
        got = MPI_Comm_idup(parent, &made, &request);
        if (got == MPI_SUCCESS)
            got = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    expect("the creation", class_of(got), MPI_ERR_REVOKED);
    expect("its handle", made == MPI_COMM_NULL, 1);
}

/* Row RV13: the news of a revocation may come when its communicator is freed, and its context id in use again. */
static void later_communicators_are_not_revoked(void)
{
    for (int round = 0; round < CYCLES; round++) {
        MPI_Comm made;
        int one = 1, sum = 0;
        expect("dup", MPI_Comm_dup(aside, &made), MPI_SUCCESS);
        if (round % 2 == 0) {
            expect("not revoked", is_revoked(made), 0);
            expect("a sum", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made), MPI_SUCCESS);
            expect("its result", sum, ranks);
        } else if (rank == round / 2 % ranks) {
            MPIX_Comm_revoke(made);
        }
        MPI_Comm_free(&made);
    }
}

/* Row RV2: who revokes dies at once. Whoever has heard of it tells the others. */
static void the_one_who_revokes_dies(MPI_Comm comm)
{
    if (rank == --alive) {
        MPIX_Comm_revoke(comm);
        die();
    }
    int got = class_of(MPI_Recv(in[0], 1, MPI_INT, (rank + 1) % (alive + 1), TAG, comm, MPI_STATUS_IGNORE));
    /* Rank `alive - 1` waits for the dead: it may learn of the death first. */
    expect("the class", is_one_of(got, MPI_ERR_REVOKED, rank == alive - 1 ? MPI_ERR_PROC_FAILED : MPI_ERR_REVOKED), 1);
    while (!is_revoked(comm)) {
    }
}

int main(void)
{
    MPI_Comm comm;
    begin();
    for (int at = 0; at < LONG; at++)
        out[at] = rank;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm_dup(aside, &comm);
        messages_on_their_way(comm, round);
        MPI_Comm_free(&comm);
        MPI_Comm_dup(aside, &comm);
        it_is_seen_without_another_call(comm, round);
        MPI_Comm_free(&comm);
        a_communicator_is_revoked_while_it_is_made(round);
        MPI_Comm_dup(aside, &comm);
        the_parent_is_revoked_meanwhile(comm, round);
        MPI_Comm_free(&comm);
    }
    later_communicators_are_not_revoked();
    MPI_Comm_dup(aside, &comm);
    the_one_who_revokes_dies(comm);
    meet();
    MPI_Comm_free(&comm);
    return end();
}
