/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* Messages of rank 1, which dies: complete ones, and large ones of which only the RTS arrives; and receives at rank 0 that were
 * cancelled, freed, or too short. Rows PP5, PP7, PP13, PP18, PP22, PP23 and WT1 of docs/dev/semantics.md. */
#include "deaths.h"

enum { LOST = 1, LOST_TOO = 2, SHORT = 3, SYNCHRONOUS = 4, TAKEN = 5, NEVER = 6, DIE = 7, BYTES = 1 << 20 };
static unsigned char out[BYTES], in[BYTES], untouched[8];
static MPI_Comm unacked;

static int count_of(const MPI_Status *status)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

/* Large messages first, of which only the RTS is sent, then complete ones. */
static void send_and_die(void)
{
    MPI_Request ignored;
    fill(out, BYTES, 1);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, LOST, MPI_COMM_WORLD, &ignored);
    MPI_Isend(out, 10, MPI_BYTE, 0, LOST, MPI_COMM_WORLD, &ignored);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, LOST_TOO, unacked, &ignored);
    MPI_Isend(out, 11, MPI_BYTE, 0, SHORT, unacked, &ignored);
    MPI_Issend(out, 12, MPI_BYTE, 0, SYNCHRONOUS, unacked, &ignored);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, TAKEN, unacked, &ignored);
    MPI_Recv(in, 1, MPI_BYTE, 0, DIE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    die();
}

/* A receive that matches the RTS of an incomplete message does not match a later message instead (MPI-5.0 §3.5); one from any source
 * passes it over when the failure is acknowledged (rows PP13, AK7). */
static void an_incomplete_message_is_matched_in_order(void)
{
    MPI_Status status;
    int flag = -1, recv;
    expect("Iprobe of the lost", class_of(MPI_Iprobe(1, LOST, MPI_COMM_WORLD, &flag, &status)), MPI_ERR_PROC_FAILED);
    expect("Iprobe of any", class_of(MPI_Iprobe(MPI_ANY_SOURCE, LOST, MPI_COMM_WORLD, &flag, &status)), MPI_ERR_PROC_FAILED);
    MPI_Comm_failure_ack(MPI_COMM_WORLD);
    expect("when it is acknowledged", MPI_Iprobe(MPI_ANY_SOURCE, LOST, MPI_COMM_WORLD, &flag, &status), MPI_SUCCESS);
    expect("it finds the whole one", flag && count_of(&status) == 10, 1);
    memset(in, 0x5a, BYTES);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, 1, LOST, MPI_COMM_WORLD, &status);
    expect("the lost one", class_of(recv), MPI_ERR_PROC_FAILED);
    expect("nothing was written", is_all(in, BYTES, 0x5a), 1);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, 1, LOST, MPI_COMM_WORLD, &status);
    expect("the whole one behind it", recv, MPI_SUCCESS);
    expect("its bytes", count_of(&status) == 10 && holds(in, 10, 1), 1);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, 1, LOST, MPI_COMM_WORLD, &status);
    expect("no more of them", class_of(recv), MPI_ERR_PROC_FAILED);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, LOST_TOO, unacked, &status);
    expect("from any source, not acknowledged", class_of(recv), MPI_ERR_PROC_FAILED);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, 1, LOST_TOO, unacked, &status);
    expect("from the named rank", class_of(recv), MPI_ERR_PROC_FAILED);
}

static void complete_messages_are_received_also_truncated_or_synchronous(void)
{
    MPI_Status status;
    int recv = MPI_Recv(in, 3, MPI_BYTE, 1, SHORT, unacked, &status);
    expect("too short", class_of(recv), MPI_ERR_TRUNCATE);
    expect("the part that fitted", count_of(&status) == 3 && holds(in, 3, 1), 1);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, SYNCHRONOUS, unacked, &status);
    expect("a synchronous one", recv, MPI_SUCCESS);
    expect("its bytes", count_of(&status) == 12 && holds(in, 12, 1), 1);
}

int main(void)
{
    MPI_Request let_go, taken_back, too_short, pending;
    MPI_Status status;
    int cancelled = 0;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &unacked);
    if (rank == 1)
        send_and_die();
    if (rank > 0)
        return end();
    memset(untouched, 0x5a, sizeof untouched);
    MPI_Irecv(untouched, 1, MPI_BYTE, 1, NEVER, unacked, &let_go);
    MPI_Request_free(&let_go);
    MPI_Irecv(untouched, 1, MPI_BYTE, 1, NEVER, unacked, &taken_back);
    MPI_Cancel(&taken_back);
    MPI_Irecv(untouched, 1, MPI_BYTE, MPI_ANY_SOURCE, NEVER, unacked, &pending);
    /* It came last, so all have come. */
    MPI_Probe(1, TAKEN, unacked, &status);
    expect("the length in an RTS", count_of(&status), BYTES);
    MPI_Irecv(in, 4, MPI_BYTE, 1, TAKEN, unacked, &too_short);
    expect("a part of it", class_of(MPI_Wait(&too_short, &status)), MPI_ERR_TRUNCATE);
    expect("that part", holds(in, 4, 1), 1);
    MPI_Send(out, 1, MPI_BYTE, 1, DIE, MPI_COMM_WORLD);
    until_known(MPI_COMM_WORLD, 1);
    expect("what was taken back before", MPI_Wait(&taken_back, &status), MPI_SUCCESS);
    MPI_Test_cancelled(&status, &cancelled);
    expect("its status", cancelled, 1);
    an_incomplete_message_is_matched_in_order();
    complete_messages_are_received_also_truncated_or_synchronous();
    expect("pending failure", class_of(MPI_Wait(&pending, &status)), MPI_ERR_PROC_FAILED_PENDING);
    MPI_Comm_free(&unacked);
    expect("pending failure, its communicator freed", class_of(MPI_Wait(&pending, &status)), MPI_ERR_PROC_FAILED_PENDING);
    MPI_Cancel(&pending);
    expect("taken back", MPI_Wait(&pending, &status), MPI_SUCCESS);
    expect("buffers for which nothing was sent", is_all(untouched, sizeof untouched, 0x5a), 1);
    return end();
}
