/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 4 8
/* Rows LC1, LC2: Finalize returns after deaths, with requests that can no longer complete, and while other ranks die. */
#include "deaths.h"
#include <sched.h>

enum { LARGE = 1 << 20 };
static char out[LARGE], in[LARGE];

int main(void)
{
    MPI_Request request;
    MPI_Comm comm;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    meet();
    if (ranks > 2) {
        lose_one();
        /* Row LC1: these requests are freed, so that only Finalize waits for them. */
        MPI_Isend(out, LARGE, MPI_CHAR, ranks - 1, 1, comm, &request);
        MPI_Request_free(&request);
        MPI_Irecv(in, LARGE, MPI_CHAR, ranks - 1, 1, comm, &request);
        MPI_Request_free(&request);
        MPI_Comm_free(&comm);
        meet();
    } else {
        MPI_Comm_free(&comm);
    }
    /* Row LC2: the highest rank dies while the others finalize: each has sent it a large message, which it does not receive. */
    MPI_Isend(out, LARGE, MPI_CHAR, alive - 1, 2, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    if (rank == alive - 1) {
        for (int other = 0; other < alive; other++)
            MPI_Probe(other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int count = 0; count < 2000; count++)
            sched_yield();
        die();
    }
    return end();
}
