/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* An error of a request on a freed communicator goes to that communicator's handler; names are bytes; pairs have two basic
 * elements; the flag says whether a predefined attribute is set. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int errors, calls;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

static void noting(MPI_Comm *comm, int *code, ...)
{
    (void) comm;
    calls += *code == MPI_ERR_TRUNCATE;
}

static void freed_communicator(void)
{
    MPI_Comm comm, other;
    MPI_Errhandler handler;
    MPI_Request request;
    char sent[8] = "1234567", room[4];
    MPI_Comm_create_errhandler(noting, &handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    MPI_Irecv(room, 4, MPI_CHAR, 0, 1, comm, &request);
    MPI_Send(sent, 8, MPI_CHAR, 0, 1, comm);
    MPI_Comm_free(&comm);
    /* Freeing another communicator, without requests, does not free this handler. */
    MPI_Comm_dup(MPI_COMM_SELF, &other);
    MPI_Comm_free(&other);
    expect("the wait", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    expect("the handler's calls", calls, 1);
}

static void names(void)
{
    const char latin[] = "caf\xe9";
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    MPI_Comm_set_name(MPI_COMM_SELF, latin);
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    expect("the name's length", length, 4);
    expect("the name", strcmp(name, latin), 0);
}

static void pairs(void)
{
    struct { double value; int index; } pair[2], into[3];
    MPI_Status status;
    MPI_Count large = -1;
    int count = -1;
    memset(pair, 0, sizeof pair);
    MPI_Sendrecv(pair, 2, MPI_DOUBLE_INT, 0, 2, into, 3, MPI_DOUBLE_INT, 0, 2, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, MPI_DOUBLE_INT, &count);
    expect("pairs", count, 2);
    MPI_Get_elements(&status, MPI_DOUBLE_INT, &count);
    expect("their elements", count, 4);
    MPI_Status_set_elements(&status, MPI_DOUBLE_INT, 3);
    MPI_Get_elements_x(&status, MPI_DOUBLE_INT, &large);
    expect("a pair and a first part", (long) large, 3);
}

static void attributes(void)
{
    void *value = NULL;
    int flag = -1;
    expect("MPI_FT is known", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_FT, &value, &flag), MPI_SUCCESS);
    expect("and set without --with-ft no", flag, 1);
    if (flag)
        expect("the job outlives deaths", *(int *) value, 1);
    expect("MPI_APPNUM is known", MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag), MPI_SUCCESS);
    if (flag)
        expect("and one of several", *(int *) value >= 0, 1);
}

int main(void)
{
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    freed_communicator();
    names();
    pairs();
    attributes();
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
