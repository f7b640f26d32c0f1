/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 1 2
/* Counts of 64 bits: the counts in a status, also for a message longer than an int can count. */
#include "expect.h"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void received(void)
{
    MPI_Status status;
    MPI_Count large = -1;
    char bytes[100] = "";
    int count = -1, from = -1;
    MPI_Sendrecv(bytes, 30, MPI_BYTE, 0, 9, bytes + 50, 50, MPI_BYTE, 0, 9, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect("bytes", count, 30);
    MPI_Get_count(&status, MPI_SHORT, &count);
    expect("shorts", count, 15);
    MPI_Get_count(&status, MPI_INT, &count);
    expect("30 bytes are no whole ints", count, MPI_UNDEFINED);
    MPI_Get_count_c(&status, MPI_SHORT, &large);
    expect("shorts, counted largely", large, 15);
    MPI_Get_elements(&status, MPI_BYTE, &count);
    expect("elements", count, 30);
    MPI_Status_get_source(&status, &from);
    expect("the source", from, 0);
    MPI_Status_get_tag(&status, &from);
    expect("the tag", from, 9);
}

static void set(void)
{
    MPI_Status status;
    MPI_Count large = -1;
    int count = -1, flag = -1;
    memset(&status, 0, sizeof status);
    MPI_Status_set_elements_c(&status, MPI_INT, 3000000000);
    MPI_Get_count_c(&status, MPI_INT, &large);
    expect("3e9 ints", large, 3000000000);
    MPI_Get_count(&status, MPI_INT, &count);
    expect("3e9 ints are too many for an int", count, MPI_UNDEFINED);
    MPI_Get_count_c(&status, MPI_BYTE, &large);
    expect("12e9 bytes", large, 12000000000);
    MPI_Test_cancelled(&status, &flag);
    expect("not cancelled", flag, 0);
    MPI_Status_set_cancelled(&status, 1);
    MPI_Test_cancelled(&status, &flag);
    expect("cancelled", flag, 1);
    MPI_Get_count_c(&status, MPI_INT, &large);
    expect("which changes no count", large, 3000000000);
    MPI_Status_set_source(&status, 5);
    MPI_Status_set_tag(&status, 6);
    MPI_Status_set_error(&status, 7);
    expect("source, tag and error are fields", status.MPI_SOURCE == 5 && status.MPI_TAG == 6 && status.MPI_ERROR == 7, 1);
}

static void sizes(void)
{
    int size = -1, length = -1;
    MPI_Count large = -1;
    MPI_Aint lower = -1, extent = -1;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Type_size(MPI_DOUBLE, &size);
    expect("the size of a double", size, 8);
    MPI_Type_size_c(MPI_DOUBLE_INT, &large);
    expect("the size of a double and an int", large, 12);
    MPI_Type_get_extent(MPI_DOUBLE_INT, &lower, &extent);
    expect("its extent", extent, 16);
    expect("its lower bound", lower, 0);
    MPI_Type_get_name(MPI_LONG_LONG_INT, name, &length);
    expect("a name", strcmp(name, "MPI_LONG_LONG") == 0 || strcmp(name, "MPI_LONG_LONG_INT") == 0, 1);
    MPI_Get_address(name, &lower);
    expect("an address and a difference", MPI_Aint_diff(MPI_Aint_add(lower, 24), lower), 24);
}

/* A message of more bytes than 32 bits count, of which the receiver takes ten: the rest is not accessed, so it takes no memory. */
static void huge(void)
{
    const MPI_Count bytes = 5368709125;
    MPI_Request request;
    MPI_Status status;
    MPI_Count large = -1;
    char first[10] = "";
    int count = 0, ranks, from;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks == 1)
        return;
    from = !rank;
    char *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        expect("an address space of 5 GiB", 0, 1);
        return;
    }
    memcpy(memory, "the first", 10);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Isend_c(memory, bytes, MPI_BYTE, !rank, 4, MPI_COMM_WORLD, &request);
    MPI_Probe(from, 4, MPI_COMM_WORLD, &status);
    MPI_Get_count_c(&status, MPI_BYTE, &large);
    expect("bytes of the probed message", large, bytes);
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect("too many for an int", count, MPI_UNDEFINED);
    MPI_Get_count_c(&status, MPI_INT, &large);
    expect("one byte too many for whole ints", large, MPI_UNDEFINED);
    expect("a receive of the first ten", MPI_Recv(first, 10, MPI_BYTE, from, 4, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
    expect("the first ten", strcmp(first, "the first"), 0);
    MPI_Get_count_c(&status, MPI_BYTE, &large);
    expect("bytes that were received", large, 10);
    expect("the sender is done", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    munmap(memory, (size_t)bytes);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(void)
{
    int all = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    received();
    set();
    sizes();
    huge();
    MPI_Allreduce_c(&errors, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && all == 0)
        printf("No errors\n");
    MPI_Finalize();
    return all != 0;
}
