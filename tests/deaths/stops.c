/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* stops BOARD: ranks exchange messages, then compute without MPI for a while, until the harness ends them; meanwhile it stops and
 * continues them (SIGSTOP, SIGCONT). No failure may be reported. Row LC6: a rank that does not call MPI is not dead. */
#include "board.h"
#include "failed.h"

static void compute(int milliseconds)
{
    volatile double x = 1;
    for (long end = micros() + milliseconds * 1000L; micros() < end;)
        for (int i = 0; i < 10000; i++)
            x = x * 1.0000001 + 1e-9;
}

static void check(int rank, const char *what, int code)
{
    if (code != MPI_SUCCESS) {
        fprintf(stderr, "rank %d: %s: class %d\n", rank, what, class_of(code));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks, go = 1, round = 0, got;
    board_open(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    board_set(rank, PID, (uint32_t)getpid());
    srand((unsigned)rank + 1);
    for (; go; round++) {
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, sum = 0;
        if (rand() % 4 == 0)
            compute(rand() % 2000);
        check(rank, "Sendrecv", MPI_Sendrecv(&round, 1, MPI_INT, next, 0, &got, 1, MPI_INT, before, 0, MPI_COMM_WORLD,
                                              MPI_STATUS_IGNORE));
        check(rank, "Allreduce", MPI_Allreduce(&got, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        if (sum != round * ranks)
            check(rank, "a wrong sum", MPI_ERR_OTHER);
        go = rank == 0 ? board_get(0, STOP) == 0 : 1;
        check(rank, "Bcast", MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD));
        if (failed_members(-1, NULL) != 0)
            check(rank, "somebody was declared failed", MPI_ERR_PROC_FAILED);
        board_set(rank, ENDED, (uint32_t)round + 1);
    }
    MPI_Finalize();
    if (rank == 0)
        printf("%d rounds\nNo errors\n", round);
    return 0;
}
