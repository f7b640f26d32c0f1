/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* What rank 1 leaves behind when it dies: messages that came whole, offers of large ones whose bytes never come, and at rank 0
 * receives that were taken back, let go, or too short. Rows PP5, PP7, PP13, PP18, PP22, PP23 and WT1 of docs/dev/semantics.md. */
#include "deaths.h"

enum { LOST = 1, LOST_TOO = 2, SHORT = 3, SYNCHRONOUS = 4, TAKEN = 5, NEVER = 6, DIE = 7, BYTES = 1 << 20 };
static unsigned char out[BYTES], in[BYTES], untouched[8];
static MPI_Comm doubtful;

static int count_of(const MPI_Status *status)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

/* Offers first, whole messages behind them. */
static void leave_things_and_die(void)
{
    MPI_Request ignored;
    fill(out, BYTES, 1);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, LOST, MPI_COMM_WORLD, &ignored);
    MPI_Isend(out, 10, MPI_BYTE, 0, LOST, MPI_COMM_WORLD, &ignored);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, LOST_TOO, doubtful, &ignored);
    MPI_Isend(out, 11, MPI_BYTE, 0, SHORT, doubtful, &ignored);
    MPI_Issend(out, 12, MPI_BYTE, 0, SYNCHRONOUS, doubtful, &ignored);
    MPI_Isend(out, BYTES, MPI_BYTE, 0, TAKEN, doubtful, &ignored);
    MPI_Recv(in, 1, MPI_BYTE, 0, DIE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    die();
}

/* No later message is taken for the one whose offer came before it (MPI-5.0 §3.5). */
static void a_lost_offer_keeps_its_place(void)
{
    MPI_Status status;
    int flag = -1, recv;
    expect("Iprobe of the lost", class_of(MPI_Iprobe(1, LOST, MPI_COMM_WORLD, &flag, &status)), MPI_ERR_PROC_FAILED);
    expect("Iprobe of any", MPI_Iprobe(MPI_ANY_SOURCE, LOST, MPI_COMM_WORLD, &flag, &status), MPI_SUCCESS);
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
    recv = MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, LOST_TOO, doubtful, &status);
    expect("from anybody, in doubt", class_of(recv), MPI_ERR_PROC_FAILED);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, 1, LOST_TOO, doubtful, &status);
    expect("and named", class_of(recv), MPI_ERR_PROC_FAILED);
}

static void whole_ones_are_received_also_too_short_or_unanswered(void)
{
    MPI_Status status;
    int recv = MPI_Recv(in, 3, MPI_BYTE, 1, SHORT, doubtful, &status);
    expect("too short", class_of(recv), MPI_ERR_TRUNCATE);
    expect("what was kept", count_of(&status) == 3 && holds(in, 3, 1), 1);
    recv = MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, SYNCHRONOUS, doubtful, &status);
    expect("one that waits for our word", recv, MPI_SUCCESS);
    expect("its bytes", count_of(&status) == 12 && holds(in, 12, 1), 1);
}

int main(void)
{
    MPI_Request let_go, taken_back, too_short, pending;
    MPI_Status status;
    int cancelled = 0;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &doubtful);
    if (rank == 1)
        leave_things_and_die();
    if (rank > 0)
        return end();
    memset(untouched, 0x5a, sizeof untouched);
    MPI_Irecv(untouched, 1, MPI_BYTE, 1, NEVER, doubtful, &let_go);
    MPI_Request_free(&let_go);
    MPI_Irecv(untouched, 1, MPI_BYTE, 1, NEVER, doubtful, &taken_back);
    MPI_Cancel(&taken_back);
    MPI_Irecv(untouched, 1, MPI_BYTE, MPI_ANY_SOURCE, NEVER, doubtful, &pending);
    /* It came last, so all have come. */
    MPI_Probe(1, TAKEN, doubtful, &status);
    expect("the length of an offer", count_of(&status), BYTES);
    MPI_Irecv(in, 4, MPI_BYTE, 1, TAKEN, doubtful, &too_short);
    expect("a part of it", class_of(MPI_Wait(&too_short, &status)), MPI_ERR_TRUNCATE);
    expect("that part", holds(in, 4, 1), 1);
    MPI_Send(out, 1, MPI_BYTE, 1, DIE, MPI_COMM_WORLD);
    until_known(MPI_COMM_WORLD, 1);
    expect("what was taken back before", MPI_Wait(&taken_back, &status), MPI_SUCCESS);
    MPI_Test_cancelled(&status, &cancelled);
    expect("its status", cancelled, 1);
    a_lost_offer_keeps_its_place();
    whole_ones_are_received_also_too_short_or_unanswered();
    expect("in doubt", class_of(MPI_Wait(&pending, &status)), MPI_ERR_PROC_FAILED_PENDING);
    MPI_Comm_free(&doubtful);
    expect("in doubt, its communicator freed", class_of(MPI_Wait(&pending, &status)), MPI_ERR_PROC_FAILED_PENDING);
    MPI_Cancel(&pending);
    expect("taken back", MPI_Wait(&pending, &status), MPI_SUCCESS);
    expect("all that nobody sent", is_all(untouched, sizeof untouched, 0x5a), 1);
    return end();
}
