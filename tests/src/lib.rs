// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs run as real processes.
