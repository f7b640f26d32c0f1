/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 5
// expect-exit: 3
/* Row EH6: MPI_Abort in a signal handler ends all ranks, wherever the handler interrupts its own thread, also inside the library
 * or asleep there. Rank 1 is blocked in a receive; the others are in a receive from it, or outside MPI. */
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

static void handler(int number)
{
    (void)number;
    MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char **argv)
{
    int rank, size, word = 0;
    long pid = getpid();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    signal(SIGUSR1, handler);
    if (rank == 0) {
        MPI_Recv(&pid, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        kill((pid_t)pid, SIGUSR1);
        for (volatile unsigned long count = 0;; count++) {
        }
    }
    if (rank == 1)
        MPI_Send(&pid, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
    /* No rank sends this message. */
    MPI_Recv(&word, 1, MPI_INT, rank == 1 ? 0 : 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 121;
}
