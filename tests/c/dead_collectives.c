/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 10
/* Collectives in which a member dies: rows CO1, CO2, CO4, CO5, CO11 and CO12 of docs/dev/semantics.md. Each runs on a communicator
 * of the ranks that are alive, the highest of which dies in it. */
#include "deaths.h"

enum { OPERATIONS = 8, COUNT = 4000, TAG = 7 };
static int out[16 * COUNT], in[16 * COUNT];

/* The members' own operation number `which` on `comm`. */
static int collective(int which, MPI_Comm comm)
{
    switch (which) {
    case 0: return MPI_Barrier(comm);
    case 1: return MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_SUM, comm);
    case 2: return MPI_Allgather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm);
    case 3: return MPI_Alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, comm);
    case 4: return MPI_Reduce(out, in, COUNT, MPI_INT, MPI_SUM, 0, comm);
    case 5: return MPI_Gather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, 0, comm);
    case 6: return MPI_Bcast(in, COUNT, MPI_INT, alive, comm);
    default: return MPI_Scatter(out, COUNT, MPI_INT, in, COUNT, MPI_INT, alive, comm);
    }
}

/* Whether this rank cannot get the result of operation `which` without the dead rank, which is the root if a root sends. */
static int needs_the_dead(int which)
{
    return which == 4 || which == 5 ? rank == 0 : 1;
}

/* Rows CO1, CO2, CO11: the call returns at every survivor, with an error where the dead rank's part is needed, and writes nothing
 * afterwards. */
static void a_member_dies_in(int which, MPI_Comm comm)
{
    static int before[16 * COUNT];
    int got;
    meet();
    if (rank == --alive)
        die();
    got = class_of(collective(which, comm));
    expect("the class is that of failures, or success", got == MPI_ERR_PROC_FAILED || got == MPI_SUCCESS, 1);
    if (needs_the_dead(which))
        expect("an operation with the dead", got, MPI_ERR_PROC_FAILED);
    memcpy(before, in, sizeof in);
    until_known(MPI_COMM_WORLD, ranks - alive);
    meet();
    expect("nothing is written after", memcmp(before, in, sizeof in), 0);
}

/* Row CO4 */
static void later_ones_raise_too(MPI_Comm comm)
{
    for (int which = 0; which < OPERATIONS; which++) {
        expect("a later operation", class_of(collective(which, comm)), MPI_ERR_PROC_FAILED);
        if (which == 3)
            MPI_Comm_failure_ack(comm);
    }
}

/* Row CO5 */
static void others_are_not_touched(MPI_Comm comm)
{
    int one = 1, sum = 0;
    expect("Barrier of the living", MPI_Barrier(comm), MPI_SUCCESS);
    expect("Allreduce of the living", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    expect("its sum", sum, alive);
    expect("Barrier of oneself", MPI_Barrier(MPI_COMM_SELF), MPI_SUCCESS);
}

/* Row CO12 */
static void messages_on_the_same_communicator_go_on(MPI_Comm comm)
{
    int next = (rank + 1) % alive, before = (rank + alive - 1) % alive;
    for (int round = 0; round < 10; round++) {
        MPI_Request request;
        int count = round % 2 ? 16 * COUNT : 2;
        out[1] = round + rank;
        MPI_Irecv(in, count, MPI_INT, before, TAG, comm, &request);
        expect("Send", MPI_Send(out, count, MPI_INT, next, TAG, comm), MPI_SUCCESS);
        expect("Wait", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        expect("what came", in[1], round + before);
    }
}

/* Row CC1 for those made with a dead member: an error, and no handle. Row CC3: freeing is local. */
static void a_communicator_cannot_be_made_with_the_dead_and_any_can_be_freed(MPI_Comm *comm)
{
    MPI_Comm made = MPI_COMM_WORLD;
    expect("Comm_dup", class_of(MPI_Comm_dup(*comm, &made)), MPI_ERR_PROC_FAILED);
    expect("its handle", made == MPI_COMM_NULL, 1);
    made = MPI_COMM_WORLD;
    expect("Comm_split", class_of(MPI_Comm_split(*comm, 0, 0, &made)), MPI_ERR_PROC_FAILED);
    expect("its handle", made == MPI_COMM_NULL, 1);
    expect("Comm_free", MPI_Comm_free(comm), MPI_SUCCESS);
}

int main(void)
{
    MPI_Comm comms[OPERATIONS + 1];
    int deaths;
    begin();
    deaths = ranks - 2 < OPERATIONS ? ranks - 2 : OPERATIONS;
    /* The members of the k-th communicator are the ranks that live after k deaths. */
    for (int at = 0; at <= deaths; at++)
        MPI_Comm_split(MPI_COMM_WORLD, rank < ranks - at ? 0 : MPI_UNDEFINED, rank, &comms[at]);
    for (int at = 0; at < deaths; at++) {
        MPI_Comm_set_errhandler(comms[at], MPI_ERRORS_RETURN);
        a_member_dies_in(at, comms[at]);
        later_ones_raise_too(comms[at]);
        others_are_not_touched(comms[at + 1]);
        messages_on_the_same_communicator_go_on(comms[at]);
        a_communicator_cannot_be_made_with_the_dead_and_any_can_be_freed(&comms[at]);
        meet();
    }
    MPI_Comm_free(&comms[deaths]);
    return end();
}
