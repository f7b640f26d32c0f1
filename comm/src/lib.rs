// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Groups and communicators: plain values.
