// SPDX-License-Identifier: Apache-2.0 OR MIT
// ranks: 2 3 4 8
// Rows RV11, SH11, EH2: an error handler revokes, agrees, shrinks, frees the communicator of the failing call, and throws; the exception
// passes through the library, and the program goes on with the survivors. The highest rank dies in each round, until one is left.
#include <mpi-ext.h>
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <vector>

static int rank, ranks, alive, errors, destroyed;

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        std::fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, got, wanted);
}

struct Repaired : std::runtime_error {
    MPI_Comm comm;
    explicit Repaired(MPI_Comm comm) : std::runtime_error("a process failed"), comm(comm) {}
};

struct Counted {
    ~Counted() { destroyed++; }
};

extern "C" void repair(MPI_Comm *comm, int *code, ...)
{
    MPI_Comm made = MPI_COMM_NULL;
    int kind = 0, flag = 1, got = 0;
    MPI_Error_class(*code, &kind);
    expect("the class", kind == MPI_ERR_PROC_FAILED || kind == MPI_ERR_REVOKED, 1);
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    expect("revoke", MPIX_Comm_revoke(*comm), MPI_SUCCESS);
    MPI_Error_class(MPIX_Comm_agree(*comm, &flag), &got);
    expect("agree", got, MPI_ERR_PROC_FAILED);
    expect("its flag", flag, 1);
    expect("shrink", MPIX_Comm_shrink(*comm, &made), MPI_SUCCESS);
    expect("free", MPI_Comm_free(comm), MPI_SUCCESS);
    throw Repaired(made);
}

// What a program does that does not check its calls.
static void step(MPI_Comm comm, int kind)
{
    Counted counted;
    std::vector<int> out(1000, 1), in(1000);
    MPI_Request request;
    switch (kind % 3) {
    case 0: MPI_Allreduce(out.data(), in.data(), 1000, MPI_INT, MPI_SUM, comm); break;
    case 1: MPI_Recv(in.data(), 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE); break;
    default:
        MPI_Irecv(in.data(), 1, MPI_INT, alive, 1, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    expect("coming back from a call whose handler threw", 1, 0);
}

// A barrier of the living on MPI_COMM_WORLD: nobody is in an operation on the communicator when the next one dies.
static void meet()
{
    char token = 0;
    for (int other = 0; other < alive; other++)
        MPI_Send(&token, 1, MPI_CHAR, other, 2, MPI_COMM_WORLD);
    for (int other = 0; other < alive; other++)
        MPI_Recv(&token, 1, MPI_CHAR, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main()
{
    MPI_Comm comm;
    MPI_Errhandler handler;
    int rounds = 0;
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(repair, &handler);
    for (alive = ranks; alive > 1;) {
        MPI_Comm_set_errhandler(comm, handler);
        meet();
        if (rank == --alive)
            std::raise(SIGKILL);
        try {
            step(comm, rounds);
        } catch (const Repaired &repaired) {
            comm = repaired.comm;
            rounds++;
        }
        int one = 1, sum = 0;
        expect("Allreduce", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS);
        expect("its sum", sum, alive);
    }
    expect("repairs", rounds, ranks - 1);
    expect("objects destroyed on the way", destroyed, rounds);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 0 && errors == 0)
        std::printf("No errors\n");
    return errors ? 120 : 0;
}
