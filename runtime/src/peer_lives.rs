// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The life words of the peers with which this process is in contact. They are polled while a thread waits, so that a death is found
//! also if the node daemon's notice is lost or late.

use mend_base::Peer;
use mend_segment::LifeView;

/// The life words that this process can read.
#[derive(Debug, Default)]
pub(crate) struct PeerLives {
    lives: Vec<(Peer, LifeView)>,
    /// Which one is read next.
    next: usize,
}

/// How many life words one check reads; each is in a different cache line and page.
const LIVES_PER_CHECK: usize = 64;

impl PeerLives {
    /// There is a contact with `peer`.
    pub fn add(&mut self, peer: Peer, life: LifeView) {
        self.lives.push((peer, life));
    }

    /// The contact with `peer` is over.
    pub fn remove(&mut self, peer: Peer) {
        if let Some(at) = self.lives.iter().position(|(each, _)| *each == peer) {
            self.lives.swap_remove(at);
        }
    }

    /// Reads some life words, round-robin, and names the peers whose word is marked. That is only evidence, because a process can mark its
    /// own word.
    pub fn check(&mut self, on_exited: &mut dyn FnMut(Peer)) {
        for _ in 0..self.lives.len().min(LIVES_PER_CHECK) {
            self.next = (self.next + 1) % self.lives.len();
            let (peer, life) = &self.lives[self.next];
            if life.state().is_marked() {
                on_exited(*peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LIVES_PER_CHECK, PeerLives};
    use mend_base::{Job, Peer};
    use mend_segment::{Life, LifeView};
    use std::os::fd::AsFd;

    fn exited(lives: &mut PeerLives) -> Vec<u32> {
        let mut exited = vec![];
        lives.check(&mut |peer| exited.push(peer.number()));
        exited
    }

    #[test]
    fn a_marked_life_word_is_named_at_each_check_until_the_contact_is_over() {
        let peers: Vec<Peer> =
            (0..3 * LIVES_PER_CHECK as u32).map(|number| Peer::new(Job(1), number)).collect();
        let mut lives = PeerLives::default();
        assert_eq!(exited(&mut lives), []);
        let owners: Vec<Life> = peers
            .iter()
            .map(|&peer| {
                let (life, page) = Life::create(peer).unwrap();
                lives.add(peer, LifeView::map(page.as_fd(), peer).unwrap());
                life.begin().unwrap();
                life
            })
            .collect();
        let round = |lives: &mut PeerLives| [exited(lives), exited(lives), exited(lives)].concat();
        assert_eq!(round(&mut lives), []);
        [100, 150].into_iter().for_each(|number: usize| owners[number].mark_dying());
        owners[101].end();
        for _ in 0..2 {
            let mut found = round(&mut lives);
            found.sort_unstable();
            assert_eq!(found, [100, 150]);
        }
        lives.remove(peers[100]);
        lives.remove(peers[100]);
        let found = [round(&mut lives), round(&mut lives)].concat();
        assert!(found.contains(&150) && !found.contains(&100));
    }
}
