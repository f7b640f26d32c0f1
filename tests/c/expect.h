/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Compares a value with the expected one: counts differences, and prints the first ones with the rank. */
#ifndef MEND_TESTS_EXPECT_H
#define MEND_TESTS_EXPECT_H

#include <mpi.h>
#include <stdio.h>

static int rank, errors;

static inline void expect(const char *what, long got, long wanted)
{
    if (got != wanted && errors++ < 10)
        fprintf(stderr, "rank %d: %s: %ld, not %ld\n", rank, what, got, wanted);
}

static inline int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

#endif
