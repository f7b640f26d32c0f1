/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4
// timeout: 60
/* Rows of docs/dev/semantics.md that need no death: MPI_PROC_NULL and oneself, classes and their strings, which handler an error
 * is reported to, and what an error handler may do. */
#include "expect.h"
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 8, LARGE = 300000 };
static int ranks;
static unsigned char out[LARGE], in[LARGE];

static void expect_nobody(const char *what, const MPI_Status *status)
{
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    expect(what, status->MPI_SOURCE, MPI_PROC_NULL);
    expect(what, status->MPI_TAG, MPI_ANY_TAG);
    expect(what, count, 0);
}

/* Row PP17: operations with MPI_PROC_NULL succeed immediately. */
static void nobody(void)
{
    MPI_Status status;
    MPI_Request requests[4];
    int flag = 0;
    expect("Send", MPI_Send(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD), MPI_SUCCESS);
    expect("Ssend", MPI_Ssend(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD), MPI_SUCCESS);
    expect("Rsend", MPI_Rsend(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD), MPI_SUCCESS);
    expect("Recv", MPI_Recv(in, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    expect_nobody("the status of Recv", &status);
    expect("Probe", MPI_Probe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    expect_nobody("the status of Probe", &status);
    expect("Iprobe", MPI_Iprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, &flag, &status), MPI_SUCCESS);
    expect("the flag of Iprobe", flag, 1);
    expect_nobody("the status of Iprobe", &status);
    MPI_Sendrecv(out, 1, MPI_BYTE, MPI_PROC_NULL, 0, in, 1, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    expect_nobody("the status of Sendrecv", &status);
    MPI_Isend(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Irsend(out, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Irecv(in, LARGE, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[3]);
    expect("Waitall", MPI_Waitall(4, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
}

/* Row PP17: so do messages of a process to itself. */
static void oneself(void)
{
    const int sizes[] = {0, 1, SMALL, 5000, LARGE};
    for (int i = 0; i < 5; i++) {
        MPI_Request requests[2];
        MPI_Status statuses[2];
        int count = -1;
        for (int k = 0; k < sizes[i]; k++) {
            out[k] = (unsigned char)(k * 7 + i + rank);
            in[k] = 0;
        }
        if (i % 2) {
            MPI_Irecv(in, LARGE, MPI_BYTE, rank, i, MPI_COMM_WORLD, &requests[0]);
            MPI_Issend(out, sizes[i], MPI_BYTE, rank, i, MPI_COMM_WORLD, &requests[1]);
        } else {
            MPI_Isend(out, sizes[i], MPI_BYTE, 0, i, MPI_COMM_SELF, &requests[1]);
            MPI_Irecv(in, LARGE, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &requests[0]);
        }
        expect("Waitall of oneself", MPI_Waitall(2, requests, statuses), MPI_SUCCESS);
        MPI_Get_count(&statuses[0], MPI_BYTE, &count);
        expect("bytes from oneself", count, sizes[i]);
        expect("the tag from oneself", statuses[0].MPI_TAG, i);
        expect("what came from oneself", memcmp(in, out, (size_t)sizes[i]), 0);
    }
}

/* Row CN2, Row EH7: classes are their own codes, have strings, and users can add more. */
static void classes(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0, added_class = -1, added_code = -1;
    expect("the class of PROC_ABORTED", class_of(MPI_ERR_PROC_ABORTED), MPI_ERR_PROC_ABORTED);
    for (int class = 101; class <= 103; class++) {
        expect("a class of failures", class_of(class), class);
        expect("PROC_ABORTED is none of them", MPI_ERR_PROC_ABORTED == class, 0);
        expect("its string", MPI_Error_string(class, text, &length), MPI_SUCCESS);
        expect("its string's length", length, (long)strlen(text));
        expect("its string begins with MPI", strncmp(text, "MPI", 3), 0);
    }
    MPI_Add_error_class(&added_class);
    MPI_Add_error_code(added_class, &added_code);
    MPI_Add_error_string(added_code, "the moon is full");
    expect("the class of an added code", class_of(added_code), added_class);
    MPI_Error_string(added_code, text, &length);
    expect("the string of an added code", strcmp(text, "the moon is full"), 0);
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

static void note_and_jump(MPI_Comm *comm, int *code, ...)
{
    note(comm, code);
    longjmp(back, 1);
}

static void note_and_free(MPI_Comm *comm, int *code, ...)
{
    MPI_Comm mine = *comm;
    note(comm, code);
    MPI_Comm_free(&mine);
}

static MPI_Comm with_handler(MPI_Comm_errhandler_function *function)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(function, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    calls = 0;
    return comm;
}

/* Row EH2: a handler is called once, with the communicator and the class, and may call MPI. */
static void a_handler_is_called_once(void)
{
    MPI_Comm comm = with_handler(note);
    int code = MPI_Send(out, 1, MPI_BYTE, ranks, 0, comm);
    expect("the class returned", class_of(code), MPI_ERR_RANK);
    expect("the class of the handler", handler_class, MPI_ERR_RANK);
    expect("the communicator of the handler", handler_comm == comm, 1);
    expect("calls", calls, 1);
    MPI_Comm_free(&comm);
}

/* A nonblocking receive from oneself with a buffer that is too short. */
static MPI_Request truncated(MPI_Comm comm)
{
    MPI_Request request;
    MPI_Irecv(in, 1, MPI_BYTE, rank, 3, comm, &request);
    MPI_Send(out, 2, MPI_BYTE, rank, 3, comm);
    return request;
}

/* Row EH4: an error of a request goes to the communicator of that request. */
static void whose_request(void)
{
    MPI_Comm comm = with_handler(note), other;
    MPI_Status statuses[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
    MPI_Request request = truncated(comm);
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect("the class of Wait", class_of(code), MPI_ERR_TRUNCATE);
    expect("calls for one request", calls, 1);
    expect("the communicator of the request", handler_comm == comm, 1);
    expect("the request is gone", request == MPI_REQUEST_NULL, 1);
    MPI_Request both[2] = {truncated(other), truncated(comm)};
    code = MPI_Waitall(2, both, statuses);
    expect("the class of Waitall", class_of(code), MPI_ERR_IN_STATUS);
    expect("its first status", class_of(statuses[0].MPI_ERROR), MPI_ERR_TRUNCATE);
    expect("its second status", class_of(statuses[1].MPI_ERROR), MPI_ERR_TRUNCATE);
    expect("both are gone", both[0] == MPI_REQUEST_NULL && both[1] == MPI_REQUEST_NULL, 1);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&other);
}

/* Row WT12, Row EH2: a handler leaves by longjmp: the handle is final, no lock is held, and the library works afterwards. */
static void jump(void)
{
    MPI_Comm comm = with_handler(note_and_jump);
    for (volatile int round = 0; round < 100; round++) {
        static MPI_Request request;
        volatile int jumped = 0;
        request = truncated(comm);
        if (setjmp(back))
            jumped = 1;
        else
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect("the handler jumped", jumped, 1);
        expect("the handle is final", request == MPI_REQUEST_NULL, 1);
        expect("calls so far", calls, round + 1);
        oneself();
    }
    MPI_Comm_free(&comm);
}

/* Row EH3: a handler frees the communicator that it was called for. */
static void free_in_handler(void)
{
    for (int round = 0; round < 100; round++) {
        MPI_Comm comm = with_handler(note_and_free);
        int code = MPI_Send(out, 1, MPI_BYTE, ranks, 0, comm);
        expect("the class after the handle was freed", class_of(code), MPI_ERR_RANK);
        expect("calls of a handler that frees", calls, 1);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    nobody();
    oneself();
    classes();
    a_handler_is_called_once();
    whose_request();
    jump();
    free_in_handler();
    int all = 0;
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
