// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection that breaks between two living processes: evidence comes, the layer above quarantines the peer, asks, and resumes it, and
//! nothing is lost, doubled or reordered.

use super::cluster::{STEPS, pattern};
use super::remote_memory::{ALL, Operation, fill, span};
use super::{Callback, Cluster, Fixture, skip};
use crate::{Ability, Btl, Buffer, Cause, MessageClass, SendError, Stream};

const COUNT: u32 = 400;
const CONTROL: u32 = 1 << 20;
const BREAKS_EVERY: u32 = 40;
const WAYS: [(usize, usize); 2] = [(0, 1), (1, 0)];
const STREAM: Stream = Stream(5);

/// What the layer above does about evidence: it quarantines the peer, and resumes it some rounds later, when the node daemon has said that
/// the peer lives.
#[derive(Default)]
struct Evidence {
    /// The callbacks of each process that were looked at.
    seen: [usize; 2],
    /// The round in which each process resumes its peer.
    resume_in: [Option<u32>; 2],
    rounds: u32,
}

impl Evidence {
    /// Makes a round, and acts on what it reported. Returns whether a peer was resumed.
    fn round<F: Fixture>(&mut self, cluster: &mut Cluster<F>) -> bool {
        cluster.progress_all();
        self.rounds += 1;
        let mut resumed = false;
        for at in [0, 1] {
            let endpoint = cluster.endpoint(at, 1 - at);
            let news = cluster.callbacks(at).iter().skip(self.seen[at]);
            let evidence: Vec<Cause> = news
                .filter_map(|callback| match callback {
                    Callback::Error(_, _, cause) => Some(*cause),
                    _ => None,
                })
                .collect();
            self.seen[at] = cluster.callbacks(at).len();
            assert!(!evidence.contains(&Cause::Garbage), "a connection that broke is no garbage");
            if !evidence.is_empty() && self.resume_in[at].is_none() {
                cluster.btl(at).quarantine(endpoint);
                self.resume_in[at] = Some(self.rounds + ROUNDS_OF_QUARANTINE + at as u32);
            }
            if self.resume_in[at].is_some_and(|round| round <= self.rounds) {
                self.resume_in[at] = None;
                cluster.btl(at).resume(endpoint);
                resumed = true;
            }
        }
        resumed
    }

    /// Makes rounds until `done`.
    fn until<F: Fixture>(
        &mut self,
        cluster: &mut Cluster<F>,
        what: &str,
        done: impl Fn(&Cluster<F>) -> bool,
    ) {
        for _ in 0..STEPS {
            if done(cluster) {
                return;
            }
            self.round(cluster);
        }
        panic!("after {STEPS} rounds it is not true that {what}");
    }
}

/// The next number to send each way: data, control messages, and chunks.
#[derive(Default)]
struct Traffic {
    data: [u32; 2],
    control: [u32; 2],
    chunks: [u32; 2],
}

impl Traffic {
    /// Tries to send the next message of each kind, each way.
    fn send<F: Fixture>(&mut self, cluster: &mut Cluster<F>, streams: bool) {
        for (from, to) in WAYS {
            let number = self.data[from];
            if number < COUNT {
                let answer = cluster.try_send(from, to, MessageClass::Data, number, number as usize % 90);
                self.data[from] += sent(answer);
            }
            let number = self.control[from];
            if number < COUNT / 4 && 4 * number < self.data[from] {
                let answer = cluster.try_send(from, to, MessageClass::Control, CONTROL + number, 40);
                self.control[from] += sent(answer);
            }
            let number = self.chunks[from];
            if streams && number < COUNT / 4 && 4 * number < self.data[from] {
                self.chunks[from] += sent(cluster.try_chunk(from, to, STREAM, number, CHUNK));
            }
        }
    }

    fn all_sent(&self, streams: bool) -> bool {
        let enough = |numbers: &[u32; 2], count| numbers.iter().all(|&number| number == count);
        enough(&self.data, COUNT)
            && enough(&self.control, COUNT / 4)
            && (!streams || enough(&self.chunks, COUNT / 4))
    }
}

fn sent(answer: Result<(), SendError>) -> u32 {
    assert!(matches!(answer, Ok(()) | Err(SendError::Busy)), "{answer:?}");
    u32::from(answer.is_ok())
}

/// What breaks: the connection as each of these pairs has it, and again how many rounds after a resume.
type Breaks = fn(u32) -> (&'static [(usize, usize)], Option<u32>);

/// Messages of both processes to each other, while their connection breaks again and again.
fn all_arrives_once_in_order<F: Fixture>(name: &str, breaks: Breaks) {
    if F::ALONE {
        return;
    }
    let mut cluster = Cluster::<F>::connected(2);
    if !cluster.break_connection(0, 1) {
        return skip(name, "no connection that can break");
    }
    let streams = cluster.can(Ability::Streams);
    let (mut evidence, mut traffic) = (Evidence::default(), Traffic::default());
    let (mut broken, mut again) = (0, None);
    for round in 0.. {
        assert!(round < STEPS, "after {STEPS} rounds only {:?} messages were sent", traffic.data);
        if traffic.all_sent(streams) {
            break;
        }
        traffic.send(&mut cluster, streams);
        if traffic.data[0] / BREAKS_EVERY > broken {
            broken += 1;
            let (pairs, later) = breaks(broken);
            pairs.iter().for_each(|&(from, to)| _ = cluster.break_connection(from, to));
            again = later.map(|rounds| (rounds, pairs));
        }
        // While the peers connect again, it breaks once more.
        let resumed = evidence.round(&mut cluster);
        again = match again {
            Some((0, pairs)) => {
                pairs.iter().for_each(|&(from, to)| _ = cluster.break_connection(from, to));
                None
            }
            Some((rounds, pairs)) if evidence.resume_in == [None, None] || resumed => {
                Some((rounds - 1, pairs))
            }
            unchanged => unchanged,
        };
    }
    evidence.until(&mut cluster, "everything arrives", |cluster| {
        WAYS.iter().all(|&(from, to)| {
            cluster.numbers(to, from).len() >= (COUNT + COUNT / 4) as usize
                && (!streams || cluster.stream(to, STREAM).len() >= (COUNT / 4) as usize * CHUNK)
        })
    });
    // What would come twice comes now.
    (0..ROUNDS_AFTERWARDS).for_each(|_| _ = evidence.round(&mut cluster));
    for (from, to) in WAYS {
        let (data, control): (Vec<_>, Vec<_>) =
            cluster.numbers(to, from).into_iter().partition(|&number| number < CONTROL);
        assert_eq!(data, (0..COUNT).collect::<Vec<_>>(), "data from {from}");
        assert_eq!(control, (CONTROL..CONTROL + COUNT / 4).collect::<Vec<_>>(), "control from {from}");
        let bytes: Vec<u8> = (0..COUNT / 4).flat_map(|number| pattern(number, CHUNK)).collect();
        assert!(!streams || cluster.stream(to, STREAM) == bytes, "chunks from {from}");
        assert_eq!(cluster.severed_reports(to, from), 0);
    }
}

/// The connection is reset at one end, in turns.
pub fn a_reset_at_one_end_loses_and_doubles_nothing<F: Fixture>() {
    all_arrives_once_in_order::<F>("a_reset_at_one_end_loses_and_doubles_nothing", |number| {
        (if number % 2 == 0 { &WAYS[..1] } else { &WAYS[1..] }, None)
    });
}

/// The connection is reset at both ends at once.
pub fn a_reset_at_both_ends_loses_and_doubles_nothing<F: Fixture>() {
    all_arrives_once_in_order::<F>("a_reset_at_both_ends_loses_and_doubles_nothing", |_| (&WAYS, None));
}

/// The connection is reset again while its ends connect again.
pub fn a_reset_while_reconnecting_loses_and_doubles_nothing<F: Fixture>() {
    all_arrives_once_in_order::<F>("a_reset_while_reconnecting_loses_and_doubles_nothing", |number| {
        let pairs = match number % 3 {
            0 => &WAYS[..1],
            1 => &WAYS[1..],
            _ => &WAYS[..],
        };
        (pairs, Some(number % 5))
    });
}

/// Gets in flight when the connection breaks end once with their bytes; puts end once, as done or as unknown.
pub fn operations_across_a_reset_end_once<F: Fixture>() {
    let name = "operations_across_a_reset_end_once";
    if F::ALONE {
        return;
    }
    let needed = [Ability::Put, Ability::Get];
    let Some(mut cluster) = Cluster::<F>::with_abilities(name, 2, &needed) else { return };
    if !cluster.break_connection(0, 1) {
        return skip(name, "no connection that can break");
    }
    const BYTES: usize = 4096;
    let gotten = cluster.share(1, 0, &Buffer::from_bytes(&[9; BYTES]), ALL);
    let written = cluster.share(1, 0, &Buffer::zeroed(BYTES), ALL);
    let (own, source) = (Buffer::zeroed(BYTES), Buffer::from_bytes(&[4; BYTES]));
    let (local, source) = (cluster.register(0, 1, &own), cluster.register(0, 1, &source));
    let mut evidence = Evidence::default();
    let mut all = Vec::new();
    for round in 0..40 {
        fill(&own, 0);
        let mut cookies = Vec::new();
        for number in 0..8 {
            let part = 512 * number;
            for (operation, region, remote) in
                [(Operation::Get, local, gotten.remote), (Operation::Put, source, written.remote)]
            {
                let done = cluster.new_cookie();
                let answer =
                    cluster.try_start((0, 1), operation, span(region, part, 512), remote, part, done);
                if sent(answer) == 1 {
                    cookies.push((operation, part, done));
                }
            }
        }
        (0..round % 4).for_each(|_| _ = evidence.round(&mut cluster));
        let (from, to) = WAYS[round % 2];
        cluster.break_connection(from, to);
        evidence.until(&mut cluster, "all operations end", |cluster| {
            cookies.iter().all(|(_, _, cookie)| cluster.end_of(0, *cookie).is_some())
        });
        for (operation, part, cookie) in cookies {
            all.push(cookie);
            match (operation, cluster.end_of(0, cookie)) {
                (Operation::Get, Some(Ok(()))) => {
                    assert!(
                        own.to_vec()[part..part + 512].iter().all(|&byte| byte == 9),
                        "a get without bytes"
                    );
                }
                (Operation::Put, Some(Ok(()) | Err(SendError::Unknown))) => {}
                (_, end) => panic!("{operation:?} ended with {end:?}"),
            }
        }
    }
    // What would end twice ends now.
    (0..ROUNDS_AFTERWARDS).for_each(|_| _ = evidence.round(&mut cluster));
    all.into_iter().for_each(|cookie| assert!(cluster.end_of(0, cookie).is_some()));
}

const ROUNDS_OF_QUARANTINE: u32 = 6;
const ROUNDS_AFTERWARDS: u32 = 300;
const CHUNK: usize = 100;
