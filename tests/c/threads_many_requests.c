/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 3
// timeout: 60
// Row WT5, Row WT13: a thread that waits for many requests is woken by a death, while another waits for a living rank
/* One thread of rank 0 waits for rank 1, which sends nothing until it is token to, and so makes progress for both. The other thread
 * waits for many requests, the last of which needs rank 2, and is woken only by events: the death of rank 2 must wake it. */
#include "deaths.h"
#include <pthread.h>

enum { MANY = 40 };
static MPI_Comm other;

static void *wait_for_the_living(void *unused)
{
    int data = -1;
    (void)unused;
    int code = MPI_Recv(&data, 1, MPI_INT, 1, 1, other, MPI_STATUS_IGNORE);
    expect("the other thread", code, MPI_SUCCESS);
    expect("what it got", data, 17);
    return NULL;
}

static void wait_for_many(void)
{
    int data[MANY];
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_the_living, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    /* Long enough for the other thread to make progress in most runs, though the test does not depend on it. */
    usleep(20000);
    for (int at = 0; at < MANY; at++)
        MPI_Irecv(&data[at], 1, MPI_INT, at == MANY - 1 ? 2 : 1, at, MPI_COMM_WORLD, &requests[at]);
    MPI_Send(&rank, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
    expect("Waitall", class_of(MPI_Waitall(MANY, requests, statuses)), MPI_ERR_IN_STATUS);
    expect("the first", class_of(statuses[0].MPI_ERROR), MPI_ERR_PENDING);
    expect("the last", class_of(statuses[MANY - 1].MPI_ERROR), MPI_ERR_PROC_FAILED);
    expect("the last is null", requests[MANY - 1] == MPI_REQUEST_NULL, 1);
    MPI_Send(&rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    expect("Waitall of the others", MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE), MPI_SUCCESS);
    expect("what the first got", data[0], 0);
    expect("what the last but one got", data[MANY - 2], MANY - 2);
    pthread_join(thread, NULL);
}

static void send_when_told(void)
{
    int token, data = 17;
    MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&data, 1, MPI_INT, 0, 1, other);
    for (int at = 0; at < MANY - 1; at++)
        MPI_Send(&at, 1, MPI_INT, 0, at, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int provided, token;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    if (rank == 2) {
        MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        /* Long enough for rank 0 to fall asleep, though the test does not depend on it. */
        usleep(50000);
        die();
    }
    if (rank == 0)
        wait_for_many();
    else
        send_when_told();
    return end();
}
