/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 8
// expect-exit: 7
// expect-stderr: MPI_ERR_TAG
/* Rows EH5, EH6, PP24: MPI_Abort ends the members of its communicator, also those that spin outside MPI, and MPI_ERRORS_ABORT
 * does the same when an error occurs. The other ranks go on; for them the ended ranks have failed. The job's exit code is the
 * largest code. */
#include "deaths.h"

static void spin(void)
{
    for (volatile unsigned long count = 0;; count++) {
    }
}

/* No rank is ended before all have left `meet`: each tells rank 0, which then releases the ranks that end others. */
static void all_are_ready(void)
{
    const int enders[] = {2, 5, 7};
    int token = 0;
    meet();
    if (rank != 0)
        MPI_Send(&token, 1, MPI_INT, 0, 1, aside);
    for (int other = 1; rank == 0 && other < ranks; other++)
        MPI_Recv(&token, 1, MPI_INT, other, 1, aside, MPI_STATUS_IGNORE);
    for (int at = 0; at < 3; at++) {
        if (rank == 0)
            MPI_Send(&token, 1, MPI_INT, enders[at], 2, aside);
        if (rank == enders[at])
            MPI_Recv(&token, 1, MPI_INT, 0, 2, aside, MPI_STATUS_IGNORE);
    }
}

int main(void)
{
    MPI_Comm pair;
    int word = 0;
    begin();
    /* 0 and 1 live; 2 and 3, 4 and 5, and 6 and 7 are pairs. */
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &pair);
    all_are_ready();
    if (rank == 7)
        MPI_Abort(MPI_COMM_SELF, 5);
    if (rank == 5)
        MPI_Abort(pair, 7);
    if (rank == 2) {
        MPI_Comm_set_errhandler(pair, MPI_ERRORS_ABORT);
        MPI_Send(&word, 1, MPI_INT, 0, -5, pair);
    }
    if (rank == 3 || rank == 4)
        spin();
    if (rank == 6) {
        /* Rank 7, the other of its pair, ended alone. */
        expect("the member of SELF", class_of(MPI_Recv(&word, 1, MPI_INT, 7, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
               MPI_ERR_PROC_FAILED);
        expect("Send", MPI_Send(&word, 1, MPI_INT, 0, 6, MPI_COMM_WORLD), MPI_SUCCESS);
        return end();
    }
    until_known(MPI_COMM_WORLD, 5);
    for (int who = 2; who < 8; who++)
        expect("who was ended", has_failed(MPI_COMM_WORLD, who), who != 6);
    if (rank == 0)
        expect("from the one who lives", MPI_Recv(&word, 1, MPI_INT, 6, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    alive = 2;
    meet();
    expect("Barrier of the living", MPI_Barrier(pair), MPI_SUCCESS);
    return end();
}
