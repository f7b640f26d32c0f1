/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2
/* Mistakes of programs: null pointers, invalid counts, freed handles, and handlers that call MPI. Each call returns the class of
 * the standard, and all other operations complete. */
#include "expect.h"
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LARGE = 1 << 20 };
static int peer;
static char out[LARGE], in[LARGE];

#define GIVES(CLASS, CALL) expect(#CALL, class_of(CALL), CLASS)

static void wild_messages(void)
{
    MPI_Comm freed, comm = MPI_COMM_WORLD;
    MPI_Status status;
    MPI_Request request;
    int flag = -1;
    MPI_Comm_dup(MPI_COMM_SELF, &freed);
    GIVES(MPI_SUCCESS, MPI_Comm_free(&(MPI_Comm){freed}));
    GIVES(MPI_ERR_COUNT, MPI_Send(out, -1, MPI_BYTE, MPI_PROC_NULL, 0, comm));
    GIVES(MPI_ERR_COUNT, MPI_Send_c(out, LLONG_MIN, MPI_BYTE, peer, 0, comm));
    GIVES(MPI_ERR_COUNT, MPI_Send_c(out, (MPI_Count)1 << 62, MPI_INT, peer, 0, comm));
    GIVES(MPI_ERR_COUNT, MPI_Recv_c(in, (MPI_Count)1 << 62, MPI_INT, MPI_PROC_NULL, 0, comm, &status));
    GIVES(MPI_SUCCESS, MPI_Send_c(out, (MPI_Count)1 << 40, MPI_INT, MPI_PROC_NULL, 0, comm));
    GIVES(MPI_ERR_BUFFER, MPI_Send(NULL, 1, MPI_BYTE, peer, 0, comm));
    GIVES(MPI_ERR_BUFFER, MPI_Send(MPI_IN_PLACE, 1, MPI_BYTE, peer, 0, comm));
    GIVES(MPI_ERR_BUFFER, MPI_Recv(NULL, 1, MPI_BYTE, peer, 0, comm, &status));
    GIVES(MPI_SUCCESS, MPI_Send(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0, comm));
    GIVES(MPI_ERR_TYPE, MPI_Send(out, 1, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, comm));
    GIVES(MPI_ERR_TYPE, MPI_Send(out, 1, (MPI_Datatype)0xdeadbeefcafe, peer, 0, comm));
    GIVES(MPI_ERR_RANK, MPI_Send(out, 1, MPI_BYTE, INT_MAX, 0, comm));
    GIVES(MPI_ERR_RANK, MPI_Send(out, 1, MPI_BYTE, INT_MIN, 0, comm));
    GIVES(MPI_ERR_RANK, MPI_Send(out, 1, MPI_BYTE, MPI_ANY_SOURCE, 0, comm));
    GIVES(MPI_ERR_RANK, MPI_Sendrecv(out, 1, MPI_BYTE, peer, 0, in, 1, MPI_BYTE, 2, 0, comm, &status));
    GIVES(MPI_ERR_TAG, MPI_Send(out, 1, MPI_BYTE, MPI_PROC_NULL, -5, comm));
    GIVES(MPI_ERR_TAG, MPI_Send(out, 1, MPI_BYTE, peer, MPI_ANY_TAG, comm));
    GIVES(MPI_ERR_TAG, MPI_Probe(peer, -3, comm, &status));
    GIVES(MPI_ERR_COMM, MPI_Send(out, 1, MPI_BYTE, MPI_PROC_NULL, 0, freed));
    GIVES(MPI_ERR_COMM, MPI_Send(out, 1, MPI_BYTE, 0, 0, (MPI_Comm)MPI_INT));
    GIVES(MPI_ERR_ARG, MPI_Isend(out, 1, MPI_BYTE, peer, 0, comm, NULL));
    GIVES(MPI_ERR_ARG, MPI_Irecv(in, 1, MPI_BYTE, peer, 0, comm, NULL));
    GIVES(MPI_ERR_ARG, MPI_Iprobe(peer, 0, comm, NULL, &status));
    /* A buffer larger than any message, and the largest tag. */
    MPI_Irecv_c(in, (MPI_Count)1 << 40, MPI_BYTE, peer, INT_MAX, comm, &request);
    GIVES(MPI_SUCCESS, MPI_Send(out, 3, MPI_BYTE, peer, INT_MAX, comm));
    GIVES(MPI_SUCCESS, MPI_Wait(&request, &status));
    expect("the largest tag", status.MPI_TAG, INT_MAX);
    MPI_Barrier(comm);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status);
    expect("nothing of what was refused was sent", flag, 0);
    MPI_Barrier(comm);
}

static void wild_requests(void)
{
    MPI_Request request = MPI_REQUEST_NULL, old, wild = (MPI_Request)0x99, none[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, statuses[2];
    int index = -1, flag = -1, indices[2];
    GIVES(MPI_ERR_ARG, MPI_Wait(NULL, &status));
    GIVES(MPI_ERR_ARG, MPI_Test(&request, NULL, &status));
    GIVES(MPI_ERR_REQUEST, MPI_Wait(&wild, &status));
    GIVES(MPI_ERR_REQUEST, MPI_Cancel(&wild));
    GIVES(MPI_ERR_REQUEST, MPI_Cancel(&request));
    GIVES(MPI_ERR_REQUEST, MPI_Request_free(&request));
    GIVES(MPI_ERR_COUNT, MPI_Waitall(-1, none, statuses));
    GIVES(MPI_ERR_ARG, MPI_Waitall(2, NULL, statuses));
    GIVES(MPI_ERR_ARG, MPI_Waitsome(2, none, &index, NULL, statuses));
    GIVES(MPI_SUCCESS, MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    GIVES(MPI_SUCCESS, MPI_Testsome(0, NULL, &index, NULL, MPI_STATUSES_IGNORE));
    expect("some of none", index, MPI_UNDEFINED);
    GIVES(MPI_SUCCESS, MPI_Testany(0, NULL, &index, &flag, MPI_STATUS_IGNORE));
    expect("any of none", index == MPI_UNDEFINED && flag, 1);
    /* A request that is freed twice, and waited for afterwards. */
    MPI_Irecv(in, 1, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &request);
    old = request;
    GIVES(MPI_SUCCESS, MPI_Cancel(&request));
    GIVES(MPI_SUCCESS, MPI_Cancel(&request));
    GIVES(MPI_SUCCESS, MPI_Request_free(&request));
    GIVES(MPI_ERR_REQUEST, MPI_Request_free(&old));
    GIVES(MPI_ERR_REQUEST, MPI_Wait(&old, &status));
    /* The same request twice in an array: it ends once. */
    MPI_Irecv(in, 1, MPI_BYTE, rank, 98, MPI_COMM_WORLD, &none[0]);
    none[1] = none[0];
    MPI_Send(out, 1, MPI_BYTE, rank, 98, MPI_COMM_WORLD);
    GIVES(MPI_ERR_IN_STATUS, MPI_Waitall(2, none, statuses));
    expect("the first of two alike", class_of(statuses[0].MPI_ERROR), MPI_SUCCESS);
    expect("the second", class_of(statuses[1].MPI_ERROR), MPI_ERR_REQUEST);
    GIVES(MPI_SUCCESS, MPI_Waitsome(0, NULL, &index, indices, statuses));
    /* A call for one request leaves the error of its status alone (MPI-5.0 §3.2.5). */
    status.MPI_ERROR = 4242;
    MPI_Sendrecv(out, 3, MPI_BYTE, peer, 1, in, 3, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &status);
    expect("the error of a status that has none", status.MPI_ERROR, 4242);
}

/* A request that is freed while it is active completes: messages arrive, receive buffers are filled. */
static void freed_requests(void)
{
    MPI_Request request;
    MPI_Status status;
    int flag;
    memset(out, 7, sizeof out);
    for (int i = 0; i < 100; i++) {
        int bytes = i % 2 ? LARGE : 8;
        MPI_Isend(out, bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &request);
        GIVES(MPI_SUCCESS, MPI_Request_free(&request));
        in[bytes - 1] = 0;
        MPI_Recv(in, LARGE, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &status);
        expect("the last byte of a freed receive", in[bytes - 1], 7);
    }
    in[0] = 0;
    MPI_Irecv(in, 4, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Ssend(out, 4, MPI_BYTE, peer, 3, MPI_COMM_WORLD);
    while (*(volatile char *)in != 7)
        MPI_Iprobe(peer, 4, MPI_COMM_WORLD, &flag, &status);
    /* A receive that is cancelled and freed: the next receive gets its message. */
    MPI_Irecv(in, 8, MPI_BYTE, peer, 8, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Request_free(&request);
    in[0] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(out, 8, MPI_BYTE, peer, 8, MPI_COMM_WORLD);
    MPI_Recv(in, 8, MPI_BYTE, peer, 8, MPI_COMM_WORLD, &status);
    expect("a message that a cancelled receive did not take", in[0], 7);
}

/* A message longer than its buffer is consumed, by whichever protocol it is sent; the next one arrives complete. */
static void truncated(void)
{
    const int lengths[] = {10, 100, 5000, LARGE};
    for (int i = 0; i < 4; i++) {
        MPI_Request requests[4];
        MPI_Status statuses[4];
        int count = -1;
        memset(in, 0, 200);
        memset(out, i + 1, sizeof out);
        MPI_Irecv(in, 5, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in + 100, 5, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(out, lengths[i], MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(out, 5, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[3]);
        GIVES(MPI_ERR_IN_STATUS, MPI_Waitall(4, requests, statuses));
        expect("what did not fit", class_of(statuses[0].MPI_ERROR), MPI_ERR_TRUNCATE);
        MPI_Get_count(&statuses[0], MPI_BYTE, &count);
        expect("as much as fitted", count, 5);
        expect("the next one", statuses[1].MPI_ERROR, MPI_SUCCESS);
        expect("nothing behind a buffer", in[5], 0);
        expect("the end of the next one", in[104], i + 1);
        MPI_Isend(out, lengths[i], MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[0]);
        GIVES(MPI_ERR_TRUNCATE, MPI_Recv(NULL, 0, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        GIVES(MPI_SUCCESS, MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    }
}

static void wild_collectives(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    int a[4] = {1}, b[4];
    double d[2] = {0}, e[2];
    GIVES(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, 2, comm));
    GIVES(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, MPI_PROC_NULL, comm));
    GIVES(MPI_ERR_COUNT, MPI_Bcast(a, -1, MPI_INT, 0, comm));
    GIVES(MPI_ERR_COUNT, MPI_Alltoall_c(a, (MPI_Count)1 << 61, MPI_INT, b, (MPI_Count)1 << 61, MPI_INT, comm));
    GIVES(MPI_ERR_BUFFER, MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm));
    GIVES(MPI_ERR_OP, MPI_Reduce(a, b, 1, MPI_INT, MPI_OP_NULL, 0, comm));
    GIVES(MPI_ERR_OP, MPI_Reduce(a, b, 1, MPI_INT, MPI_REPLACE, 0, comm));
    GIVES(MPI_ERR_OP, MPI_Allreduce(d, e, 1, MPI_DOUBLE, MPI_BAND, comm));
    GIVES(MPI_ERR_OP, MPI_Allreduce(d, e, 1, MPI_CHAR, MPI_SUM, comm));
    GIVES(MPI_ERR_COMM, MPI_Barrier(MPI_COMM_NULL));
    GIVES(MPI_SUCCESS, MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm));
    GIVES(MPI_SUCCESS, MPI_Alltoall(NULL, 0, MPI_INT, NULL, 0, MPI_INT, comm));
    GIVES(MPI_SUCCESS, MPI_Gather(NULL, 0, MPI_INT, NULL, 0, MPI_INT, 0, comm));
    /* Arguments that are not significant at this rank are not checked. */
    GIVES(MPI_SUCCESS, MPI_Gather(a, 1, MPI_INT, rank ? NULL : b, rank ? -5 : 1, rank ? MPI_DATATYPE_NULL : MPI_INT, 0, comm));
    GIVES(MPI_SUCCESS, MPI_Scatter(rank ? NULL : b, rank ? -5 : 1, rank ? MPI_DATATYPE_NULL : MPI_INT, a, 1, MPI_INT, 0, comm));
    GIVES(MPI_SUCCESS, MPI_Allgather(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, b, 1, MPI_INT, comm));
    if (rank == 1) {
        GIVES(MPI_ERR_BUFFER, MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, NULL, 0, MPI_INT, 0, comm));
        GIVES(MPI_ERR_BUFFER, MPI_Reduce(MPI_IN_PLACE, b, 1, MPI_INT, MPI_SUM, 0, comm));
    }
    /* A call that is refused at one member does not take part in an operation: the next call matches the others' operation. */
    GIVES(MPI_SUCCESS, MPI_Barrier(comm));
}

static void wild_objects(void)
{
    MPI_Group world, group;
    MPI_Errhandler handler;
    MPI_Comm comm = MPI_COMM_SELF, made;
    int ranks[2] = {0, 0}, ranges[1][3] = {{0, INT_MAX, INT_MIN}}, number = -1;
    void *memory = NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    GIVES(MPI_ERR_COMM, MPI_Comm_free(&comm));
    GIVES(MPI_ERR_COMM, MPI_Comm_free(&(MPI_Comm){MPI_COMM_NULL}));
    GIVES(MPI_ERR_ARG, MPI_Comm_dup(MPI_COMM_SELF, NULL));
    GIVES(MPI_ERR_ARG, MPI_Comm_split(MPI_COMM_SELF, -5, 0, &made));
    GIVES(MPI_ERR_GROUP, MPI_Comm_create(MPI_COMM_SELF, MPI_GROUP_NULL, &made));
    GIVES(MPI_ERR_RANK, MPI_Group_incl(world, 2, ranks, &group));
    GIVES(MPI_ERR_RANK, MPI_Group_incl(world, INT_MAX, ranks, &group));
    GIVES(MPI_ERR_RANK, MPI_Group_excl(world, INT_MAX, ranks, &group));
    GIVES(MPI_SUCCESS, MPI_Group_range_incl(world, 1, ranges, &group));
    expect("nothing from 0 down to INT_MAX", group == MPI_GROUP_EMPTY, 1);
    ranges[0][2] = INT_MAX;
    GIVES(MPI_ERR_RANK, MPI_Group_range_incl(world, 1, ranges, &group));
    ranges[0][2] = 0;
    GIVES(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, ranges, &group));
    GIVES(MPI_SUCCESS, MPI_Group_incl(world, 0, NULL, &group));
    expect("of no ranks the empty group", group == MPI_GROUP_EMPTY, 1);
    GIVES(MPI_SUCCESS, MPI_Group_free(&group));
    group = world;
    GIVES(MPI_SUCCESS, MPI_Group_free(&world));
    GIVES(MPI_ERR_GROUP, MPI_Group_size(group, &number));
    GIVES(MPI_ERR_GROUP, MPI_Group_free(&group));
    GIVES(MPI_ERR_ARG, MPI_Comm_create_errhandler(NULL, &handler));
    GIVES(MPI_ERR_ERRHANDLER, MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRHANDLER_NULL));
    /* A handler that was returned to the user is freed by the user, a predefined one too (MPI-5.0 §9.3.4). */
    GIVES(MPI_SUCCESS, MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler));
    expect("the handler that is set", handler == MPI_ERRORS_RETURN, 1);
    GIVES(MPI_SUCCESS, MPI_Errhandler_free(&handler));
    expect("it is null", handler == MPI_ERRHANDLER_NULL, 1);
    GIVES(MPI_ERR_ERRHANDLER, MPI_Errhandler_free(&handler));
    GIVES(MPI_ERR_KEYVAL, MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID, &memory, &number));
    GIVES(MPI_ERR_SIZE, MPI_Alloc_mem(-1, MPI_INFO_NULL, &memory));
    GIVES(MPI_ERR_NO_MEM, MPI_Alloc_mem((MPI_Aint)1 << 60, MPI_INFO_NULL, &memory));
    GIVES(MPI_ERR_ARG, MPI_Alloc_mem(8, MPI_INFO_NULL, NULL));
    GIVES(MPI_SUCCESS, MPI_Alloc_mem(5000, MPI_INFO_NULL, &memory));
    memset(memory, 1, 5000);
    GIVES(MPI_ERR_BASE, MPI_Free_mem((char *)memory + 8));
    GIVES(MPI_SUCCESS, MPI_Free_mem(memory));
    GIVES(MPI_ERR_BASE, MPI_Free_mem(memory));
    GIVES(MPI_ERR_BASE, MPI_Free_mem(out));
}

static int calls, depth;

static void erring(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    calls++;
    if (++depth < 5)
        GIVES(MPI_ERR_RANK, MPI_Send(out, 1, MPI_BYTE, 99, 0, *comm));
    depth--;
}

static void collective(MPI_Comm *comm, int *code, ...)
{
    int one = 1, sum = 0;
    MPI_Comm made;
    (void)code;
    calls++;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect("a sum in a handler", sum, 2);
    MPI_Comm_dup(*comm, &made);
    MPI_Comm_free(&made);
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
}

static MPI_Request awaited;

static void waiting(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    calls++;
    MPI_Wait(&awaited, MPI_STATUS_IGNORE);
}

static void set(MPI_Comm comm, MPI_Comm_errhandler_function *function)
{
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(function, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    calls = 0;
}

/* Row EH2: a handler causes an error, enters collectives, changes the handler, and waits. */
static void busy_handlers(void)
{
    MPI_Comm comm;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    set(comm, erring);
    GIVES(MPI_ERR_COUNT, MPI_Send(out, -1, MPI_BYTE, 0, 0, comm));
    expect("calls of a handler that errs", calls, 5);
    set(comm, collective);
    GIVES(MPI_ERR_ROOT, MPI_Bcast(out, 1, MPI_BYTE, 99, comm));
    GIVES(MPI_ERR_ROOT, MPI_Bcast(out, 1, MPI_BYTE, 99, comm));
    expect("calls of a handler that takes itself away", calls, 1);
    set(comm, waiting);
    MPI_Irecv(in, 8, MPI_BYTE, peer, 10, comm, &awaited);
    MPI_Irecv(in + 50, 1, MPI_BYTE, peer, 11, comm, &request);
    MPI_Send(out, 4, MPI_BYTE, peer, 11, comm);
    MPI_Send(out, 8, MPI_BYTE, peer, 10, comm);
    GIVES(MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
    expect("calls of a handler that waits", calls, 1);
    expect("what it waited for is over", awaited == MPI_REQUEST_NULL && request == MPI_REQUEST_NULL, 1);
    /* Errors of requests that are active when their communicator is freed still go to that communicator's handler. */
    set(comm, collective);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Irecv(in, 1, MPI_BYTE, peer, 12, comm, &request);
    MPI_Isend(out, 8, MPI_BYTE, peer, 12, comm, &awaited);
    MPI_Comm_free(&comm);
    GIVES(MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
    GIVES(MPI_SUCCESS, MPI_Wait(&awaited, MPI_STATUS_IGNORE));
}

int main(void)
{
    static char last[LARGE];
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    wild_messages();
    wild_requests();
    freed_requests();
    truncated();
    wild_collectives();
    wild_objects();
    busy_handlers();
    /* A request that is freed before Finalize: the message arrives. */
    MPI_Request request;
    memset(last, 5, sizeof last);
    MPI_Isend(last, LARGE, MPI_BYTE, peer, 30, MPI_COMM_WORLD, &request);
    MPI_Request_free(&request);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Recv(in, LARGE, MPI_BYTE, peer, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0 && all == 0 && in[LARGE - 1] == 5)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
