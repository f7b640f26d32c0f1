/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 6
/* Recoveries of several communicators that wait for each other: row AG16 of docs/dev/semantics.md. The argument `fatal` leaves the error
 * handler that ends the job, so that the text of the error is printed. */
#include "deaths.h"

#include <mpi-ext.h>

enum { ROUNDS = 10 };

static int agree(MPI_Comm comm)
{
    int flag = -1 ^ rank << 4, got = class_of(MPIX_Comm_agree(comm, &flag));
    if (got == MPI_SUCCESS)
        expect("the flag", flag & 15, 15);
    return got;
}

static int shrink(MPI_Comm comm, int members)
{
    MPI_Comm made;
    int size = -1, got = class_of(MPIX_Comm_shrink(comm, &made));
    if (got == MPI_SUCCESS) {
        MPI_Comm_size(made, &size);
        expect("the members of the shrunken one", size, members);
        MPI_Comm_free(&made);
    } else {
        expect("no communicator", made == MPI_COMM_NULL, 1);
    }
    return got;
}

/* Both can be used, and the next agreement on each is a good one. */
static void are_usable(MPI_Comm one, MPI_Comm other, int failures)
{
    int wanted = failures ? MPI_ERR_PROC_FAILED : MPI_SUCCESS;
    expect("agree afterwards", agree(one), wanted);
    expect("shrink afterwards", shrink(other, alive), MPI_SUCCESS);
    expect("shrink afterwards", shrink(one, alive), MPI_SUCCESS);
    expect("agree afterwards", agree(other), wanted);
    if (!failures)
        expect("a barrier afterwards", MPI_Barrier(one) | MPI_Barrier(other), MPI_SUCCESS);
}

/* Row AG16: even ranks agree on one communicator, odd ranks shrink the other. Each call on each communicator has one answer at all members, so the
 * call that a rank has not made yet has it, too. */
static void half_here_half_there(MPI_Comm one, MPI_Comm other, int failures)
{
    if (rank % 2 == 0) {
        expect("agree", agree(one), MPI_ERR_OTHER);
        expect("shrink, later", shrink(other, alive), MPI_ERR_OTHER);
    } else {
        expect("shrink", shrink(other, alive), MPI_ERR_OTHER);
        expect("agree, later", agree(one), MPI_ERR_OTHER);
    }
    are_usable(one, other, failures);
}

static void requests_are_found_too(MPI_Comm one, MPI_Comm other)
{
    MPI_Request request;
    MPI_Comm made;
    MPI_Status status;
    int flag = 7, code;
    if (rank % 2 == 0) {
        MPIX_Comm_iagree(one, &flag, &request);
        expect("Wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_OTHER);
        expect("shrink, later", shrink(other, ranks), MPI_ERR_OTHER);
    } else {
        MPIX_Comm_ishrink(other, &made, &request);
        code = MPI_Waitall(1, &request, &status);
        expect("Waitall", class_of(code), MPI_ERR_IN_STATUS);
        expect("its status", class_of(status.MPI_ERROR), MPI_ERR_OTHER);
        expect("agree, later", agree(one), MPI_ERR_OTHER);
    }
    expect("no request", request == MPI_REQUEST_NULL, 1);
    are_usable(one, other, 0);
}

/* Row SH12: the orders differ, but nobody waits before all has been started. */
static void what_is_started_at_once_is_not_crossed(MPI_Comm one, MPI_Comm other)
{
    MPI_Request requests[2];
    MPI_Comm made[2];
    int first = rank % 2;
    MPIX_Comm_ishrink(first ? other : one, &made[0], &requests[0]);
    MPIX_Comm_ishrink(first ? one : other, &made[1], &requests[1]);
    expect("Waitall", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    MPI_Comm_free(&made[0]);
    MPI_Comm_free(&made[1]);
}

/* Communicator i has the members i and i + 1. Each rank waits in the one that begins with it. */
static void a_circle_of_many(void)
{
    MPI_Comm of[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
    MPI_Group world, pair;
    for (int at = 0; at < ranks; at++) {
        int members[2] = {at, (at + 1) % ranks};
        MPI_Comm made;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Group_incl(world, 2, members, &pair);
        MPI_Comm_create(MPI_COMM_WORLD, pair, &made);
        if (at == rank)
            of[0] = made;
        else if (made != MPI_COMM_NULL)
            of[1] = made;
        MPI_Group_free(&pair);
        MPI_Group_free(&world);
    }
    for (int round = 0; round < 2; round++) {
        expect("agree in the circle", agree(of[0]), MPI_ERR_OTHER);
        expect("agree in the circle, later", agree(of[1]), MPI_ERR_OTHER);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Request requests[2];
        int flags[2] = {3, 3};
        MPIX_Comm_iagree(of[0], &flags[0], &requests[0]);
        MPIX_Comm_iagree(of[1], &flags[1], &requests[1]);
        expect("Waitall in the circle", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Comm_free(&of[0]);
    MPI_Comm_free(&of[1]);
}

static void compute(double seconds)
{
    for (double begun = MPI_Wtime(); MPI_Wtime() - begun < seconds;) {
    }
}

/* A member that computes outside MPI meanwhile has the same answers, when it calls. */
static void a_bystander_gets_the_same(MPI_Comm one, MPI_Comm other)
{
    if (rank == ranks - 1)
        compute(0.2);
    half_here_half_there(one, other, 0);
}

static void who_only_computes_is_not_crossed(MPI_Comm one, MPI_Comm other)
{
    if (rank == 0)
        compute(0.5);
    expect("agree with one who computes", agree(one), MPI_SUCCESS);
    if (rank == ranks - 1)
        compute(0.3);
    expect("shrink with one who computes", shrink(other, ranks), MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    MPI_Comm one, other;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (argc > 1 && strcmp(argv[1], "fatal") == 0) {
        MPI_Comm_set_errhandler(one, MPI_ERRORS_ARE_FATAL);
        MPI_Comm_set_errhandler(other, MPI_ERRORS_ARE_FATAL);
        return rank % 2 ? shrink(other, ranks) : agree(one);
    }
    for (int round = 0; round < ROUNDS; round++)
        half_here_half_there(one, other, 0);
    requests_are_found_too(one, other);
    what_is_started_at_once_is_not_crossed(one, other);
    a_circle_of_many();
    a_bystander_gets_the_same(one, other);
    who_only_computes_is_not_crossed(one, other);
    if (ranks > 2) {
        lose_one();
        half_here_half_there(one, other, 1);
    }
    MPI_Comm_free(&one);
    MPI_Comm_free(&other);
    return end();
}
