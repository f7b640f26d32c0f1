/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
// Row EH4: errors of requests on a freed communicator go to its error handler
/* Thousands of communicators are freed while a request on each is open; the requests end later, in another order, with their own
 * communicator's error handler. */
#include "expect.h"

enum { COUNT = 4000, HANDLERS = 2 };

static int calls[HANDLERS];
static MPI_Request requests[COUNT];
static char room[COUNT][4];

static void first(MPI_Comm *comm, int *code, ...)
{
    (void) comm;
    calls[0] += *code == MPI_ERR_TRUNCATE;
}

static void second(MPI_Comm *comm, int *code, ...)
{
    (void) comm;
    calls[1] += *code == MPI_ERR_TRUNCATE;
}

/* Every second one has a message that is too long for its receive; the receives of the others stay open. */
static void open_and_free(MPI_Errhandler handlers[])
{
    char sent[8] = "1234567";
    for (int i = 0; i < COUNT; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_SELF, &comm);
        MPI_Comm_set_errhandler(comm, handlers[i / 2 % HANDLERS]);
        MPI_Irecv(room[i], 4, MPI_CHAR, 0, 1, comm, &requests[i]);
        if (i % 2 == 0)
            MPI_Send(sent, 8, MPI_CHAR, 0, 1, comm);
        MPI_Comm_free(&comm);
        expect("a freed handle", comm == MPI_COMM_NULL, 1);
    }
}

int main(void)
{
    MPI_Errhandler handlers[HANDLERS];
    MPI_Comm last;
    int cancelled;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_errhandler(first, &handlers[0]);
    MPI_Comm_create_errhandler(second, &handlers[1]);
    open_and_free(handlers);
    MPI_Errhandler_free(&handlers[0]);
    MPI_Errhandler_free(&handlers[1]);
    for (int i = COUNT - 1; i >= 0; i--) {
        MPI_Status status;
        if (i % 2 == 1)
            MPI_Cancel(&requests[i]);
        expect("a wait", MPI_Wait(&requests[i], &status), i % 2 ? MPI_SUCCESS : MPI_ERR_TRUNCATE);
        MPI_Test_cancelled(&status, &cancelled);
        expect("a cancelled receive", cancelled, i % 2);
    }
    expect("calls of the first handler", calls[0], COUNT / 4);
    expect("calls of the second handler", calls[1], COUNT / 4);
    MPI_Comm_dup(MPI_COMM_WORLD, &last);
    MPI_Barrier(last);
    MPI_Comm_free(&last);
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
