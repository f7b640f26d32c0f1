// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A rank that speaks the node daemon's protocol without the rest of MPI. The first argument selects what it does.
#![forbid(unsafe_code)]

use mend_base::Peer;
use mend_runtime::carried::Carried;
use mend_runtime::daemon_protocol::{DaemonMessage, Hello, Namespaces, RankMessage, decode, encode};
use mend_runtime::environment::{Address, DAEMON};
use mend_runtime::packet::{MayBlock, ReceiveResult, receive, send};
use mend_runtime::transport_view::TransportView;
use mend_runtime::{Launched, Notice, Runtime, StartError, connect_from_environment};
use mend_segment::Life;
use mend_transport::{Card, Cause, TransportId};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let others = match words.get(2).map(String::as_str) {
        Some("spin") => Others::Spin,
        _ => Others::Listen,
    };
    match words[0].as_str() {
        "meet" => meet(),
        "abort" => on_rank_1(others, |launched| launched.runtime.abort(number)),
        "abort_some" => on_rank_1(others, |launched| {
            let job = launched.runtime.membership().peer.job();
            launched.runtime.abort_some(number, &[Peer::new(job, 2), Peer::new(job, 1)]);
        }),
        "exit" => on_rank_1(others, |_| std::process::exit(number)),
        "signal" => on_rank_1(others, |_| raise(number)),
        "exec" => on_rank_1(others, |_| panic!("{}", Command::new("sleep").arg("1000").exec())),
        "live" => live(number),
        "dying" => dying(number),
        "accuse" => accuse(),
        "ask" => ask(),
        "stopped" => stopped(),
        "late" => late(),
        "hear" => listen(&mut hello()),
        "give_up" => give_up(number),
        "die" => {
            let _launched = hello();
            raise(if number == 0 { 9 } else { number });
            spin()
        }
        "garbage_after_leaving" => garbage_after_leaving(),
        "leave" => leave(number),
        "wait" => wait_for_ever(&mut hello()),
        "tidy" => tidy(),
        "await" => await_rank_1(),
        "garbage" => garbage(number as usize),
        "settings" => settings(),
        "reaper" => reaper(&words[1..]),
        "again" => again(),
        "mixed" => mixed(number),
        other => panic!("no such word: {other}"),
    }
}

fn hello() -> Launched {
    match connect_from_environment() {
        Ok(launched) => launched,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(42);
        }
    }
}

/// A card whose descriptor is a file with the rank's number in place of an outbox.
fn card_of(rank: u32) -> Card {
    let file = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = std::fs::File::from(file);
    writeln!(file, "outbox of {rank}").unwrap();
    let descriptor = Some(Arc::new(OwnedFd::from(file)));
    let entries = vec![(TransportId::SHM, rank.to_le_bytes().to_vec())];
    Card { layout: Card::LAYOUT, entries, descriptor, life: None }
}

/// Sleeps as an engine would until a notice comes, and returns it.
fn next_notice(launched: &mut Launched) -> Notice {
    let slot = launched.data.node_slot;
    loop {
        let version = launched.runtime.notice_version();
        if let Some(notice) = launched.runtime.notice() {
            return notice;
        }
        let bells = launched.data.bells.as_ref().expect("the node daemon made a bell page");
        let announced = bells.announce_sleep(slot);
        if launched.runtime.notice_version() == version {
            let _ = bells.sleep(slot, announced, mend_base::Duration::from_millis(10_000));
        }
        bells.end_sleep(slot);
    }
}

fn others(launched: &Launched) -> BTreeSet<u32> {
    let me = launched.runtime.membership();
    (0..me.size).filter(|&rank| rank != me.peer.number()).collect()
}

/// Each rank gets a contact with each other, reads the other's file, and is notified when each leaves.
fn meet() -> ExitCode {
    let mut launched = hello();
    let me = launched.runtime.membership().clone();
    assert!(me.node_slots > me.size && me.node_slot == me.peer.number() && me.local_ranks == me.size);
    launched.runtime.publish(&card_of(me.peer.number())).unwrap();
    let mut unmet = others(&launched);
    for &rank in unmet.iter().filter(|&&rank| rank > me.peer.number()) {
        launched.runtime.lookup(Peer::new(me.peer.job(), rank)).unwrap();
    }
    while !unmet.is_empty() {
        match next_notice(&mut launched) {
            Notice::Contact { peer, card } => {
                assert!(unmet.remove(&peer.number()));
                check_card(peer.number(), &card);
            }
            Notice::Finalized(_) => {}
            other => panic!("{other:?}"),
        }
    }
    launched.runtime.finalize();
    println!("rank {} of {} met all", me.peer.number(), me.size);
    ExitCode::SUCCESS
}

fn check_card(rank: u32, card: &Card) {
    assert_eq!(card.entry(TransportId::SHM), Some(&rank.to_le_bytes()[..]));
    let descriptor = card.descriptor.as_ref().expect("the daemon passes the outbox on");
    let mut text = [0; 64];
    // All holders of the descriptor share one file position, so it is not moved.
    let count = rustix::io::pread(descriptor, &mut text, 0).unwrap();
    assert_eq!(text[..count], *format!("outbox of {rank}\n").as_bytes());
}

/// What the other ranks do until rank 1 has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// They spin for ever.
    Spin,
    /// They wait for the notice of its end, print it, and leave.
    Listen,
}

/// All say hello; rank 1 does something once all others have met it.
fn on_rank_1(others: Others, act: impl FnOnce(&mut Launched)) -> ExitCode {
    let mut launched = hello();
    let me = launched.runtime.membership().clone();
    launched.runtime.publish(&card_of(me.peer.number())).unwrap();
    if me.peer.number() != 1 {
        launched.runtime.lookup(Peer::new(me.peer.job(), 1)).unwrap();
        return match others {
            Others::Spin => spin(),
            Others::Listen => listen(&mut launched),
        };
    }
    until_met(&mut launched);
    act(&mut launched);
    spin()
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

fn until_met(launched: &mut Launched) {
    let mut unmet = others(launched);
    while !unmet.is_empty() {
        if let Notice::Contact { peer, .. } = next_notice(launched) {
            unmet.remove(&peer.number());
        }
    }
}

/// Waits until rank 1 has failed, prints that, and leaves.
fn listen(launched: &mut Launched) -> ExitCode {
    until_failed(launched, 1);
    println!("rank 1 has failed");
    launched.runtime.finalize();
    ExitCode::SUCCESS
}

fn until_failed(launched: &mut Launched, rank: u32) {
    loop {
        match next_notice(launched) {
            Notice::Failed(peer) if peer.number() == rank => return,
            Notice::Contact { .. } | Notice::Finalized(_) | Notice::Failed(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// All ranks hold their life words; rank 1 is killed after it has touched so many MiB.
fn live(mebibytes: i32) -> ExitCode {
    let mut launched = hello();
    let life = living(&mut launched);
    let me = launched.runtime.membership().peer;
    if me.number() == 1 {
        until_met(&mut launched);
        let touched = vec![1_u8; (mebibytes as usize) << 20];
        raise(9);
        unreachable!("{} bytes live on", touched.len());
    }
    launched.runtime.lookup(Peer::new(me.job(), 1)).unwrap();
    let code = listen(&mut launched);
    life.end();
    code
}

/// The life of this process, begun and published.
fn living(launched: &mut Launched) -> Life {
    let life = launched.data.life.take().unwrap();
    life.begin().unwrap();
    let me = launched.runtime.membership().peer;
    launched.runtime.publish(&card_of(me.number())).unwrap();
    life
}

/// Rank 1 marks its life word as dying, and lives on until the others have been notified and have left, or, with a code, until
/// rank 0 has been notified and has ended the job.
fn dying(code: i32) -> ExitCode {
    let mut launched = hello();
    let life = living(&mut launched);
    let me = launched.runtime.membership().peer;
    if me.number() != 1 {
        launched.runtime.lookup(Peer::new(me.job(), 1)).unwrap();
        if code != 0 {
            until_failed(&mut launched, 1);
            launched.runtime.abort(code);
            spin()
        }
        let code = listen(&mut launched);
        life.end();
        return code;
    }
    until_met(&mut launched);
    life.mark_dying();
    // A rank that counts as failed gets no notices, so it watches for the ends of the other processes.
    while alive_beside_us() {
        std::thread::yield_now();
    }
    println!("the core is written");
    raise(6);
    spin()
}

/// Whether another child of our parent runs this program.
fn alive_beside_us() -> bool {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent())).unwrap();
    let own = std::process::id().to_string();
    children
        .split_whitespace()
        .any(|pid| pid != own && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok())
}

/// Rank 0 reports that rank 1 wrote garbage, although rank 1 did not.
fn accuse() -> ExitCode {
    let mut launched = hello();
    let me = launched.runtime.membership().peer;
    launched.runtime.publish(&card_of(me.number())).unwrap();
    match me.number() {
        0 => {
            let accused = Peer::new(me.job(), 1);
            launched.runtime.lookup(accused).unwrap();
            while !matches!(next_notice(&mut launched), Notice::Contact { .. }) {}
            launched.runtime.ask(accused, Cause::Garbage);
            listen(&mut launched)
        }
        1 => spin(),
        _ => listen(&mut launched),
    }
}

/// Rank 1 is killed, and the others ask about it until they are notified.
fn ask() -> ExitCode {
    let mut launched = hello();
    let life = living(&mut launched);
    let me = launched.runtime.membership().peer;
    if me.number() == 1 {
        until_met(&mut launched);
        raise(9);
    }
    let asked = Peer::new(me.job(), 1);
    launched.runtime.lookup(asked).unwrap();
    loop {
        match next_notice(&mut launched) {
            Notice::Contact { .. } | Notice::Alive(_) => launched.runtime.ask(asked, Cause::Exited),
            Notice::Failed(peer) if peer == asked => break,
            Notice::Finalized(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // Another question gets another answer.
    launched.runtime.ask(asked, Cause::Exited);
    while !matches!(next_notice(&mut launched), Notice::Failed(peer) if peer == asked) {}
    println!("rank 1 has failed");
    launched.runtime.finalize();
    life.end();
    ExitCode::SUCCESS
}

/// Rank 1 is stopped; rank 0 is told that it lives, as often as it asks, and lets it go on.
fn stopped() -> ExitCode {
    let mut launched = hello();
    let life = living(&mut launched);
    let me = launched.runtime.membership().peer;
    let other = Peer::new(me.job(), 1 - me.number());
    if me.number() == 1 {
        raise(19);
    } else {
        let stopped = || {
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent())).unwrap();
            children.split_whitespace().find_map(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                stat.contains(") T ").then(|| pid.parse().unwrap())
            })
        };
        let pid = loop {
            if let Some(pid) = stopped() {
                break rustix::process::Pid::from_raw(pid).unwrap();
            }
            std::thread::yield_now();
        };
        for _ in 0..100 {
            launched.runtime.ask(other, Cause::Silent);
            assert!(matches!(next_notice(&mut launched), Notice::Alive(peer) if peer == other));
        }
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    }
    launched.runtime.finalize();
    life.end();
    ExitCode::SUCCESS
}

fn parent() -> i32 {
    rustix::process::getppid().unwrap().as_raw_nonzero().get()
}

/// Rank 1 gives up during MPI_Init, and goes on without MPI until the others have ended.
fn give_up(code: i32) -> ExitCode {
    let mut launched = hello();
    if launched.runtime.membership().peer.number() != 1 {
        return listen(&mut launched);
    }
    drop(launched);
    while alive_beside_us() {
        std::thread::yield_now();
    }
    println!("without MPI");
    ExitCode::from(code as u8)
}

/// Joins late, and prints all notices until rank 0 has left.
fn late() -> ExitCode {
    let mut launched = hello();
    loop {
        let notice = next_notice(&mut launched);
        println!("{notice:?}");
        if matches!(notice, Notice::Finalized(peer) if peer.number() == 0) {
            break;
        }
    }
    launched.runtime.finalize();
    ExitCode::SUCCESS
}

/// Leaves, and writes garbage afterwards.
fn garbage_after_leaving() -> ExitCode {
    let (address, socket) = connected();
    welcome(&address, &socket);
    for bytes in
        [&encode(&RankMessage::Finalize), &encode(&RankMessage::Lookup(Peer(1))), &b"garbage".to_vec()]
    {
        send(socket.as_fd(), bytes, &[], MayBlock::Yes);
    }
    ExitCode::SUCCESS
}

fn raise(signal: i32) {
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
}

/// Leaves MPI, waits until the others have left, and ends with its own exit code.
fn leave(code: i32) -> ExitCode {
    let mut launched = hello();
    let rank = launched.runtime.membership().peer.number();
    if rank == 0 {
        let mut here = others(&launched);
        while !here.is_empty() {
            if let Notice::Finalized(peer) = next_notice(&mut launched) {
                assert!(here.remove(&peer.number()), "each leaves once");
            }
        }
    }
    launched.runtime.finalize();
    ExitCode::from(if rank == 1 { code as u8 } else { 0 })
}

fn wait_for_ever(launched: &mut Launched) -> ExitCode {
    println!("ready");
    loop {
        let _ = launched.runtime.notice();
        // Sleeps: a rank that lives until it is killed.
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Lets its wrapper end, and when SIGTERM comes prints a line and leaves MPI.
fn tidy() -> ExitCode {
    let asked = Arc::new(AtomicBool::new(false));
    let signal = rustix::process::Signal::TERM.as_raw();
    signal_hook::flag::register(signal, Arc::clone(&asked)).unwrap();
    let mut launched = hello();
    let wrapper = rustix::process::getppid().unwrap();
    rustix::process::kill_process(wrapper, rustix::process::Signal::USR1).unwrap();
    println!("ready");
    while !asked.load(Ordering::Relaxed) {
        // Sleeps: between two looks at a flag.
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("tidied");
    launched.runtime.finalize();
    ExitCode::SUCCESS
}

/// Rank 0 looks rank 1 up, and prints the answer.
fn await_rank_1() -> ExitCode {
    let mut launched = hello();
    let me = launched.runtime.membership().clone();
    launched.runtime.publish(&card_of(0)).unwrap();
    launched.runtime.lookup(Peer::new(me.peer.job(), 1)).unwrap();
    println!("{:?}", next_notice(&mut launched));
    launched.runtime.finalize();
    ExitCode::SUCCESS
}

/// Says hello; then rank 1 sends what no correct rank sends, and the others wait for notices.
fn garbage(which: usize) -> ExitCode {
    let (address, socket) = connected();
    if address.rank != 1 {
        return listen(&mut hello());
    }
    let hello = welcome(&address, &socket);
    let own = encode(&RankMessage::Lookup(Peer(1)));
    let card = encode(&RankMessage::Publish(card_of(1), Carried::default()));
    let many = vec![255; 4096];
    let some = encode(&RankMessage::AbortSome(1, vec![Peer(1)]));
    let mut view = TransportView::default();
    view.add_reached("shm", 0..4);
    let parts: Vec<Vec<u8>> = view.parts().map(|part| encode(&RankMessage::Transport(part))).collect();
    let (no_such_rank, end) = (&parts[0][..], &parts[1][..]);
    let cut = &no_such_rank[..no_such_rank.len() - 1];
    let packets: [&[&[u8]]; 9] = [
        &[b"garbage"],
        &[&hello],
        &[&own],
        &[&card, &card],
        &[&many],
        &[&some],
        &[no_such_rank],
        &[cut],
        &[end, end],
    ];
    for bytes in packets[which] {
        send(socket.as_fd(), bytes, &[], MayBlock::Yes);
    }
    loop {
        // Sleeps: a rank that lives until it is killed.
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Says hello by hand; the hello.
fn welcome(address: &Address, socket: &OwnedFd) -> Vec<u8> {
    let namespaces = Namespaces::default();
    let hello = Hello { layout: Card::LAYOUT, secret: address.secret, rank: address.rank, namespaces };
    let hello = encode(&RankMessage::Hello(hello));
    send(socket.as_fd(), &hello, &[], MayBlock::Yes);
    assert!(matches!(receive(socket.as_fd(), MayBlock::Yes), ReceiveResult::Packet(_)));
    hello
}

/// A connection to the node daemon before hello.
fn connected() -> (Address, OwnedFd) {
    let address = Address::from_text(&std::env::var(DAEMON).unwrap()).unwrap();
    let name = rustix::net::SocketAddrUnix::new_abstract_name(address.socket_name().as_bytes()).unwrap();
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    let socket = rustix::net::socket(family, kind, None).unwrap();
    rustix::net::connect(&socket, &name).unwrap();
    (address, socket)
}

/// Runs a command as a subreaper, and prints which processes it adopted.
fn reaper(words: &[String]) -> ExitCode {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    Command::new(&words[0]).args(&words[1..]).status().unwrap();
    let own = std::process::id();
    println!("left: {}", std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap());
    ExitCode::SUCCESS
}

/// A library of another layout, or one that speaks another version of the protocol.
fn mixed(layout: i32) -> ExitCode {
    let (address, socket) = connected();
    let namespaces = Namespaces::default();
    let hello = Hello { layout: layout as u32, secret: address.secret, rank: address.rank, namespaces };
    let hello = if layout == 0 { RankMessage::OtherVersion(77) } else { RankMessage::Hello(hello) };
    send(socket.as_fd(), &encode(&hello), &[], MayBlock::Yes);
    let ReceiveResult::Packet(packet) = receive(socket.as_fd(), MayBlock::Yes) else { panic!("no answer") };
    println!("{:?}", decode::<DaemonMessage>(&packet.bytes));
    ExitCode::from(9)
}

/// Prints the settings of the command line.
fn settings() -> ExitCode {
    let mut launched = hello();
    let processors = rustix::thread::sched_getaffinity(None).unwrap().count();
    println!("{:?} {:?} {processors}", launched.data.settings, launched.data.error_handler);
    launched.runtime.finalize();
    ExitCode::SUCCESS
}

/// Joins twice as the same rank, and prints why the second attempt is refused.
fn again() -> ExitCode {
    let mut launched = hello();
    let first = connect_from_environment().expect_err("the rank has joined already");
    launched.runtime.finalize();
    // Packets of one connection are read in order, but not those of two: the node daemon may read the second hello first.
    let second = loop {
        match connect_from_environment() {
            Err(StartError::HelloRefused(why)) if format!("{why:?}").starts_with("Taken") => {
                std::thread::yield_now()
            }
            other => break other.expect_err("the rank has left already"),
        }
    };
    println!("{first}\n{second}");
    ExitCode::SUCCESS
}
