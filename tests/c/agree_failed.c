/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* MPIX_Comm_agree_failed and MPIX_Comm_iagree_failed: row AG15 of docs/dev/semantics.md. The highest rank dies in each round. */
#include "deaths.h"

#include <mpi-ext.h>

/* The ranks of `comm` in the group, as bits. */
static int bits_of(MPI_Group failed, MPI_Comm comm)
{
    MPI_Group all;
    int size = -1, bits = 0;
    MPI_Comm_group(comm, &all);
    MPI_Group_size(failed, &size);
    for (int at = 0; at < size; at++) {
        int member = -1;
        MPI_Group_translate_ranks(failed, 1, &at, all, &member);
        bits |= 1 << member;
    }
    MPI_Group_free(&all);
    return bits;
}

/* Row AG15: the same at all, and never an error because of a failure; whoever a member knew to have failed is in it. */
static int agreed(MPI_Comm comm, int nonblocking)
{
    MPI_Group failed = MPI_GROUP_NULL;
    MPI_Request request;
    int bits, same;
    if (nonblocking) {
        expect("iagree_failed", MPIX_Comm_iagree_failed(comm, &failed, &request), MPI_SUCCESS);
        expect("its wait", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    } else {
        expect("agree_failed", MPIX_Comm_agree_failed(comm, &failed), MPI_SUCCESS);
    }
    bits = bits_of(failed, comm);
    MPI_Group_free(&failed);
    /* If all have the same bits, the AND over them is the same, and so is that over their complements. */
    same = bits;
    MPIX_Comm_agree(comm, &same);
    expect("the same group at all", same, bits);
    same = ~bits;
    MPIX_Comm_agree(comm, &same);
    expect("the same group at all, the others", same, ~bits);
    return bits;
}

int main(void)
{
    MPI_Comm comm;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    expect("nobody has failed", agreed(comm, 0), 0);
    expect("nobody has failed", agreed(comm, 1), 0);
    while (alive > 1) {
        int dead;
        meet();
        if (rank == --alive)
            die();
        dead = ((1 << ranks) - 1) & ~((1 << alive) - 1);
        if (rank == 0)
            until_known(comm, ranks - alive);
        expect("who failed", agreed(comm, alive % 2), dead);
        /* Also on a revoked communicator. */
        MPIX_Comm_revoke(comm);
        expect("who failed", agreed(comm, alive % 2 == 0), dead);
        expect("known after it", known(comm), ranks - alive);
    }
    MPI_Comm_free(&comm);
    return end();
}
