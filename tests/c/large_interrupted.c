/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 4 5
// timeout: 120
/* Row CO14: collectives of 64 MiB that run are interrupted: by a revocation from a member that has entered too, or has not, and by the death
 * of the highest rank, which enters or does not. Nobody waits for what will not come. */
#include "deaths.h"

#include <mpi-ext.h>
#include <pthread.h>

enum { COUNT = 1 << 24, OPERATIONS = 4 };
static int *out, *in;

static int large(int which, MPI_Comm comm)
{
    switch (which) {
    case 0: return MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_SUM, comm);
    case 1: return MPI_Bcast(in, COUNT, MPI_INT, alive - 1, comm);
    case 2: return MPI_Reduce(out, in, COUNT, MPI_INT, MPI_SUM, 0, comm);
    default: return MPI_Allgather(out, COUNT / 8, MPI_INT, in, COUNT / 8, MPI_INT, comm);
    }
}

/* The highest rank does not enter, and revokes when the others may be in the middle of it. */
static void revoked_by_who_does_not_enter(int which, MPI_Comm comm)
{
    int got = MPI_ERR_REVOKED;
    meet();
    if (rank == alive - 1)
        MPIX_Comm_revoke(comm);
    else
        got = class_of(large(which, comm));
    /* A rank whose part needs nobody else's has succeeded. */
    expect("the class", got == MPI_ERR_REVOKED || (which == 2 && got == MPI_SUCCESS && rank != 0), 1);
    expect("the next operation", class_of(MPI_Barrier(comm)), MPI_ERR_REVOKED);
}

static void *revoking_thread(void *comm)
{
    MPIX_Comm_revoke(*(MPI_Comm *)comm);
    return NULL;
}

/* Another thread of rank 0 revokes while all members are inside. */
static void revoked_in_the_middle(int which, MPI_Comm comm)
{
    pthread_t thread;
    int got;
    meet();
    if (rank == 0 && pthread_create(&thread, NULL, revoking_thread, &comm) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    got = class_of(large(which, comm));
    expect("the class", got == MPI_ERR_REVOKED || got == MPI_SUCCESS, 1);
    if (rank == 0)
        pthread_join(thread, NULL);
    expect("the next operation", class_of(MPI_Barrier(comm)), MPI_ERR_REVOKED);
}

static void the_highest_rank_dies(int which, MPI_Comm comm)
{
    int got;
    meet();
    if (rank == alive - 1)
        die();
    got = class_of(large(which, comm));
    expect("the class", got == MPI_ERR_PROC_FAILED || (which == 2 && got == MPI_SUCCESS && rank != 0), 1);
    alive--;
    until_known(comm, 1);
}

int main(void)
{
    int provided;
    MPI_Comm comm;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    expect("threads", provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    alive = ranks;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &aside);
    out = calloc(COUNT, sizeof *out);
    in = calloc(COUNT, sizeof *in);
    for (int which = 0; which < OPERATIONS; which++) {
        MPI_Comm_dup(aside, &comm);
        revoked_by_who_does_not_enter(which, comm);
        MPI_Comm_free(&comm);
        MPI_Comm_dup(aside, &comm);
        revoked_in_the_middle(which, comm);
        MPI_Comm_free(&comm);
    }
    meet();
    MPI_Comm_dup(aside, &comm);
    the_highest_rank_dies(ranks % OPERATIONS, comm);
    meet();
    free(out);
    free(in);
    MPI_Comm_free(&comm);
    return end();
}
