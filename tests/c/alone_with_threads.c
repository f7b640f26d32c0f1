/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
// timeout: 60
/* Rank 0 is alone under MPI_THREAD_MULTIPLE: the others have left. While it has another thread, that thread may send the message
 * for a receive from MPI_ANY_SOURCE (Row PP17); once it has none, the call that waits returns an error. */
#include "deaths.h"
#include <pthread.h>

enum { TAG = 7 };

static void *send_to_oneself(void *unused)
{
    int data = 23;
    (void)unused;
    /* Long enough for the other thread to fall asleep, though the test does not depend on it. */
    usleep(200000);
    expect("Send", MPI_Send(&data, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD), MPI_SUCCESS);
    return NULL;
}

static void another_thread_may_still_send(void)
{
    int data = -1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_to_oneself, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    int code = MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect("Recv while there is another thread", code, MPI_SUCCESS);
    expect("what it got", data, 23);
    pthread_join(thread, NULL);
}

static void nobody_is_left(void)
{
    int data, index;
    MPI_Request requests[2];
    MPI_Status status;
    int code = MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
    expect("Recv", class_of(code), MPI_ERR_OTHER);
    expect("Probe", class_of(MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status)), MPI_ERR_OTHER);
    for (int at = 0; at < 2; at++)
        MPI_Irecv(&data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &requests[at]);
    expect("Waitany", class_of(MPI_Waitany(2, requests, &index, &status)), MPI_ERR_OTHER);
    expect("Wait", class_of(MPI_Wait(&requests[1 - index], &status)), MPI_ERR_OTHER);
}

int main(void)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    expect("provided", provided, MPI_THREAD_MULTIPLE);
    if (rank == 0) {
        another_thread_may_still_send();
        nobody_is_left();
    }
    return end();
}
