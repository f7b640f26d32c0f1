/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* A program whose receives take all the memory that it may have gets MPI_ERR_NO_MEM from the next one. It takes the others back, and
 * goes on under the same limit. */
#include "expect.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 1 << 20, SOME = 100, MORE = 48 << 20 };

static int size;

/* What the process has mapped now, and some more. */
static void limit_memory(void)
{
    unsigned long pages = 0;
    struct rlimit limit;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1)
        abort();
    fclose(file);
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * (unsigned long) sysconf(_SC_PAGESIZE) + MORE;
    expect("the limit", setrlimit(RLIMIT_AS, &limit), 0);
}

static void exchange(void)
{
    int sent = rank, received = -1, sum = 0;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(&sent, 1, MPI_INT, next, 1, &received, 1, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect("what the neighbour sent", received, before);
    MPI_Allreduce(&sent, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect("the sum of all ranks", sum, size * (size - 1) / 2);
}

/* Starts receives until there is no memory for one; how many were started. */
static int start_all(MPI_Request *requests)
{
    static int number;
    for (int i = 0; i < MOST; i++) {
        int code = MPI_Irecv(&number, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, &requests[i]);
        if (code != MPI_SUCCESS) {
            expect("a receive without memory", code, MPI_ERR_NO_MEM);
            expect("its request is null", requests[i] == MPI_REQUEST_NULL, 1);
            return i;
        }
    }
    expect("a million receives fit into the limit", 1, 0);
    return MOST;
}

static void end_all(MPI_Request *requests, int count, int by_free)
{
    for (int i = 0; i < count; i++) {
        int cancelled = 0;
        MPI_Status status;
        expect("a cancellation", MPI_Cancel(&requests[i]), MPI_SUCCESS);
        if (by_free) {
            expect("a release", MPI_Request_free(&requests[i]), MPI_SUCCESS);
            continue;
        }
        expect("a wait", MPI_Wait(&requests[i], &status), MPI_SUCCESS);
        MPI_Test_cancelled(&status, &cancelled);
        expect("a cancelled receive", cancelled, 1);
    }
}

int main(void)
{
    MPI_Request *requests;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    requests = malloc(MOST * sizeof *requests);
    memset(requests, 0, MOST * sizeof *requests);
    exchange();
    limit_memory();
    for (int round = 0; round < 2; round++) {
        int count = start_all(requests);
        expect("some receives were started", count > 1000, 1);
        end_all(requests, SOME, !round);
        exchange();
        end_all(requests + SOME, count - SOME, round);
        exchange();
    }
    if (rank == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    return errors != 0;
}
