// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators are created and freed in random order. A rank uses a communicator as soon as the communicator exists at
//! this rank, so messages reach members that have not created the communicator yet (early messages). Some communicators are
//! freed while operations on them are active.

use crate::Process;
use crate::oracle::{assert_content, assert_status, content, poisoned};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::CommKey;
use mend_transport::Buffer;

const TAG: Tag = Tag(3);

/// A communicator, as members and other ranks know it.
struct Known {
    /// Its members in order, as ranks of WORLD.
    members: Vec<u32>,
    /// `None` if this rank is no member.
    key: Option<CommKey>,
}

/// All ranks draw the same steps. A rank takes part in a step if it is a member of the communicator of that step.
pub async fn run(process: Process) {
    let world = Known { members: (0..process.size).collect(), key: Some(process.mpi.engine().comm_world()) };
    let mut all = vec![world];
    let steps = 1 + process.shared_random.borrow_mut().below(12);
    for step in 0..steps {
        let (which, parent) = {
            let mut shared_random = process.shared_random.borrow_mut();
            (shared_random.below(6), shared_random.below(all.len() as u64) as usize)
        };
        process.at("creation: create", step);
        let made = match which {
            0 => vec![dup(&process, &all[parent]).await],
            1 => vec![create(&process, &all[parent], false).await],
            5 => vec![create(&process, &all[parent], true).await],
            2 if parent > 0 => {
                free(&process, all.remove(parent));
                continue;
            }
            _ => split(&process, &all[parent]).await,
        };
        for known in made {
            process.at("creation: use", step);
            use_it(&process, &known, step).await;
            all.push(known);
        }
    }
    for known in all.drain(1..) {
        free(&process, known);
    }
}

fn free(process: &Process, known: Known) {
    if let Some(key) = known.key {
        process.mpi.free(key).expect("the communicator exists");
        assert!(process.mpi.free(key).is_err(), "a freed communicator was freed again");
    }
}

async fn dup(process: &Process, parent: &Known) -> Known {
    let key = match parent.key {
        None => None,
        Some(key) => process.mpi.dup(key).await.expect("all members live"),
    };
    checked(process, Known { members: parent.members.clone(), key })
}

/// Creates a communicator of every second member, in reverse order, by all members or by those of the group alone.
async fn create(process: &Process, parent: &Known, by_group: bool) -> Known {
    let ranks: Vec<Rank> = (0..parent.members.len() as u32).rev().step_by(2).map(Rank).collect();
    let members: Vec<u32> = ranks.iter().map(|rank| parent.members[rank.index()]).collect();
    let takes_part = |_: &CommKey| !by_group || members.contains(&process.rank.0);
    let key = match parent.key.filter(takes_part) {
        None => None,
        Some(key) => {
            let group =
                process.mpi.engine().communicator(key).expect("the communicator exists").group.clone();
            let group = group.include(&ranks).expect("ranks of the parent");
            let made = match by_group {
                true => process.mpi.create_group(key, &group, TAG).await,
                false => process.mpi.create(key, &group).await,
            };
            made.expect("all members live")
        }
    };
    checked(process, Known { members, key })
}

/// Splits with random colors and keys; some members give no color.
async fn split(process: &Process, parent: &Known) -> Vec<Known> {
    let choices: Vec<(Option<u32>, i32)> = {
        let mut shared_random = process.shared_random.borrow_mut();
        let mut choice = |_: &u32| {
            let color = shared_random.below(3) as u32;
            ((color < 2).then_some(color), shared_random.below(4) as i32 - 2)
        };
        parent.members.iter().map(&mut choice).collect()
    };
    let mine = parent.members.iter().position(|member| *member == process.rank.0);
    let created = match (parent.key, mine) {
        (Some(key), Some(mine)) => {
            process.mpi.split(key, choices[mine].0, choices[mine].1).await.expect("all members live")
        }
        _ => None,
    };
    let of_color = |color: u32| {
        let mut members: Vec<(i32, usize)> = (0..choices.len())
            .filter(|at| choices[*at].0 == Some(color))
            .map(|at| (choices[at].1, at))
            .collect();
        members.sort_unstable();
        let members: Vec<u32> = members.iter().map(|(_, at)| parent.members[*at]).collect();
        let key = if members.contains(&process.rank.0) { created } else { None };
        checked(process, Known { members, key })
    };
    (0..2).map(of_color).filter(|known| !known.members.is_empty()).collect()
}

/// Asserts that a new communicator has the expected members in the expected order.
fn checked(process: &Process, known: Known) -> Known {
    assert_eq!(
        known.key.is_some(),
        known.members.contains(&process.rank.0),
        "members and no other rank have the communicator"
    );
    if let Some(key) = known.key {
        let engine = process.mpi.engine();
        let communicator = engine.communicator(key).expect("it was just created");
        let members: Vec<u32> = communicator.group.iter().map(|peer| peer.number()).collect();
        assert_eq!(members, known.members);
        assert_eq!(known.members[communicator.rank.index()], process.rank.0);
    }
    known
}

/// Sends a message around the new communicator, and then sometimes around a duplicate that is freed at once.
async fn use_it(process: &Process, known: &Known, step: u64) {
    let which = process.shared_random.borrow_mut().below(3);
    let Some(key) = known.key else { return };
    around(process, key, step, false).await;
    match which {
        0 => process.mpi.barrier(key).await.map(drop).expect("all members live"),
        1 => {
            let duplicate = process.mpi.dup(key).await.expect("all members live").expect("a member");
            around(process, duplicate, step + 100, true).await;
        }
        _ => {}
    }
}

async fn around(process: &Process, key: CommKey, id: u64, free_at_once: bool) {
    let (rank, size) = (process.mpi.rank(key).expect("a member").0, process.mpi.size(key).expect("a member"));
    let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    let bytes = [0, 10, 5_000][id as usize % 3];
    let data = Buffer::from_bytes(&content(id, bytes));
    let buffer = poisoned(bytes);
    let sent = process.mpi.send(key, next, TAG, &data);
    let received = process.mpi.receive(key, Source::Rank(before), TagSelector::Tag(TAG), &buffer);
    if free_at_once {
        process.mpi.free(key).expect("the communicator exists");
    }
    let status = received.await.expect("all members live");
    assert_status(status, before, TAG, bytes);
    assert_content(&buffer, id, bytes);
    sent.await.expect("all members live");
}
