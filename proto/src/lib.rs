// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Protocols with their I/O taken out.
