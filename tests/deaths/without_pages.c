/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ranks that share no memory with anybody: the last one dies while the others wait for a message from any source, asleep. Each prints
 * "told" when its wait has ended with the class of a pending failure, and get_failed has named the dead rank. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Request request;
    MPI_Group failed;
    int rank, size, value, class, count;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == size - 1) {
        /* The others sleep by then. */
        usleep(300000);
        raise(SIGKILL);
    }
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &request);
    MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &class);
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed);
    MPI_Group_size(failed, &count);
    if (class == MPIX_ERR_PROC_FAILED_PENDING && count == 1)
        printf("told\n");
    else
        printf("class %d, %d failed\n", class, count);
    MPI_Group_free(&failed);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    MPI_Finalize();
    return 0;
}
