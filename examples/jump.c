/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The error handler repairs the communicator and jumps back to the loop, so that no call's result is checked. */
#include <mpi-ext.h>
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 4 };

static MPI_Comm comm;
static jmp_buf repaired;

/* Called before the failing call returns. It may revoke, agree, shrink, free the communicator of the call, and leave by a jump. */
static void repair(MPI_Comm *failing, int *code, ...)
{
    MPI_Comm survivors;
    int class;
    MPI_Error_class(*code, &class);
    if (class != MPI_ERR_PROC_FAILED && class != MPI_ERR_REVOKED)
        MPI_Abort(*failing, 1); /* Any other error is a mistake of the program. */
    MPIX_Comm_revoke(*failing);
    MPIX_Comm_shrink(*failing, &survivors); /* It has the handler of the old one. */
    MPI_Comm_free(failing);
    comm = survivors;
    longjmp(repaired, 1);
}

int main(int argc, char **argv)
{
    MPI_Errhandler handler;
    int first_rank, rank, ranks;
    static int step, lowest; /* Not in registers, which the jump would restore. */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &first_rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(repair, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler); /* The communicator keeps it. */

    setjmp(repaired);
    /* Ranks may have come here from different steps: all go on with the first one that is not complete everywhere. */
    MPI_Allreduce(&step, &lowest, 1, MPI_INT, MPI_MIN, comm);
    for (step = lowest; step < STEPS; step++) {
        if (first_rank == 2 && step == 2)
            kill(getpid(), SIGKILL);
        MPI_Barrier(comm); /* In the place of the communication of a real program. */
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    if (rank == 0)
        printf("%d steps are done, the last ones by %d ranks\n", STEPS, ranks);
    MPI_Finalize();
    return 0;
}
