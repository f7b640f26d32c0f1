/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI_Alloc_mem in a job with little memory: allocated memory can be accessed, and more than the limit gives MPI_ERR_NO_MEM. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, refused = 0, wrong = 0, given = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (MPI_Aint bytes = 4096; bytes <= (MPI_Aint)1 << 30; bytes *= 4) {
        void *memory = NULL;
        int class = MPI_SUCCESS, code = MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
        if (code == MPI_SUCCESS) {
            /* Only an amount that certainly fits is accessed. An allocation of more than the limit must be refused. */
            memset(memory, 1, bytes < (1 << 20) ? (size_t)bytes : (size_t)1 << 20);
            given++;
            wrong += MPI_Free_mem(memory) != MPI_SUCCESS;
        } else {
            MPI_Error_class(code, &class);
            wrong += class != MPI_ERR_NO_MEM;
            refused++;
        }
    }
    /* 4 KiB are given and 1 GiB is refused, at every rank. */
    wrong += given == 0 || refused == 0;
    if (wrong != 0)
        printf("rank %d: given %d, refused %d, wrong %d\n", rank, given, refused, wrong);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && wrong == 0)
        printf("No errors\n");
    MPI_Finalize();
    return wrong != 0;
}
