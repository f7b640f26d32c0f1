/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
// timeout: 60
/* Row WT13: a receive that polls takes a message of a blocked thread from the ring, and then waits itself. The blocked thread must
 * be woken, since only its answer lets rank 1 send anything more. A third thread waits for the last message of all. */
#include "expect.h"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ROUNDS = 30000, ANSWERED = 1, PLAIN = 2, LAST = 3, ANSWER = 4, BETWEEN_STARTS_US = 100000 };

static int receive(int from, int tag)
{
    int data = -1;
    expect("Recv", MPI_Recv(&data, 1, MPI_INT, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    return data;
}

static void send(int data, int to, int tag)
{
    expect("Send", MPI_Send(&data, 1, MPI_INT, to, tag, MPI_COMM_WORLD), MPI_SUCCESS);
}

static void *receive_and_answer(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        expect("a message that is answered", receive(1, ANSWERED), i);
        send(i, 1, ANSWER);
    }
    return unused;
}

static void *receive_plain(void *unused)
{
    for (int i = 0; i < ROUNDS; i++)
        expect("a message", receive(1, PLAIN), i);
    return unused;
}

static void *receive_last(void *unused)
{
    expect("the last message", receive(1, LAST), ROUNDS);
    return unused;
}

static void run_threads(void)
{
    void *(*const bodies[])(void *) = {receive_last, receive_and_answer, receive_plain};
    pthread_t threads[3];
    for (int t = 0; t < 3; t++) {
        if (pthread_create(&threads[t], NULL, bodies[t], NULL) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        usleep(BETWEEN_STARTS_US);
    }
    send(0, 1, ANSWER);
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
}

static void send_rounds(void)
{
    receive(0, ANSWER);
    for (int i = 0; i < ROUNDS; i++) {
        send(i, 0, PLAIN);
        send(i, 0, ANSWERED);
        expect("an answer", receive(0, ANSWER), i);
    }
    send(ROUNDS, 0, LAST);
}

int main(int argc, char **argv)
{
    int provided, all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    expect("the level of threads", provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        run_threads();
    else
        send_rounds();
    MPI_Reduce(&errors, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
