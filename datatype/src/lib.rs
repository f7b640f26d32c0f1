// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Predefined datatypes, pack, unpack, reduce.
