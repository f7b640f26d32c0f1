/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
// expect-stderr: MPI_File_open is not supported
/* A function that is not supported returns its error class, and calls the error handler of the object that it names. */
#include <mpi.h>
#include <stdio.h>

static int errors, calls, last_class;
static MPI_Comm last_comm;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

static void noting(MPI_Comm *comm, int *code, ...)
{
    calls++;
    last_class = *code;
    last_comm = *comm;
}

int main(void)
{
    MPI_Comm comm, cart;
    MPI_Win window;
    MPI_File file;
    MPI_Datatype type;
    MPI_Errhandler handler;
    int rank, dims[1] = {1}, periods[1] = {0}, provided = -1, all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_errhandler(noting, &handler);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    expect("a topology", MPI_Cart_create(comm, 1, dims, periods, 0, &cart), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("its class at the handler", last_class, MPI_ERR_UNSUPPORTED_OPERATION);
    expect("of the communicator that it names", last_comm == comm, 1);
    expect("a window", MPI_Win_create(&rank, 4, 1, MPI_INFO_NULL, comm, &window), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("calls of the handler", calls, 2);
    expect("a datatype", MPI_Type_vector(1, 1, 1, MPI_INT, &type), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("calls without an object go to SELF's handler", calls == 3 && last_comm == MPI_COMM_SELF, 1);
    /* Files have a handler of their own, which returns; tools have none. */
    expect("a file", MPI_File_delete("/nowhere", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("a file of a communicator",
           MPI_File_open(MPI_COMM_SELF, "/nowhere", MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("tools", MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("and they call no handler of ours", calls, 3);
    MPI_Comm_free(&comm);
    MPI_Errhandler_free(&handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
