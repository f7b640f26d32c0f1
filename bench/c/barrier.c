/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* MPI_Barrier on all ranks: the average over a loop without clock readings, min, p50 and p99 as rank 0 sees them. */
#include "common.h"

static double barriers(int count, double *samples)
{
    double start = MPI_Wtime(), last = start;
    for (int i = 0; i < count; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (samples) {
            double now = MPI_Wtime();
            samples[i] = now - last;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / count;
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "barrier", .rate_unit = "barriers/s"};
    bench_begin(&b, &argc, &argv, "0");
    b.sizes_count = 1;
    b.sizes[0] = 0;
    int iterations = bench_iterations(&b, 0), warmup = bench_warmup(&b, iterations);
    double *samples = bench_memory(&b, sizeof *samples * (size_t)iterations);
    bench_progress(&b, 0);
    barriers(warmup, NULL);
    double average = barriers(iterations, NULL);
    barriers(iterations, samples);
    bench_row(&b, 0, samples, iterations, average, 1 / average);
    free(samples);
    bench_progress(&b, 1);
    return bench_end(&b);
}
