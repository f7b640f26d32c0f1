// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BTL over libfabric.
