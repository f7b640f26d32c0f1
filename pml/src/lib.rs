// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Point-to-point in MPI order.
