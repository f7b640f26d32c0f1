/* SPDX-License-Identifier: Apache-2.0 OR MIT */
// ranks: 2 3 5
/* Row PP7 at first contact: rank 0 sends its first messages to each of the others, and dies. The others call nothing of MPI before
 * the process has ended, which they learn by a socket. The messages that were sent completely arrive. The even ranks ask first who
 * failed; the odd ranks receive immediately. */
#include "deaths.h"
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { TAG = 7, MESSAGES = 5, BYTES = 4000 };
static const int sizes[MESSAGES] = {3, 0, 700, 4000, 56};
static unsigned char buffer[BYTES];

/* A unique name in the abstract namespace, made of job and rank. */
static socklen_t name(struct sockaddr_un *address, int of)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(address->sun_path + 1, 90, "mend-first-words-%ld-%d", (long)getppid(), of));
}

static void send_and_die(int socket)
{
    for (int other = 1; other < ranks; other++)
        for (int at = 0; at < MESSAGES; at++) {
            fill(buffer, sizes[at], at + other);
            expect("Send", MPI_Send(buffer, sizes[at], MPI_BYTE, other, TAG, MPI_COMM_WORLD), MPI_SUCCESS);
        }
    for (int other = 1; other < ranks; other++) {
        struct sockaddr_un address;
        socklen_t length = name(&address, other);
        pid_t pid = getpid();
        while (sendto(socket, &pid, sizeof pid, 0, (struct sockaddr *)&address, length) < 0)
            sched_yield();
    }
    die();
}

static void wait_for_the_end(int socket)
{
    pid_t pid = 0;
    while (recv(socket, &pid, sizeof pid, 0) < 0) {
    }
    /* The process has ended, and its parent has reaped it. */
    while (kill(pid, 0) == 0 || errno != ESRCH)
        sched_yield();
}

int main(void)
{
    struct sockaddr_un address;
    socklen_t length;
    int listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0)
        send_and_die(listener);
    length = name(&address, rank);
    expect("bind", bind(listener, (struct sockaddr *)&address, length), 0);
    wait_for_the_end(listener);
    if (rank % 2 == 0)
        until_known(MPI_COMM_WORLD, 1);
    for (int at = 0; at < MESSAGES; at++) {
        MPI_Status status;
        int count = -1;
        expect("Recv of what was whole", MPI_Recv(buffer, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &status), MPI_SUCCESS);
        MPI_Get_count(&status, MPI_BYTE, &count);
        expect("its size", count, sizes[at]);
        expect("its bytes", holds(buffer, sizes[at], at + rank), 1);
    }
    expect("Recv of more", class_of(MPI_Recv(buffer, BYTES, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE)),
           MPI_ERR_PROC_FAILED);
    expect("who failed", has_failed(MPI_COMM_WORLD, 0), 1);
    expect("Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == 1 && errors == 0)
        puts("No errors");
    return errors ? 120 : 0;
}
