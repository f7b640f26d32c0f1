/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Two reliable-datagram endpoints of libfabric, both polling: the provider's own figures, without an MPI's protocols.
 * RAW_PROVIDER names the provider. Link with -lfabric. */
#include "raw.h"
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

enum { NAME_BYTES_MAX = 256 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_av *addresses;
static struct fid_cq *queue;
static struct fid_mr *registration;
static fi_addr_t peer;
/* Operations that were started and are not complete: sends and receives. */
static int outstanding[2];

static void check(struct bench *b, const char *what, long answer)
{
    if (answer < 0)
        raw_fail(b, what, fi_strerror((int)-answer));
}

static void exchange_names(struct bench *b)
{
    unsigned char own[NAME_BYTES_MAX], theirs[NAME_BYTES_MAX];
    size_t length = sizeof own;
    memset(own, 0, sizeof own);
    check(b, "fi_getname", fi_getname(&endpoint->fid, own, &length));
    MPI_Sendrecv(own, sizeof own, MPI_BYTE, 1 - b->rank, 0, theirs, sizeof theirs, MPI_BYTE, 1 - b->rank, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (fi_av_insert(addresses, theirs, 1, &peer, 0, NULL) != 1)
        raw_fail(b, "fi_av_insert", "no address was inserted");
}

static void channel_open(struct bench *b, unsigned char *data, size_t data_bytes, size_t size)
{
    struct fi_info *hints = fi_allocinfo();
    /* A queue that can be slept on costs some providers time in each call. */
    enum fi_wait_obj wait = strcmp(b->name, "wake") == 0 ? FI_WAIT_UNSPEC : FI_WAIT_NONE;
    struct fi_cq_attr queue_attributes = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = wait};
    struct fi_av_attr address_attributes = {.type = FI_AV_UNSPEC};
    const char *provider = getenv("RAW_PROVIDER");
    (void)size;
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->av_type = FI_AV_UNSPEC;
    hints->fabric_attr->prov_name = strdup(provider ? provider : "tcp");
    check(b, "fi_getinfo", fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info));
    fi_freeinfo(hints);
    check(b, "fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check(b, "fi_domain", fi_domain(fabric, info, &domain, NULL));
    check(b, "fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    check(b, "fi_cq_open", fi_cq_open(domain, &queue_attributes, &queue, NULL));
    check(b, "fi_av_open", fi_av_open(domain, &address_attributes, &addresses, NULL));
    check(b, "fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
    check(b, "fi_ep_bind", fi_ep_bind(endpoint, &queue->fid, FI_SEND | FI_RECV));
    check(b, "fi_enable", fi_enable(endpoint));
    registration = NULL;
    if (info->domain_attr->mr_mode & FI_MR_LOCAL)
        check(b, "fi_mr_reg", fi_mr_reg(domain, data, data_bytes, FI_SEND | FI_RECV, 0, 1, 0, &registration, NULL));
    exchange_names(b);
}

/* The context of an operation says of which direction it is. */
static struct fi_context contexts[2][SIZES_MAX * 16];
static unsigned used[2];

static struct fi_context *next_context(int receives)
{
    return &contexts[receives][used[receives]++ % (SIZES_MAX * 16)];
}

/* `sleeps`: waits in the provider for a completion. */
static void read_queue(struct bench *b, int sleeps)
{
    struct fi_cq_entry entries[16];
    ssize_t count = sleeps ? fi_cq_sread(queue, entries, 16, NULL, -1) : fi_cq_read(queue, entries, 16);
    if (count == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        check(b, "fi_cq_readerr", fi_cq_readerr(queue, &error, 0));
        raw_fail(b, "an operation failed", fi_strerror(error.err));
    }
    if (count != -FI_EAGAIN && count != -FI_EINTR)
        check(b, "fi_cq_read", count);
    for (ssize_t i = 0; i < count; i++) {
        struct fi_context *context = entries[i].op_context;
        outstanding[context >= contexts[1]]--;
    }
}

static void poll_queue(struct bench *b)
{
    read_queue(b, 0);
}

static void channel_receive(struct bench *b, unsigned char *data, size_t size)
{
    void *descriptor = registration ? fi_mr_desc(registration) : NULL;
    struct fi_context *context = next_context(1);
    ssize_t answer;
    while ((answer = fi_recv(endpoint, data, size, descriptor, peer, context)) == -FI_EAGAIN)
        poll_queue(b);
    check(b, "fi_recv", answer);
    outstanding[1]++;
}

static void channel_send(struct bench *b, const unsigned char *data, size_t size)
{
    void *descriptor = registration ? fi_mr_desc(registration) : NULL;
    int injects = size <= info->tx_attr->inject_size;
    struct fi_context *context = injects ? NULL : next_context(0);
    ssize_t answer;
    do {
        answer = injects ? fi_inject(endpoint, data, size, peer)
                         : fi_send(endpoint, data, size, descriptor, peer, context);
        if (answer == -FI_EAGAIN)
            poll_queue(b);
    } while (answer == -FI_EAGAIN);
    check(b, "fi_send", answer);
    outstanding[0] += !injects;
}

static void channel_wait(struct bench *b, int receives)
{
    while (outstanding[receives] > 0)
        poll_queue(b);
}

static void channel_sleep(struct bench *b)
{
    while (outstanding[1] > 0)
        read_queue(b, 1);
}

static void channel_close(void)
{
    if (registration)
        fi_close(&registration->fid);
    fi_close(&endpoint->fid);
    fi_close(&addresses->fid);
    fi_close(&queue->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    fi_freeinfo(info);
}

int main(int argc, char **argv)
{
    return raw_main(argc, argv);
}
