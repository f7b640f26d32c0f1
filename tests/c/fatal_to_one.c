/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 5
// expect-exit: 101
// expect-stderr: rank 4 has failed
/* Row EH1: WORLD has its initial handler, MPI_ERRORS_ARE_FATAL. A notice of a death ends no rank; rank 3, whose own operation
 * raises an error, ends alone, with the class as exit code, and has failed for the others. */
#include "deaths.h"

int main(void)
{
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    meet();
    lose_one();
    if (rank == 3) {
        int word;
        MPI_Recv(&word, 1, MPI_INT, 4, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return 121;
    }
    alive--;
    until_known(MPI_COMM_WORLD, 2);
    expect("who ended", has_failed(MPI_COMM_WORLD, 3), 1);
    for (int round = 0; round < 20; round++) {
        int next = (rank + 1) % alive, before = (rank + alive - 1) % alive, word = rank, got = -1;
        expect("Sendrecv", MPI_Sendrecv(&word, 1, MPI_INT, next, 1, &got, 1, MPI_INT, before, 1, MPI_COMM_WORLD,
                                        MPI_STATUS_IGNORE),
               MPI_SUCCESS);
        expect("the living go on", got, before);
    }
    meet();
    return end();
}
