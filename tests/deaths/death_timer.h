/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Random numbers, and deaths at random moments: a timer of the kernel kills the process, at any instruction. */
#ifndef MEND_DEATH_TIMER_H
#define MEND_DEATH_TIMER_H

#include "../c/expect.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Not 0. */
static unsigned long state;

static inline unsigned long draw(unsigned long below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

/* Each rank but 0 dies with the probability deaths / of, `latest_us` microseconds from now at the latest. A victim survives if its rounds
 * end first. */
static inline void plan_death(unsigned long latest_us, unsigned long deaths, unsigned long of)
{
    timer_t timer;
    struct sigevent event;
    struct itimerspec when;
    unsigned long us = 1 + draw(latest_us);
    memset(&event, 0, sizeof event);
    memset(&when, 0, sizeof when);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    if (rank == 0 || draw(of) >= deaths)
        return;
    when.it_value.tv_sec = (time_t)(us / 1000000);
    when.it_value.tv_nsec = (long)(us % 1000000 * 1000);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0)
        expect("the timer", 0, 1);
}

/* MPI_Init, and a planned death. The arguments are the number of rounds, which it returns, the seed, and the latest moment in
 * microseconds. */
static inline int begin_with_deaths(int argc, char **argv, unsigned long deaths, unsigned long of)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    state = (argc > 2 ? strtoul(argv[2], NULL, 10) : 1) * 0x9e3779b97f4a7c15ul + (unsigned long)rank * 0x2545f4914f6cdd1dul + 1;
    for (int i = 0; i < 8; i++)
        draw(2);
    plan_death(argc > 3 ? strtoul(argv[3], NULL, 10) : 3000, deaths, of);
    return argc > 1 ? atoi(argv[1]) : 100;
}

#endif
