/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Linked with libfabric, and loaded in its place: what the loading thread opens from then on is in the network namespace MENDTEST_NETWORK. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void enter(void)
{
    const char *name = getenv("MENDTEST_NETWORK");
    int network = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (network < 0 || setns(network, CLONE_NEWNET) != 0) {
        perror("MENDTEST_NETWORK");
        exit(1);
    }
    close(network);
}
