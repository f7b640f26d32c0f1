/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The root of an agreement is stopped between two instructions and killed by the harness, so that some of the others may know the
 * result and some not; the others are asleep in their call before. Whoever has returned computes outside MPI until all have returned. Argument: the board. The row of each rank has
 * what its agreement returned (CLASS), whether its flag was right (WRONG), and when it returned (MICROS, the lower 32 bits). */
#include "board.h"

#include <mpi-ext.h>

enum { ROOT = 0, RIGHT = 0x15, ROUNDS = 3 };

static int rank, ranks;

static int agree(int *class)
{
    int flag = RIGHT | 0x100 << rank;
    *class = class_of(MPIX_Comm_agree(MPI_COMM_WORLD, &flag));
    return flag;
}

/* Outside MPI: only the helper thread of the library can serve the others. */
static void compute_until_all_have_returned(void)
{
    for (int other = 1; other < ranks; other++)
        while (board_get(other, CLASS) == 0) {
        }
}

int main(int argc, char **argv)
{
    MPI_Comm survivors;
    int class, flag, size = -1;
    if (argc != 2)
        return 3;
    prepare_release();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    board_open(argv[1]);
    for (int round = 0; round < ROUNDS; round++)
        agree(&class);
    if (rank == ROOT) {
        await_release(rank);
        mark();
        agree(&class);
        mark();
        pause();
    }
    board_set(rank, PID, (uint32_t)getpid());
    board_set(rank, CALLED, 1);
    flag = agree(&class);
    board_set(rank, MICROS, (uint32_t)micros());
    board_set(rank, WRONG, flag != RIGHT);
    board_set(rank, CLASS, (uint32_t)class + 1);
    compute_until_all_have_returned();
    if (MPIX_Comm_shrink(MPI_COMM_WORLD, &survivors) != MPI_SUCCESS)
        return 4;
    MPI_Comm_size(survivors, &size);
    board_set(rank, FAILED, (uint32_t)(ranks - size) + 1);
    MPI_Finalize();
    if (rank == 1)
        puts("No errors");
    return 0;
}
