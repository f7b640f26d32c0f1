/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 8 12
// expect-exit: 7
// expect-stderr: called MPI_Abort
/* Row EH6: MPI_Abort in a signal handler ends the process also where the handler interrupted malloc or free, whose lock its thread
 * holds. Every rank ends itself, each at another time. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

enum { BLOCKS = 4096, FIRST_US = 50000, BETWEEN_US = 3001 };

static void handler(int number)
{
    (void)number;
    MPI_Abort(MPI_COMM_SELF, 7);
}

int main(int argc, char **argv)
{
    static void *blocks[BLOCKS];
    struct itimerval once = {{0, 0}, {0, FIRST_US}};
    unsigned random = 1;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    signal(SIGALRM, handler);
    once.it_value.tv_usec += rank * BETWEEN_US;
    setitimer(ITIMER_REAL, &once, NULL);
    for (;;) {
        random = random * 1664525 + 1013904223;
        unsigned at = random >> 20;
        free(blocks[at]);
        blocks[at] = malloc(1100 + (random >> 8) % 60000);
    }
}
