/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* garbage BOARD SEED: the last rank stays alive, and writes garbage into all that the others read from it: its outbox, the only
 * shared memory that it alone writes. It is fenced, and has failed; no other rank is disturbed. */
#include "board.h"
#include "failed.h"

enum { ROUNDS = 2000 };

/* Every byte of every outbox page that this process may write; the bell page, which others may write too, is left alone. */
static void scribble(uint64_t chance)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) != 3 || strncmp(rights, "rw-s", 4) != 0 ||
            !strstr(line, "outbox"))
            continue;
        /* The header, which the node daemon reads too, is left alone; what peers read for each message comes after it. */
        for (unsigned long at = start + 4096; at + 8 <= end && at < start + (1 << 20); at += 8) {
            chance = chance * 6364136223846793005u + 1442695040888963407u;
            *(volatile uint64_t *)at = chance;
        }
    }
    if (maps)
        fclose(maps);
}

int main(int argc, char **argv)
{
    int rank, ranks, got = -1, named = 0;
    board_open(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int last = ranks - 1;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 0; other < last && rank == last; other++)
        MPI_Send(&rank, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    if (rank == last) {
        board_set(rank, PID, (uint32_t)getpid());
        scribble((uint64_t)atoll(argv[2]));
        /* It stays alive: only the node daemon can end it. */
        for (;;)
            pause();
    }
    MPI_Recv(&got, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int code = MPI_Recv(&got, 1, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int failed = failed_members(last, &named);
    if (class_of(code) != MPI_ERR_PROC_FAILED || failed != 1 || !named)
        fprintf(stderr, "rank %d: class %d, %d failed, the broken one %s\n", rank, class_of(code), failed,
                named ? "among them" : "not among them");
    int wrong = class_of(code) != MPI_ERR_PROC_FAILED || failed != 1 || !named;
    int next = (rank + 1) % last, before = (rank + last - 1) % last;
    for (int round = 0; round < ROUNDS; round++) {
        code = MPI_Sendrecv(&round, 1, MPI_INT, next, 2, &got, 1, MPI_INT, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += code != MPI_SUCCESS || got != round;
    }
    if (wrong)
        fprintf(stderr, "rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    if (rank == 0 && !wrong)
        printf("No errors\n");
    return wrong != 0;
}
