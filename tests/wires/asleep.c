/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* asleep MILLISECONDS: rank 0 waits so long for a message, and prints which share of a processor it used meanwhile, all its threads and the
 * kernel included, in hundredths of a per cent. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double used(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    int rank, token = 0;
    long ms = argc > 1 ? atol(argv[1]) : 3000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
        /* The time is what is measured. */
        struct timespec span = {ms / 1000, ms % 1000 * 1000000};
        nanosleep(&span, NULL);
        MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    } else if (rank == 0) {
        double before = used(), begun = MPI_Wtime();
        MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("share %.0f\n", (used() - before) / (MPI_Wtime() - begun) * 1e4);
    }
    MPI_Finalize();
    return 0;
}
