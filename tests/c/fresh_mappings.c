/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
// args: 300
// timeout: 120
/* fresh_mappings COUNT [BYTES]: COUNT messages, each sent from memory that was mapped for it and received into memory that was mapped for it;
 * both are unmapped at once, so that the next mapping has the same addresses and other pages. A transport that kept a registration of the
 * earlier pages would send or receive them. Every byte is checked. */
#define _GNU_SOURCE
#include "expect.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t *map(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return start;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 300, all = 0, repeated = 0;
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 1 << 20, words = bytes / sizeof(uint64_t);
    const uint64_t *last = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double begun = MPI_Wtime();
    for (int i = 0; i < count && errors == 0; i++) {
        uint64_t *buffer = map(bytes);
        uint64_t start = (uint64_t)i * 0x9e3779b97f4a7c15u;
        repeated += buffer == last;
        last = buffer;
        if (rank == 0) {
            for (size_t at = 0; at < words; at++)
                buffer[at] = start + at;
            MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        } else {
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (size_t at = 0; at < words; at++)
                if (buffer[at] != start + at) {
                    expect("a word of a message", (long)buffer[at], (long)(start + at));
                    break;
                }
        }
        munmap(buffer, bytes);
    }
    /* Otherwise no mapping was in the place of an earlier one, and nothing would be tested. */
    expect("mappings at the address of the one before, half of all at least", repeated >= count / 2, 1);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) {
        printf("%d messages of %zu bytes in %.2f s\n", count, bytes, MPI_Wtime() - begun);
        puts("No errors");
    }
    MPI_Finalize();
    return all != 0;
}
