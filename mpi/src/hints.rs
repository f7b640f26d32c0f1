// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hints of communicators (MPI-5.0 §7.4.4): the info keys about failures that Mend knows, and their values. Other keys and values are
//! ignored (Row IK4). Each key of a fault-tolerance proposal has two spellings, `mpi_` and `mpix_`.

/// Which failures revoke the communicator, without a call of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorRange {
    /// None: an operation raises an error where it needs the failed process.
    #[default]
    Local,
    /// The failure of a member.
    Group,
    /// The failure of any process that this process knows.
    Universe,
}

/// Which calls have the same outcome at all members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Uniform {
    /// None: where a member fails, some members may return success and others an error.
    Local,
    /// Calls that create communicators.
    #[default]
    Create,
}

/// The hints of one communicator. All its members have the same ones: the program sets them collectively.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// `mpi_error_range`.
    pub error_range: ErrorRange,
    /// `mpi_error_uniform`.
    pub uniform: Uniform,
    /// `mpix_agree_uniform`: what an agreement has returned anywhere outlives everybody to whom it was returned.
    pub agree_uniform: bool,
    /// The spellings in which the program gave the first two, and reads them again.
    range_spelling: Spelling,
    uniform_spelling: Spelling,
}

impl Hints {
    /// The hints of a program's info object; those that it does not give are the defaults.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Hints {
        Hints::default().updated(pairs)
    }

    /// These hints with those of a program's info object. If both spellings of a key are there, the later one has precedence: the
    /// earlier one may come from [`pairs`](Hints::pairs).
    #[must_use]
    pub fn updated<'a>(mut self, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Hints {
        for (key, value) in pairs {
            self.set(key, value);
        }
        self
    }

    /// Sets one hint. An unknown key or value changes nothing.
    fn set(&mut self, key: &[u8], value: &[u8]) {
        if let Some(spelling) = Spelling::of(&ERROR_RANGE, key) {
            if let Some(range) = find(&ERROR_RANGES, value) {
                (self.error_range, self.range_spelling) = (range, spelling);
            }
        } else if let Some(spelling) = Spelling::of(&ERROR_UNIFORM, key) {
            if let Some(uniform) = find(&UNIFORMS, value) {
                (self.uniform, self.uniform_spelling) = (uniform, spelling);
            }
        } else if key == AGREE_UNIFORM.as_bytes() {
            self.agree_uniform = find(&BOOLEANS, value).unwrap_or(self.agree_uniform);
        }
    }

    /// All hints as keys and values, defaults too.
    pub fn pairs(&self) -> [(&'static str, &'static str); 3] {
        [
            (self.range_spelling.among(&ERROR_RANGE), name(&ERROR_RANGES, self.error_range)),
            (self.uniform_spelling.among(&ERROR_UNIFORM), name(&UNIFORMS, self.uniform)),
            (AGREE_UNIFORM, name(&BOOLEANS, self.agree_uniform)),
        ]
    }
}

/// Which of two spellings of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Spelling {
    #[default]
    Mpi,
    Mpix,
}

impl Spelling {
    fn of([mpi, mpix]: &[&str; 2], key: &[u8]) -> Option<Spelling> {
        match key {
            key if key == mpi.as_bytes() => Some(Spelling::Mpi),
            key if key == mpix.as_bytes() => Some(Spelling::Mpix),
            _ => None,
        }
    }

    fn among(self, [mpi, mpix]: &[&'static str; 2]) -> &'static str {
        match self {
            Spelling::Mpi => mpi,
            Spelling::Mpix => mpix,
        }
    }
}

/// The value with this name; blanks around the name do not count.
fn find<T: Copy>(names: &[(&str, T)], value: &[u8]) -> Option<T> {
    names.iter().find(|(name, _)| name.as_bytes() == value.trim_ascii()).map(|&(_, value)| value)
}

fn name<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    let found = names.iter().find(|(_, each)| *each == value);
    found.expect("each value has a name").0
}

const ERROR_RANGE: [&str; 2] = ["mpi_error_range", "mpix_error_range"];
const ERROR_UNIFORM: [&str; 2] = ["mpi_error_uniform", "mpix_error_uniform"];
const AGREE_UNIFORM: &str = "mpix_agree_uniform";

const ERROR_RANGES: [(&str, ErrorRange); 3] =
    [("local", ErrorRange::Local), ("group", ErrorRange::Group), ("universe", ErrorRange::Universe)];
/// `coll` asks for the same outcome of all collective operations, of which Mend gives the part that concerns creations: the program reads
/// `create` again.
const UNIFORMS: [(&str, Uniform); 3] =
    [("local", Uniform::Local), ("create", Uniform::Create), ("coll", Uniform::Create)];
const BOOLEANS: [(&str, bool); 2] = [("false", false), ("true", true)];

#[cfg(test)]
mod tests {
    use super::{ErrorRange, Hints, Uniform};

    fn updated(hints: Hints, pairs: &[(&'static str, &'static str)]) -> Hints {
        hints.updated(pairs.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
    }

    // Row IK4
    #[test]
    fn both_spellings_set_a_hint_and_it_is_read_in_the_one_that_set_it() {
        let hints =
            updated(Hints::default(), &[("mpi_error_range", " group "), ("mpix_error_uniform", "local")]);
        assert_eq!((hints.error_range, hints.uniform), (ErrorRange::Group, Uniform::Local));
        assert_eq!(
            hints.pairs(),
            [("mpi_error_range", "group"), ("mpix_error_uniform", "local"), ("mpix_agree_uniform", "false")]
        );
        let all = [
            ("mpix_error_range", "universe"),
            ("mpi_error_uniform", "local"),
            ("mpix_agree_uniform", "true"),
        ];
        assert_eq!(updated(hints, &all).pairs(), all);
        assert_eq!(updated(Hints::default(), &updated(hints, &all).pairs()), updated(hints, &all));
    }

    #[test]
    fn a_later_spelling_has_precedence() {
        let both = [("mpi_error_range", "group"), ("mpix_error_range", "local")];
        assert_eq!(updated(Hints::default(), &both).error_range, ErrorRange::Local);
        assert_eq!(updated(Hints::default(), &[both[1], both[0]]).error_range, ErrorRange::Group);
    }

    // Row IK3
    #[test]
    fn uniform_collectives_are_not_promised() {
        let hints =
            updated(Hints::default(), &[("mpi_error_uniform", "local"), ("mpix_error_uniform", "coll")]);
        assert_eq!(hints.uniform, Uniform::Create);
        assert_eq!(hints.pairs()[1], ("mpix_error_uniform", "create"));
    }

    // Row IK4
    #[test]
    fn unknown_keys_and_values_are_ignored() {
        let hints =
            updated(Hints::default(), &[("mpi_error_range", "group"), ("mpix_agree_uniform", "true")]);
        for pair in [
            ("mpi_error_range", "Local"),
            ("mpi_error_range", ""),
            ("mpi_error_uniform", "group"),
            ("mpix_agree_uniform", "1"),
            ("MPI_ERROR_RANGE", "local"),
            ("mpi_agree_uniform", "false"),
            ("mpi_assert_no_any_tag", "true"),
        ] {
            assert_eq!(updated(hints, &[pair]), hints, "{pair:?}");
        }
        let defaults = Hints::default();
        assert_eq!((defaults.error_range, defaults.uniform), (ErrorRange::Local, Uniform::Create));
    }
}
