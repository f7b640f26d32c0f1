/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* The survivors repair in an error handler: revoke, agree, shrink, and free of the communicator of the failing call; then the handler
 * returns, or jumps. Rows RV11, SH11, EH2 and EH3 of docs/dev/semantics.md. The highest rank dies in each round, until one is left. */
#include "deaths.h"

#include <mpi-ext.h>
#include <setjmp.h>

enum { TAG = 6, CALLS = 6, LONG = 100000 };

static MPI_Comm work, before;
static int jumps, repairs, out[LONG], in[LONG];
static jmp_buf again;

/* Row RV11: revoked in the handler of the same communicator. Rows SH11 and EH3: shrunk, and freed, there. */
static void repair(MPI_Comm *comm, int *code, ...)
{
    MPI_Comm made;
    int flag = 5 | rank << 3, got = class_of(*code), revoked = 0;
    expect("the class", got == MPI_ERR_PROC_FAILED || got == MPI_ERR_REVOKED, 1);
    expect("the communicator", *comm == work, 1);
    expect("revoke", MPIX_Comm_revoke(*comm), MPI_SUCCESS);
    MPIX_Comm_is_revoked(*comm, &revoked);
    expect("revoked", revoked, 1);
    MPIX_Comm_failure_ack(*comm);
    /* Not everybody may know of the death; the flag is valid then, too. A failing call would call the handler in itself. */
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    got = class_of(MPIX_Comm_agree(*comm, &flag));
    expect("agree", got == MPI_SUCCESS || got == MPI_ERR_PROC_FAILED, 1);
    expect("its flag", flag & 7, 5);
    expect("shrink", MPIX_Comm_shrink(*comm, &made), MPI_SUCCESS);
    before = *comm;
    work = made;
    expect("free", MPI_Comm_free(comm), MPI_SUCCESS);
    expect("its handle", *comm == MPI_COMM_NULL, 1);
    repairs++;
    if (jumps)
        longjmp(again, 1);
}

/* Call number `which`, which needs the dead, or somebody whom the death has stopped. */
static int failing_call(int which, MPI_Comm comm)
{
    MPI_Request requests[2];
    MPI_Comm made;
    int me, size;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    switch (which) {
    case 0: return MPI_Barrier(comm);
    case 1: return MPI_Allreduce(out, in, LONG, MPI_INT, MPI_SUM, comm);
    case 2: return MPI_Recv(in, 1, MPI_INT, MPI_ANY_SOURCE, TAG, comm, MPI_STATUS_IGNORE);
    case 3: return MPI_Comm_dup(comm, &made);
    case 4: return MPI_Sendrecv(out, LONG, MPI_INT, (me + 1) % size, TAG, in, LONG, MPI_INT, (me + size - 1) % size, TAG, comm,
                                MPI_STATUS_IGNORE);
    default:
        MPI_Irecv(in, LONG, MPI_INT, (me + size - 1) % size, TAG, comm, &requests[0]);
        MPI_Issend(out, LONG, MPI_INT, (me + 1) % size, TAG, comm, &requests[1]);
        return MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

/* Calls until one has failed: a ring may succeed at ranks that are no neighbours of the dead. */
static void call_until_repaired(int which)
{
    int done = repairs;
    while (repairs == done) {
        MPI_Comm comm = work;
        int code;
        if (jumps && setjmp(again))
            break;
        code = failing_call(which, comm);
        expect("a call that failed returns its class", code == MPI_SUCCESS, repairs == done);
    }
}

static void is_whole(void)
{
    int size = -1, place = -1, one = 1, sum = -1, any;
    MPI_Comm_size(work, &size);
    MPI_Comm_rank(work, &place);
    expect("all who live are members", size, alive);
    expect("the order of ranks", place, rank);
    expect("Allreduce", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, work), MPI_SUCCESS);
    expect("its sum", sum, alive);
    expect("the freed one", class_of(MPI_Comm_size(before, &any)), MPI_ERR_COMM);
}

int main(void)
{
    MPI_Errhandler handler;
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &work);
    MPI_Comm_create_errhandler(repair, &handler);
    for (int round = 0; alive > 1; round++) {
        jumps = round % 2;
        MPI_Comm_set_errhandler(work, handler);
        meet();
        if (rank == --alive)
            die();
        call_until_repaired((round + ranks) % CALLS);
        expect("one repair", repairs, round + 1);
        MPI_Comm_set_errhandler(work, MPI_ERRORS_RETURN);
        is_whole();
    }
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&work);
    return end();
}
