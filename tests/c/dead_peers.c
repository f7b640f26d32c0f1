/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 6
/* Sends and receives with a dead peer, and with living peers after a death: rows of the section PP of docs/dev/semantics.md. */
#include "deaths.h"

enum { TAG = 7, LARGE = 1 << 20, SENDS = 4 };
static unsigned char out[LARGE], in[LARGE];

/* Sends of rank 0, of each mode and size, that are started before the death of their receiver and waited for after it. */
static MPI_Request pending[SENDS];

/* Rows PP3, PP4: a start succeeds. The wait raises PROC_FAILED, or, for a short message, may succeed. */
static void begin_to_send(int victim)
{
    expect("Isend of little", MPI_Isend(out, 8, MPI_BYTE, victim, TAG, MPI_COMM_WORLD, &pending[0]), MPI_SUCCESS);
    expect("Isend of much", MPI_Isend(out, LARGE, MPI_BYTE, victim, TAG, MPI_COMM_WORLD, &pending[1]), MPI_SUCCESS);
    expect("Issend", MPI_Issend(out, 8, MPI_BYTE, victim, TAG, MPI_COMM_WORLD, &pending[2]), MPI_SUCCESS);
}

static void waits_of_sends_to_the_dead_end(void)
{
    int little = class_of(MPI_Wait(&pending[0], MPI_STATUS_IGNORE));
    expect("the wait of a short one", little == MPI_SUCCESS || little == MPI_ERR_PROC_FAILED, 1);
    expect("of a large one", class_of(MPI_Wait(&pending[1], MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    expect("of a synchronous one", class_of(MPI_Wait(&pending[2], MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    for (int at = 0; at < 3; at++)
        expect("its handle is null", pending[at] == MPI_REQUEST_NULL, 1);
}

/* Rows PP1, PP2, PP3 */
static void sends_to_the_dead_return(int dead)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int little = class_of(MPI_Send(out, 8, MPI_BYTE, dead, TAG, MPI_COMM_WORLD));
    expect("Send of little", little == MPI_SUCCESS || little == MPI_ERR_PROC_FAILED, 1);
    expect("Send of much", class_of(MPI_Send(out, LARGE, MPI_BYTE, dead, TAG, MPI_COMM_WORLD)), MPI_ERR_PROC_FAILED);
    expect("Ssend", class_of(MPI_Ssend(out, 0, MPI_BYTE, dead, TAG, MPI_COMM_WORLD)), MPI_ERR_PROC_FAILED);
    expect("Isend", MPI_Isend(out, LARGE, MPI_BYTE, dead, TAG, MPI_COMM_WORLD, &request), MPI_SUCCESS);
    expect("its wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    expect("Irsend", MPI_Irsend(out, LARGE, MPI_BYTE, dead, TAG, MPI_COMM_WORLD, &request), MPI_SUCCESS);
    expect("its wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
}

/* Rows PP5, PP6, PP23: a receive of a message that was not sent raises, and its buffer is not written afterwards. */
static void receives_from_the_dead_raise(int dead)
{
    MPI_Request request = MPI_REQUEST_NULL;
    memset(in, 0x5a, LARGE);
    expect("Recv", class_of(MPI_Recv(in, LARGE, MPI_BYTE, dead, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
           MPI_ERR_PROC_FAILED);
    expect("Irecv", MPI_Irecv(in, LARGE, MPI_BYTE, dead, TAG + 1, MPI_COMM_WORLD, &request), MPI_SUCCESS);
    expect("its wait", class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    expect("its handle is null", request == MPI_REQUEST_NULL, 1);
    expect("nothing was written", is_all(in, LARGE, 0x5a), 1);
}

/* Rows PP6, PP23: the victim has sent the RTS of a large message and dies before the payload: the matching receive ends. */
static void a_receive_that_was_posted_ends(MPI_Request *posted)
{
    expect("its wait", class_of(MPI_Wait(posted, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    memset(in, 0x3c, LARGE);
    meet();
    expect("the buffer is not written", is_all(in, LARGE, 0x3c), 1);
}

static const int sizes[] = {0, 1, 8, 56, 57, 400, 3000};

/* Row PP7: messages that were sent completely are received, in order. */
static void what_the_dead_had_sent_whole_is_received(int dead)
{
    for (int at = 0; at < 7; at++) {
        MPI_Status status;
        int count = -1;
        memset(in, 0, 4000);
        expect("Recv of what was whole",
               class_of(MPI_Recv(in, 4000, MPI_BYTE, dead, TAG, MPI_COMM_WORLD, &status)), MPI_SUCCESS);
        MPI_Get_count(&status, MPI_BYTE, &count);
        expect("its size", count, sizes[at]);
        expect("its bytes", holds(in, sizes[at], at + 100 * dead), 1);
    }
}

static void send_whole(int victim)
{
    for (int other = 0; other < victim; other++)
        for (int at = 0; at < 7; at++) {
            fill(out, sizes[at], at + 100 * victim);
            MPI_Send(out, sizes[at], MPI_BYTE, other, TAG, MPI_COMM_WORLD);
        }
}

/* Row PP8: with a failure that is not acknowledged, living ranks exchange messages as before. */
static void the_living_go_on(void)
{
    int next = (rank + 1) % alive, before = (rank + alive - 1) % alive;
    for (int round = 0; round < 40; round++) {
        int bytes = round % 5 == 4 ? LARGE : round * 111;
        MPI_Request request;
        fill(out, bytes, round + rank);
        MPI_Irecv(in, LARGE, MPI_BYTE, before, TAG, MPI_COMM_WORLD, &request);
        expect("Send to the living", MPI_Send(out, bytes, MPI_BYTE, next, TAG, MPI_COMM_WORLD), MPI_SUCCESS);
        expect("Wait", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
        expect("what the living sent", holds(in, bytes, round + before), 1);
    }
}

/* Row PP16: one peer of Sendrecv is dead. Neither buffer is used after it returns: rank 1 overwrites its send buffer, and rank 0
 * still receives the old content. */
static void sendrecv_with_one_dead_peer_raises(int dead)
{
    if (rank == 0) {
        memset(in, 0x5a, LARGE);
        expect("to the dead", class_of(MPI_Sendrecv(out, LARGE, MPI_BYTE, dead, TAG, in, LARGE, MPI_BYTE, 1, TAG + 9,
                                                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
               MPI_ERR_PROC_FAILED);
        meet();
        expect("nothing was written", is_all(in, LARGE, 0x5a), 1);
        expect("Recv of a half", MPI_Recv(in, LARGE, MPI_BYTE, 1, TAG + 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
        expect("the half", holds(in, LARGE, 77), 1);
        /* The receive of the failed Sendrecv is not posted any more: this one gets the message. */
        expect("Recv of what was awaited", MPI_Recv(in, LARGE, MPI_BYTE, 1, TAG + 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
               MPI_SUCCESS);
        expect("what was awaited", holds(in, 5000, 78), 1);
    } else {
        if (rank == 1) {
            fill(out, LARGE, 77);
            expect("from the dead", class_of(MPI_Sendrecv(out, LARGE, MPI_BYTE, 0, TAG + 8, in, 8, MPI_BYTE, dead, TAG + 9,
                                                          MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
                   MPI_ERR_PROC_FAILED);
            memset(out, 0xee, LARGE);
        }
        meet();
        if (rank == 1) {
            fill(out, 5000, 78);
            MPI_Send(out, 5000, MPI_BYTE, 0, TAG + 9, MPI_COMM_WORLD);
        }
    }
    expect("both dead", class_of(MPI_Sendrecv(out, LARGE, MPI_BYTE, dead, TAG, in, LARGE, MPI_BYTE, dead, TAG + 9,
                                              MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
           MPI_ERR_PROC_FAILED);
    meet();
}

/* Row PP17: also after a death. */
static void nobody_and_oneself_always_succeed(void)
{
    MPI_Request requests[2];
    expect("nobody", MPI_Sendrecv(out, 8, MPI_BYTE, MPI_PROC_NULL, 0, in, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD,
                                  MPI_STATUS_IGNORE),
           MPI_SUCCESS);
    fill(out, LARGE, 3);
    MPI_Irecv(in, LARGE, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, LARGE, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, &requests[1]);
    expect("oneself", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    expect("what came from oneself", holds(in, LARGE, 3), 1);
}

int main(void)
{
    MPI_Request posted = MPI_REQUEST_NULL;
    int first, second;
    begin();
    first = ranks - 1;
    second = ranks - 2;
    if (rank == first)
        send_whole(first);
    else
        begin_to_send(first);
    if (rank == 0)
        MPI_Irecv(in, LARGE, MPI_BYTE, first, TAG + 5, MPI_COMM_WORLD, &posted);
    meet();
    lose_one();
    if (rank == 0)
        a_receive_that_was_posted_ends(&posted);
    else
        meet();
    what_the_dead_had_sent_whole_is_received(first);
    waits_of_sends_to_the_dead_end();
    sends_to_the_dead_return(first);
    receives_from_the_dead_raise(first);
    meet();
    the_living_go_on();
    nobody_and_oneself_always_succeed();
    meet();
    if (rank == second)
        send_whole(second);
    lose_one();
    what_the_dead_had_sent_whole_is_received(second);
    receives_from_the_dead_raise(second);
    sendrecv_with_one_dead_peer_raises(first);
    the_living_go_on();
    meet();
    MPI_Comm_free(&aside);
    return end();
}
