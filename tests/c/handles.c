/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* Handles: a stale one is an error of the right class, never followed; handles and integers convert into each other. */
#include <mpi.h>
#include <stdio.h>

static int errors;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void stale_communicators(void)
{
    MPI_Comm comm, old, made = MPI_COMM_WORLD;
    int rank = -1, size = -1;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    old = comm;
    MPI_Comm_free(&comm);
    expect("a freed handle is null", comm == MPI_COMM_NULL, 1);
    expect("rank of a freed communicator", class_of(MPI_Comm_rank(old, &rank)), MPI_ERR_COMM);
    expect("rank of the null communicator", class_of(MPI_Comm_rank(MPI_COMM_NULL, &rank)), MPI_ERR_COMM);
    expect("send on a freed communicator", class_of(MPI_Send(&rank, 1, MPI_INT, 0, 0, old)), MPI_ERR_COMM);
    expect("dup of a freed communicator", class_of(MPI_Comm_dup(old, &made)), MPI_ERR_COMM);
    expect("what a failed dup leaves", made == MPI_COMM_NULL, 1);
    expect("freeing WORLD", class_of(MPI_Comm_free(&(MPI_Comm){MPI_COMM_WORLD})), MPI_ERR_COMM);
    /* The place is used again, by another communicator. */
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    expect("a new one is not the old one", comm != old, 1);
    expect("the old one is still gone", class_of(MPI_Comm_size(old, &size)), MPI_ERR_COMM);
    expect("the new one stands", MPI_Comm_size(comm, &size), MPI_SUCCESS);
    expect("its size", size, 1);
    MPI_Comm_free(&comm);
}

static void stale_requests(void)
{
    MPI_Request request, old;
    MPI_Status status;
    int number = 7, flag = -1;
    MPI_Irecv(&number, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    old = request;
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    expect("the receive was cancelled", flag, 1);
    expect("a completed request is null", request == MPI_REQUEST_NULL, 1);
    expect("waiting again for an old handle", class_of(MPI_Wait(&old, &status)), MPI_ERR_REQUEST);
    expect("testing a wild handle", class_of(MPI_Test(&(MPI_Request){(MPI_Request)0x123456789abcdef1}, &flag, &status)),
           MPI_ERR_REQUEST);
    expect("freeing the null request", class_of(MPI_Request_free(&(MPI_Request){MPI_REQUEST_NULL})), MPI_ERR_REQUEST);
    request = MPI_REQUEST_NULL;
    expect("waiting for the null request", MPI_Wait(&request, &status), MPI_SUCCESS);
    expect("its source", status.MPI_SOURCE, MPI_ANY_SOURCE);
    expect("its tag", status.MPI_TAG, MPI_ANY_TAG);
}

static void other_handles(void)
{
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    int size = -1;
    expect("size of the null group", class_of(MPI_Group_size(MPI_GROUP_NULL, &size)), MPI_ERR_GROUP);
    expect("freeing the null group", class_of(MPI_Group_free(&group)), MPI_ERR_GROUP);
    expect("the null handler", class_of(MPI_Comm_set_errhandler(MPI_COMM_SELF, handler)), MPI_ERR_ERRHANDLER);
    expect("the null datatype", class_of(MPI_Send(&size, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_SELF)), MPI_ERR_TYPE);
    expect("the null operation", class_of(MPI_Allreduce(&size, &size, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF)), MPI_ERR_OP);
}

static void integers(void)
{
    MPI_Comm comm;
    MPI_Group group;
    MPI_Request request;
    int number;
    expect("WORLD as an integer", MPI_Comm_toint(MPI_COMM_WORLD), 0x101);
    expect("and back", MPI_Comm_fromint(0x101) == MPI_COMM_WORLD, 1);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_group(comm, &group);
    MPI_Irecv(&number, 1, MPI_INT, 0, 5, comm, &request);
    expect("a communicator and back", MPI_Comm_fromint(MPI_Comm_toint(comm)) == comm, 1);
    expect("a group and back", MPI_Group_fromint(MPI_Group_toint(group)) == group, 1);
    expect("a request and back", MPI_Request_f2c(MPI_Request_c2f(request)) == request, 1);
    expect("a datatype and back", MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE, 1);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Group_free(&group);
    MPI_Comm_free(&comm);
}

static void arguments(void)
{
    int number = 0, wild[2] = {0, 0}, size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    expect("a negative count", class_of(MPI_Send(&number, -1, MPI_INT, 0, 0, MPI_COMM_WORLD)), MPI_ERR_COUNT);
    expect("a negative tag", class_of(MPI_Send(&number, 1, MPI_INT, 0, -5, MPI_COMM_WORLD)), MPI_ERR_TAG);
    expect("any tag in a send", class_of(MPI_Send(&number, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD)), MPI_ERR_TAG);
    expect("a rank too high", class_of(MPI_Send(&number, 1, MPI_INT, size, 0, MPI_COMM_WORLD)), MPI_ERR_RANK);
    expect("any source in a send", class_of(MPI_Send(&number, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD)), MPI_ERR_RANK);
    expect("a wild source", class_of(MPI_Recv(&number, 1, MPI_INT, -7, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), MPI_ERR_RANK);
    expect("a null buffer", class_of(MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD)), MPI_ERR_BUFFER);
    expect("a root too high", class_of(MPI_Bcast(&number, 1, MPI_INT, size, MPI_COMM_WORLD)), MPI_ERR_ROOT);
    expect("a sum of characters", class_of(MPI_Allreduce(wild, wild + 1, 1, MPI_CHAR, MPI_SUM, MPI_COMM_SELF)), MPI_ERR_OP);
    expect("a null result", class_of(MPI_Comm_rank(MPI_COMM_WORLD, NULL)), MPI_ERR_ARG);
    expect("a null buffer of no elements", MPI_Send(NULL, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD), MPI_SUCCESS);
}

int main(void)
{
    int rank, all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    stale_communicators();
    stale_requests();
    other_handles();
    integers();
    arguments();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
