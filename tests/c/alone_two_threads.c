/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3
/* Two threads of rank 0 both wait for MPI_ANY_SOURCE when all other ranks have died and are acknowledged (row PP17): as neither can send, one
 * of the calls ends with the error. That thread then sends what the other one waits for. */
#include "deaths.h"

#include <mpi-ext.h>
#include <pthread.h>

enum { TAG = 7, KINDS = 4, ROUNDS = 40 };

/* Call number `kind` that waits for a message of anybody. Returns its class, and the message in `data`. */
static int wait_for_anybody(int kind, int *data)
{
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int index, code;
    switch (kind) {
    case 0: return class_of(MPI_Recv(data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    case 1:
        code = MPI_Probe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return code ? class_of(code) : class_of(MPI_Recv(data, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    case 2:
        MPI_Irecv(data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &requests[1]);
        return class_of(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
    default:
        MPI_Irecv(data, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &requests[0]);
        code = MPI_Waitall(2, requests, statuses);
        return code == MPI_ERR_IN_STATUS ? class_of(statuses[0].MPI_ERROR) : class_of(code);
    }
}

static int failed_calls;

/* Whoever gets the error sends to this process. */
static void take_part(int kind)
{
    int data = -1, got = wait_for_anybody(kind, &data), message = 23;
    if (got == MPI_ERR_PROC_FAILED) {
        __atomic_add_fetch(&failed_calls, 1, __ATOMIC_RELAXED);
        expect("Send", MPI_Send(&message, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD), MPI_SUCCESS);
    } else {
        expect("the class of the other call", got, MPI_SUCCESS);
        expect("what it got", data, 23);
    }
}

static void *other_thread(void *kind)
{
    take_part(*(int *)kind);
    return NULL;
}

int main(void)
{
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    expect("provided", provided, MPI_THREAD_MULTIPLE);
    if (rank != 0)
        die();
    until_known(MPI_COMM_WORLD, ranks - 1);
    MPIX_Comm_failure_ack(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        int kind = round % KINDS;
        pthread_t thread;
        if (pthread_create(&thread, NULL, other_thread, &kind) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        take_part(round / KINDS % KINDS);
        pthread_join(thread, NULL);
        expect("one of two calls fails", failed_calls, round + 1);
    }
    return end();
}
