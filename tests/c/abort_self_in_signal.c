/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4
// expect-exit: 7
// expect-stderr: called MPI_Abort
/* Row EH6: MPI_Abort of MPI_COMM_SELF in a signal handler that interrupts its own thread inside the library ends that rank alone,
 * and its code counts, unlike that of other dead ranks. Rank 1 sends large messages to itself, so that it nearly always copies
 * inside the library. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BYTES = 32 << 20 };
static char sent[BYTES], got[BYTES];

static void handler(int number)
{
    (void)number;
    MPI_Abort(MPI_COMM_SELF, 7);
}

int main(int argc, char **argv)
{
    int rank, error, class, word = 0;
    long pid = getpid();
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    signal(SIGUSR1, handler);
    if (rank == 1) {
        MPI_Send(&pid, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
        for (;;)
            MPI_Sendrecv(sent, BYTES, MPI_BYTE, 0, 0, got, BYTES, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    if (rank == 0) {
        MPI_Recv(&pid, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        kill((pid_t)pid, SIGUSR1);
    }
    error = MPI_Recv(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(error, &class);
    if (class != MPI_ERR_PROC_FAILED)
        fprintf(stderr, "rank %d: class %d\n", rank, class);
    MPI_Finalize();
    return class == MPI_ERR_PROC_FAILED ? 0 : 121;
}
