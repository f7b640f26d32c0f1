// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of the detection of failures by the ranks themselves (`docs/parameters.md`).

use mend_base::Duration;
use mend_base::parameter::{Parameter, ParameterKind, Settings};
use mend_proto::detector::{Config, Lease};

/// The parameters of this component.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "detector",
        kind: ParameterKind::Choice(&["off", "ring"]),
        unit: "",
        default: "off",
        description: "How ranks find failures by themselves: not at all, since the node daemon does, or by a ring of heartbeats.",
    },
    Parameter {
        name: "detector.period_ms",
        kind: ParameterKind::Number(1, 60_000),
        unit: "milliseconds",
        default: "100",
        description: "The time between two heartbeats of a rank.",
    },
    Parameter {
        name: "detector.timeout_periods",
        kind: ParameterKind::Number(2, 1_000),
        unit: "periods",
        default: "10",
        description: "After so many periods of silence a rank is suspected.",
    },
    Parameter {
        name: "detector.lease_timeouts",
        kind: ParameterKind::Number(2, 100),
        unit: "timeouts",
        default: "3",
        description: "A rank that no other has heard for so long, in suspicion timeouts, ends itself.",
    },
    Parameter {
        name: "detector.margin_ms",
        kind: ParameterKind::Number(1, 600_000),
        unit: "milliseconds",
        default: "1000",
        description: "A silent rank is declared failed so much later than its lease ends: more than some periods and what two messages take.",
    },
    Parameter {
        name: "detector.observers",
        kind: ParameterKind::Number(1, 16),
        unit: "ranks",
        default: "3",
        description: "How many ranks listen to each rank: so many less one may fail together without the end of a living one.",
    },
];

/// The ring of heartbeats that these parameters ask for. The kinds of the parameters make each combination valid.
pub fn detector_config(settings: &Settings) -> Option<Config> {
    if !settings.has_word("detector", "ring") {
        return None;
    }
    let times = |span: Duration, times: &str| Duration(span.0 * settings.number(times));
    let period = Duration::from_millis(settings.number("detector.period_ms"));
    let timeout = times(period, "detector.timeout_periods");
    let span = times(timeout, "detector.lease_timeouts");
    let margin = Duration::from_millis(settings.number("detector.margin_ms"));
    let observers = settings.number("detector.observers") as u32;
    Some(Config { period, timeout, observers, lease: Some(Lease { span, margin }) })
}

#[cfg(test)]
mod tests {
    use super::{PARAMETERS, detector_config};
    use mend_base::parameter::{Declared, Origin, Settings};
    use mend_base::{Duration, Instant, Rank};
    use mend_proto::detector::{Detector, Lease, Presence};

    fn settings(assigned: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::new(Declared(&[PARAMETERS]));
        let assigned =
            assigned.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        settings.apply(Origin::Environment, &assigned).expect("the parameters take these values");
        settings
    }

    #[test]
    fn the_ring_is_off_by_default_and_every_combination_of_bounds_makes_a_detector() {
        assert_eq!(detector_config(&settings(&[])), None);
        let usual = detector_config(&settings(&[("detector", "ring")])).expect("it is on");
        let lease = Lease { span: Duration::from_millis(3_000), margin: Duration::from_millis(1_000) };
        assert_eq!((usual.timeout, usual.lease), (Duration::from_millis(1_000), Some(lease)));
        for least in [true, false] {
            let bound = |low, high| if least { low } else { high };
            let config = detector_config(&settings(&[
                ("detector", "ring"),
                ("detector.period_ms", bound("1", "60000")),
                ("detector.timeout_periods", bound("2", "1000")),
                ("detector.lease_timeouts", bound("2", "100")),
                ("detector.margin_ms", bound("1", "600000")),
                ("detector.observers", bound("1", "16")),
            ]));
            let detector =
                Detector::new(Instant(0), Rank(0), 4, config.expect("it is on"), Presence::new(Instant(0)));
            assert!(!detector.is_ended());
        }
    }
}
