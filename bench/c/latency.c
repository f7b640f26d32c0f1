/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ping-pong between ranks 0 and 1: half a round trip, by size. The average is taken over a loop without clock readings;
 * min, p50 and p99 over a second one that times each round trip. */
#include "common.h"

static double round_trips(struct bench *b, unsigned char *data, size_t size, int first, int count, double *samples)
{
    int bytes = (int)size;
    double start = MPI_Wtime(), last = start;
    for (int i = first; i < first + count; i++) {
        if (b->rank == 0) {
            bench_fill(b, data, size, i);
            MPI_Send(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(data, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, 1, i);
        } else {
            MPI_Recv(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            bench_check(b, data, size, 0, i);
            bench_fill(b, data, size, i);
            MPI_Send(data, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
        if (samples) {
            double now = MPI_Wtime();
            samples[i - first] = (now - last) / 2;
            last = now;
        }
    }
    return (MPI_Wtime() - start) / 2 / count;
}

int main(int argc, char **argv)
{
    struct bench b = {.name = "latency", .rate_unit = "MB/s"};
    bench_begin(&b, &argc, &argv, "0:4M");
    if (b.ranks < 2)
        bench_fail(&b, "needs 2 ranks", "");
    for (int s = 0; s < b.sizes_count; s++) {
        size_t size = b.sizes[s];
        int iterations = bench_iterations(&b, size), warmup = bench_warmup(&b, iterations);
        bench_progress(&b, s);
        MPI_Barrier(MPI_COMM_WORLD);
        if (b.rank < 2) {
            unsigned char *data = bench_memory(&b, size);
            double *samples = bench_memory(&b, sizeof *samples * (size_t)iterations);
            round_trips(&b, data, size, 0, warmup, NULL);
            double average = round_trips(&b, data, size, warmup, iterations, NULL);
            round_trips(&b, data, size, warmup + iterations, iterations, samples);
            bench_row(&b, size, samples, iterations, average, (double)size / average / 1e6);
            free(samples);
            free(data);
        }
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
