/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
// expect-exit: 6
// expect-stderr: MPI_Send(buf=NULL, count=0, datatype=MPI_INT, dest=77, tag=5, comm=MPI_COMM_WORLD) failed
// Row EH1: the default handler is a fatal one, and an operation that raises ends the job
/* The report names the call with its arguments in words; the exit code is the class. */
#include <mpi.h>
#include <stdio.h>

int main(void)
{
    int rank;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(NULL, 0, MPI_INT, 77, 5, MPI_COMM_WORLD);
    else
        MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("still there\n");
    MPI_Finalize();
    return 0;
}
