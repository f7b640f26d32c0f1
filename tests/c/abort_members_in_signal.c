/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 4 5 8
// expect-exit: 7
// expect-stderr: was ended by rank 1 with MPI_Abort
/* Row EH6: MPI_Abort of a communicator in a signal handler that interrupts its own thread inside the library ends the members of that
 * communicator alone. Ranks 1 and 2 are a pair. Rank 1 sends large messages to itself, so that it nearly always copies inside the library;
 * rank 2 spins outside MPI. All others live, and for them the pair has failed. */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { BYTES = 32 << 20 };
static char sent[BYTES], got[BYTES];
static MPI_Comm pair;

static void handler(int number)
{
    (void)number;
    MPI_Abort(pair, 7);
}

/* The class of a receive from a rank that ends and sends nothing. */
static int class_of_receive_from(int who)
{
    int word, class;
    MPI_Error_class(MPI_Recv(&word, 1, MPI_INT, who, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE), &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_Comm survivors;
    int rank, ranks, size = 0, wrong;
    long pid = getpid();
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1 || rank == 2, 0, &pair);
    signal(SIGUSR1, handler);
    if (rank == 1) {
        MPI_Send(&pid, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
        for (;;)
            MPI_Sendrecv(sent, BYTES, MPI_BYTE, 0, 0, got, BYTES, MPI_BYTE, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    }
    if (rank == 2) {
        for (volatile unsigned long count = 0;; count++) {
        }
    }
    if (rank == 0) {
        MPI_Recv(&pid, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        kill((pid_t)pid, SIGUSR1);
    }
    wrong = class_of_receive_from(1) != MPI_ERR_PROC_FAILED || class_of_receive_from(2) != MPI_ERR_PROC_FAILED;
    MPIX_Comm_shrink(MPI_COMM_WORLD, &survivors);
    MPI_Comm_size(survivors, &size);
    wrong += size != ranks - 2 || MPI_Barrier(survivors) != MPI_SUCCESS;
    if (wrong)
        fprintf(stderr, "rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    return wrong ? 121 : 0;
}
