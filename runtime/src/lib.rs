// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a process needs from whoever started it.
