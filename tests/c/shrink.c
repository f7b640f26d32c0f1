/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4 8
/* MPIX_Comm_shrink and MPIX_Comm_ishrink: rows SH1 to SH9 of docs/dev/semantics.md. */
#include "deaths.h"

#include <mpi-ext.h>

/* Rows SH2, SH3 and SH6: who is a member, in which order; messages may come before the local call has returned. */
static void is_usable(MPI_Comm comm)
{
    int size = -1, new_rank = -1, sum = -1, one = 1;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &new_rank);
    expect("all who live are members", size, alive);
    expect("the order of ranks is kept", new_rank, rank);
    expect("Allreduce", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
    expect("its sum", sum, alive);
}

/* Row SH4 */
static void without_a_failure_it_is_congruent(MPI_Comm comm)
{
    MPI_Comm made;
    int result = -1;
    expect("shrink", MPIX_Comm_shrink(comm, &made), MPI_SUCCESS);
    MPI_Comm_compare(comm, made, &result);
    expect("compare", result, MPI_CONGRUENT);
    is_usable(made);
    MPI_Comm_free(&made);
}

/* Row SH5: the error handler is inherited, the name is not. */
static void it_inherits_the_error_handler(MPI_Comm comm)
{
    MPI_Comm made;
    MPI_Errhandler handler;
    char name[MPI_MAX_OBJECT_NAME];
    int length = -1;
    MPIX_Comm_shrink(comm, &made);
    MPI_Comm_get_errhandler(made, &handler);
    expect("the error handler", handler == MPI_ERRORS_RETURN, 1);
    MPI_Errhandler_free(&handler);
    MPI_Comm_get_name(made, name, &length);
    expect("the name", length, 0);
    MPI_Comm_free(&made);
}

/* Row SH8: the communicator stays usable meanwhile. */
static void at_once_with_other_operations(MPI_Comm comm)
{
    MPI_Comm made[2];
    MPI_Request requests[2];
    int flag = 3;
    expect("ishrink", MPIX_Comm_ishrink(comm, &made[0], &requests[0]), MPI_SUCCESS);
    expect("ishrink", MPIX_Comm_ishrink(comm, &made[1], &requests[1]), MPI_SUCCESS);
    MPIX_Comm_agree(comm, &flag);
    expect("agree behind them", flag, 3);
    expect("Waitall", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    for (int at = 0; at < 2; at++) {
        is_usable(made[at]);
        MPI_Comm_free(&made[at]);
    }
}

/* Rows SH1, SH2, SH7, SH9: nobody knows of the death yet, or some do. The old communicator is freed. */
static MPI_Comm a_member_dies(MPI_Comm comm)
{
    MPI_Comm made, again;
    meet();
    if (rank == --alive)
        die();
    if (rank % 2)
        until_known(comm, 1);
    do {
        int size;
        expect("shrink", MPIX_Comm_shrink(comm, &made), MPI_SUCCESS);
        MPI_Comm_size(made, &size);
        if (size == alive)
            break;
        /* A death that nobody knew of: the next shrink leaves it out. */
        MPI_Comm_free(&comm);
        comm = made;
        until_known(comm, 1);
    } while (1);
    is_usable(made);
    expect("shrink again", MPIX_Comm_shrink(comm, &again), MPI_SUCCESS);
    is_usable(again);
    MPI_Comm_free(&again);
    MPI_Comm_free(&comm);
    return made;
}

int main(void)
{
    MPI_Comm comm;
    begin();
    without_a_failure_it_is_congruent(MPI_COMM_WORLD);
    it_inherits_the_error_handler(MPI_COMM_WORLD);
    at_once_with_other_operations(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    while (alive > 1)
        comm = a_member_dies(comm);
    without_a_failure_it_is_congruent(comm);
    MPI_Comm_free(&comm);
    return end();
}
