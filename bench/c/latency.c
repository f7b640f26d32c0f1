/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Ping-pong between ranks 0 and 1: half a round trip, by size. The average is taken over a loop without clock readings;
 * min, p50 and p99 over a second one that times each round trip. */
#include "common.h"

int main(int argc, char **argv)
{
    struct bench b = {.name = "latency", .rate_unit = "MB/s", .timed = 1};
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
            bench_round_trips(&b, data, size, 0, warmup, NULL);
            double average = b.seconds > 0 ? bench_timed_round_trips(&b, data, size, warmup)
                                           : bench_round_trips(&b, data, size, warmup, iterations, NULL);
            bench_round_trips(&b, data, size, warmup + iterations, iterations, samples);
            bench_row(&b, size, samples, iterations, average, (double)size / average / 1e6);
            free(samples);
            free(data);
        }
    }
    bench_progress(&b, b.sizes_count);
    return bench_end(&b);
}
