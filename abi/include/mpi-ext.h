/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Which extensions this MPI has. They are declared in mpi.h, each under an MPI_ and an MPIX_ name; here are the macros by which
 * programs ask for them: Mend's own, and those that programs written for Open MPI know. Made from abi/table by
 * mend-abi-generate. */
#ifndef MEND_MPI_EXT_H
#define MEND_MPI_EXT_H

#include "mpi.h"

/* There are extensions, those of fault tolerance (ULFM) among them */
#define MEND_HAVE_MPI_EXT 1
#define OMPI_HAVE_MPI_EXT 1
#define MEND_HAVE_MPI_EXT_FTMPI 1
#define OMPI_HAVE_MPI_EXT_FTMPI 1

/* Their calls */
#define MEND_HAVE_MPIX_COMM_ACK_FAILED 1
#define OMPI_HAVE_MPIX_COMM_ACK_FAILED 1
#define MEND_HAVE_MPIX_COMM_FAILURE_ACK 1
#define OMPI_HAVE_MPIX_COMM_FAILURE_ACK 1
#define MEND_HAVE_MPIX_COMM_FAILURE_GET_ACKED 1
#define OMPI_HAVE_MPIX_COMM_FAILURE_GET_ACKED 1
#define MEND_HAVE_MPIX_COMM_AGREE 1
#define OMPI_HAVE_MPIX_COMM_AGREE 1
#define MEND_HAVE_MPIX_COMM_AGREE_FAILED 1
#define OMPI_HAVE_MPIX_COMM_AGREE_FAILED 1
#define MEND_HAVE_MPIX_COMM_GET_FAILED 1
#define OMPI_HAVE_MPIX_COMM_GET_FAILED 1
#define MEND_HAVE_MPIX_COMM_IAGREE 1
#define OMPI_HAVE_MPIX_COMM_IAGREE 1
#define MEND_HAVE_MPIX_COMM_IAGREE_FAILED 1
#define OMPI_HAVE_MPIX_COMM_IAGREE_FAILED 1
#define MEND_HAVE_MPIX_COMM_IS_REVOKED 1
#define OMPI_HAVE_MPIX_COMM_IS_REVOKED 1
#define MEND_HAVE_MPIX_COMM_ISHRINK 1
#define OMPI_HAVE_MPIX_COMM_ISHRINK 1
#define MEND_HAVE_MPIX_COMM_REVOKE 1
#define OMPI_HAVE_MPIX_COMM_REVOKE 1
#define MEND_HAVE_MPIX_COMM_SHRINK 1
#define OMPI_HAVE_MPIX_COMM_SHRINK 1

#endif
