/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Random numbers, and deaths at random moments: a timer of the kernel kills the process, at any instruction. */
#ifndef MEND_DEATH_TIMER_H
#define MEND_DEATH_TIMER_H

#include "../c/expect.h"

#include <signal.h>
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

#endif
