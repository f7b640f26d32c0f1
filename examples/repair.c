/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Steps of a computation whose survivors go on. After each step all agree whether it counts; a step in which a rank died is repeated by
 * those that are left. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BLOCKS = 12, STEPS = 3 };

/* The sum of this rank's blocks, which are dealt to the ranks of the communicator. */
static int compute(int step, MPI_Comm comm)
{
    int rank, ranks, sum = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    for (int block = rank; block < BLOCKS; block += ranks)
        sum += block + step;
    return sum;
}

/* One step. Returns 1 at all survivors, or 0 at all survivors. */
static int step_counts(int step, MPI_Comm comm, int *total)
{
    int part = compute(step, comm), ok;
    ok = MPI_Allreduce(&part, total, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS;
    if (!ok)
        MPIX_Comm_revoke(comm); /* Nobody waits for this rank any more. */
    /* The flag is the AND over all, the same at all; so is whether the call returns an error. */
    return MPIX_Comm_agree(comm, &ok) == MPI_SUCCESS && ok;
}

/* The communicator of the survivors, in the place of the old one. */
static void replace(MPI_Comm *comm)
{
    MPI_Comm survivors;
    MPIX_Comm_shrink(*comm, &survivors);
    MPI_Comm_free(comm);
    *comm = survivors;
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    int first_rank, rank, ranks, total;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &first_rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int step = 0; step < STEPS;) {
        if (first_rank == 2 && step == 1)
            kill(getpid(), SIGKILL);
        if (step_counts(step, comm, &total)) {
            MPI_Comm_rank(comm, &rank);
            if (rank == 0)
                printf("step %d: the total is %d\n", step, total);
            step++;
        } else {
            replace(&comm);
            MPI_Comm_rank(comm, &rank);
            MPI_Comm_size(comm, &ranks);
            if (rank == 0)
                printf("step %d: is done again by %d ranks\n", step, ranks);
        }
    }
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
