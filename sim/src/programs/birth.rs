// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Communicators are made and freed in random order, and used the moment they exist here: messages reach members for
//! whom the communicator is not born yet, and communicators are freed while operations on them go on.

use crate::Process;
use crate::oracle::{content, holds, poisoned, says};
use mend_base::{Rank, Source, Tag, TagSelector};
use mend_mpi::CommKey;
use mend_transport::Buffer;

const TAG: Tag = Tag(3);

/// A communicator as every rank knows it: its members by rank in WORLD, in order; the key only here, if we are one.
struct Known {
    members: Vec<u32>,
    key: Option<CommKey>,
}

/// All ranks draw the same steps; who is no member of a communicator takes no part in what is done with it.
pub async fn run(process: Process) {
    let world = Known { members: (0..process.size).collect(), key: Some(process.mpi.engine().world()) };
    let mut all = vec![world];
    let steps = 1 + process.together.borrow_mut().below(12);
    for step in 0..steps {
        let (which, parent) = {
            let mut together = process.together.borrow_mut();
            (together.below(5), together.below(all.len() as u64) as usize)
        };
        process.at("birth: make", step);
        let made = match which {
            0 => vec![dup(&process, &all[parent]).await],
            1 => vec![create(&process, &all[parent]).await],
            2 if parent > 0 => {
                free(&process, all.remove(parent));
                continue;
            }
            _ => split(&process, &all[parent]).await,
        };
        for known in made {
            process.at("birth: use", step);
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
        process.mpi.free(key).expect("it stands");
        assert!(process.mpi.free(key).is_err(), "its handle is gone");
    }
}

async fn dup(process: &Process, parent: &Known) -> Known {
    let key = match parent.key {
        None => None,
        Some(key) => process.mpi.dup(key).await.expect("members live"),
    };
    checked(process, Known { members: parent.members.clone(), key })
}

/// Every other member, backwards.
async fn create(process: &Process, parent: &Known) -> Known {
    let ranks: Vec<Rank> = (0..parent.members.len() as u32).rev().step_by(2).map(Rank).collect();
    let members = ranks.iter().map(|rank| parent.members[rank.index()]).collect();
    let key = match parent.key {
        None => None,
        Some(key) => {
            let group = process.mpi.engine().communicator(key).expect("it stands").group.clone();
            let group = group.include(&ranks).expect("ranks of the parent");
            process.mpi.create(key, &group).await.expect("members live")
        }
    };
    checked(process, Known { members, key })
}

/// Colors and keys at random; some members take no part.
async fn split(process: &Process, parent: &Known) -> Vec<Known> {
    let words: Vec<(Option<u32>, i32)> = {
        let mut together = process.together.borrow_mut();
        let mut word = |_: &u32| {
            let color = together.below(3) as u32;
            ((color < 2).then_some(color), together.below(4) as i32 - 2)
        };
        parent.members.iter().map(&mut word).collect()
    };
    let mine = parent.members.iter().position(|member| *member == process.rank.0);
    let born = match (parent.key, mine) {
        (Some(key), Some(mine)) => {
            process.mpi.split(key, words[mine].0, words[mine].1).await.expect("members live")
        }
        _ => None,
    };
    let of_color = |color: u32| {
        let mut members: Vec<(i32, usize)> =
            (0..words.len()).filter(|at| words[*at].0 == Some(color)).map(|at| (words[at].1, at)).collect();
        members.sort_unstable();
        let members: Vec<u32> = members.iter().map(|(_, at)| parent.members[*at]).collect();
        let key = if members.contains(&process.rank.0) { born } else { None };
        checked(process, Known { members, key })
    };
    (0..2).map(of_color).filter(|known| !known.members.is_empty()).collect()
}

/// What was made has the members that it should have, in the order that it should have.
fn checked(process: &Process, known: Known) -> Known {
    assert_eq!(known.key.is_some(), known.members.contains(&process.rank.0), "members have it, others not");
    if let Some(key) = known.key {
        let engine = process.mpi.engine();
        let communicator = engine.communicator(key).expect("it was just made");
        let members: Vec<u32> = communicator.group.iter().map(|peer| peer.number()).collect();
        assert_eq!(members, known.members);
        assert_eq!(known.members[communicator.rank.index()], process.rank.0);
    }
    known
}

/// Once around the new communicator, and, now and then, a duplicate of it that is freed while its messages travel.
async fn use_it(process: &Process, known: &Known, step: u64) {
    let together = process.together.borrow_mut().below(3);
    let Some(key) = known.key else { return };
    around(process, key, step, false).await;
    match together {
        0 => process.mpi.barrier(key).await.map(drop).expect("members live"),
        1 => {
            let passing = process.mpi.dup(key).await.expect("members live").expect("a member");
            around(process, passing, step + 100, true).await;
        }
        _ => {}
    }
}

async fn around(process: &Process, key: CommKey, id: u64, free_at_once: bool) {
    let (rank, size) = (process.mpi.rank(key).expect("a member").0, process.mpi.size(key).expect("a member"));
    let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
    let bytes = [0, 10, 5_000][id as usize % 3];
    let data = Buffer::from_bytes(&content(id, bytes));
    let room = poisoned(bytes);
    let sent = process.mpi.send(key, next, TAG, &data);
    let received = process.mpi.receive(key, Source::Rank(before), TagSelector::Tag(TAG), &room);
    if free_at_once {
        process.mpi.free(key).expect("it stands");
    }
    let status = received.await.expect("members live");
    says(status, before, TAG, bytes);
    holds(&room, id, bytes);
    sent.await.expect("members live");
}
