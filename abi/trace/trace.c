/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* libmend_trace.so: records the calls of a rank in a file, for `mend-info --timeline`. It stands between the program and MPI (the
 * profiling interface, MPI-5.0 §15.2), so that calls that are not traced cost nothing; `mpiexec` loads it into each rank if MEND_TRACE
 * is set. The file is mapped memory, so it is complete when the rank is killed: the call in which it died is in its head.
 *
 *   head (128 bytes)      magic[8]  rank u32  ranks u32  capacity u32  used u32  dropped u32  0 u32
 *                         start u64  end u64 (0: not finalized)  begin of the open call u64  its name[24] ("": none)
 *   each record (48)      begin u64  end u64  class i32 (-1: left by its error handler)  kind u32  name[24]
 *
 * Numbers are in the order of the machine, times in nanoseconds of CLOCK_MONOTONIC, which all processes of a host share. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LEFT = -1, NAME_BYTES = 24, CAPACITY = 1 << 16, KEPT_FOR_REPAIR = 1 << 12 };
enum kind { MESSAGES, COLLECTIVE, CREATION, REPAIR, OTHER };

struct record {
    uint64_t begin, end;
    int32_t class;
    uint32_t kind;
    char name[NAME_BYTES];
};

struct trace {
    char magic[8];
    uint32_t rank, ranks, capacity;
    _Atomic uint32_t used, dropped;
    uint32_t zero;
    uint64_t start, end, open_begin;
    char open[NAME_BYTES];
    char reserved[128 - 8 - 6 * 4 - 3 * 8 - NAME_BYTES];
    struct record records[];
};

_Static_assert(sizeof(struct record) == 48 && sizeof(struct trace) == 128, "mend-info reads these layouts");

/* NULL: nothing is recorded. */
static struct trace *trace;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* A function of the library, which may have been loaded for an extension of an interpreter alone. */
static void *find(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        void *library = dlopen("libmpi_abi.so.1", RTLD_LAZY | RTLD_NOLOAD);
        found = library ? dlsym(library, name) : NULL;
    }
    if (!found) {
        fprintf(stderr, "libmend_trace: there is no %s\n", name);
        abort();
    }
    return found;
}

static int allocate(int file, off_t bytes)
{
    int error;
    do
        error = posix_fallocate(file, 0, bytes);
    while (error == EINTR);
    return error;
}

static void open_file(uint64_t start)
{
    const char *name = getenv("MEND_TRACE");
    static int (*rank_of)(MPI_Comm, int *), (*size_of)(MPI_Comm, int *);
    char path[4096];
    int rank, ranks;
    if (!name || !*name || trace)
        return;
    rank_of = (int (*)(MPI_Comm, int *))find("PMPI_Comm_rank");
    size_of = (int (*)(MPI_Comm, int *))find("PMPI_Comm_size");
    rank_of(MPI_COMM_WORLD, &rank);
    size_of(MPI_COMM_WORLD, &ranks);
    snprintf(path, sizeof path, "%s.%d", name, rank);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    size_t bytes = sizeof *trace + CAPACITY * sizeof *trace->records;
    void *memory = MAP_FAILED;
    /* With its blocks: a store to a page for which the disk has no place ends the rank by SIGBUS. */
    if (file >= 0 && allocate(file, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (memory == MAP_FAILED) {
        if (file >= 0)
            unlink(path);
        fprintf(stderr, "libmend_trace: cannot write %s, so rank %d records nothing\n", path, rank);
        return;
    }
    struct trace *made = memory;
    memcpy(made->magic, "MENDTRC1", 8);
    made->rank = (uint32_t)rank;
    made->ranks = (uint32_t)ranks;
    made->capacity = CAPACITY;
    made->start = start;
    trace = made;
}

/* A call that has begun. An error handler may call MPI, so a thread can be in several; and it may leave by longjmp or throw, so a call may
 * never return. */
struct open_call {
    const char *name;
    enum kind kind;
    uint64_t begun;
    /* When the first call after it began; 0: none has. */
    uint64_t followed;
    /* Of the function below, in which it runs. Stacks grow down, so a call that a handler makes has a lower one. */
    const char *frame;
};

static _Thread_local struct open_call open_calls[8];
static _Thread_local unsigned depth;

/* The call that the rank is in, as far as one name can say it: of several threads, the one that called last. */
static void show_open(void)
{
    if (depth == 0) {
        trace->open[0] = 0;
        return;
    }
    trace->open_begin = open_calls[depth - 1].begun;
    strncpy(trace->open, open_calls[depth - 1].name, NAME_BYTES - 1);
}

static void record(const char *name, enum kind kind, uint64_t begun, uint64_t ended, int class)
{
    /* Errors and repair have places of their own, so that a long run before them does not hide them. */
    uint32_t limit = class != 0 || kind == REPAIR ? CAPACITY : CAPACITY - KEPT_FOR_REPAIR;
    uint32_t at = atomic_load_explicit(&trace->used, memory_order_relaxed);
    do {
        if (at >= limit) {
            atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
            return;
        }
    } while (!atomic_compare_exchange_weak_explicit(&trace->used, &at, at + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    struct record *record = &trace->records[at];
    record->begin = begun;
    record->end = ended;
    record->class = class;
    record->kind = kind;
    strncpy(record->name, name, NAME_BYTES - 1);
}

/* The last call of this thread will not return: its handler has left it. */
static void leave(uint64_t time)
{
    struct open_call *left = &open_calls[--depth];
    record(left->name, left->kind, left->begun, left->followed ? left->followed : time, LEFT);
}

static void begin(const char *name, enum kind kind, const char *frame)
{
    if (!trace)
        return;
    uint64_t time = now();
    while (depth > 0 && frame >= open_calls[depth - 1].frame)
        leave(time);
    /* So many calls in each other's handlers: the outermost one is not recorded. */
    if (depth == sizeof open_calls / sizeof *open_calls)
        memmove(open_calls, open_calls + 1, --depth * sizeof *open_calls);
    if (depth > 0 && !open_calls[depth - 1].followed)
        open_calls[depth - 1].followed = time;
    open_calls[depth++] = (struct open_call){name, kind, time, 0, frame};
    show_open();
}

static void end(const char *frame, int code)
{
    static int (*class_of)(int, int *);
    uint64_t time = now();
    int class = 0;
    while (depth > 0 && open_calls[depth - 1].frame < frame)
        leave(time);
    if (!trace || depth == 0 || open_calls[depth - 1].frame != frame)
        return;
    struct open_call ended = open_calls[--depth];
    if (trace->open_begin == ended.begun)
        show_open();
    if (code != MPI_SUCCESS) {
        if (!class_of)
            class_of = (int (*)(int, int *))find("PMPI_Error_class");
        class_of(code, &class);
    }
    record(ended.name, ended.kind, ended.begun, time, class);
}

#define TRACED(name, kind, types, arguments)                                                                           \
    int name types                                                                                                     \
    {                                                                                                                  \
        static int(*real) types;                                                                                       \
        if (!real)                                                                                                     \
            real = (int(*) types)find("P" #name);                                                                      \
        const char *frame = __builtin_frame_address(0);                                                                \
        begin(#name, kind, frame);                                                                                     \
        int code = real arguments;                                                                                     \
        end(frame, code);                                                                                              \
        return code;                                                                                                   \
    }

int MPI_Init(int *argc, char ***argv)
{
    uint64_t start = now();
    int code = ((int (*)(int *, char ***))find("PMPI_Init"))(argc, argv);
    if (code == MPI_SUCCESS)
        open_file(start);
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    uint64_t start = now();
    int code = ((int (*)(int *, char ***, int, int *))find("PMPI_Init_thread"))(argc, argv, required, provided);
    if (code == MPI_SUCCESS)
        open_file(start);
    return code;
}

int MPI_Finalize(void)
{
    begin("MPI_Finalize", OTHER, __builtin_frame_address(0));
    int code = ((int (*)(void))find("PMPI_Finalize"))();
    if (trace) {
        trace->open[0] = 0;
        trace->end = now();
    }
    return code;
}

TRACED(MPI_Send, MESSAGES, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
TRACED(MPI_Ssend, MESSAGES, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (b, n, t, to, tag, c))
TRACED(MPI_Recv, MESSAGES, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s),
       (b, n, t, from, tag, c, s))
TRACED(MPI_Probe, MESSAGES, (int from, int tag, MPI_Comm c, MPI_Status *s), (from, tag, c, s))
TRACED(MPI_Wait, MESSAGES, (MPI_Request *r, MPI_Status *s), (r, s))
TRACED(MPI_Waitall, MESSAGES, (int n, MPI_Request *r, MPI_Status *s), (n, r, s))
TRACED(MPI_Waitany, MESSAGES, (int n, MPI_Request *r, int *at, MPI_Status *s), (n, r, at, s))
TRACED(MPI_Waitsome, MESSAGES, (int n, MPI_Request *r, int *m, int *at, MPI_Status *s), (n, r, m, at, s))
TRACED(MPI_Sendrecv, MESSAGES,
       (const void *b, int n, MPI_Datatype t, int to, int tag, void *b2, int n2, MPI_Datatype t2, int from, int tag2,
        MPI_Comm c, MPI_Status *s),
       (b, n, t, to, tag, b2, n2, t2, from, tag2, c, s))
TRACED(MPI_Barrier, COLLECTIVE, (MPI_Comm c), (c))
TRACED(MPI_Bcast, COLLECTIVE, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
TRACED(MPI_Reduce, COLLECTIVE, (const void *b, void *r, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c),
       (b, r, n, t, o, root, c))
TRACED(MPI_Allreduce, COLLECTIVE, (const void *b, void *r, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
       (b, r, n, t, o, c))
TRACED(MPI_Gather, COLLECTIVE,
       (const void *b, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, int root, MPI_Comm c),
       (b, n, t, r, m, u, root, c))
TRACED(MPI_Scatter, COLLECTIVE,
       (const void *b, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, int root, MPI_Comm c),
       (b, n, t, r, m, u, root, c))
TRACED(MPI_Allgather, COLLECTIVE, (const void *b, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, MPI_Comm c),
       (b, n, t, r, m, u, c))
TRACED(MPI_Alltoall, COLLECTIVE, (const void *b, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, MPI_Comm c),
       (b, n, t, r, m, u, c))
TRACED(MPI_Comm_dup, CREATION, (MPI_Comm c, MPI_Comm *made), (c, made))
TRACED(MPI_Comm_split, CREATION, (MPI_Comm c, int color, int key, MPI_Comm *made), (c, color, key, made))
TRACED(MPI_Comm_create, CREATION, (MPI_Comm c, MPI_Group g, MPI_Comm *made), (c, g, made))
TRACED(MPI_Comm_create_group, CREATION, (MPI_Comm c, MPI_Group g, int tag, MPI_Comm *made), (c, g, tag, made))
TRACED(MPI_Intercomm_create, CREATION, (MPI_Comm c, int leader, MPI_Comm peer, int other, int tag, MPI_Comm *made),
       (c, leader, peer, other, tag, made))
TRACED(MPI_Intercomm_merge, CREATION, (MPI_Comm c, int high, MPI_Comm *made), (c, high, made))
TRACED(MPI_Comm_free, OTHER, (MPI_Comm *c), (c))
TRACED(MPI_Comm_disconnect, OTHER, (MPI_Comm *c), (c))
#define TRACED_REPAIR(prefix)                                                                                          \
    TRACED(prefix##_Comm_revoke, REPAIR, (MPI_Comm c), (c))                                                            \
    TRACED(prefix##_Comm_agree, REPAIR, (MPI_Comm c, int *flag), (c, flag))                                            \
    TRACED(prefix##_Comm_agree_failed, REPAIR, (MPI_Comm c, MPI_Group *failed), (c, failed))                           \
    TRACED(prefix##_Comm_shrink, REPAIR, (MPI_Comm c, MPI_Comm *made), (c, made))                                      \
    TRACED(prefix##_Comm_get_failed, REPAIR, (MPI_Comm c, MPI_Group *failed), (c, failed))                             \
    TRACED(prefix##_Comm_ack_failed, REPAIR, (MPI_Comm c, int n, int *m), (c, n, m))
TRACED_REPAIR(MPI)
TRACED_REPAIR(MPIX)
