/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* MPI-5.0 section 3.2.5: MPI_ERROR of a status is written by calls that complete several requests, and only where they return
 * MPI_ERR_IN_STATUS. */
#include "expect.h"

enum { TAG = 3, MARK = 4711, COUNT = 3 };
static char out[8], in[COUNT][8];
static MPI_Request requests[COUNT];
static MPI_Status statuses[2 * COUNT];
static int indices[COUNT];

/* Two receives from this rank itself, the last with too little room where `truncated`, and a null request. */
static void start(int truncated)
{
    for (int i = 0; i < COUNT; i++)
        statuses[i].MPI_ERROR = MARK;
    MPI_Irecv(in[0], 8, MPI_CHAR, rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(in[1], truncated ? 4 : 8, MPI_CHAR, rank, TAG + 1, MPI_COMM_WORLD, &requests[1]);
    requests[2] = MPI_REQUEST_NULL;
    MPI_Send(out, 8, MPI_CHAR, rank, TAG, MPI_COMM_WORLD);
    MPI_Send(out, 8, MPI_CHAR, rank, TAG + 1, MPI_COMM_WORLD);
}

static int waitall(void)
{
    return MPI_Waitall(COUNT, requests, statuses);
}

static int testall(void)
{
    int flag = 0, result = MPI_SUCCESS;
    while (!flag && result == MPI_SUCCESS)
        result = MPI_Testall(COUNT, requests, &flag, statuses);
    return result;
}

/* A call may complete only one of the two; then a second call writes the status of the other. */
static int some(int (*call)(int, MPI_Request[], int *, int[], MPI_Status[]))
{
    int result = MPI_SUCCESS, outcount = 0;
    for (int done = 0; done < 2 && result == MPI_SUCCESS; done += outcount)
        result = call(COUNT, requests, &outcount, indices, statuses + done);
    return result;
}

static int waitsome(void)
{
    return some(MPI_Waitsome);
}

static int testsome(void)
{
    return some(MPI_Testsome);
}

static void check(const char *name, int (*complete)(void))
{
    start(0);
    expect(name, complete(), MPI_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        expect("MPI_ERROR after success", statuses[i].MPI_ERROR, MARK);
    start(1);
    expect(name, class_of(complete()), MPI_ERR_IN_STATUS);
    int truncated = 0;
    for (int i = 0; i < COUNT; i++)
        truncated += class_of(statuses[i].MPI_ERROR == MARK ? MPI_SUCCESS : statuses[i].MPI_ERROR) == MPI_ERR_TRUNCATE;
    expect("statuses with MPI_ERR_TRUNCATE", truncated, 1);
    for (int i = 0; i < COUNT; i++)
        expect("a request is left", requests[i] != MPI_REQUEST_NULL, 0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check("MPI_Waitall", waitall);
    check("MPI_Testall", testall);
    check("MPI_Waitsome", waitsome);
    check("MPI_Testsome", testsome);
    int all = 0;
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
