/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* MPIX_Comm_revoke: rows RV1 to RV12 and CO6 of docs/dev/semantics.md. */
#include "deaths.h"

#include <mpi-ext.h>

enum { TAG = 5, LONG = 1 << 18 };
static int out[LONG], in[LONG];

static int is_revoked(MPI_Comm comm)
{
    int flag = -1;
    expect("is_revoked", MPIX_Comm_is_revoked(comm, &flag), MPI_SUCCESS);
    return flag;
}

/* What rank `rank` is blocked in when the communicator is revoked: nobody sends or receives what it waits for. */
static int blocked(MPI_Comm comm)
{
    MPI_Request requests[2];
    MPI_Status statuses[2];
    switch (rank % 8) {
    case 1: return MPI_Recv(in, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE);
    case 2: return MPI_Barrier(comm);
    case 3: return MPI_Recv(in, 1, MPI_INT, MPI_ANY_SOURCE, TAG, comm, MPI_STATUS_IGNORE);
    case 4: return MPI_Ssend(out, 1, MPI_INT, 0, TAG, comm);
    case 5: return MPI_Send(out, LONG, MPI_INT, 0, TAG, comm);
    case 6: return MPI_Probe(0, TAG, comm, MPI_STATUS_IGNORE);
    default:
        MPI_Irecv(in, 1, MPI_INT, 0, TAG, comm, &requests[0]);
        MPI_Irecv(in + 1, 1, MPI_INT, 1, TAG, comm, &requests[1]);
        expect("Waitall", MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS);
        return statuses[0].MPI_ERROR;
    }
}

/* Rows RV3, RV5, RV8, CO6, RV15: whatever is not local. */
static void nothing_works_but_what_is_local(MPI_Comm comm)
{
    MPI_Request request;
    MPI_Group group;
    int other = (rank + 1) % ranks, flag = -1, value = 1, size = -1;
    expect("Recv", class_of(MPI_Recv(in, 1, MPI_INT, other, TAG, comm, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
    expect("Send", class_of(MPI_Send(out, 1, MPI_INT, other, TAG, comm)), MPI_ERR_REVOKED);
    expect("Ssend", class_of(MPI_Ssend(out, 1, MPI_INT, other, TAG, comm)), MPI_ERR_REVOKED);
    expect("Barrier", class_of(MPI_Barrier(comm)), MPI_ERR_REVOKED);
    expect("Allreduce", class_of(MPI_Allreduce(&value, &flag, 1, MPI_INT, MPI_SUM, comm)), MPI_ERR_REVOKED);
    expect("Iprobe", class_of(MPI_Iprobe(other, TAG, comm, &flag, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
    expect("Irecv", MPI_Irecv(in, 1, MPI_INT, MPI_ANY_SOURCE, TAG, comm, &request), MPI_SUCCESS);
    expect("its Wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_REVOKED);
    /* Row RV6 */
    expect("Comm_size", MPI_Comm_size(comm, &size), MPI_SUCCESS);
    expect("its size", size, ranks);
    expect("Comm_group", MPI_Comm_group(comm, &group), MPI_SUCCESS);
    MPI_Group_free(&group);
    expect("failure_ack", MPIX_Comm_failure_ack(comm), MPI_SUCCESS);
}

/* Rows AG6, SH1 */
static void agreeing_and_shrinking_work(MPI_Comm comm)
{
    MPI_Comm made;
    int flag = 6 | rank, one = 1, sum = 0;
    expect("agree", MPIX_Comm_agree(comm, &flag), MPI_SUCCESS);
    expect("its flag", flag, 6);
    expect("shrink", MPIX_Comm_shrink(comm, &made), MPI_SUCCESS);
    expect("it is not revoked", is_revoked(made), 0);
    expect("Allreduce", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made), MPI_SUCCESS);
    expect("its sum", sum, ranks);
    MPI_Comm_free(&made);
}

/* Row RV12: the parent and other communicators go on. */
static void others_are_not_revoked(void)
{
    int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks, token = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, next, TAG, &token, 1, MPI_INT, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect("a message on the parent", token, last);
    expect("Barrier of the parent", MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
}

int main(void)
{
    MPI_Comm comm;
    begin();
    for (int round = 0; round < 20; round++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        expect("not revoked yet", is_revoked(comm), 0);
        /* The revocation arrives whether its receiver is in MPI or not. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            /* Row RV1 */
            expect("revoke", MPIX_Comm_revoke(comm), MPI_SUCCESS);
            expect("revoke again", MPIX_Comm_revoke(comm), MPI_SUCCESS);
        } else {
            expect("a blocked call", class_of(blocked(comm)), MPI_ERR_REVOKED);
        }
        expect("revoked", is_revoked(comm), 1);
        nothing_works_but_what_is_local(comm);
        agreeing_and_shrinking_work(comm);
        others_are_not_revoked();
        expect("Comm_free", MPI_Comm_free(&comm), MPI_SUCCESS);
    }
    return end();
}
