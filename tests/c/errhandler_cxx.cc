// SPDX-License-Identifier: Apache-2.0 OR MIT
// ranks: 1 2
// Row EH2: a handler may throw; the exception passes through the library, which can be used on
#include <mpi.h>
#include <cstdio>
#include <stdexcept>

struct Failed : std::runtime_error {
    int code;
    explicit Failed(int code) : std::runtime_error("MPI failed"), code(code) {}
};

static int errors, destroyed;

struct Counted {
    ~Counted() { destroyed++; }
};

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        std::fprintf(stderr, "%s: %ld, not %ld\n", what, got, wanted);
}

extern "C" void throwing(MPI_Comm *, int *code, ...)
{
    throw Failed(*code);
}

static void send_to_nobody(MPI_Comm comm)
{
    Counted counted;
    int number = 0;
    MPI_Send(&number, 1, MPI_INT, 99, 0, comm);
    expect("coming back from a call whose handler threw", 1, 0);
}

int main()
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    int rank = 0, all = 0, caught = 0;
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_create_errhandler(throwing, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    for (int round = 0; round < 100; round++) {
        try {
            send_to_nobody(comm);
        } catch (const Failed &failed) {
            caught += failed.code == MPI_ERR_RANK;
        }
        int sent = round, received = -1;
        MPI_Sendrecv(&sent, 1, MPI_INT, 0, 0, &received, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE);
        expect("a message after an exception", received, round);
    }
    expect("exceptions caught", caught, 100);
    expect("objects destroyed on the way", destroyed, 100);
    MPI_Request request = MPI_REQUEST_NULL;
    char buffer[8] = {};
    MPI_Irecv(buffer, 1, MPI_CHAR, 0, 1, comm, &request);
    MPI_Send(buffer, 8, MPI_CHAR, 0, 1, comm);
    try {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } catch (const Failed &failed) {
        expect("the class", failed.code, MPI_ERR_TRUNCATE);
        caught++;
    }
    expect("the exception of a wait", caught, 101);
    expect("the handle is final", request == MPI_REQUEST_NULL, 1);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        std::printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
