// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mend-info --timeline FILE`: draws what `libmend_trace.so` has recorded (`abi/trace/trace.c` has the layout): a line for each rank, its
//! calls, errors, repair, and where it died.

use std::fmt::Write;

/// The files of one job, read.
#[derive(Debug)]
pub struct Trace {
    ranks: Vec<Rank>,
}

/// What one rank has recorded. Times in nanoseconds of one clock.
#[derive(Debug)]
struct Rank {
    number: u32,
    start: u64,
    /// `None`: it has not finalized.
    end: Option<u64>,
    /// The call that it was in at last.
    open: Option<(u64, String)>,
    calls: Vec<Call>,
    dropped: u32,
}

#[derive(Debug)]
struct Call {
    begin: u64,
    end: u64,
    class: u32,
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Messages,
    Collective,
    Creation,
    Repair,
    Other,
}

impl Trace {
    /// Reads `FILE.0` and all others of the job. A rank that died before Init returned has none.
    pub fn read(name: &str) -> Result<Trace, String> {
        let mut ranks = Vec::new();
        let mut count = 1;
        let mut number = 0;
        while number < count {
            let path = format!("{name}.{number}");
            if let Ok(bytes) = std::fs::read(&path) {
                let rank = Rank::parse(&bytes).ok_or_else(|| format!("{path} is no file of MEND_TRACE"))?;
                count = count.max(rank.1.min(RANKS_MAX));
                ranks.push(rank.0);
            } else if number == 0 {
                // The number of ranks is in every file.
                count = RANKS_PROBED;
            }
            number += 1;
        }
        if ranks.is_empty() {
            Err(format!("there is no {name}.0, {name}.1, ..."))
        } else {
            Ok(Trace { ranks })
        }
    }

    /// The drawing, as SVG.
    pub fn draw(&self) -> String {
        let first = self.ranks.iter().map(|rank| rank.start).min().unwrap_or(0);
        let last = self.ranks.iter().map(Rank::last).max().unwrap_or(first).max(first + 1);
        let scale = Scale { first, span: last - first };
        let height = TOP + ROW * self.ranks.len() as f64 + 50.0;
        let mut text = format!(
            "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        legend(&mut text);
        for (row, rank) in self.ranks.iter().enumerate() {
            rank.draw(TOP + ROW * row as f64, &scale, &mut text);
        }
        let (left, y) = (scale.at(first), height - 30.0);
        let milliseconds = scale.span as f64 / 1e6;
        _ = writeln!(text, "<text x=\"{left}\" y=\"{y}\">0</text>");
        let right = scale.at(last);
        _ = writeln!(text, "<text x=\"{right}\" y=\"{y}\" text-anchor=\"end\">{milliseconds:.3} ms</text>");
        let dropped: u32 = self.ranks.iter().map(|rank| rank.dropped).sum();
        if dropped > 0 {
            let y = height - 12.0;
            _ = writeln!(
                text,
                "<text x=\"{left}\" y=\"{y}\">{dropped} calls found no place in the files</text>"
            );
        }
        text += "</svg>\n";
        text
    }
}

impl Rank {
    /// A rank, and the number of ranks of the job; `None`: this is no trace.
    fn parse(bytes: &[u8]) -> Option<(Rank, u32)> {
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let name_at = |at: usize| {
            let name = bytes.get(at..at + NAME_BYTES)?;
            let length = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
            // It goes into the drawing: nothing but what a name of C can have.
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            name[..length].iter().all(is_name).then(|| String::from_utf8_lossy(&name[..length]).into_owned())
        };
        if bytes.get(..8)? != MAGIC {
            return None;
        }
        let (used, end, open) = (u32_at(20)?, u64_at(40)?, name_at(56)?);
        let call = |at: usize| {
            let kind = Kind::from_number(u32_at(at + 20)?)?;
            Some(Call {
                begin: u64_at(at)?,
                end: u64_at(at + 8)?,
                class: u32_at(at + 16)?,
                kind,
                name: name_at(at + 24)?,
            })
        };
        // The last places may have been taken and not filled.
        let records = (0..used as usize).map_while(|number| call(HEAD_BYTES + number * RECORD_BYTES));
        let rank = Rank {
            number: u32_at(8)?,
            start: u64_at(32)?,
            end: (end > 0).then_some(end),
            open: if open.is_empty() { None } else { Some((u64_at(48)?, open)) },
            calls: records.filter(|call| call.end >= call.begin && call.begin > 0).collect(),
            dropped: u32_at(24)?,
        };
        Some((rank, u32_at(12)?))
    }

    /// The last time of which something is known.
    fn last(&self) -> u64 {
        let call = self.calls.iter().map(|call| call.end).max().unwrap_or(self.start);
        let open = self.open.as_ref().map_or(call, |(begin, _)| call.max(*begin));
        self.end.unwrap_or(open).max(open)
    }

    fn draw(&self, y: f64, scale: &Scale, text: &mut String) {
        let (from, to) = (scale.at(self.start), scale.at(self.last()));
        _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>",
            LEFT - 8.0,
            y + 14.0,
            self.number
        );
        _ = writeln!(
            text,
            "<rect x=\"{from:.2}\" y=\"{}\" width=\"{:.2}\" height=\"2\" fill=\"#bbb\"/>",
            y + 9.0,
            to - from
        );
        let mut drawn_to: (f64, &str) = (0.0, "");
        for call in &self.calls {
            let (x, end) = (scale.at(call.begin), scale.at(call.end));
            let color = call.color();
            // What cannot be told apart in the drawing is drawn once; errors and repair always.
            if end <= drawn_to.0 && color == drawn_to.1 {
                continue;
            }
            drawn_to = (end.max(x + WIDTH_LEAST), color);
            let error = match call.class {
                0 => String::new(),
                LEFT_BY_HANDLER => ", left by its error handler".to_owned(),
                class => format!(", error class {class}"),
            };
            _ = writeln!(
                text,
                "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"20\" fill=\"{color}\"><title>{} {:.1} us{error}</title></rect>",
                (end - x).max(WIDTH_LEAST),
                call.name,
                (call.end - call.begin) as f64 / 1e3,
            );
        }
        if self.end.is_none() {
            let place = self.open.as_ref().map_or("outside MPI".to_owned(), |(_, name)| format!("in {name}"));
            let x = to + 4.0;
            _ = writeln!(
                text,
                "<text x=\"{to:.2}\" y=\"{}\" font-size=\"18\" font-weight=\"bold\" fill=\"#c0392b\">\u{d7}</text>\
                 <text x=\"{}\" y=\"{}\" fill=\"#c0392b\">ended {place}</text>",
                y + 16.0,
                x + 10.0,
                y + 14.0
            );
        }
    }
}

impl Kind {
    fn from_number(number: u32) -> Option<Kind> {
        [Kind::Messages, Kind::Collective, Kind::Creation, Kind::Repair, Kind::Other]
            .get(number as usize)
            .copied()
    }
}

impl Call {
    fn color(&self) -> &'static str {
        match self.kind {
            _ if self.class != 0 => ERROR,
            Kind::Messages => "#8fb8de",
            Kind::Collective => "#1b6ca8",
            Kind::Creation => "#b8860b",
            Kind::Repair => "#2d8a4e",
            Kind::Other => "#999999",
        }
    }
}

fn legend(text: &mut String) {
    let words = [
        ("#8fb8de", "messages"),
        ("#1b6ca8", "collective"),
        ("#b8860b", "creation"),
        ("#2d8a4e", "repair"),
        (ERROR, "returned an error"),
    ];
    let mut x = LEFT;
    for (color, word) in words {
        _ = writeln!(text, "<rect x=\"{x}\" y=\"8\" width=\"12\" height=\"12\" fill=\"{color}\"/>");
        _ = writeln!(text, "<text x=\"{}\" y=\"18\">{word}</text>", x + 17.0);
        x += 130.0;
    }
}

/// From times to places.
struct Scale {
    first: u64,
    span: u64,
}

impl Scale {
    fn at(&self, time: u64) -> f64 {
        LEFT + time.saturating_sub(self.first) as f64 / self.span as f64 * (WIDTH - LEFT - RIGHT)
    }
}

const MAGIC: &[u8] = b"MENDTRC1";
const HEAD_BYTES: usize = 128;
const RECORD_BYTES: usize = 48;
const NAME_BYTES: usize = 24;
/// As the class of a call that has not returned although the thread has called again.
const LEFT_BY_HANDLER: u32 = u32::MAX;
/// A file that says more is damaged.
const RANKS_MAX: u32 = 1 << 16;
/// Among so many ranks a file is looked for if rank 0 has none.
const RANKS_PROBED: u32 = 1 << 12;
const ERROR: &str = "#c0392b";
const WIDTH: f64 = 1100.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 34.0;
const ROW: f64 = 28.0;
const WIDTH_LEAST: f64 = 0.4;

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, MAGIC, RECORD_BYTES, Rank, Trace};

    fn file(end: u64, open: &str, calls: &[(u64, u64, u32, u32, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [1, 2, 8, calls.len() as u32, 0, 0] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        for time in [1_000_000, end, 5_000_000] {
            bytes.extend(u64::to_ne_bytes(time));
        }
        bytes.extend(open.bytes());
        bytes.resize(HEAD_BYTES, 0);
        for &(begin, end, class, kind, name) in calls {
            let at = bytes.len();
            bytes.extend([begin, end].iter().flat_map(|time| time.to_ne_bytes()));
            bytes.extend([class, kind].iter().flat_map(|word| word.to_ne_bytes()));
            bytes.extend(name.bytes());
            bytes.resize(at + RECORD_BYTES, 0);
        }
        bytes
    }

    #[test]
    fn a_rank_that_died_in_a_call_is_drawn_with_its_calls_and_its_end() {
        let calls = [
            (2_000_000, 3_000_000, 0, 1, "MPI_Barrier"),
            (3_500_000, 3_750_000, u32::MAX, 0, "MPI_Send"),
            (4_000_000, 4_500_000, 75, 3, "MPIX_Comm_agree"),
        ];
        let (rank, ranks) = Rank::parse(&file(0, "MPI_Recv", &calls)).unwrap();
        assert_eq!((rank.number, ranks, rank.calls.len(), rank.end), (1, 2, 3, None));
        let drawing = Trace { ranks: vec![rank] }.draw();
        for words in [
            "MPI_Barrier 1000.0 us<",
            "MPI_Send 250.0 us, left by its error handler",
            "MPIX_Comm_agree 500.0 us, error class 75",
            "ended in MPI_Recv",
            "4.000 ms",
        ] {
            assert!(drawing.contains(words), "{words}: {drawing}");
        }
    }

    #[test]
    fn a_rank_that_finalized_has_no_mark_and_damage_is_no_trace() {
        let whole = file(6_000_000, "", &[(2_000_000, 3_000_000, 0, 0, "MPI_Send")]);
        let drawing = Trace { ranks: vec![Rank::parse(&whole).unwrap().0] }.draw();
        assert!(!drawing.contains("ended"), "{drawing}");
        assert!(Rank::parse(&whole[1..]).is_none());
        assert!(Rank::parse(&whole[..HEAD_BYTES - 60]).is_none());
        // A record that is missing is left out.
        assert_eq!(Rank::parse(&whole[..HEAD_BYTES + 10]).unwrap().0.calls.len(), 0);
        let script = file(0, "<script>", &[]);
        assert!(Rank::parse(&script).is_none(), "a name that is none");
    }
}
