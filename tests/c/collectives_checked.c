/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 3 4 5 7 8
// timeout: 120
/* Compares every collective operation with a result that each rank computes by itself: all roots, no elements and many, in place
 * and not; and operations on several communicators at the same time, which must not interfere. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int counts[] = {0, 1, 3, 100, 5000, 70000};
enum { COUNTS = sizeof counts / sizeof counts[0] };

static int rank, ranks, errors;
static MPI_Comm comm;

static void wrong(const char *what, int count, int root, long at, long got, long wanted)
{
    if (errors++ < 5)
        fprintf(stderr, "rank %d of %d: %s, count %d, root %d: element %ld is %ld, not %ld\n", rank, ranks, what, count,
                root, at, got, wanted);
}

static int *ints(long count)
{
    int *block = malloc(sizeof *block * (size_t)(count + 1));
    if (block == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (long i = 0; i <= count; i++)
        block[i] = -1;
    return block;
}

/* What `from` contributes for `to` in element i. */
static int value(int from, int to, int i)
{
    return from * 1000003 + to * 5003 + i;
}

static void fill(int *data, int from, int to, int count)
{
    for (int i = 0; i < count; i++)
        data[i] = value(from, to, i);
}

static void check(const char *what, const int *data, int from, int to, int count, int root)
{
    for (int i = 0; i < count; i++)
        if (data[i] != value(from, to, i))
            wrong(what, count, root, i, data[i], value(from, to, i));
}

static void untouched(const char *what, const int *data, long at, int count, int root)
{
    if (data[at] != -1)
        wrong(what, count, root, at, data[at], -1);
}

static void bcast(int count, int root)
{
    int *data = ints(count);
    if (rank == root)
        fill(data, root, 0, count);
    MPI_Bcast(data, count, MPI_INT, root, comm);
    check("bcast", data, root, 0, count, root);
    untouched("bcast", data, count, count, root);
    free(data);
}

static void reduce(int count, int root, int in_place)
{
    int *send = ints(count), *receive = ints(count);
    fill(send, rank, 0, count);
    if (in_place)
        fill(receive, rank, 0, count);
    MPI_Reduce(in_place && rank == root ? MPI_IN_PLACE : send, receive, count, MPI_INT, MPI_SUM, root, comm);
    for (int i = 0; rank == root && i < count; i++) {
        unsigned sum = 0;
        for (int from = 0; from < ranks; from++)
            sum += (unsigned)value(from, 0, i);
        if (receive[i] != (int)sum)
            wrong("reduce", count, root, i, receive[i], (int)sum);
    }
    check("reduce's send buffer", send, rank, 0, count, root);
    untouched("reduce", receive, count, count, root);
    free(send);
    free(receive);
}

static void allreduce(int count, int in_place)
{
    int *send = ints(count), *receive = ints(count);
    fill(send, rank, 0, count);
    fill(receive, rank, 0, count);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : send, receive, count, MPI_INT, MPI_MAX, comm);
    check("allreduce", receive, ranks - 1, 0, count, in_place);
    untouched("allreduce", receive, count, count, in_place);
    free(send);
    free(receive);
}

/* Sums of numbers whose rounding depends on the order of addition: all ranks must still have the same bits. */
static void same_bits(int count)
{
    double *data = malloc(sizeof *data * (size_t)(count + 1) * 3), *least = data + count + 1, *most = least + count + 1;
    for (int i = 0; i < count; i++)
        data[i] = 1.0 / (3 + i + 7 * rank) + (rank % 2 ? 1e12 : -1e-7);
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allreduce(data, least, count, MPI_DOUBLE, MPI_MIN, comm);
    MPI_Allreduce(data, most, count, MPI_DOUBLE, MPI_MAX, comm);
    for (int i = 0; i < count; i++)
        if (least[i] != most[i])
            wrong("allreduce gives different sums", count, 0, i, 0, 0);
    free(data);
}

static void gather(int count, int root, int in_place)
{
    long all = (long)count * ranks;
    int *send = ints(count), *receive = ints(all);
    fill(send, rank, 0, count);
    if (in_place)
        fill(receive + (long)count * rank, rank, 0, count);
    MPI_Gather(in_place && rank == root ? MPI_IN_PLACE : send, count, MPI_INT, receive, count, MPI_INT, root, comm);
    for (int from = 0; rank == root && from < ranks; from++)
        check("gather", receive + (long)count * from, from, 0, count, root);
    untouched("gather", receive, all, count, root);
    free(send);
    free(receive);
}

static void scatter(int count, int root, int in_place)
{
    long all = (long)count * ranks;
    int *send = ints(all), *receive = ints(count);
    for (int to = 0; to < ranks; to++)
        fill(send + (long)count * to, root, to, count);
    MPI_Scatter(send, count, MPI_INT, in_place && rank == root ? MPI_IN_PLACE : receive, count, MPI_INT, root, comm);
    if (!(in_place && rank == root))
        check("scatter", receive, root, rank, count, root);
    check("scatter's send buffer", send + (long)count * rank, root, rank, count, root);
    untouched("scatter", receive, count, count, root);
    free(send);
    free(receive);
}

static void allgather(int count, int in_place)
{
    long all = (long)count * ranks;
    int *send = ints(count), *receive = ints(all);
    fill(send, rank, 0, count);
    if (in_place)
        fill(receive + (long)count * rank, rank, 0, count);
    MPI_Allgather(in_place ? MPI_IN_PLACE : send, count, MPI_INT, receive, count, MPI_INT, comm);
    for (int from = 0; from < ranks; from++)
        check("allgather", receive + (long)count * from, from, 0, count, in_place);
    untouched("allgather", receive, all, count, in_place);
    free(send);
    free(receive);
}

static void alltoall(int count, int in_place)
{
    long all = (long)count * ranks;
    int *send = ints(all), *receive = ints(all);
    for (int to = 0; to < ranks; to++) {
        fill(send + (long)count * to, rank, to, count);
        if (in_place)
            fill(receive + (long)count * to, rank, to, count);
    }
    MPI_Alltoall(in_place ? MPI_IN_PLACE : send, count, MPI_INT, receive, count, MPI_INT, comm);
    for (int from = 0; from < ranks; from++)
        check("alltoall", receive + (long)count * from, from, rank, count, in_place);
    untouched("alltoall", receive, all, count, in_place);
    free(send);
    free(receive);
}

static void everything(int count)
{
    for (int root = 0; root < ranks; root++) {
        bcast(count, root);
        for (int in_place = 0; in_place < 2; in_place++) {
            reduce(count, root, in_place);
            gather(count, root, in_place);
            scatter(count, root, in_place);
        }
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        allreduce(count, in_place);
        allgather(count, in_place);
        alltoall(count, in_place);
    }
    same_bits(count);
}

/* No rank may see that another has passed a number of barriers that differs from its own by more than one. */
static void barriers(void)
{
    for (int round = 0; round < 50; round++) {
        int late = round % ranks, token = round, seen = -1;
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank == late)
            for (int to = 0; to < ranks; to++)
                if (to != rank)
                    MPI_Send(&token, 1, MPI_INT, to, round, comm);
        if (rank != late)
            MPI_Irecv(&seen, 1, MPI_INT, late, round, comm, &request);
        MPI_Barrier(comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank != late && seen != token)
            wrong("barrier", 0, late, round, seen, token);
    }
}

/* Sender and receiver may use different types of the same signature: plain ints are gathered as pairs with gaps. */
static void pairs(void)
{
    struct {
        short value;
        int place;
    } mine = {(short)(100 - rank), rank}, least, most;
    MPI_Allreduce(&mine, &least, 1, MPI_SHORT_INT, MPI_MINLOC, comm);
    MPI_Allreduce(&mine, &most, 1, MPI_SHORT_INT, MPI_MAXLOC, comm);
    if (least.value != 101 - ranks || least.place != ranks - 1)
        wrong("minloc", 1, 0, 0, least.place, ranks - 1);
    if (most.value != 100 || most.place != 0)
        wrong("maxloc", 1, 0, 0, most.place, 0);
}

int main(int argc, char **argv)
{
    MPI_Comm half;
    int world, world_size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);

    comm = MPI_COMM_WORLD;
    rank = world;
    ranks = world_size;
    barriers();
    pairs();
    for (int i = 0; i < COUNTS; i++)
        everything(counts[i]);

    /* The two halves work at the same time, with ranks turned around. */
    MPI_Comm_split(MPI_COMM_WORLD, world % 2, -world, &half);
    comm = half;
    MPI_Comm_rank(half, &rank);
    MPI_Comm_size(half, &ranks);
    barriers();
    everything(17);
    everything(9000);
    MPI_Comm_free(&half);

    comm = MPI_COMM_SELF;
    rank = 0;
    ranks = 1;
    everything(33);

    int all = 0;
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
