/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3 6 10
/* A member dies right after its own Barrier, Allreduce, Bcast or Comm_dup has returned: rows CO1, CO3 and CC1 of docs/dev/semantics.md. Who
 * does not need the dead any more returns success. */
#include "deaths.h"

enum { OPERATIONS = 8, COUNT = 4000 };
static int out[COUNT], in[COUNT];

/* The members' own operation number `which` on `comm`. */
static int collective(int which, MPI_Comm comm, MPI_Comm *made)
{
    switch (which % 4) {
    case 0: return MPI_Barrier(comm);
    case 1: return MPI_Allreduce(out, in, which < 4 ? 1 : COUNT, MPI_INT, MPI_SUM, comm);
    case 2: return MPI_Bcast(in, which < 4 ? 1 : COUNT, MPI_INT, 0, comm);
    default: return MPI_Comm_dup(comm, made);
    }
}

/* All have entered a barrier or an allreduce when one returns. One who enters another operation late may know of the death (Row CO4). */
static void a_member_dies_after(int which, MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    int got, members;
    MPI_Comm_size(comm, &members);
    for (int at = 0; at < COUNT; at++)
        out[at] = rank;
    meet();
    got = class_of(collective(which, comm, &made));
    if (rank == --alive)
        die();
    if (which % 4 < 2)
        expect("the class where all have entered", got, MPI_SUCCESS);
    else
        expect("the class is that of failures, or success", got == MPI_SUCCESS || got == MPI_ERR_PROC_FAILED, 1);
    if (which % 4 == 1)
        expect("the sum", in[0], members * (members - 1) / 2);
    expect("a communicator was made where the call succeeded", made != MPI_COMM_NULL, which % 4 == 3 && got == MPI_SUCCESS);
    until_known(MPI_COMM_WORLD, ranks - alive);
    meet();
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    expect("a later operation", class_of(MPI_Barrier(comm)), MPI_ERR_PROC_FAILED);
}

int main(void)
{
    MPI_Comm comms[OPERATIONS];
    int deaths;
    begin();
    deaths = ranks - 2 < OPERATIONS ? ranks - 2 : OPERATIONS;
    /* The members of the k-th communicator are the ranks that live after k deaths. */
    for (int at = 0; at < deaths; at++)
        MPI_Comm_split(MPI_COMM_WORLD, rank < ranks - at ? 0 : MPI_UNDEFINED, rank, &comms[at]);
    for (int at = 0; at < deaths; at++) {
        MPI_Comm_set_errhandler(comms[at], MPI_ERRORS_RETURN);
        a_member_dies_after(at, comms[at]);
        MPI_Comm_free(&comms[at]);
        meet();
    }
    return end();
}
