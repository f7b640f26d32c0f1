/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A token goes around all ranks, one after the other: the time of one lap, by size. */
#include "common.h"

static double laps(struct bench *b, unsigned char *data, size_t size, int first, int count, double *samples)
{
    int bytes = (int)size, next = (b->rank + 1) % b->ranks, before = (b->rank + b->ranks - 1) % b->ranks;
    double start = MPI_Wtime(), last = start;
    for (int i = first; i < first + count; i++) {
        if (b->rank != 0) {
            MPI_Recv(data, bytes, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, before, i);
        }
        bench_fill(b, data, size, i);
        MPI_Send(data, bytes, MPI_BYTE, next, 1, MPI_COMM_WORLD);
        if (b->rank == 0) {
            MPI_Recv(data, bytes, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, before, i);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i - first] = now - last;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / count;
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "ring", .rate_unit = "hops/s"};
    bench_begin(&b, &argc, &argv, "8");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        size_t size = b.sizes[s];
        int iterations = bench_iterations(&b, size) / 2 + 1, warmup = bench_warmup(&b, iterations);
        unsigned char *data = bench_memory(&b, size);
        double *samples = bench_memory(&b, sizeof *samples * (size_t)iterations);
        bench_progress(&b, s);
        MPI_Barrier(MPI_COMM_WORLD);
        laps(&b, data, size, 0, warmup, NULL);
        double average = laps(&b, data, size, warmup, iterations, NULL);
        laps(&b, data, size, warmup + iterations, iterations, samples);
        bench_row(&b, size, samples, iterations, average, b.ranks / average);
        free(samples);
        free(data);
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
