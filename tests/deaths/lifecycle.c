/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* lifecycle BOARD VICTIM: one rank is stepped through MPI_Init, or through MPI_Finalize, and killed there; the others publish how
 * their MPI_Init, a receive from the victim and MPI_Finalize ended. tests/src/lifecycle.rs is the harness. */
#include "board.h"
#include "failed.h"

/* Values of ENDED: the stage of a rank. */
enum { INITIALIZED = 1, TALKED = 2, FINALIZING = 3, OVER = 4 };

int main(int argc, char **argv)
{
    int rank = atoi(getenv("MEND_RANK")), victim = atoi(argv[2]), ranks = 0, named = 0, from = 0;
    board_open(argv[1]);
    prepare_release();
    if (rank == victim) {
        await_release(rank);
        mark();
    } else {
        board_set(rank, PID, (uint32_t)getpid());
    }
    int code = MPI_Init(&argc, &argv);
    if (rank == victim)
        mark();
    board_set(rank, FIRST, 1 + (uint32_t)(code == MPI_SUCCESS ? code : class_of(code)));
    /* Row LC3: an error of MPI_Init is a correct result too; then there is nothing more to do. */
    if (code != MPI_SUCCESS) {
        board_set(rank, ENDED, OVER);
        return 0;
    }
    board_set(rank, ENDED, INITIALIZED);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    /* The victim sends to all, so that each has its outbox mapped, and a message to read. */
    if (rank == victim) {
        for (int other = 0; other < ranks; other++)
            if (other != victim)
                MPI_Send(&rank, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    } else {
        code = MPI_Recv(&from, 1, MPI_INT, victim, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        board_set(rank, CLASS, 1 + (uint32_t)class_of(code));
        board_set(rank, WRONG, code == MPI_SUCCESS && from != victim);
        if (code != MPI_SUCCESS) {
            board_set(rank, FAILED, 1 + (uint32_t)failed_members(victim, &named));
            board_set(rank, KNOWN, (uint32_t)named);
        }
    }
    board_set(rank, ENDED, TALKED);
    if (rank == victim)
        mark();
    board_set(rank, ENDED, FINALIZING);
    long begun = micros();
    MPI_Finalize();
    board_set(rank, MICROS, (uint32_t)(micros() - begun));
    if (rank == victim)
        mark();
    board_set(rank, ENDED, OVER);
    return 0;
}
