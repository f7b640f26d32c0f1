/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* computes BOARD HOW LEVEL: rank 1 computes, without a call of MPI, until the board says that rank 2's synchronous send to it is complete:
 * so its helper thread has made progress. The send itself is data, which calls no helper. What calls it is, by HOW,
 *
 *   control   a control message (CTS) of rank 0, which waits in MPI for the answer;
 *   both      the same, and rank 0 computes, too;
 *   notice    the notice of the death of rank 3.
 *
 * LEVEL: the thread level, single or multiple. */
#include "board.h"

enum { LARGE = 64 << 10, SMALL_TAG = 1, LARGE_TAG = 2, RANKS = 4 };

static char large[LARGE];

static void expect(int rank, const char *what, int is, int wanted)
{
    if (is != wanted) {
        fprintf(stderr, "rank %d: %s: %d instead of %d\n", rank, what, is, wanted);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Computes until the word is set. */
static void compute_until(int rank, int word)
{
    volatile double x = 1;
    while (board_get(rank, word) == 0)
        for (int i = 0; i < 1000; i++)
            x = x * 1.0000001 + 1e-9;
}

/* Every pair has exchanged messages, so that no contact and no context id is missing later. */
static void meet(int rank)
{
    int mine = rank, theirs;
    for (int other = 0; other < RANKS; other++)
        for (int times = 0; times < 2 && other != rank; times++) {
            MPI_Sendrecv(&mine, 1, MPI_INT, other, 0, &theirs, 1, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect(rank, "a greeting", theirs, other);
        }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void compute(int with_large)
{
    int got = 0;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    memset(large, 7, LARGE);
    MPI_Irecv(&got, 1, MPI_INT, 2, SMALL_TAG, MPI_COMM_WORLD, &requests[0]);
    if (with_large)
        MPI_Isend(large, LARGE, MPI_CHAR, 0, LARGE_TAG, MPI_COMM_WORLD, &requests[1]);
    board_set(1, CALLED, 1);
    compute_until(2, ENDED);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(1, "what was received", got, 42);
}

static void send_synchronously(void)
{
    int value = 42;
    MPI_Request request;
    board_await(1, CALLED);
    MPI_Issend(&value, 1, MPI_INT, 1, SMALL_TAG, MPI_COMM_WORLD, &request);
    board_set(2, CALLED, 1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    board_set(2, ENDED, 1);
}

static void answer(int computes)
{
    int done = 0;
    MPI_Request request;
    MPI_Irecv(large, LARGE, MPI_CHAR, 1, LARGE_TAG, MPI_COMM_WORLD, &request);
    /* The message has announced itself (RTS): the first call matches it, and one of the next sends the CTS. */
    for (int times = 0; computes && times < 4 && !done; times++)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (computes)
        compute_until(2, ENDED);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < LARGE; i++)
        expect(0, "a byte", large[i], 7);
}

int main(int argc, char **argv)
{
    int rank, provided;
    int multiple = argc > 3 && strcmp(argv[3], "multiple") == 0;
    int by_notice = argc > 2 && strcmp(argv[2], "notice") == 0;
    int computes = argc > 2 && strcmp(argv[2], "both") == 0;
    board_open(argv[1]);
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    meet(rank);
    if (rank == 1)
        compute(!by_notice);
    else if (rank == 2)
        send_synchronously();
    else if (rank == 3 && by_notice) {
        board_await(2, CALLED);
        raise(SIGKILL);
    } else if (rank == 0 && !by_notice) {
        board_await(2, CALLED);
        answer(computes);
    }
    MPI_Finalize();
    if (rank == 2)
        printf("No errors\n");
    return 0;
}
