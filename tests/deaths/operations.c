/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* operations BOARD OPERATION waiting|late: rank 0 communicates with ranks 1, 2, ... one after another. Each of them waits for the
 * harness, which steps it through its operation, instruction by instruction, and kills it somewhere between the two marks.
 * tests/src/single_step.rs has the list of operations. */
#include "board.h"
#include "failed.h"

enum { SMALL = 8, LINES = 300, LARGE = 256 << 10, BEHIND = 4096, POISON = 0xa5, EARLIER = 1, TESTED = 2, NEVER = 3 };

static int rank, ranks, late;
static const char *operation;

static int is(const char *name)
{
    return strcmp(operation, name) == 0;
}

static int bytes(void)
{
    return is("chunks") || is("large") ? LARGE : is("lines") ? LINES : SMALL;
}

static unsigned char right(int sender, int at)
{
    return (unsigned char)((unsigned)at * 2654435761u >> 13 ^ (unsigned)sender * 29u ^ 1u);
}

static void fill(unsigned char *data, int sender)
{
    for (int i = 0; i < bytes(); i++)
        data[i] = right(sender, i);
}

/* The number of wrong bytes: after a success all must be right; after an error each must be right or untouched; bytes after the
 * message must be untouched. */
static uint32_t wrong_bytes(const unsigned char *data, int sender, int succeeded)
{
    uint32_t wrong = 0;
    for (int i = 0; i < bytes(); i++)
        wrong += data[i] != right(sender, i) && (succeeded || data[i] != POISON);
    for (int i = bytes(); i < bytes() + BEHIND; i++)
        wrong += data[i] != POISON;
    return wrong;
}

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

/* The rank that is killed. Operations before the first mark are completed. */
static void victim(void)
{
    unsigned char *data = malloc((size_t)bytes());
    int earlier = rank;
    MPI_Request request;
    fill(data, rank);
    if (!is("contact")) {
        MPI_Recv(&earlier, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&earlier, 1, MPI_INT, 0, EARLIER, MPI_COMM_WORLD);
    }
    await_release(rank);
    mark();
    if (is("match") || is("receive") || is("large"))
        MPI_Recv(data, bytes(), MPI_BYTE, 0, TESTED, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (is("sleep"))
        MPI_Recv(data, bytes(), MPI_BYTE, 0, NEVER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (is("isend")) {
        MPI_Isend(data, bytes(), MPI_BYTE, 0, TESTED, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else
        MPI_Send(data, bytes(), MPI_BYTE, 0, TESTED, MPI_COMM_WORLD);
    mark();
    wait_for_ever();
}

/* Row PP7: a message that was sent completely before the death is delivered. */
static void take_earlier(int from)
{
    int earlier = -1;
    int code = is("contact") ? MPI_SUCCESS
                             : MPI_Recv(&earlier, 1, MPI_INT, from, EARLIER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    board_set(from, FIRST, 1 + (uint32_t)class_of(code));
    if (code == MPI_SUCCESS && !is("contact") && earlier != from)
        board_set(from, WRONG, 4);
}

static int depend_on(int other, unsigned char *data)
{
    MPI_Status status;
    int count = bytes(), code;
    if (is("match"))
        return MPI_Ssend(data, bytes(), MPI_BYTE, other, TESTED, MPI_COMM_WORLD);
    if (is("large"))
        return MPI_Send(data, bytes(), MPI_BYTE, other, TESTED, MPI_COMM_WORLD);
    if (is("receive"))
        MPI_Send(data, bytes(), MPI_BYTE, other, TESTED, MPI_COMM_WORLD);
    code = MPI_Recv(data, bytes(), MPI_BYTE, other, is("receive") || is("sleep") ? NEVER : TESTED, MPI_COMM_WORLD,
                    &status);
    if (code == MPI_SUCCESS)
        MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != bytes())
        board_set(other, WRONG, (uint32_t)bytes());
    return code;
}

/* The rank that survives. */
static void survivor(void)
{
    unsigned char **data = calloc((size_t)ranks, sizeof *data);
    int sends = is("match") || is("large") || is("receive");
    board_set(0, PID, (uint32_t)getpid());
    for (int other = 1; other < ranks && !is("contact"); other++)
        MPI_Send(&other, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    for (int other = 1; other < ranks; other++) {
        int named = 1;
        data[other] = malloc((size_t)(bytes() + BEHIND));
        memset(data[other], POISON, (size_t)(bytes() + BEHIND));
        if (sends)
            fill(data[other], other);
        if (!late)
            take_earlier(other);
        board_set(0, CALLED, (uint32_t)other);
        if (late) {
            board_await(other, DEAD);
            take_earlier(other);
        }
        int code = depend_on(other, data[other]);
        uint32_t wrong = wrong_bytes(data[other], other, code == MPI_SUCCESS);
        if (code != MPI_SUCCESS)
            failed_members(other, &named);
        board_set(other, KNOWN, (uint32_t)named);
        board_set(other, WRONG, board_get(other, WRONG) + wrong);
        board_set(other, CLASS, 1 + (uint32_t)class_of(code));
        board_set(0, ENDED, (uint32_t)other);
    }
    /* Row PP23: the buffer of a request that ended with an error is not written any more. */
    for (int other = 1; other < ranks; other++) {
        int succeeded = board_get(other, CLASS) == 1 + MPI_SUCCESS;
        board_set(other, WRONG, board_get(other, WRONG) + wrong_bytes(data[other], other, succeeded));
    }
    /* The last rank may have been killed just now, and no call depends on it: get_failed is polled until it is known. */
    const struct timespec pause = {0, 1000000};
    while (failed_members(-1, NULL) < ranks - 1)
        nanosleep(&pause, NULL);
    board_set(0, FAILED, 1 + (uint32_t)failed_members(-1, NULL));
    MPI_Finalize();
    printf("No errors\n");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 3;
    operation = argv[2];
    late = strcmp(argv[3], "late") == 0;
    board_open(argv[1]);
    prepare_release();
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        survivor();
    else
        victim();
    return 0;
}
