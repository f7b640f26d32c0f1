/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Common parts of the programs in this folder: the board, a file made by the harness and mapped by every rank, with a row of 16
 * words for each rank (tests/src/board.rs); and marks, signals that stop a traced thread. Neither uses MPI, so that both work
 * whatever MPI does. */
#ifndef MEND_BOARD_H
#define MEND_BOARD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PID,      /* a rank's process id, once it may be released */
    CALLED,   /* rank 0's row: which rank its next call depends on */
    ENDED,    /* rank 0's row: for how many ranks its calls have ended; others: their stage */
    CLASS,    /* what the call returned, plus 1 */
    WRONG,    /* bytes that were neither right nor untouched */
    KNOWN,    /* 1: get_failed named the dead rank after an error had been returned */
    DEAD,     /* set by the harness: this rank is dead */
    STOP,     /* rank 0's row, set by the harness: no more rounds */
    FIRST,    /* what the call for the earlier message returned, plus 1 */
    FAILED,   /* how many ranks had failed at the end, plus 1 */
    MICROS,   /* how long a call took */
    WORDS = 16,
    ROWS = 1024
};

typedef uint32_t row[WORDS];
static volatile row *board;

static inline void board_open(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(row) * ROWS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        perror(path);
        exit(3);
    }
    close(file);
    board = map;
}

static inline uint32_t board_get(int rank, int word)
{
    return __atomic_load_n(&board[rank][word], __ATOMIC_ACQUIRE);
}

static inline void board_set(int rank, int word, uint32_t value)
{
    __atomic_store_n(&board[rank][word], value, __ATOMIC_RELEASE);
}

static inline void board_await(int rank, int word)
{
    const struct timespec pause = {0, 50000};
    while (board_get(rank, word) == 0)
        nanosleep(&pause, NULL);
}

/* Blocks SIGUSR1 until `await_release` waits for it. Called before MPI_Init, so that every thread inherits it. */
static inline void prepare_release(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Publishes that this process may be traced now, and waits until the harness releases it. */
static inline void await_release(int rank)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    board_set(rank, PID, (uint32_t)getpid());
    sigwait(&set, &signal);
}

/* Stops under a tracer, which discards the signal. */
static inline void mark(void)
{
    raise(SIGUSR2);
}

static inline int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static inline long micros(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

#endif
