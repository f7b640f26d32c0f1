/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
// mpiexec: --initial-errhandler mpi_errors_return
/* Row CN7: the launcher determines the initial error handler of the predefined communicators (MPI-5.0 §11.2.4), and MPI_INFO_ENV
 * names it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    MPI_Errhandler of_world, of_self;
    char name[64] = "";
    int rank, flag = 0, errors = 0, all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &of_world);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &of_self);
    errors += of_world != MPI_ERRORS_RETURN;
    errors += of_self != MPI_ERRORS_RETURN;
    MPI_Info_get(MPI_INFO_ENV, "mpi_initial_errhandler", sizeof name - 1, name, &flag);
    errors += !flag || strcmp(name, "mpi_errors_return") != 0;
    errors += MPI_Send(NULL, 0, MPI_INT, 77, 5, MPI_COMM_WORLD) != MPI_ERR_RANK;
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
