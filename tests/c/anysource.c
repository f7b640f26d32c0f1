/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 6
/* Receives and probes from MPI_ANY_SOURCE after a failure: rows PP9-PP11, PP13, PP14, PP18, AK7, WT1, WT2 and WT5 of
 * docs/dev/semantics.md. Failures are acknowledged on the communicator `acked`, and not on `unacked`. */
#include "deaths.h"

enum { TAG = 7, BYTES = 20000 };
static unsigned char out[BYTES], in[BYTES];
static MPI_Comm unacked, acked;

/* Row PP9: a blocking receive raises PROC_FAILED and does not stay posted: a later message goes to the next receive. */
static void a_blocking_receive_raises_and_leaves_nothing(void)
{
    if (rank == 0) {
        memset(in, 0x5a, BYTES);
        expect("Recv", class_of(MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, unacked, MPI_STATUS_IGNORE)),
               MPI_ERR_PROC_FAILED);
        meet();
        meet();
        expect("nothing was written", is_all(in, BYTES, 0x5a), 1);
        expect("the next receive", MPI_Recv(in, BYTES, MPI_BYTE, 1, TAG, unacked, MPI_STATUS_IGNORE), MPI_SUCCESS);
        expect("its bytes", holds(in, BYTES, 5), 1);
    } else {
        MPI_Request request = MPI_REQUEST_NULL;
        meet();
        fill(out, BYTES, 5);
        if (rank == 1)
            MPI_Isend(out, BYTES, MPI_BYTE, 0, TAG, unacked, &request);
        meet();
        expect("the send", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    }
}

/* Rows PP10, WT1, WT2: a nonblocking receive has a pending failure: Wait and Test return that class, with the flag false, and the
 * request stays active. Rank 1's message completes the same request. */
static void a_request_stays_until_its_message_comes(void)
{
    if (rank == 0) {
        MPI_Request request, same;
        MPI_Status status;
        int flag = 1, index = -1, count = -1, indices[2];
        expect("Irecv", MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, unacked, &request), MPI_SUCCESS);
        same = request;
        expect("Wait", class_of(MPI_Wait(&request, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("Wait again", class_of(MPI_Wait(&request, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("Test", class_of(MPI_Test(&request, &flag, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("its flag", flag, 0);
        expect("Waitany", class_of(MPI_Waitany(1, &request, &index, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("its index", index, 0);
        expect("Testany", class_of(MPI_Testany(1, &request, &index, &flag, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("its flag", flag, 0);
        expect("Waitall", class_of(MPI_Waitall(1, &request, &status)), MPI_ERR_IN_STATUS);
        expect("its status", status.MPI_ERROR, MPI_ERR_PROC_FAILED_PENDING);
        expect("Testall", class_of(MPI_Testall(1, &request, &flag, &status)), MPI_ERR_IN_STATUS);
        expect("its flag", flag, 0);
        expect("Waitsome", class_of(MPI_Waitsome(1, &request, &count, indices, &status)), MPI_ERR_IN_STATUS);
        expect("its count", count, 1);
        expect("its status", status.MPI_ERROR, MPI_ERR_PROC_FAILED_PENDING);
        expect("the handle stands", request == same, 1);
        meet();
        meet();
        expect("Wait of what came", MPI_Wait(&request, &status), MPI_SUCCESS);
        expect("whose it was", status.MPI_SOURCE, 1);
        expect("its bytes", holds(in, 500, 6), 1);
        expect("the handle is null", request == MPI_REQUEST_NULL, 1);
    } else {
        meet();
        fill(out, 500, 6);
        if (rank == 1)
            MPI_Send(out, 500, MPI_BYTE, 0, TAG, unacked);
        meet();
    }
}

/* Row PP18: a request with a pending failure can be cancelled. */
static void a_pending_request_can_be_cancelled(void)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0;
    MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG + 1, unacked, &request);
    expect("Wait", class_of(MPI_Wait(&request, &status)), MPI_ERR_PROC_FAILED_PENDING);
    expect("Cancel", MPI_Cancel(&request), MPI_SUCCESS);
    expect("Wait of the cancelled", MPI_Wait(&request, &status), MPI_SUCCESS);
    MPI_Test_cancelled(&status, &cancelled);
    expect("it is cancelled", cancelled, 1);
    expect("the handle is null", request == MPI_REQUEST_NULL, 1);
}

/* Rows PP13, PP14: an unexpected message is found and received also after a failure; without one, probes raise. */
static void unexpected_messages_are_received_and_nothing_is_waited_for(void)
{
    MPI_Status status;
    int flag = 1;
    if (rank == 0) {
        expect("Probe", class_of(MPI_Probe(MPI_ANY_SOURCE, TAG, unacked, &status)), MPI_ERR_PROC_FAILED);
        expect("Iprobe", class_of(MPI_Iprobe(MPI_ANY_SOURCE, TAG, unacked, &flag, &status)), MPI_ERR_PROC_FAILED);
        expect("its flag", flag, 0);
    }
    meet();
    fill(out, 3000, 7);
    if (rank == 1)
        MPI_Send(out, 3000, MPI_BYTE, 0, TAG, unacked);
    meet();
    if (rank == 0) {
        expect("Probe of what is here", MPI_Probe(MPI_ANY_SOURCE, TAG, unacked, &status), MPI_SUCCESS);
        expect("whose it is", status.MPI_SOURCE, 1);
        expect("Recv of what is here",
               MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, unacked, &status), MPI_SUCCESS);
        expect("its bytes", holds(in, 3000, 7), 1);
    }
    meet();
}

/* Row AK7: after all failures are acknowledged the receive works, on this communicator only, until the next failure. */
static void acknowledging_lets_it_go_on(void)
{
    MPI_Status status;
    expect("Comm_failure_ack", MPI_Comm_failure_ack(acked), MPI_SUCCESS);
    meet();
    if (rank == 0) {
        for (int other = 1; other < alive; other++)
            expect("Recv", MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, acked, &status), MPI_SUCCESS);
        expect("on another communicator",
               class_of(MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, unacked, &status)), MPI_ERR_PROC_FAILED);
    } else {
        MPI_Send(out, rank, MPI_BYTE, 0, TAG, acked);
    }
    meet();
}

/* Rows AK7, PP10, WT2: the failure comes while a call waits for the request, which goes on after the acknowledgement. */
static void a_failure_while_it_waits_stops_it_until_it_is_acknowledged(void)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int victim = alive - 1, acknowledged = 0;
    if (rank == 0)
        MPI_Irecv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, acked, &request);
    meet();
    if (rank == victim)
        die();
    if (rank == 0) {
        expect("Wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED_PENDING);
        expect("who failed is known", has_failed(acked, victim), 1);
        MPI_Comm_ack_failed(acked, ranks, &acknowledged);
        expect("is acknowledged", acknowledged, ranks - victim);
    }
    alive--;
    until_known(MPI_COMM_WORLD, ranks - alive);
    meet();
    if (rank == 1)
        MPI_Send(out, 9, MPI_BYTE, 0, TAG, acked);
    if (rank == 0)
        expect("Wait of the same", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    meet();
}

/* Row PP9: the failure comes while a blocking receive or probe waits. */
static void a_failure_ends_a_blocking_receive_and_a_probe(int probe)
{
    int victim = alive - 1, got;
    meet();
    if (rank == victim)
        die();
    if (probe)
        got = MPI_Probe(MPI_ANY_SOURCE, TAG, acked, MPI_STATUS_IGNORE);
    else
        got = MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, acked, MPI_STATUS_IGNORE);
    expect(probe ? "a probe" : "a receive", class_of(got), MPI_ERR_PROC_FAILED);
    expect("who failed is known", has_failed(acked, victim), 1);
    alive--;
}

int main(void)
{
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &unacked);
    MPI_Comm_dup(MPI_COMM_WORLD, &acked);
    meet();
    a_failure_ends_a_blocking_receive_and_a_probe(ranks > 4);
    a_blocking_receive_raises_and_leaves_nothing();
    a_request_stays_until_its_message_comes();
    a_pending_request_can_be_cancelled();
    unexpected_messages_are_received_and_nothing_is_waited_for();
    acknowledging_lets_it_go_on();
    a_failure_while_it_waits_stops_it_until_it_is_acknowledged();
    if (ranks > 4) {
        MPI_Comm_failure_ack(acked);
        a_failure_ends_a_blocking_receive_and_a_probe(0);
    }
    meet();
    MPI_Comm_free(&unacked);
    MPI_Comm_free(&acked);
    return end();
}
