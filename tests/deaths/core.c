/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* core BOARD MIB: the last rank touches so much memory and aborts with a core dump; the others are notified before the dump is
 * written. Its memory ends with a word that the core must contain. */
#include "board.h"
#include "failed.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
    int rank, ranks, got, named = 0;
    size_t bytes = (size_t)atol(argv[2]) << 20;
    board_open(argv[1]);
    struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_CORE, &all);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == ranks - 1) {
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            MPI_Abort(MPI_COMM_WORLD, 1);
        madvise(memory, bytes, MADV_NOHUGEPAGE);
        for (size_t at = 0; at < bytes; at += 4096)
            *(volatile uint64_t *)(memory + at) = 0x4d656e64436f7265u + at;
        board_set(rank, PID, (uint32_t)getpid());
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(20000);
        board_set(rank, MICROS, (uint32_t)micros());
        abort();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int code = MPI_Recv(&got, 1, MPI_INT, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    board_set(rank, MICROS, (uint32_t)micros() - board_get(ranks - 1, MICROS));
    board_set(rank, CLASS, 1 + (uint32_t)class_of(code));
    int failed = failed_members(ranks - 1, &named);
    board_set(rank, FAILED, 1 + (uint32_t)failed);
    MPI_Finalize();
    if (rank == 0 && failed == 1 && named)
        printf("No errors\n");
    return 0;
}
