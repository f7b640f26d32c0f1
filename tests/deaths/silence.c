/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* silence SEED ROUNDS: memory after an error return. Rank 0 receives from a rank, or sends to it, and the call ends with an error: the
 * other one dies in the middle, the communicator is revoked, or the receive is cancelled. From its return on, nothing may write to the
 * receive buffer, and the send buffer may be unmapped. Rank 0 fills receive buffers with a pattern and goes on: the others send it messages
 * of all sizes. Then it looks at the buffers. Every second one is without access meanwhile: a write of this process to it is a SIGSEGV. The kernel's
 * writes show in the others. Built with AddressSanitizer, it also stops at each access of a function of the C library.
 *
 * The last rank dies in each round with a death; ranks 0 to 2 live. Rank 0 prints the counts. */
#define _GNU_SOURCE
#include "death_timer.h"
#include "failed.h"

#include <mpi-ext.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

enum { AT_ONCE = 3, POISON = 0xa5, LIVING = 3, ORDERS = 777, TRAFFIC = 778, MESSAGE = 779, LATEST_US = 6000 };
/* Around the eager limits of the transports (4 and 8 KiB) and the longest read of a device (1 MiB). */
static const int sizes[] = {4095, 4096, 4097, 8191, 8192, 8193, 65536, 1 << 20, (1 << 20) + 1, 3 << 20, 8 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, BYTES_MAX = 8 << 20 };

enum kind { SENDER_DIES, RECEIVER_DIES, REVOKED, CANCELLED, KINDS };
static const char *const names[KINDS] = {"sender dies", "receiver dies", "revoked", "cancelled"};

/* What rank 0 tells the others at the start of each round. */
struct order {
    int kind, bytes, peer;
    unsigned long delay_us;
};

static int ranks, alive;
static long errors_of[KINDS], rounds_of[KINDS], writes;

/* A buffer of its own pages. */
static unsigned char *map_buffer(int bytes)
{
    void *start = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return start;
}

static void fill(unsigned char *buffer, int bytes, int id)
{
    for (int at = 0; at < bytes; at++)
        buffer[at] = (unsigned char)(at * 7 + id * 31 + (at >> 8));
}

static int holds(const unsigned char *buffer, int bytes, int id)
{
    for (int at = 0; at < bytes; at++)
        if (buffer[at] != (unsigned char)(at * 7 + id * 31 + (at >> 8)))
            return 0;
    return 1;
}

static void on_fault(int signal)
{
    static const char words[] = "a write to a buffer without access, after its error return\n";
    (void)signal;
    if (write(2, words, sizeof words - 1) < 0)
        _exit(4);
    _exit(3);
}

/* The call for this buffer has returned with an error: from now on nobody else writes to it. */
static void guard(unsigned char *buffer, int bytes, int index)
{
    memset(buffer, POISON, (size_t)bytes);
    if (index % 2 == 0)
        mprotect(buffer, (size_t)bytes, PROT_NONE);
    ASAN_POISON_MEMORY_REGION(buffer, (size_t)bytes);
}

static void look(unsigned char *buffer, int bytes, int index)
{
    ASAN_UNPOISON_MEMORY_REGION(buffer, (size_t)bytes);
    if (index % 2 == 0)
        mprotect(buffer, (size_t)bytes, PROT_READ | PROT_WRITE);
    for (int at = 0; at < bytes; at++)
        if (buffer[at] != POISON) {
            writes++;
            fprintf(stderr, "byte %d of %d was written after the error return: %d\n", at, bytes, buffer[at]);
            break;
        }
}

/* Messages of several sizes between rank 0 and ranks 1 and 2, so that transports reuse what they have. */
static void go_on(void)
{
    static const int lengths[] = {8, 5000, 9000, 300000, 2 << 20};
    for (int i = 0; i < 10; i++) {
        int bytes = lengths[i % 5];
        if (rank == 0) {
            for (int other = 1; other < LIVING; other++) {
                unsigned char *buffer = map_buffer(bytes);
                int code = MPI_Recv(buffer, bytes, MPI_BYTE, other, TRAFFIC, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                expect("traffic of the living", class_of(code), MPI_SUCCESS);
                expect("bytes of the living", holds(buffer, bytes, other + i), 1);
                munmap(buffer, (size_t)bytes);
            }
        } else if (rank < LIVING) {
            unsigned char *buffer = map_buffer(bytes);
            fill(buffer, bytes, rank + i);
            int code = MPI_Send(buffer, bytes, MPI_BYTE, 0, TRAFFIC, MPI_COMM_WORLD);
            expect("traffic to rank 0", class_of(code), MPI_SUCCESS);
            munmap(buffer, (size_t)bytes);
        }
    }
}

static int is_expected(int kind, int class)
{
    int error = kind == REVOKED ? MPIX_ERR_REVOKED : MPIX_ERR_PROC_FAILED;
    return class == MPI_SUCCESS || class == error;
}

/* Rank 0 receives. What arrived is checked, what failed is guarded, the others go on, and it looks. */
static void receive(const struct order *order, MPI_Comm comm)
{
    unsigned char *buffers[AT_ONCE];
    MPI_Request requests[AT_ONCE];
    int failed[AT_ONCE] = {0};
    for (int i = 0; i < AT_ONCE; i++) {
        buffers[i] = map_buffer(order->bytes);
        MPI_Irecv(buffers[i], order->bytes, MPI_BYTE, order->peer, MESSAGE + i, comm, &requests[i]);
    }
    if (order->kind == CANCELLED) {
        usleep((useconds_t)order->delay_us);
        for (int i = 0; i < AT_ONCE; i++)
            MPI_Cancel(&requests[i]);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        MPI_Status status;
        int cancelled = 0, class = class_of(MPI_Wait(&requests[i], &status));
        if (order->kind == CANCELLED)
            MPI_Test_cancelled(&status, &cancelled);
        expect("the class is one of the kind", is_expected(order->kind, class), 1);
        failed[i] = class != MPI_SUCCESS || cancelled;
        errors_of[order->kind] += failed[i];
        if (failed[i])
            guard(buffers[i], order->bytes, i);
        else
            expect("a message that came", holds(buffers[i], order->bytes, i), 1);
    }
    /* What was cancelled still comes, and is received elsewhere. */
    for (int i = 0; i < AT_ONCE && order->kind == CANCELLED; i++)
        if (failed[i]) {
            unsigned char *other = map_buffer(order->bytes);
            MPI_Recv(other, order->bytes, MPI_BYTE, order->peer, MESSAGE + i, comm, MPI_STATUS_IGNORE);
            expect("a message after a cancelled receive", holds(other, order->bytes, i), 1);
            munmap(other, (size_t)order->bytes);
        }
    go_on();
    for (int i = 0; i < AT_ONCE; i++) {
        if (failed[i])
            look(buffers[i], order->bytes, i);
        munmap(buffers[i], (size_t)order->bytes);
    }
}

/* Sends to `to`, and unmaps each buffer as soon as its call has returned, whatever the class. */
static void send(const struct order *order, int to, MPI_Comm comm)
{
    unsigned char *buffers[AT_ONCE];
    MPI_Request requests[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        buffers[i] = map_buffer(order->bytes);
        fill(buffers[i], order->bytes, i);
        MPI_Isend(buffers[i], order->bytes, MPI_BYTE, to, MESSAGE + i, comm, &requests[i]);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        int class = class_of(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        expect("the class of a send is one of the kind", is_expected(order->kind, class), 1);
        errors_of[order->kind] += class != MPI_SUCCESS;
        munmap(buffers[i], (size_t)order->bytes);
    }
}

/* The last living rank dies while it sends to rank 0, or receives from it; it does so until then. */
static void die_meanwhile(const struct order *order)
{
    unsigned char *buffers[AT_ONCE];
    MPI_Request requests[AT_ONCE];
    state = state + order->delay_us;
    for (int i = 0; i < AT_ONCE; i++) {
        buffers[i] = map_buffer(order->bytes);
        fill(buffers[i], order->bytes, i);
    }
    plan_death(1 + order->delay_us, 1, 1);
    for (int i = 0; i < AT_ONCE; i++)
        if (order->kind == SENDER_DIES)
            MPI_Isend(buffers[i], order->bytes, MPI_BYTE, 0, MESSAGE + i, MPI_COMM_WORLD, &requests[i]);
        else
            MPI_Irecv(buffers[i], order->bytes, MPI_BYTE, 0, MESSAGE + i, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(AT_ONCE, requests, MPI_STATUSES_IGNORE);
    for (;;)
        pause();
}

/* Rank 1 sends to rank 0 on a communicator of the two and rank 2, which rank 2 revokes meanwhile. */
static void revoke_meanwhile(const struct order *order, MPI_Comm living)
{
    MPI_Comm comm;
    if (rank >= LIVING)
        return;
    MPI_Comm_dup(living, &comm);
    if (rank == 0)
        receive(order, comm);
    else if (rank == 1)
        send(order, 0, comm);
    else {
        usleep((useconds_t)order->delay_us);
        MPIX_Comm_revoke(comm);
    }
    if (rank != 0)
        go_on();
    MPI_Comm_free(&comm);
}

static struct order draw_order(int round, int rounds)
{
    struct order order = {.bytes = sizes[draw(SIZES)], .delay_us = draw(LATEST_US)};
    int deaths = alive > LIVING;
    order.kind = deaths ? (int)draw(KINDS) : REVOKED + (int)draw(2);
    /* As many deaths as there are ranks to die, in the last rounds at the latest. */
    if (deaths && rounds - round <= alive - LIVING)
        order.kind = (int)draw(2);
    order.peer = order.kind == REVOKED || order.kind == CANCELLED ? 1 : alive - 1;
    return order;
}

static void one_round(const struct order *order, MPI_Comm living)
{
    rounds_of[order->kind]++;
    if (order->kind == REVOKED) {
        revoke_meanwhile(order, living);
    } else if (order->kind == CANCELLED || rank == 0 || rank < LIVING) {
        if (rank == 0 && order->kind != RECEIVER_DIES)
            receive(order, MPI_COMM_WORLD);
        else if (rank == 0)
            send(order, order->peer, MPI_COMM_WORLD);
        else if (rank == 1 && order->kind == CANCELLED)
            send(order, 0, MPI_COMM_WORLD);
        if (rank != 0 || order->kind == RECEIVER_DIES)
            go_on();
    } else if (rank == alive - 1) {
        die_meanwhile(order);
    }
    alive -= order->kind == SENDER_DIES || order->kind == RECEIVER_DIES;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 20;
    MPI_Comm living;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_split(MPI_COMM_WORLD, rank < LIVING ? 0 : MPI_UNDEFINED, rank, &living);
    state = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) * 0x9e3779b97f4a7c15ul + (unsigned long)rank + 1;
    alive = ranks;
    signal(SIGSEGV, on_fault);
    for (int round = 0; round < rounds && ranks > LIVING; round++) {
        struct order order;
        if (rank == 0) {
            order = draw_order(round, rounds);
            for (int other = 1; other < alive; other++)
                MPI_Send(&order, sizeof order, MPI_BYTE, other, ORDERS, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&order, sizeof order, MPI_BYTE, 0, ORDERS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        one_round(&order, living);
    }
    if (rank == 0) {
        for (int kind = 0; kind < KINDS; kind++)
            printf("%s: %ld rounds, %ld errors\n", names[kind], rounds_of[kind], errors_of[kind]);
        printf("writes: %ld\n", writes);
        if (errors == 0 && writes == 0)
            puts("No errors");
    }
    MPI_Finalize();
    return errors != 0 || writes != 0;
}
