// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which errors of providers are shown: one of each kind when it comes first, and again each time its number has become ten times as great.

use mend_btl_ofi::Report;

/// The kinds that have come, and how often.
#[derive(Debug, Default)]
pub struct ShownFaults(Vec<(Report, u64)>);

/// More kinds than a provider has; others are not shown.
const KINDS_MAX: usize = 256;

impl ShownFaults {
    /// An error has come. How many of its kind came until now, if it is to be shown. The peer is no part of the kind.
    pub fn count(&mut self, report: &Report) -> Option<u64> {
        let kind = Report { peer: None, ..report.clone() };
        let at = match self.0.iter().position(|(shown, _)| *shown == kind) {
            Some(at) => at,
            None if self.0.len() < KINDS_MAX => {
                self.0.push((kind, 0));
                self.0.len() - 1
            }
            None => return None,
        };
        let number = &mut self.0[at].1;
        *number += 1;
        is_power_of_ten(*number).then_some(*number)
    }
}

fn is_power_of_ten(mut number: u64) -> bool {
    while number > 1 && number.is_multiple_of(10) {
        number /= 10;
    }
    number == 1
}

#[cfg(test)]
mod tests {
    use super::ShownFaults;
    use mend_base::PeerIndex;
    use mend_btl_ofi::{Class, Report};
    use mend_ffi_ofi::Code;

    #[test]
    fn a_fault_that_repeats_is_shown_when_its_number_has_grown_tenfold() {
        let mut shown = ShownFaults::default();
        let report = |peer, code| Report {
            class: Class::LocalFault,
            provider: "net".to_owned(),
            operation: "send",
            peer: Some(PeerIndex(peer)),
            code: Code(code),
            provider_code: 0,
        };
        let numbers: Vec<u64> = (0..1_500).filter_map(|peer| shown.count(&report(peer % 7, 22))).collect();
        assert_eq!(numbers, [1, 10, 100, 1_000]);
        assert_eq!(shown.count(&report(0, 12)), Some(1), "another kind");
    }
}
