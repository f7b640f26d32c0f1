/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2 4 8
// timeout: 60
/* From before MPI_Init to after MPI_Finalize: which calls are allowed when, their results, messages that are received after
 * their sender has left, and processes that go on after MPI. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 16, LARGE = 200000 };
static int rank = -1, ranks, errors;

static void wrong(const char *what, long got, long wanted)
{
    if (errors++ < 5)
        fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, got, wanted);
}

static void expect(const char *what, long got, long wanted)
{
    if (got != wanted)
        wrong(what, got, wanted);
}

/* May be called at any time (MPI-5.0 §11.4.1). */
static void at_any_time(int initialized, int finalized)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int flag = -1, version = 0, subversion = -1, length = 0;
    MPI_Initialized(&flag);
    expect("MPI_Initialized", flag, initialized);
    MPI_Finalized(&flag);
    expect("MPI_Finalized", flag, finalized);
    MPI_Get_version(&version, &subversion);
    expect("MPI_Get_version", version, MPI_VERSION);
    expect("its minor number", subversion, MPI_SUBVERSION);
    MPI_Get_library_version(text, &length);
    expect("the length of the library's version", length, (long)strlen(text));
    expect("whether it says anything", length > 0, 1);
}

static void spend(double seconds)
{
    double start = MPI_Wtime();
    while (MPI_Wtime() - start < seconds)
        ;
}

static void facts(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = 0, flag = 0, result = -1, *bound = NULL;
    MPI_Get_processor_name(name, &length);
    expect("the length of the processor's name", length, (long)strlen(name));
    expect("whether Wtick is a time", MPI_Wtick() > 0 && MPI_Wtick() < 1, 1);
    double before = MPI_Wtime();
    expect("whether Wtime goes on", MPI_Wtime() >= before, 1);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
    expect("whether there is a largest tag", flag && *bound >= 32767, 1);
    int size = -1, place = -1;
    MPI_Comm_size(MPI_COMM_SELF, &size);
    MPI_Comm_rank(MPI_COMM_SELF, &place);
    expect("the size of SELF", size, 1);
    expect("our place in SELF", place, 0);
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &result);
    expect("WORLD compared with SELF", result == MPI_UNEQUAL || (ranks == 1 && result == MPI_CONGRUENT), 1);
}

/* All ranks but 0 send and finalize; rank 0 receives only when they may have finalized, and must get all messages. */
static void messages_of_finalized_ranks(int *large)
{
    int small[SMALL];
    for (int i = 0; i < SMALL; i++)
        small[i] = rank * 100 + i;
    for (int i = 0; i < LARGE; i++)
        large[i] = rank * 7 + i;
    if (rank != 0) {
        MPI_Send(small, SMALL, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Send(large, rank % 2 ? LARGE : 2000, MPI_INT, 0, 2, MPI_COMM_WORLD);
        return;
    }
    spend(0.05);
    for (int from = ranks - 1; from > 0; from--) {
        MPI_Status status;
        int count = -1;
        MPI_Recv(small, SMALL, MPI_INT, from, 1, MPI_COMM_WORLD, &status);
        for (int i = 0; i < SMALL; i++)
            expect("a number of a small message", small[i], from * 100 + i);
        MPI_Recv(large, LARGE, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        expect("the length of a large message", count, status.MPI_SOURCE % 2 ? LARGE : 2000);
        for (int i = 0; i < count; i++)
            if (large[i] != status.MPI_SOURCE * 7 + i) {
                wrong("a number of a large message", large[i], status.MPI_SOURCE * 7 + i);
                break;
            }
    }
}

int main(int argc, char **argv)
{
    int *large = malloc(sizeof *large * LARGE), provided = -1, all = 0;
    at_any_time(0, 0);
    /* Each rank in a different way, which the standard allows. */
    if (getpid() % 2)
        MPI_Init(NULL, NULL);
    else
        MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
    at_any_time(1, 0);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect("the number of arguments", argc, 1);
    facts();
    MPI_Allreduce(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    messages_of_finalized_ranks(large);
    if (rank == 0 && all == 0 && errors == 0)
        printf("No errors\n");
    MPI_Finalize();
    at_any_time(1, 1);
    free(large);
    /* Some ranks go on working after MPI: no rank waits for them, and they have not failed. */
    if (rank % 2) {
        volatile double sum = 0;
        for (int i = 0; i < 20000000; i++)
            sum += i;
    }
    return errors != 0;
}
