/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* kills ROUNDS: every rank sends to the right and receives from the left, ROUNDS times, while ranks may die; all messages are
 * checked. Prints nothing and exits with 0 unless something is wrong. */
#include "board.h"
#include "failed.h"

enum { SIZES = 4 };
static const int sizes[SIZES] = {8, 300, 20000, 200000};

static void wrong(int rank, int round, const char *what, int got)
{
    fprintf(stderr, "rank %d, round %d: %s: %d\n", rank, round, what, got);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int rank, ranks, rounds = argc > 1 ? atoi(argv[1]) : 1000;
    static unsigned char out[200000], in[200000];
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
    for (int round = 0; round < rounds; round++) {
        int bytes = sizes[round % 16 == 0 ? 3 : round % 4 == 0 ? 2 : round % 2];
        MPI_Request requests[2];
        MPI_Status statuses[2];
        memset(out, rank ^ round, (size_t)bytes);
        memset(in, 0x5a, (size_t)bytes);
        MPI_Irecv(in, bytes, MPI_BYTE, left, round, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, right, round, MPI_COMM_WORLD, &requests[1]);
        for (int i = 0; i < 2; i++) {
            int class = class_of(MPI_Wait(&requests[i], &statuses[i])), named = 0;
            if (class == MPI_SUCCESS && i == 0) {
                for (int at = 0; at < bytes; at++)
                    if (in[at] != (unsigned char)(left ^ round))
                        wrong(rank, round, "a byte", in[at]);
            } else if (class != MPI_SUCCESS) {
                failed_members(i == 0 ? left : right, &named);
                if (class != MPI_ERR_PROC_FAILED || !named)
                    wrong(rank, round, named ? "class" : "the dead is not named; class", class);
            }
        }
    }
    MPI_Finalize();
    return 0;
}
