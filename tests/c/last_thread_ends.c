/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* The only thread of rank 1 ends by pthread_exit, without MPI_Finalize: a process ends with its last thread, and the library's
 * helper thread does not keep it alive. Rank 1 has failed, and the others are notified. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, error, class, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1)
        pthread_exit(NULL);
    error = MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(error, &class);
    if (class != MPI_ERR_PROC_FAILED)
        fprintf(stderr, "rank %d: class %d\n", rank, class);
    else if (rank == 0)
        printf("No errors\n");
    MPI_Finalize();
    return class != MPI_ERR_PROC_FAILED;
}
