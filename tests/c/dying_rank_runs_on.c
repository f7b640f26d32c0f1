/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 4
/* Rank 1 gets a fatal signal, which Mend's handler reports, and runs on: its own handler calls Mend's, and then jumps back. A debugger that
 * discards the signal does the same. For the others it has failed, and the job does not wait for it. */
#include "deaths.h"

#include <setjmp.h>

static struct sigaction of_mend;
static sigjmp_buf back;

static void handler(int number, siginfo_t *info, void *context)
{
    of_mend.sa_sigaction(number, info, context);
    siglongjmp(back, 1);
}

static void fault_and_run_on(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &of_mend);
    if (sigsetjmp(back, 1) == 0)
        *(volatile int *)8 = 0;
    for (volatile unsigned long count = 0;; count++) {
    }
}

int main(void)
{
    int token;
    begin();
    if (rank == 1)
        fault_and_run_on();
    expect("Recv", class_of(MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)), MPI_ERR_PROC_FAILED);
    return end();
}
