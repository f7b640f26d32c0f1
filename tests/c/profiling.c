/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* A tool overrides MPI_ names and calls their PMPI_ twins: it sees the program's calls, and none of the library's own. */
#include <mpi.h>
#include <stdio.h>

static int sends, receives, barriers, errors;

int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm)
{
    sends++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    receives++;
    return PMPI_Recv(buf, count, datatype, source, tag, comm, status);
}

int MPI_Barrier(MPI_Comm comm)
{
    barriers++;
    return PMPI_Barrier(comm);
}

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

int main(void)
{
    int rank, number = 17, got = 0, all = 0;
    MPI_Comm comm;
    MPI_Init(NULL, NULL);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Send(&number, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    expect("what came", got, 17);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
    MPI_Sendrecv(&number, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect("sends that were seen", sends, 1);
    expect("receives that were seen", receives, 1);
    expect("barriers that were seen", barriers, 1);
    if (rank == 0 && all == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
