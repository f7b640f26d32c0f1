/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Communicators are created without an agreement (mpi_error_uniform = local) in every way while ranks are killed by SIGKILL at random
 * moments, by a timer of the kernel. A communicator may exist at some survivors only: these can agree on it, revoke it and free it, and wait
 * for nobody that does not have it. Arguments: the number of rounds, a seed, the latest moment of a death in microseconds. Rank 0 lives, and
 * prints how many have died, and how often a communicator was not created everywhere. */
#include "death_timer.h"

#include <mpi-ext.h>
#include <string.h>

enum { KINDS = 6, MADE = 1, FAILED = 2 };

static int create(int kind, MPI_Comm comm, MPI_Comm *made)
{
    MPI_Request request;
    MPI_Group group;
    int code;
    *made = MPI_COMM_NULL;
    MPI_Comm_group(comm, &group);
    switch (kind) {
    case 0: code = MPI_Comm_dup(comm, made); break;
    case 1: code = MPI_Comm_split(comm, 0, -rank, made); break;
    case 2: code = MPI_Comm_split(comm, rank % 2, rank, made); break;
    case 3: code = MPI_Comm_create(comm, group, made); break;
    case 4: code = MPI_Comm_create_group(comm, group, 3, made); break;
    default:
        code = MPI_Comm_idup(comm, made, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Group_free(&group);
    return code;
}

/* The members that have the communicator agree on it and shrink it, whoever else lacks it; every second time they revoke it, too. */
static void use_alone(MPI_Comm made, int revokes)
{
    int flag = -1;
    if (revokes)
        expect("revoke", MPIX_Comm_revoke(made), MPI_SUCCESS);
    int code = MPIX_Comm_agree(made, &flag);
    expect("not an agreement that is revoked", class_of(code) == MPI_ERR_REVOKED, 0);
    MPI_Comm shrunk;
    expect("shrink alone", MPIX_Comm_shrink(made, &shrunk), MPI_SUCCESS);
    code = MPIX_Comm_agree(shrunk, &flag);
    expect("not an agreement that is revoked", class_of(code) == MPI_ERR_REVOKED, 0);
    expect("free", MPI_Comm_free(&shrunk), MPI_SUCCESS);
    expect("free", MPI_Comm_free(&made), MPI_SUCCESS);
}

/* Whether all survivors have the communicator, and know of no failure: the same at all. */
static int all_have_it(int round, MPI_Comm comm)
{
    MPI_Comm made;
    int code = create(round % KINDS, comm, &made), outcome = code == MPI_SUCCESS ? MADE : FAILED, all = outcome;
    expect("the class of a creation", code == MPI_SUCCESS || class_of(code) == MPI_ERR_PROC_FAILED, 1);
    int agreed = MPIX_Comm_agree(comm, &all);
    expect("the class of an agreement", agreed == MPI_SUCCESS || class_of(agreed) == MPI_ERR_PROC_FAILED, 1);
    if (outcome == MADE && all == MADE) {
        code = class_of(MPI_Barrier(made));
        expect("its Barrier", code == MPI_SUCCESS || code == MPI_ERR_PROC_FAILED, 1);
        expect("free", MPI_Comm_free(&made), MPI_SUCCESS);
    } else if (outcome == MADE) {
        use_alone(made, round % 2);
    }
    return all == MADE && agreed == MPI_SUCCESS;
}

/* The survivors of a communicator, which create without an agreement. */
static MPI_Comm survivors_of(MPI_Comm comm, MPI_Info local)
{
    MPI_Comm survivors;
    expect("shrink", MPIX_Comm_shrink(comm, &survivors), MPI_SUCCESS);
    expect("set_info", MPI_Comm_set_info(survivors, local), MPI_SUCCESS);
    return survivors;
}

int main(int argc, char **argv)
{
    int rounds = begin_with_deaths(argc, argv, 2, 3), failures = 0, ranks, left;
    MPI_Comm comm, next;
    MPI_Info local;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Info_create(&local);
    MPI_Info_set(local, "mpi_error_uniform", "local");
    comm = survivors_of(MPI_COMM_WORLD, local);
    for (int round = 0; round < rounds; round++) {
        if (all_have_it(round, comm))
            continue;
        failures++;
        next = survivors_of(comm, local);
        expect("free", MPI_Comm_free(&comm), MPI_SUCCESS);
        comm = next;
    }
    MPI_Comm_size(comm, &left);
    MPI_Comm_free(&comm);
    MPI_Info_free(&local);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        printf("no errors: %d deaths, %d repairs\n", ranks - left, failures);
    return errors ? 120 : 0;
}
