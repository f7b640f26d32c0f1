/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* From the entry of MPIX_Comm_revoke at rank 0 to the return of the last rank that was blocked on the communicator: in a receive, a receive
 * from anybody, a barrier, a probe or a send without a receive, each rank in one of them. Half of the ranks have slept for some
 * milliseconds, half have just entered. Beside it, a barrier that rank 0 enters last, when all others sleep in it. One row for each;
 * the column of bytes is its number. A library without the extension for process failures
 * (mpi-ext.h) measures the barrier alone.
 *
 *   0 revoke   1 barrier   */
#include "common.h"
#include "repair.h"
#include <time.h>

enum { REVOKE, BARRIER, ROWS };
enum { ASLEEP_US = 5000, JUST_ENTERED_US = 200 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void interrupt(MPI_Comm comm)
{
    (void)comm;
#if HAS_REPAIR
    MPIX_Comm_revoke(comm);
#endif
}

static int is_revoked(int class)
{
#if HAS_REPAIR
    return class == MPIX_ERR_REVOKED;
#else
    return class == MPI_SUCCESS;
#endif
}

/* Blocks until the communicator is revoked. Returns the error class. */
static int block(const struct bench *b, MPI_Comm comm)
{
    int data = 0, code = MPI_SUCCESS, class = MPI_SUCCESS;
    MPI_Status status;
    switch (b->rank % 5) {
    case 0: code = MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &status); break;
    case 1: code = MPI_Recv(&data, 1, MPI_INT, 0, 1, comm, &status); break;
    case 2: code = MPI_Barrier(comm); break;
    case 3: code = MPI_Probe(0, 1, comm, &status); break;
    default: code = MPI_Ssend(&data, 1, MPI_INT, 0, 1, comm); break;
    }
    MPI_Error_class(code, &class);
    return class;
}

/* One sample: seconds from the entry of rank 0 to the last return. */
static double sample(struct bench *b, int row)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    double times[2] = {0, 0}, last[2];
    if (row == REVOKE)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (b->rank == 0) {
        usleep(ASLEEP_US);
        times[0] = now();
        if (row == REVOKE)
            interrupt(comm);
        else
            MPI_Barrier(comm);
    } else {
        if (row == REVOKE && b->rank % 2 == 0)
            usleep(ASLEEP_US - JUST_ENTERED_US);
        if (row == BARRIER)
            MPI_Barrier(comm);
        else if (!is_revoked(block(b, comm)))
            b->wrong_bytes++;
    }
    times[1] = now();
    MPI_Reduce(times, last, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (row == REVOKE)
        MPI_Comm_free(&comm);
    return last[1] - times[0];
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "revoke", .rate_unit = "operations/s", .iterations = 200};
    bench_begin(&b, &argc, &argv, "0");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int count = b.iterations, warmup = bench_warmup(&b, count);
    for (int row = HAS_REPAIR ? REVOKE : BARRIER; row < ROWS; row++) {
        double *samples = bench_memory(&b, sizeof *samples * (size_t)count);
        double sum = 0;
        for (int i = -warmup; i < count; i++) {
            double took = sample(&b, row);
            if (i >= 0)
                sum += samples[i] = took;
        }
        bench_row(&b, (size_t)row, samples, count, sum / count, count / sum);
        free(samples);
    }
    return bench_end(&b);
}
