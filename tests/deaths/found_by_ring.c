/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Four ranks find the death of rank 2 by their heartbeats: the node daemon says nothing of it. Meanwhile ranks 0 and 1 wait in MPI, and
 * rank 3 computes outside it for longer than a lease; nobody else may be taken for dead. The argument: rank 2 is "killed", or "stopped"
 * until the others have gone on without it; then it may act no more. Prints "No errors". */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void compute(double for_seconds)
{
    volatile double sum = 0;
    for (double end = seconds() + for_seconds; seconds() < end;)
        sum += 1;
}

/* A child lets this process go on after 6 s. */
static void stop_for_a_while(void)
{
    if (fork() == 0) {
        sleep(6);
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    MPI_Barrier(MPI_COMM_WORLD);
    fprintf(stderr, "rank 2 acts\n");
}

int main(int argc, char **argv)
{
    MPI_Comm survivors;
    MPI_Group failed;
    int rank, error, flag = 1, count = 0, sum = 0, errors = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    errors += MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS;
    if (rank == 2) {
        compute(0.2);
        if (strcmp(argv[1], "stopped") == 0)
            stop_for_a_while();
        raise(SIGKILL);
    }
    if (rank == 3)
        compute(4);
    error = MPI_Barrier(MPI_COMM_WORLD);
    errors += error != MPIX_ERR_PROC_FAILED;
    errors += MPIX_Comm_agree(MPI_COMM_WORLD, &flag) != MPIX_ERR_PROC_FAILED;
    MPIX_Comm_get_failed(MPI_COMM_WORLD, &failed);
    MPI_Group_size(failed, &count);
    errors += count != 1;
    errors += MPIX_Comm_shrink(MPI_COMM_WORLD, &survivors) != MPI_SUCCESS;
    errors += MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, survivors) != MPI_SUCCESS || sum != 4;
    if (errors)
        fprintf(stderr, "rank %d: %d errors, the barrier returned %d, %d failed, the sum is %d\n", rank, errors, error, count,
                sum);
    else if (rank == 0)
        printf("No errors\n");
    MPI_Group_free(&failed);
    MPI_Comm_free(&survivors);
    MPI_Finalize();
    return errors != 0;
}
