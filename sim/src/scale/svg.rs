// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines over logarithmic axes.

use std::fmt::Write;

/// A named line through points that are above 0.
pub(super) struct Line {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
const COLORS: [&str; 5] = ["#1b6ca8", "#c0392b", "#2d8a4e", "#8e5bb5", "#b8860b"];

/// The logarithms of the ends of an axis.
struct Axis {
    first: i32,
    last: i32,
    base: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, base: f64, from: f64, to: f64) -> Self {
        let logs: Vec<f64> = values.map(|value| value.log(base)).collect();
        let first = logs.iter().copied().fold(f64::INFINITY, f64::min).floor() as i32;
        let last = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil() as i32;
        Axis { first, last: last.max(first + 1), base, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log(self.base) - f64::from(self.first)) / f64::from(self.last - self.first);
        self.from + share * (self.to - self.from)
    }

    fn marks(&self) -> impl Iterator<Item = f64> + '_ {
        (self.first..=self.last).map(|power| self.base.powi(power))
    }
}

/// Draws the lines.
pub(super) fn draw(title: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let across = Axis::new(all().map(|point| point.0), 2.0, LEFT, WIDTH - RIGHT);
    let up = Axis::new(all().map(|point| point.1), 10.0, HEIGHT - BOTTOM, TOP);
    let mut text = format!(
        "<!-- SPDX-License-Identifier: Apache-2.0 OR MIT -->\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"20\" font-size=\"13\">{title}</text>\n"
    );
    for value in across.marks() {
        let x = across.at(value);
        let y = HEIGHT - BOTTOM;
        _ = writeln!(text, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{y}\" stroke=\"#eee\"/>");
        _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"9\">{value}</text>",
            y + 14.0
        );
    }
    for value in up.marks() {
        let y = up.at(value);
        let x = WIDTH - RIGHT;
        _ = writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{x}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
        _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (line, color) in lines.iter().zip(COLORS.iter().cycle()) {
        let points = line.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", across.at(x), up.at(y)));
        let points = points.collect::<Vec<_>>().join(" ");
        _ = writeln!(
            text,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.8\"/>"
        );
        if let Some(&(x, y)) = line.points.last() {
            let (x, y) = (across.at(x) + 6.0, up.at(y) + 4.0);
            _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{color}\">{}</text>", line.name);
        }
    }
    text += "</svg>\n";
    text
}
