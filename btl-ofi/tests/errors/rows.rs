// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table: call sites at which a code is injected, when, and what is documented to follow (docs/transport-ofi.md).

use mend_btl_ofi::{Class, classify};
use mend_ffi_ofi::Code;
use mend_ffi_ofi::bindings as fi;

/// A row.
pub struct Row {
    pub name: &'static str,
    pub when: When,
    /// Rules of the shim, with `CODE` in place of the code.
    pub rules: &'static str,
    /// What follows of a code.
    pub follows: fn(Code) -> Outcome,
}

/// When the rules hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// While a BTL is opened.
    Opening,
    /// While the two connect.
    Connecting,
    /// While messages and operations are under way.
    Running,
    /// The same; the rules hold until something gives up, and then no more.
    Lasting,
    /// From before a BTL is opened until all is closed.
    Always,
}

/// What follows of an injected code. In each case all else goes on: messages come once, operations end once, and nothing is left open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The site is not called.
    NotCalled,
    /// Nothing is to be seen.
    Absorbed,
    /// It is reported, and the peer is not suspected.
    Reported,
    /// The BTL is not opened.
    NotOpened,
    /// The connection is refused.
    Refused,
    /// The request ends in an error.
    Request,
    /// The peer is suspected; the connection is made again.
    Suspected,
    /// The device is opened again.
    Reopened,
    /// The peer is reported as unreachable in the end.
    GivesUp,
    /// None of these, or a request was lost, doubled or never ended, or something was left open, or a panic or the end of the process.
    Wrong,
}

impl Outcome {
    pub const ALL: [Outcome; 10] = [
        Outcome::NotCalled,
        Outcome::Absorbed,
        Outcome::Reported,
        Outcome::NotOpened,
        Outcome::Refused,
        Outcome::Request,
        Outcome::Suspected,
        Outcome::Reopened,
        Outcome::GivesUp,
        Outcome::Wrong,
    ];

    pub fn named(name: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| format!("{outcome:?}") == name)
    }
}

const fn row(name: &'static str, when: When, rules: &'static str, follows: fn(Code) -> Outcome) -> Row {
    Row { name, when, rules, follows }
}

/// All rows.
pub const ROWS: &[Row] = &[
    row("getinfo", When::Opening, "site=getinfo,code=CODE,count=1", not_opened),
    row("fabric", When::Opening, "site=fabric,code=CODE,count=1", not_opened),
    row("domain", When::Opening, "site=domain,code=CODE,count=1", not_opened),
    row("av_open", When::Opening, "site=av_open,code=CODE,count=1", not_opened),
    row("cq_open", When::Opening, "site=cq_open,code=CODE,count=1", not_opened),
    row("endpoint", When::Opening, "site=endpoint,code=CODE,count=1", not_opened),
    // The first bind is that of the address vector: without it the provider cannot close the endpoint (docs/fabric-shim.md).
    row("bind", When::Opening, "site=bind,code=CODE,after=1,count=1", not_opened),
    row("setopt", When::Opening, "site=setopt,code=CODE,count=1", not_opened),
    row("enable", When::Opening, "site=enable,code=CODE,count=1", not_opened),
    row("getname", When::Opening, "site=getname,code=CODE,count=1", not_opened),
    row("recv", When::Opening, "site=recv,code=CODE,count=1", opening_receive),
    row("av_insert", When::Connecting, "site=av_insert,code=CODE,count=1", |_| Outcome::Refused),
    row("inject", When::Connecting, "site=inject,code=CODE,count=1", connecting),
    row("inject, completion", When::Connecting, "site=inject,mode=completion,code=CODE,count=1", anonymous),
    row("send", When::Running, "site=send,code=CODE,count=1", sending),
    row("send, completion", When::Running, "site=send,mode=completion,code=CODE,count=1", sending),
    row("inject", When::Running, "site=inject,code=CODE,count=1", sending),
    row("inject, completion", When::Running, "site=inject,mode=completion,code=CODE,count=1", anonymous),
    row("recv", When::Running, "site=recv,code=CODE,count=1", receiving),
    row("recv, completion", When::Running, "site=recv,mode=completion,code=CODE,count=1", received),
    row("read", When::Running, "site=read,code=CODE,count=1", reading),
    row("read, completion", When::Running, "site=read,mode=completion,code=CODE,count=1", reading),
    row("endpoint of reads", When::Running, "site=endpoint,code=CODE,count=1", reading),
    row("bind of reads", When::Running, "site=bind,code=CODE,after=1,count=1", reading),
    row("enable of reads", When::Running, "site=enable,code=CODE,count=1", reading),
    row("mr_reg", When::Running, "site=mr_reg,code=CODE,count=1", |_| Outcome::Request),
    row("write, atomic", When::Running, "site=write+atomic,code=CODE,count=1", |_| Outcome::NotCalled),
    row("cancel", When::Running, "site=cancel,code=CODE,count=1", |_| Outcome::NotCalled),
    row("cq_read", When::Running, "site=cq_read,code=CODE,count=1", queue),
    row(
        "cq_readerr",
        When::Running,
        "site=send,mode=completion,code=ECONNRESET,count=1;site=cq_readerr,code=CODE,count=1",
        queue_of_errors,
    ),
    row(
        "av_insert again",
        When::Running,
        "site=av_insert,code=CODE,count=1;site=send+inject,fault=break,code=ECONNRESET,calls=9",
        |_| Outcome::Suspected,
    ),
    row(
        "av_remove",
        When::Running,
        "site=av_remove,code=CODE,count=1;site=send+inject,fault=break,code=ECONNRESET,calls=9",
        |_| Outcome::Suspected,
    ),
    row(
        "fabric again",
        When::Running,
        "site=fabric,code=CODE,count=1;site=cq_read,code=EOVERRUN,count=1",
        reopened,
    ),
    row(
        "domain again",
        When::Running,
        "site=domain,code=CODE,count=1;site=cq_read,code=EOVERRUN,count=1",
        reopened,
    ),
    row(
        "cq_open again",
        When::Running,
        "site=cq_open,code=CODE,count=1;site=cq_read,code=EOVERRUN,count=1",
        reopened,
    ),
    row(
        "getname again",
        When::Running,
        "site=getname,code=CODE,count=1;site=cq_read,code=EOVERRUN,count=1",
        reopened,
    ),
    row("send", When::Lasting, "site=send+inject,code=CODE", lasting_sends),
    row("send, completion", When::Lasting, "site=send+inject,mode=completion,code=CODE", lasting_sends),
    row("recv", When::Lasting, "site=recv,code=CODE", receiving),
    row("read", When::Lasting, "site=read,code=CODE", reading),
    row("read, completion", When::Lasting, "site=read,mode=completion,code=CODE", reading),
    row("mr_reg", When::Lasting, "site=mr_reg,code=CODE", |_| Outcome::Request),
    row("cq_read", When::Lasting, "site=cq_read,code=CODE", lasting_queue),
    row("close", When::Always, "site=close,mode=made,code=CODE", |_| Outcome::Absorbed),
];

fn not_opened(_: Code) -> Outcome {
    Outcome::NotOpened
}

fn opening_receive(code: Code) -> Outcome {
    if classify(code) == Class::Again { Outcome::Absorbed } else { Outcome::NotOpened }
}

fn reopened(_: Code) -> Outcome {
    Outcome::Reopened
}

fn connecting(code: Code) -> Outcome {
    match classify(code) {
        Class::LocalFault => Outcome::Refused,
        _ => sending(code),
    }
}

fn sending(code: Code) -> Outcome {
    match classify(code) {
        Class::Again => Outcome::Absorbed,
        Class::Consequence | Class::Hint => Outcome::Suspected,
        Class::LocalFault => Outcome::Reported,
        Class::Device => Outcome::Reopened,
    }
}

/// The provider does not tell which frame it was.
fn anonymous(code: Code) -> Outcome {
    if classify(code) == Class::Device { Outcome::Reopened } else { Outcome::Reported }
}

fn receiving(code: Code) -> Outcome {
    match classify(code) {
        Class::Again | Class::Consequence | Class::Hint => Outcome::Absorbed,
        Class::LocalFault => Outcome::Reported,
        Class::Device => Outcome::Reopened,
    }
}

fn received(code: Code) -> Outcome {
    // A message was longer than what was left of the buffer, which is no fault of this process.
    if code == Code::TRUNCATED { Outcome::Absorbed } else { receiving(code) }
}

fn reading(code: Code) -> Outcome {
    match classify(code) {
        // The peer sends the bytes instead.
        Class::LocalFault if is_of_key(code) => Outcome::Absorbed,
        Class::LocalFault => Outcome::Request,
        _ => sending(code),
    }
}

fn is_of_key(code: Code) -> bool {
    matches!(code.0 as u32, fi::FI_EKEYREJECTED | fi::FI_ENOKEY | fi::FI_EACCES)
}

/// After an error of the queue itself no completion comes any more.
fn queue(code: Code) -> Outcome {
    match classify(code) {
        Class::Again => Outcome::Absorbed,
        _ if code == Code::AVAILABLE => Outcome::Absorbed,
        _ => Outcome::Reopened,
    }
}

fn queue_of_errors(code: Code) -> Outcome {
    if classify(code) == Class::Again { Outcome::Suspected } else { Outcome::Reopened }
}

/// What is cancelled again and again has no cause of its own, and what is to be tried again makes the peer silent: it is asked about again and
/// again.
fn lasting_sends(code: Code) -> Outcome {
    match classify(code) {
        Class::Again | Class::Consequence => Outcome::Suspected,
        Class::Hint | Class::LocalFault | Class::Device => Outcome::GivesUp,
    }
}

fn lasting_queue(code: Code) -> Outcome {
    if classify(code) == Class::Again { Outcome::Suspected } else { Outcome::GivesUp }
}
