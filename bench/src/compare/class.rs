// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distance of two processors, by the transfer time of a cache line between them. Figures are compared only within a class:
//! the same program is several times slower on far processors than on near ones, whichever MPI it uses.

/// Ordered from close to far.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Two threads of one core.
    Siblings,
    /// Two cores that share a cache.
    Near,
    /// Two cores that share no cache.
    Far,
}

impl Class {
    /// The class of a line that takes `line_us` microseconds one way.
    pub fn of(line_us: f64) -> Class {
        match line_us {
            us if us < NEAR_US_MIN => Class::Siblings,
            us if us < FAR_US_MIN => Class::Near,
            _ => Class::Far,
        }
    }

    /// The class of a run between two measurements of the line; `None` if it changed meanwhile, so that the figure belongs to
    /// neither class.
    pub fn unchanged(before_us: f64, after_us: f64) -> Option<Class> {
        let before = Class::of(before_us);
        (before == Class::of(after_us)).then_some(before)
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Class::Siblings => "siblings",
            Class::Near => "near",
            Class::Far => "far",
        }
    }
}

/// Measured one way: siblings 0.028, near 0.066, far 0.28 us. The thresholds are the geometric means.
const NEAR_US_MIN: f64 = 0.043;
const FAR_US_MIN: f64 = 0.136;

#[cfg(test)]
mod tests {
    use super::Class;

    #[test]
    fn a_line_belongs_to_the_class_that_it_is_closest_to_by_ratio() {
        let classes = [0.028, 0.042, 0.044, 0.066, 0.135, 0.137, 0.28, 3.0].map(Class::of);
        let expected = [
            Class::Siblings,
            Class::Siblings,
            Class::Near,
            Class::Near,
            Class::Near,
            Class::Far,
            Class::Far,
            Class::Far,
        ];
        assert_eq!(classes, expected);
    }

    #[test]
    fn a_run_during_which_the_class_changed_has_none() {
        assert_eq!(Class::unchanged(0.06, 0.07), Some(Class::Near));
        assert_eq!(Class::unchanged(0.3, 0.25), Some(Class::Far));
        assert_eq!(Class::unchanged(0.06, 0.28), None);
        assert_eq!(Class::unchanged(0.06, 0.028), None);
    }
}
