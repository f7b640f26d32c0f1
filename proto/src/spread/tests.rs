// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole broadcasts under random and scripted schedules, with their costs, and single rules of one part.

mod cluster;

use super::message::{Digest, Runs, Want};
use super::{Batch, Item, Message, Spread};
use crate::protocol::{Output, Protocol};
use cluster::{Cluster, State};
use mend_base::{Random, Rank};

/// The messages with which a correct run of one batch may end at each member, at most.
fn degree(size: u32) -> usize {
    2 * size.next_power_of_two().ilog2() as usize
}

/// What may happen in a random run.
#[derive(Clone, Copy)]
struct Rules {
    frees: bool,
    /// News of a failure may overtake messages of the failed member.
    overtakes: bool,
    stores_early: bool,
}

/// One random schedule. Returns the cluster at its end.
fn run(seed: u64, rules: Rules) -> Cluster {
    let mut random = Random(seed);
    let size = 1 + random.below(33) as u32;
    let mut cluster = Cluster::new(size);
    cluster.stores_early = rules.stores_early;
    let any = |random: &mut Random| random.below(u64::from(size)) as u32;
    for rank in 0..size {
        if random.once_in(8) {
            cluster.make_early(rank);
        }
    }
    let crashes_max = 1 + random.below(8);
    let mut crashes = random.below(u64::from(size).min(crashes_max));
    // How often each kind of event happens differs from run to run.
    let weights = [1 + random.below(40), random.below(30), 1, random.below(3), random.below(4), 1];
    let [deliver, flush, add, free, publish, create] = weights;
    let total: u64 = weights.iter().sum();
    for _ in 0..random.below(40 + 30 * u64::from(size)) {
        let mut chance = random.below(total);
        let mut is = |weight: u64| {
            let is = chance < weight;
            chance = chance.wrapping_sub(weight);
            is
        };
        let rank = any(&mut random);
        if is(deliver) {
            cluster.deliver(&mut random);
        } else if is(flush) {
            if crashes > 0 && random.once_in(6) {
                cluster.crash_after = Some(random.below(12) as usize);
            }
            cluster.flush(rank);
            cluster.crash_after = None;
            if cluster.is_dead(rank) {
                crashes = crashes.saturating_sub(1);
                cluster.lose_suffixes(rank, &mut random);
            }
        } else if is(add) {
            if random.once_in(3) {
                cluster.add(rank, Item::Failed(Rank(any(&mut random))));
            } else {
                cluster.add(rank, Item::Revoked);
            }
        } else if is(free) {
            if rules.frees {
                cluster.free(rank);
            }
        } else if is(publish) {
            let dead = any(&mut random);
            if cluster.is_dead(dead) {
                cluster.publish(dead, rank, rules.overtakes);
            } else if crashes > 0 && random.once_in(3) {
                crashes -= 1;
                cluster.die(dead);
                cluster.lose_suffixes(dead, &mut random);
            }
        } else if is(create) {
            cluster.create(rank);
        }
    }
    for rank in 0..size {
        cluster.create(rank);
    }
    cluster.settle(&mut random);
    cluster
}

/// What must hold at the end of every run.
fn check(seed: u64, cluster: &Cluster) {
    let size = cluster.size();
    let lives = |rank: u32| !cluster.is_dead(rank);
    let is_open = |rank: &u32| cluster.processes[*rank as usize].state == State::Open;
    let items = (0..size).map(|rank| Item::Failed(Rank(rank))).chain([Item::Revoked]);
    for item in items {
        // Of processes that live and have freed the communicator only the revoke counts: failures are published anyway.
        let counts = |rank: &u32| is_open(rank) || (item == Item::Revoked && lives(*rank));
        let known = (0..size).filter(counts).find(|&rank| cluster.knows(rank, item));
        if let Some(source) = known {
            for rank in (0..size).filter(is_open) {
                assert!(
                    cluster.knows(rank, item),
                    "seed {seed}: {rank} of {size} lacks {item:?}, {source} has it"
                );
            }
        }
    }
    for process in &cluster.processes {
        let is_forgotten = process.state != State::Retired || process.part.is_none();
        assert!(is_forgotten, "seed {seed}: {:?} waits for ever", process.part);
    }
    let mut parts = cluster.open().filter_map(|process| process.part.as_ref());
    if let Some(first) = parts.next() {
        assert!(parts.all(|part| part.digest == first.digest && part.items == first.items), "seed {seed}");
    }
}

/// In each of the four tests of random schedules.
const SEEDS: u64 = 25_000;

/// BAR-2.2: crashes between two sends, lost suffixes, failures that are published at different times, items that are added, and
/// communicators that are created, at independent times.
#[test]
fn every_member_gets_every_item_whatever_crashes() {
    for seed in 0..SEEDS {
        check(seed, &run(seed, Rules { frees: false, overtakes: false, stores_early: true }));
    }
}

#[test]
fn every_member_gets_every_item_though_news_of_failures_overtake_messages() {
    for seed in SEEDS..2 * SEEDS {
        check(seed, &run(seed, Rules { frees: seed % 2 == 0, overtakes: true, stores_early: true }));
    }
}

#[test]
fn members_that_free_the_communicator_lose_no_item_and_keep_no_part() {
    for seed in 2 * SEEDS..3 * SEEDS {
        check(seed, &run(seed, Rules { frees: true, overtakes: false, stores_early: true }));
    }
}

/// Messages for members that have not created the communicator are lost. One more item, and all have all.
#[test]
fn what_was_lost_is_repaired_at_the_next_exchange() {
    for seed in 3 * SEEDS..4 * SEEDS {
        let mut cluster = run(seed, Rules { frees: false, overtakes: false, stores_early: false });
        let Some(rank) = (0..cluster.size()).find(|&rank| !cluster.is_dead(rank)) else { continue };
        let new = (0..cluster.size()).map(|rank| Item::Failed(Rank(rank))).chain([Item::Revoked]);
        let Some(new) = new.clone().find(|&item| (0..cluster.size()).all(|rank| !cluster.knows(rank, item)))
        else {
            continue;
        };
        cluster.add(rank, new);
        cluster.settle(&mut Random(seed));
        check(seed, &cluster);
    }
}

/// All rounds of a cluster in which each round delivers what is in flight, then every member makes progress; `crash` may end
/// processes between. Returns the number of rounds until every member has the item.
fn rounds(cluster: &mut Cluster, item: Item, mut crash: impl FnMut(&mut Cluster, u32)) -> u32 {
    for round in 0.. {
        let mut open = (0..cluster.size()).filter(|&rank| !cluster.is_dead(rank));
        if open.all(|rank| cluster.knows(rank, item)) {
            return round;
        }
        assert!(round <= 2 * cluster.size(), "{item:?} does not arrive");
        for rank in 0..cluster.size() {
            crash(cluster, rank);
            cluster.flush(rank);
            cluster.crash_after = None;
        }
        // The detection takes no time.
        cluster.publish_everywhere(true);
        cluster.deliver_all();
    }
    0
}

// BAR-2.1
#[test]
fn without_failures_an_item_takes_log2_hops_and_each_member_sends_it_once_to_each_neighbour() {
    for size in 1..=70 {
        let mut cluster = Cluster::new(size);
        cluster.add(size / 3, Item::Revoked);
        assert!(rounds(&mut cluster, Item::Revoked, |_, _| ()) <= size.ilog2());
        cluster.settle(&mut Random(0));
        for process in &cluster.processes {
            assert!(process.sends <= degree(size), "{} sends of {size}", process.sends);
            assert!(size != 2 || process.sends == 1);
        }
    }
}

// BAR-2.1
#[test]
fn each_crash_costs_at_most_one_hop_more() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let size = 2 + random.below(40) as u32;
        let mut cluster = Cluster::new(size);
        let source = random.below(u64::from(size)) as u32;
        cluster.add(source, Item::Revoked);
        let mut left = random.below(u64::from(size).min(12));
        let mut crashes = 0;
        let rounds = rounds(&mut cluster, Item::Revoked, |cluster, rank| {
            if rank != source && left > 0 && random.once_in(4) && !cluster.is_dead(rank) {
                left -= 1;
                crashes += 1;
                if random.once_in(2) {
                    cluster.crash_after = Some(random.below(3) as usize);
                } else {
                    cluster.die(rank);
                }
            }
        });
        let bound = size.next_power_of_two().ilog2() + crashes;
        assert!(rounds <= bound, "seed {seed}: {rounds} hops of {size}, {crashes} crashes");
    }
}

// BAR-2.1
#[test]
fn a_batch_of_128_failures_is_one_flood() {
    let size = 512;
    let mut cluster = Cluster::new(size);
    for rank in 128..256 {
        cluster.add(7, Item::Failed(Rank(rank)));
    }
    cluster.settle(&mut Random(1));
    for process in &cluster.processes {
        assert!(process.sends <= degree(size), "{} sends", process.sends);
        assert_eq!(process.delivered.len(), 128);
    }
}

/// The failures themselves: each member learns of them from its runtime, in one turn, and sends only to the new neighbours
/// more than the batch.
#[test]
fn a_node_that_fails_is_one_flood_too() {
    let size = 512;
    let mut cluster = Cluster::new(size);
    (128..256).for_each(|rank| cluster.die(rank));
    cluster.publish_everywhere(false);
    cluster.settle(&mut Random(1));
    for process in cluster.open() {
        assert!(process.sends <= degree(size), "{} sends", process.sends);
    }
}

#[test]
fn items_at_different_times_cost_one_flood_each_at_most() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let size = 2 + random.below(30) as u32;
        let mut cluster = Cluster::new(size);
        let items = 1 + random.below(4) as u32;
        for item in 0..items.min(size) {
            for _ in 0..1 + random.below(3) {
                cluster.add(random.below(u64::from(size)) as u32, Item::Failed(Rank(item)));
            }
            for _ in 0..random.below(60) {
                cluster.deliver(&mut random);
                cluster.flush(random.below(u64::from(size)) as u32);
            }
        }
        cluster.settle(&mut random);
        for process in &cluster.processes {
            assert!(process.sends <= items as usize * degree(size), "seed {seed}: {} sends", process.sends);
        }
    }
}

#[test]
fn all_members_that_free_a_revoked_communicator_send_one_message_more_to_each_neighbour() {
    for size in 1..=64 {
        let mut cluster = Cluster::new(size);
        cluster.add(0, Item::Revoked);
        cluster.settle(&mut Random(2));
        (0..size).for_each(|rank| cluster.free(rank));
        assert!(cluster.processes.iter().all(|process| process.part.is_none()));
        cluster.settle(&mut Random(3));
        for process in &cluster.processes {
            assert!(process.sends <= 2 * degree(size), "{} sends of {size}", process.sends);
        }
    }
}

/// A member that frees later has other neighbours than at first, and sends the items to each new one.
#[test]
fn members_that_free_one_after_the_other_send_a_message_for_each_new_neighbour() {
    for size in 2..=64 {
        let mut cluster = Cluster::new(size);
        let mut random = Random(u64::from(size));
        cluster.add(0, Item::Revoked);
        cluster.settle(&mut random);
        let mut left: Vec<u32> = (0..size).collect();
        while !left.is_empty() {
            cluster.free(left.swap_remove(random.below(left.len() as u64) as usize));
            cluster.settle(&mut random);
        }
        let all: usize = cluster.processes.iter().map(|process| process.sends).sum();
        let (degree, size) = (degree(size), size as usize);
        assert!(all <= size * degree * (2 + degree), "{all} messages of {size}");
    }
}

/// The neighbours of rank 0 among 16.
const NEIGHBOURS: [u32; 7] = [1, 2, 4, 8, 12, 14, 15];

fn all_have(cluster: &Cluster, item: Item) {
    for rank in 0..cluster.size() {
        let lacks = cluster.processes[rank as usize].state == State::Open && !cluster.knows(rank, item);
        assert!(!lacks, "{rank} lacks {item:?}");
    }
}

//
#[test]
fn an_originator_that_dies_after_some_of_its_sends_has_told_all_or_none() {
    for sends in 0..7 {
        let mut cluster = Cluster::new(16);
        cluster.add(0, Item::Revoked);
        cluster.crash_after = Some(sends);
        cluster.flush(0);
        assert!(cluster.is_dead(0));
        cluster.settle(&mut Random(sends as u64));
        let having = (1..16).filter(|&rank| cluster.knows(rank, Item::Revoked)).count();
        assert_eq!(having, if sends == 0 { 0 } else { 15 });
    }
}

//
#[test]
fn all_receivers_may_die_between_receipt_and_forwarding() {
    for is_freed in [false, true] {
        let mut cluster = Cluster::new(16);
        cluster.add(0, Item::Revoked);
        cluster.flush(0);
        if is_freed {
            cluster.free(0);
        }
        cluster.deliver_all();
        for rank in NEIGHBOURS {
            assert!(cluster.knows(rank, Item::Revoked));
            cluster.die(rank);
        }
        cluster.settle(&mut Random(4));
        all_have(&cluster, Item::Revoked);
        assert_eq!(cluster.open().count(), if is_freed { 8 } else { 9 });
        assert!(!is_freed || cluster.processes[0].part.is_none());
    }
}

//
#[test]
fn a_member_that_has_gone_answers_that_it_was_revoked_when_all_who_knew_have_died() {
    let mut cluster = Cluster::new(16);
    cluster.add(0, Item::Revoked);
    cluster.free(0);
    cluster.deliver_all();
    NEIGHBOURS.iter().for_each(|&rank| _ = cluster.flush(rank));
    // Their messages arrive at rank 0 alone.
    for rank in NEIGHBOURS {
        cluster.keep_only(rank, 0);
    }
    cluster.deliver_all();
    cluster.flush(0);
    assert!(cluster.processes[0].part.is_none(), "its neighbours have the item");
    for rank in NEIGHBOURS {
        cluster.die(rank);
        cluster.lose_all(rank);
    }
    assert_eq!(
        (1..16).filter(|&rank| cluster.knows(rank, Item::Revoked) && !cluster.is_dead(rank)).count(),
        0
    );
    cluster.settle(&mut Random(5));
    all_have(&cluster, Item::Revoked);
    assert_eq!(cluster.open().count(), 8);
}

//
#[test]
fn a_replacement_that_is_dead_too_is_replaced() {
    let mut cluster = Cluster::new(16);
    cluster.add(0, Item::Revoked);
    cluster.flush(0);
    for rank in (1..=6).chain(8..=15) {
        cluster.die(rank);
    }
    // One after the other becomes a neighbour, and only the last of them lives.
    for dead in 1..16 {
        if dead != 7 {
            cluster.publish(dead, 0, false);
            cluster.flush(0);
        }
    }
    cluster.deliver_all();
    assert!(cluster.knows(7, Item::Revoked), "it was sent at once, and need not be asked for");
    cluster.settle(&mut Random(6));
    all_have(&cluster, Item::Revoked);
}

//
#[test]
fn an_item_waits_for_a_creation_and_a_freed_communicator_answers_gone() {
    let mut cluster = Cluster::new(4);
    cluster.make_early(1);
    cluster.make_early(2);
    cluster.free(3);
    cluster.add(0, Item::Revoked);
    cluster.settle(&mut Random(7));
    assert!(!cluster.knows(1, Item::Revoked));
    cluster.free(0);
    assert!(cluster.processes[0].part.is_some(), "two members may lack the item");
    // The creation succeeds at one, and fails at the other; rank 3 has never known of the item.
    cluster.create(1);
    cluster.free(2);
    cluster.settle(&mut Random(8));
    assert!(cluster.knows(1, Item::Revoked));
    assert!(cluster.processes[0].part.is_none());
    assert!(!cluster.knows(3, Item::Revoked) && cluster.processes[3].part.is_none());
}

// parent and child are two communicators, with a part each.
#[test]
fn two_members_that_revoke_at_once_cost_one_flood_and_each_learns_it_once() {
    for size in 2..40 {
        let mut cluster = Cluster::new(size);
        cluster.add(0, Item::Revoked);
        cluster.add(size / 2, Item::Revoked);
        cluster.add(0, Item::Revoked);
        cluster.settle(&mut Random(9));
        all_have(&cluster, Item::Revoked);
        assert!(cluster.processes.iter().all(|process| process.sends <= degree(size)));
    }
}

//
#[test]
fn a_revoke_that_reaches_a_member_which_frees_is_forwarded_before_it_goes() {
    let mut cluster = Cluster::new(8);
    cluster.add(1, Item::Failed(Rank(5)));
    cluster.flush(1);
    cluster.free(1);
    assert!(cluster.processes[1].part.is_some());
    let mut out = Output::new();
    let mut other = Spread::new(Rank(2), 8);
    other.add(Item::Revoked, &mut out);
    other.flush(&mut out);
    let (_, message) = out.sends.into_iter().find(|(to, _)| *to == Rank(1)).expect("1 is a neighbour of 2");
    let part = cluster.processes[1].part.as_mut().expect("it waits");
    let mut out = Output::new();
    part.on_message(Rank(2), message, &mut out);
    part.flush(&mut out);
    assert_eq!(out.outcomes, [Item::Revoked]);
    assert_eq!(out.sends.len(), 5, "to each neighbour");
    assert!(!part.is_over());
}

/// Items that are the whole set of their sender.
fn whole(items: &[Item], want: Want) -> Message {
    let failed = items.iter().filter_map(|item| match item {
        Item::Revoked => None,
        Item::Failed(rank) => Some(*rank),
    });
    Message::Items(Batch {
        all: true,
        revoked: items.contains(&Item::Revoked),
        failed: failed.collect::<Runs>(),
        digest: items.iter().copied().fold(Digest::default(), Digest::with),
        want,
    })
}

/// What goes to one member at a flush.
fn flushed(part: &mut Spread, to: u32) -> Vec<Message> {
    let mut out = Output::new();
    part.flush(&mut out);
    out.sends.into_iter().filter(|(rank, _)| *rank == Rank(to)).map(|(_, message)| message).collect()
}

/// Rank 0 of 16 with these items, sent to its neighbours.
fn sent(items: &[Item]) -> Spread {
    let mut part = Spread::new(Rank(0), 16);
    items.iter().for_each(|&item| part.add(item, &mut Output::new()));
    part.flush(&mut Output::new());
    assert!(!part.is_due());
    part
}

const F5: Item = Item::Failed(Rank(5));

//
#[test]
fn an_item_from_a_member_that_has_failed_counts_and_is_not_answered() {
    for want in [Want::Nothing, Want::Answer, Want::All] {
        let mut part = Spread::new(Rank(0), 16);
        let mut out = Output::new();
        part.on_failure(Rank(1), &mut out);
        part.on_message(Rank(1), whole(&[Item::Revoked], want), &mut out);
        assert_eq!(out.outcomes, [Item::Revoked]);
        assert!(flushed(&mut part, 1).is_empty() && part.peers.is_empty());
    }
}

#[test]
fn a_request_is_answered_once_and_a_difference_is_none() {
    let mut part = sent(&[Item::Revoked, F5]);
    let mut out = Output::new();
    // Rank 1 has not sent its other items to us yet, or we lack nothing of it.
    part.on_message(Rank(1), whole(&[F5], Want::Nothing), &mut out);
    assert!(!part.is_due());
    part.on_message(Rank(1), whole(&[F5], Want::All), &mut out);
    assert_eq!(flushed(&mut part, 1), [whole(&[Item::Revoked, F5], Want::Nothing)]);
    // A member without items in common, which is no neighbour.
    part.on_message(Rank(3), whole(&[], Want::Answer), &mut out);
    assert_eq!(flushed(&mut part, 3).len(), 1);
    assert!(!part.is_due() && out.sends.is_empty());
}

#[test]
fn what_was_lost_is_asked_for_once() {
    let mut part = sent(&[]);
    let Message::Items(batch) = whole(&[Item::Revoked], Want::Nothing) else { panic!("items") };
    // The digest says that rank 1 has more than it has sent here.
    let lacking = Batch { all: false, revoked: false, ..batch };
    part.on_message(Rank(1), Message::Items(lacking), &mut Output::new());
    let [Message::Items(asked)] = flushed(&mut part, 1)[..] else { panic!("one message") };
    assert_eq!(asked.want, Want::All);
    assert!(!part.is_due());
    part.on_message(Rank(1), Message::Items(lacking), &mut Output::new());
    assert!(!part.is_due(), "nothing more is lost");
    part.on_message(Rank(1), Message::Items(batch), &mut Output::new());
    let [Message::Items(forwarded)] = flushed(&mut part, 1)[..] else { panic!("one message") };
    assert_eq!((forwarded.want, forwarded.revoked), (Want::Nothing, true));
}

#[test]
fn a_closing_member_asks_each_neighbour_once_and_goes_when_all_have_its_items() {
    let mut part = sent(&[Item::Revoked]);
    let mut out = Output::new();
    part.close(&mut out);
    assert_eq!(out.sends.len(), NEIGHBOURS.len());
    (0..10).for_each(|_| part.flush(&mut out));
    assert_eq!(out.sends.len(), NEIGHBOURS.len(), "each is asked once");
    for rank in NEIGHBOURS {
        assert!(!part.is_over());
        part.on_message(Rank(rank), whole(&[Item::Revoked], Want::Nothing), &mut out);
    }
    part.flush(&mut out);
    assert!(part.is_over() && !part.is_due());
    let last: Vec<Rank> =
        out.sends.iter().filter(|(_, sent)| *sent == Message::GoneRevoked).map(|(to, _)| *to).collect();
    assert_eq!(last.len(), NEIGHBOURS.len());
}

#[test]
fn a_closing_member_asks_again_when_its_request_may_have_been_lost() {
    let mut part = sent(&[Item::Revoked]);
    let mut out = Output::new();
    part.close(&mut out);
    // Rank 1 has lost what was sent before, and asks for it.
    part.on_message(Rank(1), whole(&[], Want::All), &mut out);
    assert_eq!(flushed(&mut part, 1), [whole(&[Item::Revoked], Want::Answer)]);
}

#[test]
fn a_closing_member_serves_and_tells_those_that_are_no_neighbours_too() {
    let items = [Item::Revoked, F5];
    let mut part = sent(&items);
    let mut out = Output::new();
    for rank in NEIGHBOURS {
        part.on_message(Rank(rank), whole(&items, Want::Nothing), &mut out);
    }
    // Rank 3 takes rank 0 for a neighbour, and lacks an item.
    part.on_message(Rank(3), whole(&[F5], Want::All), &mut out);
    part.close(&mut out);
    let to_3 = out.sends.iter().filter(|(to, _)| *to == Rank(3)).map(|(_, message)| *message);
    assert_eq!(to_3.collect::<Vec<_>>(), [whole(&items, Want::Nothing), Message::GoneRevoked]);
    assert!(part.is_over());
}

// whatever else a member does to the communicator meanwhile, it has it, does not have it yet, or has freed it.
#[test]
fn a_revoke_meets_members_that_create_and_free() {
    for seed in 0..5_000 {
        let mut random = Random(seed);
        let size = 2 + random.below(7) as u32;
        let mut cluster = Cluster::new(size);
        let mut left: Vec<u32> = (0..size).collect();
        left.iter().filter(|rank| **rank % 3 == 1).for_each(|&rank| cluster.make_early(rank));
        cluster.add(0, Item::Revoked);
        while !left.is_empty() {
            let rank = left.swap_remove(random.below(left.len() as u64) as usize);
            match random.below(3) {
                0 => cluster.create(rank),
                1 => cluster.free(rank),
                _ => _ = cluster.flush(rank),
            }
            for _ in 0..random.below(8) {
                cluster.deliver(&mut random);
                cluster.flush(random.below(u64::from(size)) as u32);
            }
        }
        (0..size).for_each(|rank| cluster.create(rank));
        cluster.settle(&mut random);
        check(seed, &cluster);
    }
}

#[test]
fn a_member_that_has_left_answers_until_it_is_dropped() {
    let mut part = Spread::new(Rank(0), 1 << 20);
    let mut out = Output::new();
    part.close(&mut out);
    assert!(part.is_over() && out.sends.is_empty(), "nobody knows of it");
    let mut other = Spread::new(Rank(1), 1 << 20);
    other.add(Item::Revoked, &mut out);
    other.flush(&mut out);
    let (_, message) = out.sends.into_iter().find(|(to, _)| *to == Rank(0)).expect("0 is a neighbour of 1");
    let mut out = Output::new();
    part.on_message(Rank(1), message, &mut out);
    assert_eq!(out.sends, [(Rank(1), Message::Gone)]);
    part.on_message(Rank(1), Message::Gone, &mut out);
    assert_eq!(out.sends.len(), 1, "two that have gone do not talk");
}

#[test]
fn messages_that_no_correct_member_sends_change_nothing_or_end() {
    let mut random = Random(1);
    for _ in 0..20_000 {
        let mut part = Spread::new(Rank(3), 9);
        let mut out = Output::new();
        for _ in 0..8 {
            let mut bytes: Vec<u8> = (0..Message::BYTES_MAX).map(|_| random.bits() as u8).collect();
            // Small ranks are more interesting than large ones.
            bytes.iter_mut().skip(11).filter(|_| random.below(4) > 0).for_each(|byte| *byte = 0);
            if let Some(message) = Message::read(&mut mend_base::Reader::new(&bytes)) {
                part.on_message(Rank(random.below(12) as u32), message, &mut out);
                part.flush(&mut out);
            }
        }
        assert!(!part.is_due());
        assert!(out.sends.len() <= 8 * 40 && out.sends.iter().all(|(to, _)| to.0 < 9 && *to != Rank(3)));
        part.close(&mut out);
    }
}
