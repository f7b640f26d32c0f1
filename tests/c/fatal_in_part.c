/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 5
// expect-exit: 101
// expect-stderr: failed: rank 1 of the communicator (rank 4 in MPI_COMM_WORLD) has failed
/* A fatal error on a communicator whose ranks are others than in MPI_COMM_WORLD names both ranks of the process that failed. */
#include "deaths.h"

int main(void)
{
    MPI_Comm part;
    begin();
    /* Ranks 3 and 4 of MPI_COMM_WORLD are ranks 0 and 1. */
    MPI_Comm_split(MPI_COMM_WORLD, rank < 3, 0, &part);
    MPI_Comm_set_errhandler(part, MPI_ERRORS_ARE_FATAL);
    meet();
    lose_one();
    if (rank == 3) {
        int word;
        MPI_Recv(&word, 1, MPI_INT, 1, 0, part, MPI_STATUS_IGNORE);
        return 121;
    }
    alive--;
    until_known(MPI_COMM_WORLD, 2);
    meet();
    return end();
}
