// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of ranks: assembled into whole lines, joined into one stream, and written by a separate thread, so that a slow
//! reader slows the ranks down but does not keep the launcher from receiving signals.
//!
//! ```text
//!   pipe of rank 0 ─▶ Assembler ─┐
//!   pipe of rank 1 ─▶ Assembler ─┼─▶ Joiner ─▶ Printer ─▶ our stdout
//! ```

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Assembles the pieces read from one pipe into whole lines.
#[derive(Debug)]
pub struct Assembler {
    partial: Vec<u8>,
    /// Lines up to this many bytes are returned whole; 0 returns all bytes immediately.
    line_bytes_max: usize,
}

impl Assembler {
    /// Lines up to this length, in bytes, stay whole; a longer line is returned in pieces.
    pub const LINE_BYTES_MAX: usize = 64 << 10;

    /// For one of several streams: returns whole lines.
    pub fn whole_lines() -> Self {
        Assembler { partial: Vec::new(), line_bytes_max: Self::LINE_BYTES_MAX }
    }

    /// For the only stream: returns all bytes immediately, so that a prompt is visible. No other stream can be mixed into it.
    pub fn unbuffered() -> Self {
        Assembler { partial: Vec::new(), line_bytes_max: 0 }
    }

    /// Adds what was read from the pipe, and returns what may be printed: whole lines, or a piece of a line that is too long.
    pub fn add(&mut self, bytes: &[u8]) -> Vec<u8> {
        let ready = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let mut out = Vec::new();
        if ready > 0 {
            out.append(&mut self.partial);
            out.extend_from_slice(&bytes[..ready]);
        }
        self.partial.extend_from_slice(&bytes[ready..]);
        if self.partial.len() > self.line_bytes_max {
            out.append(&mut self.partial);
        }
        out
    }

    /// Whether a line has begun and not ended.
    pub fn holds(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Takes the unfinished line: to be called when the stream has ended or is silent.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

/// Joins the streams of all ranks into one, so that no line is mixed into another's.
#[derive(Debug)]
pub struct Joiner {
    labels: bool,
    /// The rank whose line has begun and not ended.
    open: Option<u32>,
}

impl Joiner {
    /// `labels`: begin each line with its rank.
    pub fn new(labels: bool) -> Self {
        Joiner { labels, open: None }
    }

    /// Appends to `out` what `rank` printed. An unfinished line of another rank is ended first.
    pub fn join(&mut self, rank: u32, text: &[u8], out: &mut Vec<u8>) {
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if self.open.is_some_and(|other| other != rank) {
                self.end_line(out);
            }
            if self.labels && self.open.is_none() {
                out.extend_from_slice(format!("[{rank}] ").as_bytes());
            }
            out.extend_from_slice(line);
            self.open = (line.last() != Some(&b'\n')).then_some(rank);
        }
    }

    /// Appends a line end to `out` if the last line is unfinished.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            out.push(b'\n');
        }
    }
}

/// Writes to our stdout or stderr from a separate thread, which ends with the process.
#[derive(Debug)]
pub struct Printer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
    /// Readable when something was written, or when writing has failed.
    written: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<u8>,
    writing: bool,
    failure: Option<Errno>,
}

impl Printer {
    /// While more bytes than this wait to be written, the ranks' pipes are not read, and fill up.
    pub const BACKLOG_BYTES_MAX: usize = 1 << 20;

    /// Starts the thread that writes to `out`.
    pub fn start(out: impl AsFd + Send + 'static) -> std::io::Result<Self> {
        let written = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), more: Condvar::new(), written });
        let threads = Arc::clone(&shared);
        std::thread::Builder::new().name("printer".to_owned()).spawn(move || threads.write_all(out))?;
        Ok(Printer { shared })
    }

    /// Readable when [`has_room`](Printer::has_room), [`idle`](Printer::idle) or [`broken`](Printer::broken) may have
    /// changed; [`seen`](Printer::seen) makes it unreadable again.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.written.as_fd()
    }

    /// Makes [`descriptor`](Printer::descriptor) unreadable until the state changes again.
    pub fn seen(&self) {
        // An error means that the counter is zero already.
        let _ = rustix::io::read(&self.shared.written, &mut [0; 8]);
    }

    /// Queues `bytes` for writing.
    pub fn print(&self, bytes: &[u8]) {
        let mut state = self.shared.lock();
        if state.failure.is_none() && !bytes.is_empty() {
            state.queue.extend_from_slice(bytes);
            self.shared.more.notify_one();
        }
    }

    /// Whether at most [`BACKLOG_BYTES_MAX`](Printer::BACKLOG_BYTES_MAX) bytes wait to be written.
    pub fn has_room(&self) -> bool {
        self.shared.lock().queue.len() < Self::BACKLOG_BYTES_MAX
    }

    /// Whether everything has been written.
    pub fn idle(&self) -> bool {
        let state = self.shared.lock();
        state.failure.is_some() || (state.queue.is_empty() && !state.writing)
    }

    /// Whether writing has failed for good.
    pub fn broken(&self) -> bool {
        self.error().is_some()
    }

    /// The error that ended writing; `EPIPE`: the reader has closed the stream.
    pub fn error(&self) -> Option<Errno> {
        self.shared.lock().failure
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, out: impl AsFd) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.writing = true;
            let batch = std::mem::take(&mut state.queue);
            drop(state);
            let failure = write_batch(out.as_fd(), &batch).err();
            let mut state = self.lock();
            state.writing = false;
            state.failure = failure;
            drop(state);
            // The counter of the eventfd is far from full.
            let _ = rustix::io::write(&self.written, &1_u64.to_ne_bytes());
            if failure.is_some() {
                return;
            }
        }
    }
}

/// Writes everything, also to a non-blocking output: another program that shares the terminal may have made it so.
fn write_batch(out: BorrowedFd<'_>, mut rest: &[u8]) -> Result<(), Errno> {
    while !rest.is_empty() {
        match rustix::io::write(out, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // The result of poll is not needed: the next write reports an error.
                let _ = poll(&mut [PollFd::new(&out, PollFlags::OUT)], None);
            }
            // A socket reports ECONNRESET if its other end closed it before we read all that it had sent.
            Err(Errno::CONNRESET) => return Err(Errno::PIPE),
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Assembler, Joiner, Printer};
    use mend_base::Random;
    use rustix::io::Errno;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn joined(labels: bool, pieces: &[(u32, &str)]) -> String {
        let mut joiner = Joiner::new(labels);
        let mut out = Vec::new();
        for (rank, text) in pieces {
            joiner.join(*rank, text.as_bytes(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_stay_whole_wherever_reads_divide_them() {
        let text: Vec<u8> =
            (0..2_000).flat_map(|n| format!("line {n}\n").into_bytes()).chain(*b"rest").collect();
        for seed in 0..50 {
            let (mut random, mut assembler) = (Random(seed), Assembler::whole_lines());
            let (mut rest, mut out) = (text.as_slice(), Vec::new());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(1 + random.below(rest.len().min(300) as u64) as usize);
                let ready = assembler.add(piece);
                assert!(ready.is_empty() || ready.ends_with(b"\n"));
                out.extend(ready);
                rest = behind;
            }
            assert_eq!(assembler.rest(), b"rest");
            assert_eq!(out, text[..text.len() - 4]);
        }
    }

    #[test]
    fn a_line_of_64_kib_stays_whole_and_a_longer_one_is_divided() {
        let mut assembler = Assembler::whole_lines();
        assert!(assembler.add(&vec![b'x'; Assembler::LINE_BYTES_MAX]).is_empty());
        assert_eq!(assembler.add(b"\n").len(), Assembler::LINE_BYTES_MAX + 1);
        assert!(!assembler.add(&vec![b'x'; Assembler::LINE_BYTES_MAX + 1]).is_empty());
        assert_eq!(Assembler::unbuffered().add(b"name: "), b"name: ");
    }

    #[test]
    fn labels_begin_lines_and_an_unfinished_line_is_ended_before_anothers() {
        assert_eq!(joined(true, &[(0, "a\nb\n"), (1, "c\n")]), "[0] a\n[0] b\n[1] c\n");
        assert_eq!(joined(true, &[(0, "a"), (0, "b\n"), (0, "c"), (1, "d\n")]), "[0] ab\n[0] c\n[1] d\n");
        assert_eq!(joined(false, &[(0, "a"), (1, "b\n"), (0, "c")]), "a\nb\nc");
    }

    #[test]
    fn a_printer_writes_in_order_and_reports_a_closed_reader() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let printer = Printer::start(ours).unwrap();
        printer.print(b"one ");
        printer.print(b"two");
        let mut seen = [0; 7];
        theirs.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"one two");
        drop(theirs);
        while !printer.broken() {
            printer.print(b"to nobody");
            std::thread::yield_now();
        }
        assert!(printer.idle());
        assert_eq!(printer.error(), Some(Errno::PIPE));
    }

    #[test]
    fn an_output_that_does_not_block_gets_everything() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let printer = Printer::start(ours).unwrap();
        let text: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        printer.print(&text);
        let mut seen = vec![0; text.len()];
        theirs.read_exact(&mut seen).unwrap();
        assert!(seen == text && !printer.broken());
    }

    #[test]
    fn a_full_disk_is_told_from_a_closed_reader() {
        let printer = Printer::start(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        printer.print(b"lost");
        while !printer.idle() {
            std::thread::yield_now();
        }
        assert_eq!(printer.error(), Some(Errno::NOSPC));
    }

    #[test]
    fn a_backlog_for_a_slow_reader_shows_as_no_room() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let printer = Printer::start(ours).unwrap();
        // More bytes than the thread writes in one batch, and more than a socket's buffer holds.
        while printer.has_room() {
            printer.print(&vec![0; Printer::BACKLOG_BYTES_MAX]);
            std::thread::yield_now();
        }
        assert!(!printer.idle());
    }
}
