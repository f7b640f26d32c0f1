// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line of a comparison.

use super::Outcome;

/// The options of the command line.
#[derive(Debug, PartialEq)]
pub struct Options<'a> {
    /// The prefix of Mend.
    pub mend: Option<&'a str>,
    /// An older Mend, with the name it has in the table.
    pub before: Option<(&'a str, &'a str)>,
    /// Other MPIs: name and prefix.
    pub others: Vec<(&'a str, &'a str)>,
    /// Whether Open MPI from PyPI is measured too.
    pub open_mpi: bool,
    /// How often each MPI runs each benchmark.
    pub rounds: u32,
    /// How many busy processes run beside each benchmark.
    pub busy: u32,
    /// Where pinned ranks run.
    pub processors: [usize; 2],
    /// How the name of a benchmark must begin.
    pub only: &'a str,
    /// The provider of libfabric over which all are compared, instead of each MPI's own choice.
    pub fabric: Option<&'a str>,
    /// The libfabric that Mend and the provider alone use.
    pub library: Option<&'a str>,
}

/// Reads the command line.
pub fn parse<'a>(words: &[&'a str]) -> Outcome<Options<'a>> {
    let mut options = Options {
        mend: None,
        before: None,
        others: Vec::new(),
        open_mpi: true,
        rounds: 7,
        busy: 0,
        processors: [0, 1],
        only: "",
        fabric: None,
        library: None,
    };
    let mut words = words.iter();
    while let Some(&option) = words.next() {
        if option == "--without-open-mpi" {
            options.open_mpi = false;
            continue;
        }
        let &value = words.next().ok_or_else(|| format!("{option} needs a value\n{}", crate::USAGE))?;
        match option {
            "--mend" => options.mend = Some(value),
            "--before" => options.before = Some((BEFORE, value)),
            "--only" => options.only = value,
            "--fabric" => options.fabric = Some(value),
            "--library" => options.library = Some(value),
            "--rival" => {
                let other = value.split_once('=').ok_or_else(|| format!("'{value}' is not NAME=PREFIX"))?;
                options.others.push(other);
            }
            "--rounds" => options.rounds = number(value, 1, 1000)? as u32,
            "--busy" => options.busy = number(value, 1, 64)? as u32,
            "--pin" => options.processors = processors(value)?,
            _ => return Err(format!("'{option}' is not understood\n{}", crate::USAGE)),
        }
    }
    Ok(options)
}

fn processors(list: &str) -> Outcome<[usize; 2]> {
    let pair = list.split_once(',').ok_or_else(|| format!("'{list}' is not two processors, as in 0,1"))?;
    let pair = [number(pair.0, 0, PROCESSOR_MAX)?, number(pair.1, 0, PROCESSOR_MAX)?];
    if pair[0] == pair[1] { Err(format!("'{list}' is the same processor twice")) } else { Ok(pair) }
}

fn number(word: &str, least: usize, most: usize) -> Outcome<usize> {
    let parsed = word.parse().ok().filter(|number| (least..=most).contains(number));
    parsed.ok_or_else(|| format!("'{word}' is no number from {least} to {most}"))
}

/// The name of an older Mend in the table.
const BEFORE: &str = "before";
/// The highest processor number of a processor set.
const PROCESSOR_MAX: usize = 1023;

#[cfg(test)]
mod tests {
    use super::{Options, parse};

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let options = parse(&["--mend", "p", "--rival", "MPICH=/opt/mpich", "--rounds", "3"]).unwrap();
        let others = vec![("MPICH", "/opt/mpich")];
        let (before, open_mpi, busy, processors, only) = (None, true, 0, [0, 1], "");
        let expected = Options {
            mend: Some("p"),
            before,
            others,
            open_mpi,
            rounds: 3,
            busy,
            processors,
            only,
            fabric: None,
            library: None,
        };
        assert_eq!(options, expected);
        let options = parse(&["--before", "q", "--without-open-mpi", "--busy", "2", "--pin", "2,5"]).unwrap();
        assert_eq!((options.before, options.open_mpi), (Some(("before", "q")), false));
        assert_eq!((options.busy, options.processors), (2, [2, 5]));
        let wrong = [&["--rounds", "0"][..], &["--mend"], &["--rival", "x"], &["--fast", "1"], &["--before"]];
        for wrong in wrong.into_iter().chain([&["--busy", "0"][..], &["--pin", "1"], &["--pin", "1,1"]]) {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
