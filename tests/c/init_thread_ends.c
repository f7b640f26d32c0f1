/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3
// timeout: 60
/* The thread that called MPI_Init ends by pthread_exit, and the process goes on: that is no death. Another thread exchanges
 * messages in a ring, starts a child that ends by itself, and finalizes. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_t first;
static int rank, ranks;

static void *go_on(void *nothing)
{
    int errors = 0;
    /* Joined, so that the destructors of that thread have run. */
    pthread_join(first, NULL);
    for (int round = 0; round < 200; round++) {
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, got = -1, sent = rank + round;
        MPI_Sendrecv(&sent, 1, MPI_INT, next, round, &got, 1, MPI_INT, before, round, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        errors += got != before + round;
        if (round == 100) {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
        }
    }
    MPI_Allreduce(MPI_IN_PLACE, &errors, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(errors == 0 ? "No errors\n" : "%d errors\n", errors);
    fflush(stdout);
    MPI_Finalize();
    exit(errors != 0);
    return nothing;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t other;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    first = pthread_self();
    if (provided < MPI_THREAD_MULTIPLE || pthread_create(&other, NULL, go_on, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_exit(NULL);
}
