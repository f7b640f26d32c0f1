// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jobs over libfabric whose wires break: each in a network namespace of its own, in which a shell cuts and mends them while the ranks go on.
//!
//! The programs of `tests/wires` and the shell meet in a folder, since the wire is what is broken: `running` says that the ranks exchange
//! messages, `rank-N` holds the process of a rank, `stop` ends the exchange.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use mend_ffi_ofi::Ofi;
use mend_testing::{Scratch, second_name};

use crate::watched_command::{Ended, WatchedCommand};
use crate::{prefix, program};

/// A job whose wires break.
#[derive(Clone, Debug)]
pub struct WireJob {
    /// A program: its source below the root of the sources.
    pub program: &'static str,
    /// Its arguments; the folder in which the ranks and the shell meet is `$PWD`.
    pub arguments: &'static str,
    /// The number of ranks.
    pub ranks: u32,
    /// Variables of the job, besides `MEND_BTL`.
    pub variables: Vec<(&'static str, String)>,
    /// Commands of a shell, run once messages are exchanged.
    pub breaks: String,
    /// How long the job may take.
    pub limit: Duration,
}

impl WireJob {
    /// Two ranks that exchange messages until `breaks` has ended.
    pub fn exchange(breaks: &str) -> WireJob {
        WireJob {
            program: "tests/wires/exchange.c",
            arguments: "\"$PWD\"",
            ranks: 2,
            variables: Vec::new(),
            breaks: format!("{breaks}; touch stop"),
            limit: Duration::from_secs(60),
        }
    }

    /// Ranks that exchange messages until their wire, which `breaks` cuts, has been broken for longer than they wait.
    pub fn cut(ranks: u32, breaks: &str) -> WireJob {
        // As short as it can be without an error on a machine that is busy.
        let variables = vec![("MEND_BTL_OFI_RECONNECT_MS", "1000".to_owned())];
        WireJob { program: "tests/wires/cut.c", ranks, variables, ..WireJob::exchange(breaks) }
    }

    /// The benchmark of the bandwidth with messages of 4 MiB; nothing breaks.
    pub fn bandwidth() -> WireJob {
        WireJob {
            program: "bench/c/bandwidth.c",
            arguments: "--sizes 4M --window 8 --warmup 1 --seconds 2",
            breaks: "true".to_owned(),
            ..WireJob::exchange("")
        }
    }

    /// Runs it over the loopback interface of its namespace.
    pub fn run(&self) -> Ended {
        let mut command = program::mpiexec(self.ranks, self.limit);
        command.arg(self.compiled());
        self.run_script("ip link set lo up", &format!("{} {}", words(&command), self.arguments))
    }

    /// The program.
    pub fn compiled(&self) -> String {
        let source = prefix::place().root.join(self.program);
        let compiled = program::compile(&source).unwrap_or_else(|why| panic!("{}: {why}", source.display()));
        compiled.to_string_lossy().into_owned()
    }

    /// Runs it in two networks, half of the ranks in each, which `links` links join: interfaces r0, r1 and so on in both.
    pub fn run_between_networks(&self, links: &Links) -> Ended {
        let half = (self.ranks / 2).to_string();
        let mpiexec = prefix::command("mpiexec");
        let seconds = self.limit.as_secs().saturating_sub(2).max(1);
        let program = self.compiled();
        let ranks = |network: &str| {
            format!("-n {half} env MENDTEST_NETWORK=/proc/${network}/ns/net '{program}' {}", self.arguments)
        };
        let job = format!("{} --timeout {seconds} {} : {}", words(&mpiexec), ranks("near"), ranks("far"));
        let library = library_in_a_network().to_string_lossy().into_owned();
        let interfaces: Vec<String> = (0..links.count).map(|link| format!("r{link}")).collect();
        let mut job_of = self.clone();
        job_of.variables.push(("MEND_BTL_OFI_LIBRARY", library));
        job_of.variables.push(("MEND_BTL_OFI_INTERFACE", interfaces.join(",")));
        job_of.variables.push(("MEND_BTL_OFI_RAILS", links.rails.to_string()));
        job_of.run_script(&links.setup(), &job)
    }

    /// Runs `job`, words of a shell, after `setup`.
    pub fn run_script(&self, setup: &str, job: &str) -> Ended {
        let folder = Scratch::new("wires");
        let script = format!(
            "set -e; {setup}; set +e; cd '{}'\n\
             (until [ -e running ]; do sleep 0.01; done; {}) > /dev/null 2> breaks.log &\n\
             {job}; code=$?\n\
             touch running; wait $!; cat breaks.log >&2; exit $code",
            folder.path().display(),
            self.breaks
        );
        let mut command = Command::new("unshare");
        command.args(["--net", "bash", "-c", &script]).env("MEND_BTL", "ofi,self");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        WatchedCommand::new(command, self.limit).run()
    }
}

/// Functions of a shell that reset connections: a socket is known by the port at which its process, or the other, listens.
pub const RESETS: &str = r#"
    ports() { ss -Htlnp | sed -n "s/.*:\([0-9]*\) .*pid=$(cat rank-$1),.*/\1/p"; }
    at_both() { ss -HK state established dst 127.0.0.1; }
    at_end() {
        filter=
        for port in $(ports $1); do filter="$filter or sport = :$port"; done
        for port in $(ports $((1 - $1))); do filter="$filter or dport = :$port"; done
        ss -HK state established "( ${filter# or } )"
    }"#;

/// Where connections are reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reset {
    /// At the end of this rank.
    End(u32),
    /// At both ends at once.
    Both,
    /// At one end, at the other while they reconnect, and at both while they do that.
    Again,
}

impl Reset {
    /// Resets the connections so often, with pauses in which messages are exchanged; not counted are those that found none, since the ranks
    /// were connecting. The last line of stderr says how often some were reset.
    pub fn commands(self, times: u64) -> String {
        let reset = match self {
            Reset::End(rank) => format!("at_end {rank}"),
            Reset::Both => "at_both".to_owned(),
            Reset::Again => {
                "at_end 0; sleep 0.00$((RANDOM % 10)); at_end 1; sleep 0.00$((RANDOM % 10)); at_both"
                    .to_owned()
            }
        };
        format!(
            "{RESETS}
             hits=0
             for time in $(seq $((10 * {times}))); do
                 [ $hits -lt {times} ] || break
                 [ -z \"$( {reset} )\" ] || hits=$((hits + 1))
                 sleep 0.$((RANDOM % 200 + 100))
             done
             echo \"hits $hits\" >&2"
        )
    }
}

/// What joins two networks.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// How many links there are.
    pub count: u32,
    /// On how many of them Mend opens devices.
    pub rails: u32,
    /// Whether each carries no more than 1 Gbit/s in each direction.
    pub limited: bool,
}

impl Links {
    /// Each link is a bridge between a pair of interfaces in each network. Its ports are called pLINK-1 and pLINK-2. One that is taken off the bridge
    /// loses packets without a word.
    fn setup(&self) -> String {
        let limit = if self.limited {
            "tc qdisc add dev p$link-$side root tbf rate 1gbit burst 256k latency 50ms;"
        } else {
            ""
        };
        format!(
            "ip link set lo up
             unshare --net sleep infinity & near=$!
             unshare --net sleep infinity & far=$!
             trap 'kill $near $far' EXIT
             side=0
             for network in $near $far; do
                 side=$((side + 1)); there=\"nsenter --net=/proc/$network/ns/net\"
                 until [ $(readlink /proc/$network/ns/net) != $(readlink /proc/$$/ns/net) ]; do sleep 0.01; done
                 $there ip link set lo up
                 for link in $(seq 0 {}); do
                     [ $side = 2 ] || ip link add b$link up type bridge
                     ip link add p$link-$side type veth peer name r$link netns $network
                     ip link set p$link-$side master b$link up; {limit}
                     $there ip addr add 10.9.$link.$side/24 dev r$link
                     $there ip link set r$link up
                 done
             done",
            self.count - 1
        )
    }
}

/// libfabric behind a library that moves the thread which loads it to the network namespace `MENDTEST_NETWORK`. A rank cannot be started there, since
/// it would not reach its node daemon.
fn library_in_a_network() -> PathBuf {
    let source = prefix::place().root.join("tests/wires/in_network.c");
    let library = prefix::folder("wires").join("libin_network.so");
    let beside = second_name(&library);
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&beside);
    gcc.args(["-Wl,--no-as-needed", "-l:libfabric.so.1"]);
    let output = gcc.output().unwrap_or_else(|error| panic!("cannot start gcc: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Renamed when it is complete, as another test may be using it.
    std::fs::rename(&beside, &library).unwrap_or_else(|error| panic!("cannot rename a library: {error}"));
    library
}

/// A command as words of a shell.
pub fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("'{}' ", word.to_string_lossy())).collect()
}

/// What this machine lacks for these jobs: libfabric, network namespaces, or one of these commands of a shell, which must succeed in one.
pub fn missing(trials: &[&str]) -> Option<String> {
    if let Err(error) = Ofi::open(Ofi::DEFAULT_NAME) {
        return Some(format!("{error} (Debian: apt-get install libfabric1)"));
    }
    let works = |trial: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "bash", "-c", trial]);
        command.output().is_ok_and(|output| output.status.success())
    };
    let failed = ["ip link set lo up", "ss -V"].iter().chain(trials).find(|trial| !works(trial))?;
    Some(format!("'{failed}' fails in a network namespace (Debian: apt-get install iproute2 nftables)"))
}

/// What a link between two networks needs.
pub const LINK: &str =
    "ip link add b0 type bridge && ip link add p0 type veth peer name p1 && ip link set p0 master b0";
/// What limits its rate.
pub const RATE: &str = "tc qdisc add dev lo root tbf rate 1gbit burst 256k latency 50ms";
/// Packets that come are dropped without a word.
pub const DROP: &str =
    "nft 'add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }'";
/// Packets come again after [`DROP`].
pub const PASS: &str = "nft 'delete table inet cut'";
