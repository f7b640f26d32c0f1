/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 4 8
/* MPIX_Comm_agree and MPIX_Comm_iagree: rows AG1 to AG5, AG8, AG10 and AG12 of docs/dev/semantics.md. Ranks die from the highest
 * down until rank 0 is alone. */
#include "deaths.h"

#include <mpi-ext.h>

enum { MANY = 1000 };

/* Row AG1: all bits that all have set. */
static void all_bits_that_all_have_set(MPI_Comm comm, int wanted)
{
    int flag = ~(1 << rank), got;
    got = class_of(MPIX_Comm_agree(comm, &flag));
    expect("agree", got, wanted);
    expect("its flag", flag, ~((1 << alive) - 1));
}

/* Row AG12 */
static void many_in_a_row(MPI_Comm comm)
{
    for (int round = 0; round < MANY; round++) {
        int flag = round | (rank == round % alive ? 0 : 1 << 30);
        expect("agree in a row", MPIX_Comm_agree(comm, &flag), MPI_SUCCESS);
        expect("its flag", flag, round);
    }
}

/* Row AG8: an operation like others, also several at once. */
static void several_at_once(MPI_Comm comm)
{
    MPI_Request requests[4];
    int flags[4], other = (rank + 1) % alive, token = -1;
    for (int at = 0; at < 4; at++) {
        flags[at] = 0xff ^ (rank == 0 ? 1 << at : 0);
        expect("iagree", MPIX_Comm_iagree(comm, &flags[at], &requests[at]), MPI_SUCCESS);
    }
    MPI_Sendrecv(&rank, 1, MPI_INT, other, 1, &token, 1, MPI_INT, (rank + alive - 1) % alive, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    expect("a message meanwhile", token, (rank + alive - 1) % alive);
    expect("Waitall", MPI_Waitall(4, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    for (int at = 0; at < 4; at++)
        expect("its flag", flags[at], 0xff ^ 1 << at);
}

/* Rows AG2, AG3, AG4 and AG5: an unacknowledged failure is an error at all, until all have acknowledged it. */
static void a_member_dies(MPI_Comm comm)
{
    if (rank == --alive)
        die();
    /* It is not known yet, or known at some ranks only. */
    all_bits_that_all_have_set(comm, MPI_ERR_PROC_FAILED);
    expect("after the error all failures are known", known(comm), ranks - alive);
    all_bits_that_all_have_set(comm, MPI_ERR_PROC_FAILED);
    /* Row AG4: acknowledged at rank 0 alone. */
    if (rank == 0)
        MPIX_Comm_failure_ack(comm);
    all_bits_that_all_have_set(comm, alive == 1 ? MPI_SUCCESS : MPI_ERR_PROC_FAILED);
    MPIX_Comm_failure_ack(comm);
    all_bits_that_all_have_set(comm, MPI_SUCCESS);
}

int main(void)
{
    begin();
    all_bits_that_all_have_set(MPI_COMM_WORLD, MPI_SUCCESS);
    many_in_a_row(MPI_COMM_WORLD);
    several_at_once(MPI_COMM_WORLD);
    while (alive > 1)
        a_member_dies(MPI_COMM_WORLD);
    /* Row AG10: alone. */
    many_in_a_row(MPI_COMM_WORLD);
    return end();
}
