/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 5
/* The calls that end requests, with requests in every state: done, failed, with a pending failure, and active. Rows of the section
 * WT of docs/dev/semantics.md, and which error handler is called: EH4, WT12. The highest rank is dead, and not acknowledged. */
#include "deaths.h"
#include <setjmp.h>

enum { TAG = 7, BYTES = 30000, DONE = 0, ACTIVE = 1, FAILED = 2, PENDING = 3, NONE = 4, ALL = 5 };
static unsigned char out[BYTES], in[ALL][BYTES];
static MPI_Request requests[ALL];
static MPI_Comm other;
static int dead;

/* Rank 0 starts one request for each state; `finish` sends the messages for those that stay active. */
static void start(void)
{
    if (rank == 0) {
        memset(in, 0x5a, sizeof in);
        MPI_Irecv(in[DONE], BYTES, MPI_BYTE, 1, TAG + DONE, MPI_COMM_WORLD, &requests[DONE]);
        MPI_Irecv(in[ACTIVE], BYTES, MPI_BYTE, 1, TAG + ACTIVE, MPI_COMM_WORLD, &requests[ACTIVE]);
        MPI_Irecv(in[FAILED], BYTES, MPI_BYTE, dead, TAG + FAILED, MPI_COMM_WORLD, &requests[FAILED]);
        MPI_Irecv(in[PENDING], BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG + PENDING, MPI_COMM_WORLD, &requests[PENDING]);
        requests[NONE] = MPI_REQUEST_NULL;
    }
    meet();
    fill(out, 100, 1);
    if (rank == 1)
        MPI_Send(out, 100, MPI_BYTE, 0, TAG + DONE, MPI_COMM_WORLD);
    meet();
}

/* The active requests end with success, by the same handles. */
static void finish(void)
{
    meet();
    fill(out, BYTES, 2);
    if (rank == 1) {
        MPI_Send(out, BYTES, MPI_BYTE, 0, TAG + ACTIVE, MPI_COMM_WORLD);
        MPI_Send(out, BYTES, MPI_BYTE, 0, TAG + PENDING, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        int wait = MPI_Wait(&requests[ACTIVE], MPI_STATUS_IGNORE);
        expect("what went on", wait, MPI_SUCCESS);
        /* The failure stays pending until rank 1's message comes, as it is not acknowledged; repeated calls must make progress. */
        do
            wait = MPI_Wait(&requests[PENDING], MPI_STATUS_IGNORE);
        while (class_of(wait) == MPI_ERR_PROC_FAILED_PENDING);
        expect("the one with a pending failure", wait, MPI_SUCCESS);
        expect("its bytes", holds(in[PENDING], BYTES, 2) && holds(in[ACTIVE], BYTES, 2), 1);
        expect("the buffer of the failed one is not written", is_all(in[FAILED], BYTES, 0x5a), 1);
    }
    meet();
}

static void expect_active(int failed_is_active, int done_is_active)
{
    expect("the active one is active", requests[ACTIVE] != MPI_REQUEST_NULL, 1);
    expect("the pending one is active", requests[PENDING] != MPI_REQUEST_NULL, 1);
    expect("the failed one", requests[FAILED] != MPI_REQUEST_NULL, failed_is_active);
    expect("the done one", requests[DONE] != MPI_REQUEST_NULL, done_is_active);
}

static void expect_statuses(const MPI_Status *statuses)
{
    expect("the done one's status", statuses[DONE].MPI_ERROR, MPI_SUCCESS);
    expect("the done one's source", statuses[DONE].MPI_SOURCE, 1);
    expect("the active one's status", statuses[ACTIVE].MPI_ERROR, MPI_ERR_PENDING);
    expect("the failed one's status", class_of(statuses[FAILED].MPI_ERROR), MPI_ERR_PROC_FAILED);
    expect("the pending one's status", class_of(statuses[PENDING].MPI_ERROR), MPI_ERR_PROC_FAILED_PENDING);
    expect("the null one's status", statuses[NONE].MPI_ERROR, MPI_SUCCESS);
}

/* Row WT5 */
static void waitall_gives_the_state_of_each_request(void)
{
    MPI_Status statuses[ALL];
    start();
    if (rank == 0) {
        expect("Waitall", class_of(MPI_Waitall(ALL, requests, statuses)), MPI_ERR_IN_STATUS);
        expect_statuses(statuses);
        expect_active(0, 0);
    }
    finish();
}

/* Row WT6 */
static void waitall_ends_the_same_requests_with_statuses_ignored(void)
{
    start();
    if (rank == 0) {
        expect("Waitall", class_of(MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE)), MPI_ERR_IN_STATUS);
        expect_active(0, 0);
    }
    finish();
}

/* Row WT7 */
static void testall_is_over_only_when_all_are(void)
{
    MPI_Status statuses[ALL];
    int flag = 1;
    start();
    if (rank == 0) {
        expect("Testall", class_of(MPI_Testall(ALL, requests, &flag, statuses)), MPI_ERR_IN_STATUS);
        expect("its flag", flag, 0);
        expect_statuses(statuses);
        expect_active(0, 0);
    }
    finish();
}

/* Row WT3: first the one that is done, then the failed one, then the one with a pending failure. */
static void waitany_prefers_what_is_done_then_what_failed(void)
{
    MPI_Status status;
    int index = -1;
    start();
    if (rank == 0) {
        expect("Waitany", MPI_Waitany(ALL, requests, &index, &status), MPI_SUCCESS);
        expect("the done one", index, DONE);
        expect_active(1, 0);
        expect("Waitany", class_of(MPI_Waitany(ALL, requests, &index, &status)), MPI_ERR_PROC_FAILED);
        expect("the failed one", index, FAILED);
        expect_active(0, 0);
        expect("Waitany", class_of(MPI_Waitany(ALL, requests, &index, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("the pending one", index, PENDING);
        expect_active(0, 0);
    }
    finish();
}

/* Row WT4 */
static void testany_does_the_same(void)
{
    MPI_Status status;
    int index = -1, flag = 0;
    start();
    if (rank == 0) {
        expect("Testany", MPI_Testany(ALL, requests, &index, &flag, &status), MPI_SUCCESS);
        expect("the done one", index, DONE);
        expect("its flag", flag, 1);
        expect("Testany", class_of(MPI_Testany(ALL, requests, &index, &flag, &status)), MPI_ERR_PROC_FAILED);
        expect("the failed one", index, FAILED);
        expect("its flag", flag, 1);
        expect("Testany", class_of(MPI_Testany(ALL, requests, &index, &flag, &status)), MPI_ERR_PROC_FAILED_PENDING);
        expect("its flag", flag, 0);
        expect_active(0, 0);
    }
    finish();
}

/* Rows WT8, WT9 */
static void waitsome_and_testsome_list_ended_requests_and_pending_failures(int test)
{
    MPI_Status statuses[ALL];
    int count = -1, indices[ALL], got;
    start();
    if (rank == 0) {
        if (test)
            got = MPI_Testsome(ALL, requests, &count, indices, statuses);
        else
            got = MPI_Waitsome(ALL, requests, &count, indices, statuses);
        expect(test ? "Testsome" : "Waitsome", class_of(got), MPI_ERR_IN_STATUS);
        expect("how many", count, 3);
        for (int at = 0; at < 3; at++) {
            const int which[] = {DONE, FAILED, PENDING};
            const int classes[] = {MPI_SUCCESS, MPI_ERR_PROC_FAILED, MPI_ERR_PROC_FAILED_PENDING};
            expect("which", indices[at], which[at]);
            expect("its status", class_of(statuses[at].MPI_ERROR), classes[at]);
        }
        expect_active(0, 0);
    }
    finish();
}

/* Rows WT1, WT2: a failed request ends in the first call after the failure is known, and its handle is then null; a null request
 * gives an empty status. */
static void wait_and_test_end_what_failed(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    MPI_Irecv(in[0], BYTES, MPI_BYTE, dead, TAG, MPI_COMM_WORLD, &request);
    expect("Wait", class_of(MPI_Wait(&request, &status)), MPI_ERR_PROC_FAILED);
    expect("its handle", request == MPI_REQUEST_NULL, 1);
    MPI_Irecv(in[0], BYTES, MPI_BYTE, dead, TAG, MPI_COMM_WORLD, &request);
    expect("Test", class_of(MPI_Test(&request, &flag, &status)), MPI_ERR_PROC_FAILED);
    expect("its flag", flag, 1);
    expect("its handle", request == MPI_REQUEST_NULL, 1);
    expect("Wait of none", MPI_Wait(&request, &status), MPI_SUCCESS);
    expect("the empty status", status.MPI_SOURCE, MPI_ANY_SOURCE);
}

static int calls, handler_class;
static MPI_Comm handler_comm;
static jmp_buf back;

static void note(MPI_Comm *comm, int *code, ...)
{
    calls++;
    handler_comm = *comm;
    handler_class = class_of(*code);
}

static void jump(MPI_Comm *comm, int *code, ...)
{
    note(comm, code);
    longjmp(back, 1);
}

static void begin_on_two_communicators(void)
{
    MPI_Irecv(in[0], BYTES, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in[1], BYTES, MPI_BYTE, dead, TAG, other, &requests[1]);
    MPI_Irecv(in[2], BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &requests[2]);
    calls = 0;
}

static void end_on_two_communicators(void)
{
    expect("the failed one's handle", requests[1] == MPI_REQUEST_NULL, 1);
    expect("the others stand", requests[0] != MPI_REQUEST_NULL && requests[2] != MPI_REQUEST_NULL, 1);
    MPI_Cancel(&requests[0]);
    MPI_Cancel(&requests[2]);
    expect("Waitall of the cancelled", MPI_Waitall(3, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
}

/* Rows EH4, WT11: the handler of the first failed request is called once, with its class; the call returns MPI_ERR_IN_STATUS. */
static void the_handler_of_the_requests_communicator_is_called(void)
{
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(note, &handler);
    MPI_Comm_set_errhandler(other, handler);
    begin_on_two_communicators();
    expect("Waitall", class_of(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)), MPI_ERR_IN_STATUS);
    expect("calls of the handler", calls, 1);
    expect("for its communicator", handler_comm == other, 1);
    expect("the class it is handler_comm", handler_class, MPI_ERR_PROC_FAILED);
    end_on_two_communicators();
    MPI_Errhandler_free(&handler);
}

/* Row WT12 */
static void a_handler_may_jump_out_of_waitall(void)
{
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(jump, &handler);
    MPI_Comm_set_errhandler(other, handler);
    for (volatile int round = 0; round < 3; round++) {
        begin_on_two_communicators();
        if (setjmp(back) == 0) {
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
            expect("Waitall does not return", 1, 0);
        }
        expect("calls of the handler", calls, 1);
        end_on_two_communicators();
        meet();
    }
    MPI_Errhandler_free(&handler);
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
}

int main(void)
{
    begin();
    dead = ranks - 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    meet();
    lose_one();
    wait_and_test_end_what_failed();
    waitall_gives_the_state_of_each_request();
    waitall_ends_the_same_requests_with_statuses_ignored();
    testall_is_over_only_when_all_are();
    waitany_prefers_what_is_done_then_what_failed();
    testany_does_the_same();
    waitsome_and_testsome_list_ended_requests_and_pending_failures(0);
    waitsome_and_testsome_list_ended_requests_and_pending_failures(1);
    the_handler_of_the_requests_communicator_is_called();
    a_handler_may_jump_out_of_waitall();
    meet();
    return end();
}
