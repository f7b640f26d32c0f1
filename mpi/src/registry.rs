// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who failed, in the order in which this process learned it: one list that only grows (I1). Everything else that knows
//! of failures is derived from it, after it (I2).

use mend_base::PeerIndex;

/// The list, and a version for what is derived from it.
#[derive(Debug, Default)]
pub struct Registry {
    failed: Vec<PeerIndex>,
    version: u32,
}

impl Registry {
    /// Appends `peer`, the first step of publishing a death; false where it stands there already.
    pub(crate) fn append(&mut self, peer: PeerIndex) -> bool {
        if self.failed.contains(&peer) {
            return false;
        }
        self.failed.push(peer);
        true
    }

    /// The last step but the waking: from now on nobody may see an error that the list does not explain.
    pub(crate) fn publish(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Everybody that failed, first known first.
    pub fn failed(&self) -> &[PeerIndex] {
        &self.failed
    }

    /// Changes whenever a death was published.
    pub fn version(&self) -> u32 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::Registry;
    use mend_base::PeerIndex;

    #[test]
    fn a_death_is_listed_once_in_the_order_of_the_news() {
        let mut registry = Registry::default();
        assert!(registry.append(PeerIndex(3)));
        assert!(registry.append(PeerIndex(1)));
        assert!(!registry.append(PeerIndex(3)));
        registry.publish();
        assert_eq!(registry.failed(), [PeerIndex(3), PeerIndex(1)]);
        assert_eq!(registry.version(), 1);
    }
}
