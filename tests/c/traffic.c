/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 5 8
// args: --rounds 25 --threads 2
// timeout: 120
/* Random traffic, every byte checked. usage: traffic [--seed N] [--rounds N | --for SECONDS] [--threads N]
 *
 * In every round all ranks draw the same plan from the seed: sender, receiver, length and mode of each message, on which of four
 * communicators. On each communicator all receives are of one kind (named; any tag; any source; any of both), so that every
 * allowed order of matching completes. The result is checked: messages from one source with one tag must be received in the
 * order sent, by receives in the order posted (MPI-5.0 §3.5).
 * Threads of a rank have communicators of their own, and do the same side by side. */
#include <inttypes.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 16, PLAN_MAX = 1024, GUARD = 64, TAGS = 4, WILD_BYTES_MAX = 128 << 10, BYTES_MAX = 4 << 20 };
enum kind { NAMED, ANY_TAG, ANY_SOURCE, ANY_BOTH, KINDS };
enum style { POSTED_FIRST, SENDS_FIRST, MIXED, PROBED, STYLES };
enum mode { STANDARD, SYNCHRONOUS, READY, MODES };

struct message {
    int from, to, tag, bytes, blocking;
    enum kind kind;
    enum mode mode;
    uint64_t content;
    int taken; /* by a receive, when checked */
};

struct receive {
    MPI_Request request;
    MPI_Status status;
    unsigned char *data;
    int capacity, source, tag;
    enum kind kind;
};

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comms[KINDS], control;
    uint64_t local; /* choices of this rank alone */
    struct message plan[PLAN_MAX];
    int planned;
    enum style style;
    long rounds, messages;
    uint64_t bytes;
};

static const int tags[TAGS] = {0, 1, 77, 32767};
static int rank, ranks, threads = 1;
static uint64_t seed = 1;
static long rounds_wanted = 25;
static double seconds_wanted;

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(uint64_t *state, int bound)
{
    return (int)(draw(state) % (uint64_t)bound);
}

static void *memory(size_t bytes)
{
    void *block = malloc(bytes > 0 ? bytes : 1);
    if (block == NULL) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return block;
}

static void fail(const struct worker *w, const struct message *m, const char *what, long at)
{
    fprintf(stderr,
            "rank %d, seed %" PRIu64 ", thread %d, round %ld, style %d: %s (at %ld; from %d to %d, tag %d, %d bytes, "
            "kind %d, mode %d)\n",
            rank, seed, w->number, w->rounds, w->style, what, at, m ? m->from : -1, m ? m->to : -1, m ? m->tag : -1,
            m ? m->bytes : -1, m ? (int)m->kind : -1, m ? (int)m->mode : -1);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t word(uint64_t content, size_t index)
{
    uint64_t x = content + index * 0x9e3779b97f4a7c15u;
    return x ^ x >> 31;
}

static void fill(unsigned char *data, size_t bytes, uint64_t content)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t value = word(content, at / 8);
        memcpy(data + at, &value, bytes - at < 8 ? bytes - at : 8);
    }
}

/* The first byte that is not as it should be, or -1. */
static long first_wrong(const unsigned char *data, size_t bytes, uint64_t content)
{
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t value = word(content, at / 8);
        if (memcmp(data + at, &value, bytes - at < 8 ? bytes - at : 8) != 0)
            return (long)at;
    }
    return -1;
}

static int draw_bytes(uint64_t *state, enum kind kind)
{
    int choice = below(state, 64), most;
    if (choice < 6)
        return 0;
    most = choice < 34 ? 64 : choice < 48 ? 4096 : choice < 60 ? 65536 : choice < 63 ? 512 << 10 : BYTES_MAX;
    if (kind != NAMED && most > WILD_BYTES_MAX)
        most = WILD_BYTES_MAX;
    return 1 + below(state, most);
}

/* The same at every rank. */
static void make_plan(struct worker *w)
{
    uint64_t state = seed ^ (uint64_t)w->number << 48 ^ (uint64_t)w->rounds << 8;
    w->style = (enum style)below(&state, STYLES);
    w->planned = 2 + below(&state, 10 * ranks < PLAN_MAX ? 10 * ranks : PLAN_MAX - 2);
    for (int i = 0; i < w->planned; i++) {
        struct message *m = &w->plan[i];
        m->from = below(&state, ranks);
        m->to = below(&state, ranks);
        m->tag = tags[below(&state, TAGS)];
        m->kind = (enum kind)below(&state, KINDS);
        m->bytes = draw_bytes(&state, m->kind);
        m->mode = (enum mode)below(&state, MODES);
        m->blocking = below(&state, 4) == 0;
        m->content = draw(&state);
        m->taken = 0;
        /* A ready send needs a posted receive, and so does a blocking send to oneself. */
        if (w->style != POSTED_FIRST) {
            m->blocking = 0;
            if (m->mode == READY)
                m->mode = STANDARD;
        }
    }
}

static MPI_Request start_send(struct worker *w, const struct message *m, unsigned char *data)
{
    MPI_Comm comm = w->comms[m->kind];
    MPI_Request request = MPI_REQUEST_NULL;
    if (m->blocking && m->mode == STANDARD)
        MPI_Send(data, m->bytes, MPI_BYTE, m->to, m->tag, comm);
    else if (m->blocking && m->mode == SYNCHRONOUS)
        MPI_Ssend(data, m->bytes, MPI_BYTE, m->to, m->tag, comm);
    else if (m->blocking)
        MPI_Rsend(data, m->bytes, MPI_BYTE, m->to, m->tag, comm);
    else if (m->mode == STANDARD)
        MPI_Isend(data, m->bytes, MPI_BYTE, m->to, m->tag, comm, &request);
    else if (m->mode == SYNCHRONOUS)
        MPI_Issend(data, m->bytes, MPI_BYTE, m->to, m->tag, comm, &request);
    else
        MPI_Irsend(data, m->bytes, MPI_BYTE, m->to, m->tag, comm, &request);
    return request;
}

static void post(struct worker *w, struct receive *r)
{
    r->data = memory((size_t)r->capacity + GUARD);
    memset(r->data, 0xee, (size_t)r->capacity + GUARD);
    MPI_Irecv(r->data, r->capacity, MPI_BYTE, r->source, r->tag, w->comms[r->kind], &r->request);
}

/* Probes for a message, and receives it into memory of exactly its size. */
static void probe_and_receive(struct worker *w, struct receive *r)
{
    int there = 1, bytes = -1;
    MPI_Status seen;
    if (below(&w->local, 2))
        MPI_Probe(r->source, r->tag, w->comms[r->kind], &seen);
    else
        do
            MPI_Iprobe(r->source, r->tag, w->comms[r->kind], &there, &seen);
        while (!there);
    MPI_Get_count(&seen, MPI_BYTE, &bytes);
    r->capacity = bytes;
    r->data = memory((size_t)bytes + GUARD);
    memset(r->data, 0xee, (size_t)bytes + GUARD);
    MPI_Recv(r->data, bytes, MPI_BYTE, seen.MPI_SOURCE, seen.MPI_TAG, w->comms[r->kind], &r->status);
    if (r->status.MPI_SOURCE != seen.MPI_SOURCE || r->status.MPI_TAG != seen.MPI_TAG)
        fail(w, NULL, "the message received is not the one probed", 0);
}

/* A receive for each message to this rank, in random order, as large as any message that it may match. */
static int make_receives(struct worker *w, struct receive *receives)
{
    int count = 0, largest[KINDS] = {0};
    for (int i = 0; i < w->planned; i++) {
        struct message *m = &w->plan[i];
        if (m->to == rank && m->bytes > largest[m->kind])
            largest[m->kind] = m->bytes;
    }
    for (int i = 0; i < w->planned; i++) {
        struct message *m = &w->plan[i];
        if (m->to != rank)
            continue;
        struct receive *r = &receives[count++];
        r->request = MPI_REQUEST_NULL;
        r->data = NULL;
        r->kind = m->kind;
        r->source = m->kind == ANY_SOURCE || m->kind == ANY_BOTH ? MPI_ANY_SOURCE : m->from;
        r->tag = m->kind == ANY_TAG || m->kind == ANY_BOTH ? MPI_ANY_TAG : m->tag;
        r->capacity = largest[m->kind];
    }
    for (int i = count - 1; i > 0; i--) {
        int other = below(&w->local, i + 1);
        struct receive swapped = receives[i];
        receives[i] = receives[other];
        receives[other] = swapped;
    }
    return count;
}

/* Completes receives[0..count) by one of the eight ways, drawn. */
static void complete(struct worker *w, struct receive *receives, int count)
{
    MPI_Request *requests = memory(sizeof *requests * (size_t)count);
    MPI_Status *statuses = memory(sizeof *statuses * (size_t)count);
    int *indices = memory(sizeof *indices * (size_t)count);
    int done = 0, flag, index, some, way = below(&w->local, 8);
    for (int i = 0; i < count; i++)
        requests[i] = receives[i].request;
    if (way == 0) {
        MPI_Waitall(count, requests, statuses);
        for (int i = 0; i < count; i++)
            receives[i].status = statuses[i];
    } else if (way == 1) {
        do
            MPI_Testall(count, requests, &flag, statuses);
        while (!flag);
        for (int i = 0; i < count; i++)
            receives[i].status = statuses[i];
    } else if (way < 4) {
        for (int i = count - 1; i >= 0; i--) {
            if (way == 2)
                MPI_Wait(&requests[i], &receives[i].status);
            else
                do
                    MPI_Test(&requests[i], &flag, &receives[i].status);
                while (!flag);
        }
    } else {
        while (done < count) {
            some = 0;
            if (way == 4)
                some = 1, MPI_Waitany(count, requests, &index, statuses);
            else if (way == 5)
                MPI_Testany(count, requests, &index, &some, statuses);
            else if (way == 6)
                MPI_Waitsome(count, requests, &some, indices, statuses);
            else
                MPI_Testsome(count, requests, &some, indices, statuses);
            if (some == MPI_UNDEFINED || (way < 6 && some && index == MPI_UNDEFINED))
                fail(w, NULL, "no request is left, but not all messages came", done);
            for (int i = 0; i < some; i++)
                receives[way < 6 ? index : indices[i]].status = statuses[i];
            done += some;
        }
    }
    for (int i = 0; i < count; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            fail(w, NULL, "a completed request is not null", i);
    free(requests);
    free(statuses);
    free(indices);
}

/* Checks what arrived, in the order in which the receives were posted. */
static void check(struct worker *w, struct receive *receives, int count)
{
    for (int i = 0; i < count; i++) {
        struct receive *r = &receives[i];
        struct message *m = NULL;
        int bytes = -1;
        for (int k = 0; k < w->planned && m == NULL; k++) {
            struct message *each = &w->plan[k];
            if (each->kind == r->kind && each->to == rank && each->from == r->status.MPI_SOURCE &&
                each->tag == r->status.MPI_TAG && !each->taken)
                m = each;
        }
        if (m == NULL) {
            fail(w, NULL, "nobody sent this", r->status.MPI_SOURCE);
            return;
        }
        m->taken = 1;
        MPI_Get_count(&r->status, MPI_BYTE, &bytes);
        if (bytes != m->bytes)
            fail(w, m, "wrong length", bytes);
        long wrong = first_wrong(r->data, (size_t)bytes, m->content);
        if (wrong >= 0)
            fail(w, m, "wrong byte", wrong);
        for (int k = bytes; k < r->capacity + GUARD; k++)
            if (r->data[k] != 0xee)
                fail(w, m, "a byte behind the message was written", k);
        w->messages++;
        w->bytes += (uint64_t)bytes;
        free(r->data);
    }
}

static void round_of(struct worker *w)
{
    struct receive *receives = memory(sizeof *receives * PLAN_MAX);
    MPI_Request *sends = memory(sizeof *sends * PLAN_MAX);
    unsigned char **buffers = memory(sizeof *buffers * PLAN_MAX);
    make_plan(w);
    int count = make_receives(w, receives), posted = 0, sent = 0;
    if (w->style == POSTED_FIRST) {
        while (posted < count)
            post(w, &receives[posted++]);
        MPI_Barrier(w->control);
    }
    for (int i = 0; i < w->planned; i++) {
        struct message *m = &w->plan[i];
        if (m->from != rank)
            continue;
        while (w->style == MIXED && posted < count && below(&w->local, 2))
            post(w, &receives[posted++]);
        buffers[sent] = memory((size_t)m->bytes);
        fill(buffers[sent], (size_t)m->bytes, m->content);
        sends[sent] = start_send(w, m, buffers[sent]);
        sent++;
    }
    if (w->style == PROBED) {
        for (; posted < count; posted++)
            probe_and_receive(w, &receives[posted]);
    } else {
        while (posted < count)
            post(w, &receives[posted++]);
        complete(w, receives, count);
    }
    check(w, receives, count);
    MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE);
    while (sent > 0)
        free(buffers[--sent]);
    free(receives);
    free(sends);
    free(buffers);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    double start = MPI_Wtime();
    int go_on = 1;
    w->local = seed ^ (uint64_t)rank << 32 ^ (uint64_t)w->number;
    while (go_on) {
        round_of(w);
        w->rounds++;
        /* A message of the next round would match a wildcard of this one. */
        MPI_Barrier(w->control);
        go_on = seconds_wanted > 0 ? MPI_Wtime() - start < seconds_wanted : w->rounds < rounds_wanted;
        MPI_Bcast(&go_on, 1, MPI_INT, (int)(w->rounds % ranks), w->control);
    }
    return NULL;
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds_wanted = strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--for") == 0)
            seconds_wanted = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = atoi(argv[i + 1]);
    }
    if (threads < 1 || threads > THREADS_MAX)
        threads = 1;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    int provided;
    long mine[3] = {0, 0, 0}, all[3];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    read_options(argc, argv);
    if (provided < MPI_THREAD_MULTIPLE && threads > 1) {
        if (rank == 0)
            printf("MPI_THREAD_MULTIPLE is not provided: one thread\n");
        threads = 1;
    }
    if (rank == 0)
        printf("seed: %" PRIu64 "\n", seed);
    for (int t = 0; t < threads; t++) {
        workers[t].number = t;
        for (int kind = 0; kind < KINDS; kind++)
            MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comms[kind]);
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].control);
    }
    for (int t = 1; t < threads; t++)
        if (pthread_create(&workers[t].thread, NULL, work, &workers[t]) != 0) {
            fprintf(stderr, "rank %d: cannot start a thread\n", rank);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    work(&workers[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(workers[t].thread, NULL);
    for (int t = 0; t < threads; t++) {
        mine[0] += workers[t].rounds;
        mine[1] += workers[t].messages;
        mine[2] += (long)(workers[t].bytes >> 10);
        for (int kind = 0; kind < KINDS; kind++)
            MPI_Comm_free(&workers[t].comms[kind]);
        MPI_Comm_free(&workers[t].control);
    }
    MPI_Reduce(mine, all, 3, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%ld rounds, %ld messages, %ld KiB checked\nNo errors\n", all[0] / ranks, all[1], all[2]);
    MPI_Finalize();
    return 0;
}
