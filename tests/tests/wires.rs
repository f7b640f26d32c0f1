// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways between living ranks that break, over libfabric: cut for a while, reset, cut for good; and ranks that are only stopped.

use std::time::Duration;

use mend_tests::watched_command::Ended;
use mend_tests::wires::{DROP, LINK, Links, PASS, RATE, RESETS, Reset, WireJob, missing};
use mend_tests::{chance, say, skip};

// BAR-15.2: so many times as `MENDTEST_CUTS` says.
#[test]
fn a_wire_that_is_cut_for_a_while_loses_nothing_and_no_rank_gets_an_error() {
    let name = "a_wire_that_is_cut_for_a_while_loses_nothing_and_no_rank_gets_an_error";
    if !can_run(name, &[]) {
        return;
    }
    let times = chance::number("MENDTEST_CUTS").unwrap_or(1);
    let cuts = format!(
        "for time in $(seq {times}); do ip link set lo down; sleep 3; ip link set lo up; sleep 1; done"
    );
    exchange_through("the wire cut for 3 s", times, &cuts, Duration::from_secs(60 + 8 * times));
}

// Pauses between attempts of TCP that doubled would end after the limit.
#[test]
fn a_wire_that_is_cut_for_most_of_the_limit_loses_nothing_and_no_rank_gets_an_error() {
    let name = "a_wire_that_is_cut_for_most_of_the_limit_loses_nothing_and_no_rank_gets_an_error";
    if can_run(name, &[]) {
        let seconds = chance::number("MENDTEST_CUT_SECONDS").unwrap_or(7);
        let cut = format!("ip link set lo down; sleep {seconds}; ip link set lo up; sleep 1");
        exchange_through(
            &format!("the wire cut for {seconds} s"),
            1,
            &cut,
            Duration::from_secs(60 + seconds),
        );
    }
}

// BAR-15.2: so many times each as `MENDTEST_RESETS` says.
#[test]
fn connections_that_are_reset_again_and_again_lose_nothing_and_no_rank_gets_an_error() {
    let name = "connections_that_are_reset_again_and_again_lose_nothing_and_no_rank_gets_an_error";
    if !can_run(name, &[]) {
        return;
    }
    let times = chance::number("MENDTEST_RESETS").unwrap_or(10);
    let kinds = [
        ("a reset at the end of rank 0", Reset::End(0)),
        ("a reset at the end of rank 1", Reset::End(1)),
        ("a reset at both ends", Reset::Both),
        ("a reset at one end, the other, and both while they reconnect", Reset::Again),
    ];
    for (what, reset) in kinds {
        let ended =
            exchange_through(what, times, &reset.commands(times), Duration::from_secs(60 + 3 * times));
        let hits = ended.stderr.lines().find_map(|line| line.strip_prefix("hits ")?.parse::<u64>().ok());
        assert!(hits == Some(times), "few connections were reset: {}", ended.report());
    }
}

/// Breaks the wire while messages are exchanged, and reports how long the longest exchange of one message took.
fn exchange_through(what: &str, times: u64, breaks: &str, limit: Duration) -> Ended {
    let ended = WireJob { limit, ..WireJob::exchange(breaks) }.run();
    assert_no_error(&ended);
    let rounds = ended.stdout.lines().find(|line| line.contains(" rounds, ")).unwrap_or("?");
    say(&format!("figure: {what}, {times} times: no error; {rounds}"));
    ended
}

#[test]
fn a_rank_that_is_stopped_for_longer_than_the_limit_is_waited_for_and_nothing_is_lost() {
    let name = "a_rank_that_is_stopped_for_longer_than_the_limit_is_waited_for_and_nothing_is_lost";
    if !can_run(name, &[]) {
        return;
    }
    // Sleeps: for how long a rank is stopped is what the test is about.
    let stops = "for rank in 1 0; do kill -STOP $(cat rank-$rank); sleep 4; kill -CONT $(cat rank-$rank); sleep 0.5; done";
    let variables = WireJob::cut(2, "").variables;
    assert_no_error(&WireJob { variables, ..WireJob::exchange(stops) }.run());
}

#[test]
fn a_rank_that_computes_for_longer_than_the_limit_is_waited_for_and_nothing_is_lost() {
    let name = "a_rank_that_computes_for_longer_than_the_limit_is_waited_for_and_nothing_is_lost";
    if can_run(name, &[]) {
        // Sleeps: for how long the rank computes is what the test is about.
        let job = WireJob::exchange("touch compute; sleep 4; rm compute; sleep 0.5");
        assert_no_error(&WireJob { variables: WireJob::cut(2, "").variables, ..job }.run());
    }
}

#[test]
fn a_connection_that_is_closed_at_one_end_alone_is_made_again_although_the_other_end_computes() {
    let name = "a_connection_that_is_closed_at_one_end_alone_is_made_again_although_the_other_end_computes";
    if !can_run(name, &[DROP]) {
        return;
    }
    // The end of rank 0 is closed when nothing is under way, and its reset lost, so that nothing tells rank 1 of it. Sleeps: rank 1 is to compute
    // before, and for how long it does afterwards, longer than the limit, is what the test is about.
    let close = format!(
        "{RESETS}
         touch compute; sleep 0.5; kill -STOP $(cat rank-0)
         until ss -Htn | awk '$3 {{ exit 1 }}'; do sleep 0.01; done
         {DROP}; at_end 0; {PASS}
         kill -CONT $(cat rank-0); sleep 6; rm compute; sleep 0.5"
    );
    let variables = vec![("MEND_BTL_OFI_RECONNECT_MS", "4000".to_owned())];
    assert_no_error(&WireJob { variables, ..WireJob::exchange(&close) }.run());
}

#[test]
fn a_wire_that_is_cut_is_an_error_although_the_rank_at_its_other_end_computes() {
    let name = "a_wire_that_is_cut_is_an_error_although_the_rank_at_its_other_end_computes";
    if can_run(name, &[DROP]) {
        let until_error =
            format!("touch compute; {DROP}; until [ -e failed-0 ]; do sleep 0.01; done; rm compute");
        assert_one_part_goes_on(&WireJob::cut(2, &until_error).run(), 2);
    }
}

#[test]
fn a_wire_that_drops_packets_for_longer_than_the_limit_is_the_same_error_at_both_ends_and_one_goes_on() {
    let name =
        "a_wire_that_drops_packets_for_longer_than_the_limit_is_the_same_error_at_both_ends_and_one_goes_on";
    if can_run(name, &[DROP]) {
        assert_one_part_goes_on(&WireJob::cut(2, DROP).run(), 2);
    }
}

#[test]
fn a_link_that_is_down_for_longer_than_the_limit_is_the_same_error_at_both_ends_and_one_goes_on() {
    let name = "a_link_that_is_down_for_longer_than_the_limit_is_the_same_error_at_both_ends_and_one_goes_on";
    if can_run(name, &[]) {
        assert_one_part_goes_on(&WireJob::cut(2, "ip link set lo down").run(), 2);
    }
}

#[test]
fn of_two_halves_that_are_cut_from_each_other_one_part_goes_on_as_the_whole() {
    let name = "of_two_halves_that_are_cut_from_each_other_one_part_goes_on_as_the_whole";
    if can_run(name, &[LINK]) {
        let links = Links { count: 1, rails: 1, limited: false };
        let cut = WireJob::cut(4, "ip link set p0-2 nomaster");
        assert_one_part_goes_on(&cut.run_between_networks(&links), 4);
    }
}

#[test]
fn when_one_of_two_rails_is_cut_the_exchange_goes_on_over_the_other() {
    let name = "when_one_of_two_rails_is_cut_the_exchange_goes_on_over_the_other";
    if !can_run(name, &[LINK]) {
        return;
    }
    let links = Links { count: 2, rails: 2, limited: false };
    for rail in 0..2 {
        // Sleeps: the exchange is to go on for a while, longer than the limit.
        let cut = format!("ip link set p{rail}-2 nomaster; sleep 6");
        let variables = WireJob::cut(2, "").variables;
        let job = WireJob { variables, ..WireJob::exchange(&cut) };
        assert_no_error(&job.run_between_networks(&links));
    }
}

#[test]
fn large_messages_go_by_two_rails() {
    let name = "large_messages_go_by_two_rails";
    if !can_run(name, &[LINK, RATE]) {
        return;
    }
    let rates = [1, 2].map(|rails| {
        let links = Links { count: 2, rails, limited: true };
        let ended = WireJob::bandwidth().run_between_networks(&links);
        let last = ended.stdout.lines().last().and_then(|line| line.split_whitespace().last());
        let rate = last.and_then(|word| word.parse::<f64>().ok());
        rate.unwrap_or_else(|| panic!("no rate was printed: {}", ended.report()))
    });
    let [one, two] = rates;
    say(&format!(
        "figure: messages of 4 MiB by one rail of 1 Gbit/s {one:.1} MB/s, by two {two:.1} MB/s: {:.2} x",
        two / one
    ));
    // How much faster is a figure (bar: 1.6), as another job may use the processors.
    assert!(one > 0.0 && two > 0.0);
}

fn can_run(test: &str, trials: &[&str]) -> bool {
    let missing = missing(trials);
    missing.iter().for_each(|why| skip(test, why));
    missing.is_none()
}

fn assert_no_error(ended: &Ended) {
    let all = (0..2).all(|rank| ended.stdout.contains(&format!("rank {rank}: error none\n")));
    assert!(ended.exited_with(0) && all, "no error was expected: {}", ended.report());
}

/// Each rank has got the documented class, and those that go on are all in one communicator.
fn assert_one_part_goes_on(ended: &Ended, ranks: u32) {
    let all = (0..ranks).all(|rank| ended.stdout.contains(&format!("rank {rank}: error other\n")));
    assert!(ended.exited_with(0) && all, "class MPI_ERR_OTHER was expected everywhere: {}", ended.report());
    let going_on: Vec<&str> = ended.stdout.lines().filter(|line| line.contains("goes on")).collect();
    let whole = format!("goes on as one of {}: none", going_on.len());
    let is_whole = !going_on.is_empty() && going_on.iter().all(|line| line.ends_with(&whole));
    assert!(is_whole, "one communicator was expected: {}", ended.report());
}
