/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
// Row EH2: a user handler receives communicator and class, at the outer edge, and may call MPI and longjmp
// Row EH3: it may free the communicator that it was called for
// Row EH7: classes, codes and strings
// Row WT12: when a handler longjmps, handles are final and the library can be used on
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static int errors, calls, last_class, handler_may_free;
static MPI_Comm last_comm;
static jmp_buf back;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

static void noting(MPI_Comm *comm, int *code, ...)
{
    int rank = -1, sent = 5, received = 0;
    MPI_Status status;
    calls++;
    last_comm = *comm;
    MPI_Error_class(*code, &last_class);
    /* A handler may call any function of MPI. */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Sendrecv(&sent, 1, MPI_INT, 0, 3, &received, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &status);
    expect("a message in a handler", received, 5);
    if (handler_may_free)
        MPI_Comm_free(comm);
}

static void jumping(MPI_Comm *comm, int *code, ...)
{
    calls++;
    last_comm = *comm;
    last_class = *code;
    longjmp(back, 1);
}

static void notes(void)
{
    MPI_Comm comm, old;
    MPI_Errhandler handler, got;
    int number = 0;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(noting, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_get_errhandler(comm, &got);
    expect("the handler that was set", got == handler, 1);
    MPI_Errhandler_free(&got);
    /* A freed handler is still called where it is set. */
    MPI_Errhandler_free(&handler);
    expect("a freed handler is null", handler == MPI_ERRHANDLER_NULL, 1);
    calls = 0;
    expect("a send to nobody", MPI_Send(&number, 1, MPI_INT, 7, 0, comm), MPI_ERR_RANK);
    expect("calls of the handler", calls, 1);
    expect("its class", last_class, MPI_ERR_RANK);
    expect("its communicator", last_comm == comm, 1);
    /* A duplicate inherits the handler. */
    MPI_Comm_dup(comm, &old);
    MPI_Send(&number, -1, MPI_INT, 0, 0, old);
    expect("calls of the child's handler", calls, 2);
    expect("the child", last_comm == old, 1);
    MPI_Comm_free(&old);
    expect("called by the user", MPI_Comm_call_errhandler(comm, MPI_ERR_TOPOLOGY), MPI_SUCCESS);
    expect("the user's class", last_class, MPI_ERR_TOPOLOGY);
    handler_may_free = 1;
    old = comm;
    expect("a handler that frees", MPI_Send(&number, 1, MPI_INT, 7, 0, comm), MPI_ERR_RANK);
    handler_may_free = 0;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    expect("and it is freed", MPI_Comm_rank(old, &number), MPI_ERR_COMM);
}

static void jumps(void)
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    static char small[4], large[64];
    int jumped, flag = 0;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(jumping, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    calls = 0;
    for (int round = 0; round < 100; round++) {
        if (setjmp(back) == 0) {
            MPI_Bcast(small, 1, MPI_CHAR, 9, comm);
            expect("coming back from a call whose handler jumped", 1, 0);
        }
    }
    expect("jumps", calls, 100);
    expect("the class of a wild root", last_class, MPI_ERR_ROOT);
    /* Several requests, one of them too short. */
    MPI_Irecv(small, 4, MPI_CHAR, 0, 1, comm, &requests[0]);
    MPI_Irecv(small, 1, MPI_CHAR, 0, 2, comm, &requests[1]);
    MPI_Isend(large, 4, MPI_CHAR, 0, 1, comm, &requests[2]);
    MPI_Send(large, 64, MPI_CHAR, 0, 2, comm);
    jumped = setjmp(back);
    if (jumped == 0) {
        MPI_Waitall(3, requests, statuses);
        expect("coming back from Waitall", 1, 0);
    }
    expect("the class of the first that failed", last_class, MPI_ERR_TRUNCATE);
    expect("its communicator", last_comm == comm, 1);
    for (int i = 0; i < 3; i++)
        expect("a handle after the jump is final", requests[i] == MPI_REQUEST_NULL, 1);
    expect("the status of a good one", statuses[0].MPI_ERROR, MPI_SUCCESS);
    expect("the status of the failed one", statuses[1].MPI_ERROR, MPI_ERR_TRUNCATE);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
    expect("nothing is left behind", flag, 0);
    MPI_Comm_free(&comm);
}

static void codes(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int class = 0, code = 0, got = 0, length = 0, flag = 0, *last = NULL;
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "out of cheese");
    expect("a class of ours is above the predefined ones", class > MPI_ERR_LASTCODE, 1);
    MPI_Error_class(code, &got);
    expect("the class of a code", got, class);
    MPI_Error_string(code, text, &length);
    expect("the string of a code", strcmp(text, "out of cheese"), 0);
    expect("its length", length, 13);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    expect("the last used code", flag && *last == code, 1);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    expect("adding to no class", MPI_Add_error_code(77, &got), MPI_ERR_ARG);
    expect("removing a class in use", MPI_Remove_error_class(class), MPI_ERR_ARG);
    expect("removing its code", MPI_Remove_error_code(code), MPI_SUCCESS);
    expect("removing the class then", MPI_Remove_error_class(class), MPI_SUCCESS);
    /* Codes of fault tolerance are their classes. */
    for (code = MPI_ERR_PROC_FAILED; code <= MPI_ERR_REVOKED; code++) {
        MPI_Error_class(code, &got);
        expect("the class of a fault", got, code);
        MPI_Error_string(code, text, &length);
        expect("its string says something", length > 10, 1);
    }
}

int main(void)
{
    int rank, all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    notes();
    jumps();
    codes();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
