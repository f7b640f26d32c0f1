/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the programs of this folder share: a file that the harness made, mapped by every rank, with a seat of 16 words for each
 * (tests/src/board.rs); and the marks, signals that stop a traced thread. Nothing of it goes through MPI, so that it works
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
    PID,      /* a rank's process, once it may be let go */
    CALLED,   /* rank 0's seat: which rank its next call depends on */
    ENDED,    /* rank 0's seat: for how many ranks its calls have ended; others: how far they are */
    CLASS,    /* what the call returned, and one */
    WRONG,    /* bytes that were neither right nor untouched */
    KNOWN,    /* whether get_failed named the dead once an error had; 1: yes */
    DEAD,     /* the harness: this rank is dead */
    STOP,     /* rank 0's seat: the harness: no more rounds */
    FIRST,    /* what came first, and one */
    FAILED,   /* how many had failed at the end, and one */
    MICROS,   /* how long a call took */
    WORDS = 16,
    SEATS = 1024
};

typedef uint32_t seat[WORDS];
static volatile seat *board;

static inline void board_open(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(seat) * SEATS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
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

/* Before MPI_Init, so that every thread inherits it: SIGUSR1 waits until `await_release` asks for it. */
static inline void prepare_release(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Says that this process may be traced now, and waits for the harness to say go. */
static inline void await_release(int rank)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    board_set(rank, PID, (uint32_t)getpid());
    sigwait(&set, &signal);
}

/* Stops under a tracer, who swallows the signal. */
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
