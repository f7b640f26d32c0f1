/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Communicators are created in every way while ranks are killed by SIGKILL at random moments, by a timer of the kernel. After each call all
 * survivors compare: each has the communicator, or none has. Arguments: the number of rounds, a seed, the latest moment of a death in
 * microseconds. Rank 0 lives, and prints how many have died, and how many creations failed. */
#include "death_timer.h"

#include <mpi-ext.h>
#include <string.h>

enum { KINDS = 7, MADE = 1, FAILED = 2 };

static int create(int kind, MPI_Comm comm, MPI_Comm *made)
{
    MPI_Request request;
    MPI_Group group;
    int code;
    *made = MPI_COMM_WORLD;
    MPI_Comm_group(comm, &group);
    switch (kind) {
    case 0: code = MPI_Comm_dup(comm, made); break;
    case 1: code = MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, made); break;
    case 2: code = MPI_Comm_split(comm, 0, -rank, made); break;
    case 3: code = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, made); break;
    case 4: code = MPI_Comm_create(comm, group, made); break;
    case 5: code = MPI_Comm_create_group(comm, group, 3, made); break;
    default:
        code = MPI_Comm_idup(comm, made, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Group_free(&group);
    return code;
}

/* Row CC1: whether the communicator was created, which is the same at all. If it was, it can be used as any other. */
static int all_have_it_or_none(int kind, MPI_Comm comm)
{
    MPI_Comm made;
    int code = create(kind, comm, &made), outcome = code == MPI_SUCCESS ? MADE : FAILED, all = outcome;
    expect("the class of a creation", code == MPI_SUCCESS || class_of(code) == MPI_ERR_PROC_FAILED, 1);
    expect("its handle", made == MPI_COMM_NULL, outcome == FAILED);
    MPIX_Comm_agree(comm, &all);
    expect("the outcome at all", all, outcome);
    if (outcome == MADE) {
        code = class_of(MPI_Barrier(made));
        expect("its Barrier", code == MPI_SUCCESS || code == MPI_ERR_PROC_FAILED, 1);
        expect("free", MPI_Comm_free(&made), MPI_SUCCESS);
    }
    return outcome == MADE;
}

int main(int argc, char **argv)
{
    int rounds = begin_with_deaths(argc, argv, 2, 3), failures = 0, ranks, left;
    MPI_Comm comm, survivors;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPIX_Comm_shrink(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < rounds; round++) {
        if (all_have_it_or_none(round % KINDS, comm))
            continue;
        failures++;
        expect("shrink", MPIX_Comm_shrink(comm, &survivors), MPI_SUCCESS);
        expect("free", MPI_Comm_free(&comm), MPI_SUCCESS);
        comm = survivors;
    }
    MPI_Comm_size(comm, &left);
    MPI_Comm_free(&comm);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        printf("no errors: %d deaths, %d repairs\n", ranks - left, failures);
    return errors ? 120 : 0;
}
