// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Call sites: the calls of libfabric in which faults are injected, and how often each was called.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! sites {
    ($($site:ident $name:literal $what:literal,)*) => {
        /// A call of libfabric, or several of the same purpose.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Site { $(#[doc = $what] $site,)* }

        impl Site {
            /// All, in the order of the report.
            pub const ALL: &[Site] = &[$(Site::$site),*];

            /// The name in rules and in the report.
            pub fn name(self) -> &'static str {
                match self { $(Site::$site => $name,)* }
            }
        }
    };
}

sites! {
    GetInfo "getinfo" "`fi_getinfo`",
    Fabric "fabric" "`fi_fabric`",
    Domain "domain" "`fi_domain`, `fi_domain2`",
    AvOpen "av_open" "`fi_av_open`",
    AvInsert "av_insert" "`fi_av_insert`, `fi_av_insertsvc`, `fi_av_insertsym`",
    AvRemove "av_remove" "`fi_av_remove`",
    CqOpen "cq_open" "`fi_cq_open`",
    Endpoint "endpoint" "`fi_endpoint`, `fi_endpoint2`",
    Bind "bind" "`fi_ep_bind` and the like",
    SetOpt "setopt" "`fi_setopt`",
    GetName "getname" "`fi_getname`",
    Enable "enable" "`fi_enable`",
    MrReg "mr_reg" "`fi_mr_reg`, `fi_mr_regv`, `fi_mr_regattr`",
    Send "send" "`fi_send`, `fi_tsend` and their kin",
    Inject "inject" "`fi_inject`, `fi_tinject` and their kin",
    Recv "recv" "`fi_recv`, `fi_trecv` and their kin",
    Read "read" "`fi_read` and its kin",
    Write "write" "`fi_write` and its kin, `fi_inject_write` too",
    Atomic "atomic" "`fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic` and their kin",
    CqRead "cq_read" "`fi_cq_read`, `fi_cq_sread` and their kin",
    CqReadErr "cq_readerr" "`fi_cq_readerr`",
    TryWait "trywait" "`fi_trywait`",
    Cancel "cancel" "`fi_cancel`",
    Close "close" "`fi_close`",
}

impl Site {
    /// The site with this name.
    pub fn named(name: &str) -> Option<Site> {
        Site::ALL.iter().copied().find(|site| site.name() == name)
    }

    /// Whether the call starts an operation that ends later, in a completion queue.
    pub fn starts_operation(self) -> bool {
        self == Site::Recv || self.sends()
    }

    /// Whether the call starts an operation towards a peer.
    pub fn sends(self) -> bool {
        matches!(self, Site::Send | Site::Inject | Site::Read | Site::Write | Site::Atomic)
    }

    /// How often it was called.
    pub fn calls(self) -> u64 {
        CALLS[self as usize].load(Ordering::Relaxed)
    }

    /// How many faults were injected.
    pub fn injected(self) -> u64 {
        INJECTED[self as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_call(self) {
        CALLS[self as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_injected(self) {
        INJECTED[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets all counts to zero.
pub(crate) fn reset_counts() {
    for count in CALLS.iter().chain(&INJECTED) {
        count.store(0, Ordering::Relaxed);
    }
}

static CALLS: [AtomicU64; Site::ALL.len()] = [const { AtomicU64::new(0) }; Site::ALL.len()];
static INJECTED: [AtomicU64; Site::ALL.len()] = [const { AtomicU64::new(0) }; Site::ALL.len()];
