/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The first thread of every rank ends by pthread_exit, and another one goes on; then rank 0 ends the job. The kernel shows such
 * a process as a zombie, but it is alive, and the launcher must kill it. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* The state of the first thread. */
static char state(void)
{
    char name[64], is = '?';
    FILE *stat = fopen("/proc/self/stat", "r");
    if (stat == NULL || fscanf(stat, "%*d %63s %c", name, &is) != 2)
        is = '?';
    if (stat != NULL)
        fclose(stat);
    return is;
}

static void *go_on(void *unused)
{
    int rank;
    while (state() != 'Z')
        sched_yield();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 3);
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    if (pthread_create(&thread, NULL, go_on, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 121);
    pthread_exit(NULL);
}
