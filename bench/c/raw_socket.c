/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two processes and one TCP connection over the loopback interface, both polling: what an MPI over TCP cannot undercut. */
#include "raw.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

static int connection = -1;
/* Receives and sends that were started and are not complete: bytes of one direction, since all buffers of a direction are the same. */
static struct direction {
    unsigned char *data;
    size_t size, at, left;
} directions[2];

static void channel_open(struct bench *b, unsigned char *data, size_t data_bytes, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int yes = 1;
    (void)data, (void)data_bytes, (void)size;
    if (b->rank == 0) {
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
            getsockname(listener, (struct sockaddr *)&address, &length) != 0)
            raw_fail(b, "cannot listen", strerror(errno));
        MPI_Send(&address, sizeof address, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        connection = accept(listener, NULL, NULL);
        close(listener);
    } else {
        MPI_Recv(&address, sizeof address, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        connection = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(connection, (struct sockaddr *)&address, length) != 0)
            raw_fail(b, "cannot connect", strerror(errno));
    }
    if (connection < 0 || setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        fcntl(connection, F_SETFL, O_NONBLOCK) != 0)
        raw_fail(b, "cannot connect", strerror(errno));
}

static void add(struct direction *direction, unsigned char *data, size_t size)
{
    direction->data = data;
    direction->size = size;
    direction->left += size;
}

static void channel_receive(struct bench *b, unsigned char *data, size_t size)
{
    (void)b;
    add(&directions[1], data, size);
}

static void move_some(struct bench *b, int receives)
{
    struct direction *d = &directions[receives];
    size_t bytes = d->size - d->at;
    ssize_t moved = receives ? recv(connection, d->data + d->at, bytes, 0)
                             : send(connection, d->data + d->at, bytes, MSG_NOSIGNAL);
    if (moved < 0 && errno != EAGAIN && errno != EINTR)
        raw_fail(b, "the connection failed", strerror(errno));
    if (moved == 0)
        raw_fail(b, "the connection failed", "the peer has closed it");
    if (moved < 0)
        return;
    d->left -= (size_t)moved;
    d->at = (d->at + (size_t)moved) % d->size;
}

static void channel_send(struct bench *b, const unsigned char *data, size_t size)
{
    add(&directions[0], (unsigned char *)(uintptr_t)data, size);
    move_some(b, 0);
}

static void channel_wait(struct bench *b, int receives)
{
    while (directions[receives].left > 0)
        move_some(b, receives);
}

static void channel_sleep(struct bench *b)
{
    struct pollfd polled = {.fd = connection, .events = POLLIN};
    while (directions[1].left > 0) {
        if (poll(&polled, 1, -1) < 0 && errno != EINTR)
            raw_fail(b, "poll", strerror(errno));
        move_some(b, 1);
    }
}

static void channel_close(void)
{
    close(connection);
}

int main(int argc, char **argv)
{
    return raw_main(argc, argv);
}
