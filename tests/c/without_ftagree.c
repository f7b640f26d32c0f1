/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
// env: MEND_COLL=^ftagree
// expect-exit: 16
// expect-stderr: E-INIT-006
// Row CN6: what would not survive failures is refused, unless fault tolerance is given up (without_ft.c)
#include <mpi.h>
#include <stddef.h>

int main(void)
{
    MPI_Init(NULL, NULL);
    MPI_Finalize();
    return 0;
}
