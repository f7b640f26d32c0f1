/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Whether the library has the extension for process failures. */
#ifndef MEND_BENCH_REPAIR_H
#define MEND_BENCH_REPAIR_H

#if defined(__has_include)
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
#endif
#if defined(MEND_HAVE_MPIX_COMM_AGREE) || defined(OMPI_HAVE_MPI_EXT_FTMPI) || defined(OMPI_HAVE_MPIX_COMM_ISHRINK)
#define HAS_REPAIR 1
#else
#define HAS_REPAIR 0
#endif

#endif
