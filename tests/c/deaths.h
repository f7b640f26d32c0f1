/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Common parts of the programs about deaths. Ranks die from the highest down, by SIGKILL, so that the living ranks are always those
 * below `alive`; rank 0 lives to the end and prints the result. No rank sleeps: one that needs a death polls until it is known. */
#ifndef MEND_TESTS_DEATHS_H
#define MEND_TESTS_DEATHS_H

#include "expect.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEETING = 4711 };
static int ranks, alive;
/* The communicator of `meet` alone. */
static MPI_Comm aside;

static inline void begin(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    alive = ranks;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &aside);
}

/* Finalizes, and returns the exit code of the program. */
static inline int end(void)
{
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        puts("No errors");
    return errors ? 120 : 0;
}

static inline void die(void)
{
    raise(SIGKILL);
}

/* How many members of `comm` this process knows to have failed. */
static inline int known(MPI_Comm comm)
{
    MPI_Group failed;
    int size = -1;
    expect("Comm_get_failed", MPI_Comm_get_failed(comm, &failed), MPI_SUCCESS);
    MPI_Group_size(failed, &size);
    MPI_Group_free(&failed);
    return size;
}

/* Polls until `count` members are known to have failed. The caller checks that no living rank is among them. */
static inline void until_known(MPI_Comm comm, int count)
{
    while (known(comm) < count) {
    }
}

/* Whether `comm`'s member `who` is known to have failed. */
static inline int has_failed(MPI_Comm comm, int who)
{
    MPI_Group failed, all;
    int at = MPI_UNDEFINED;
    MPI_Comm_get_failed(comm, &failed);
    MPI_Comm_group(comm, &all);
    MPI_Group_translate_ranks(all, 1, &who, failed, &at);
    MPI_Group_free(&failed);
    MPI_Group_free(&all);
    return at != MPI_UNDEFINED;
}

/* A barrier of the living ranks. Messages that were sent before have arrived when it returns, as messages of a pair stay in order. */
static inline void meet(void)
{
    char token = 0;
    for (int other = 0; other < alive; other++)
        if (other != rank)
            expect("a send in meet", MPI_Send(&token, 1, MPI_CHAR, other, MEETING, aside), MPI_SUCCESS);
    for (int other = 0; other < alive; other++)
        if (other != rank)
            expect("a meeting", MPI_Recv(&token, 1, MPI_CHAR, other, MEETING, aside, MPI_STATUS_IGNORE), MPI_SUCCESS);
}

/* The highest living rank dies; the others know it when this returns. */
static inline void lose_one(void)
{
    if (rank == --alive)
        die();
    until_known(MPI_COMM_WORLD, ranks - alive);
}

/* Message `id` of `bytes` bytes. */
static inline void fill(unsigned char *buffer, int bytes, int id)
{
    for (int at = 0; at < bytes; at++)
        buffer[at] = (unsigned char)(at * 7 + id * 31 + (at >> 8));
}

static inline int holds(const unsigned char *buffer, int bytes, int id)
{
    for (int at = 0; at < bytes; at++)
        if (buffer[at] != (unsigned char)(at * 7 + id * 31 + (at >> 8)))
            return 0;
    return 1;
}

/* Whether all of it is `byte`. */
static inline int is_all(const unsigned char *buffer, int bytes, int byte)
{
    for (int at = 0; at < bytes; at++)
        if (buffer[at] != byte)
            return 0;
    return 1;
}

#endif
