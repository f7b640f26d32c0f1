/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8 16
/* Row AG13: whoever has returned from an agreement may finalize at once, or die; the others still get the result. The highest rank dies
 * right after its own return; all others finalize right after theirs, and wait for nobody. */
#include "deaths.h"

#include <mpi-ext.h>

int main(void)
{
    int flag, got;
    begin();
    for (int round = 0; round < 100; round++) {
        flag = ~(1 << (rank + round) % 24);
        MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    }
    flag = 0x700 | rank;
    got = MPIX_Comm_agree(MPI_COMM_WORLD, &flag);
    if (rank == ranks - 1)
        die();
    expect("agree", got, MPI_SUCCESS);
    expect("its flag", flag, 0x700);
    return end();
}
