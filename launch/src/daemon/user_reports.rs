// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports of the node daemon to `mpiexec`, which prints them for the user.

use crate::arguments::JobDescription;
use crate::control::{DaemonReport, send};
use mend_daemon::RankLine;
use mend_runtime::daemon_protocol::{HelloRefused, RankMessage};
use std::io;
use std::os::fd::BorrowedFd;

/// The socket to `mpiexec`, and what the lines for the user contain.
#[derive(Debug)]
pub struct UserReports<'front> {
    control: BorrowedFd<'front>,
    host: String,
    /// The program of each rank.
    programs: Vec<String>,
    /// The line about the first rank whose library has another version or layout.
    mismatch: Option<String>,
    /// Whether to print, once, that life words are polled.
    says_polled: bool,
}

impl<'front> UserReports<'front> {
    /// `reports`: the user asked for a report of every death.
    pub fn new(control: BorrowedFd<'front>, job: &JobDescription, reports: bool) -> Self {
        UserReports {
            control,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            programs: job.programs().map(|app| app.program.to_string_lossy().into_owned()).collect(),
            mismatch: None,
            says_polled: reports,
        }
    }

    /// The socket to `mpiexec`.
    pub fn control(&self) -> BorrowedFd<'front> {
        self.control
    }

    /// Sends a report. A failure is ignored: the end of `mpiexec` is found by reading the socket.
    pub fn send(&self, report: &DaemonReport, with: &[BorrowedFd<'_>]) {
        send(self.control, report, with);
    }

    /// Prints a line for the user now, not at the end of the job.
    pub fn say_now(&self, line: String) {
        self.send(&DaemonReport::LineNow(line), &[]);
    }

    /// The line for the user about one rank.
    pub fn line(&self, line: &RankLine, process: u32) -> String {
        let RankLine { rank, words } = line;
        let program = self.programs.get(*rank as usize).map_or("", String::as_str);
        format!("mpiexec: rank {rank} ({program}, process {process} on {}) {words}", self.host)
    }

    /// Notes that a rank's library and this `mpiexec` are of different installations; the user is told once for the job, and each
    /// such rank reports it too.
    pub fn note_mismatch(&mut self, process: i32, message: &RankMessage, why: HelloRefused) {
        let differs = match (message, why) {
            (RankMessage::OtherVersion(theirs), HelloRefused::VersionDiffers(ours)) => {
                format!("speaks version {theirs} of the launcher's protocol, and this mpiexec version {ours}")
            }
            (RankMessage::Hello(hello), HelloRefused::LayoutDiffers(ours)) => {
                format!("shares memory in layout {}, and this mpiexec in layout {ours}", hello.layout)
            }
            _ => return,
        };
        let host = &self.host;
        self.mismatch.get_or_insert_with(|| {
            format!(
                "mpiexec: the MPI library of process {process} on {host} {differs}; \
                 use the mpiexec of the same installation [E-JOB-008]"
            )
        });
    }

    /// Tells the user that the loop polls life words, as no thread can watch them: deaths are found some milliseconds later.
    pub fn life_words_are_polled(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.says_polled, false) {
            self.say_now(format!(
                "mpiexec: no thread can be started on {} to watch the ranks' life words: {error}; they are looked at every \
                 few milliseconds instead. Raise the limit on threads (ulimit -u) [E-JOB-014]",
                self.host
            ));
        }
    }

    /// The last lines, and the exit code.
    pub fn finish(self, lines: impl IntoIterator<Item = String>, code: u8) {
        for line in self.mismatch.iter().cloned().chain(lines) {
            self.send(&DaemonReport::Line(line), &[]);
        }
        self.send(&DaemonReport::Ended(code), &[]);
    }
}
