// SPDX-License-Identifier: Apache-2.0 OR MIT
//! libmpi_abi.so and mpi.h.
