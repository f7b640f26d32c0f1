// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Man pages, made from pages of the manual: Markdown in, roff out.
//!
//! Converts the Markdown that the manual uses: headings, paragraphs, lists, tables, blocks of code, and within a line code, bold,
//! italic and links. The first block of code of a page is the synopsis.

/// A man page and where it comes from.
#[derive(Debug)]
pub struct Page {
    /// The programs that it describes. The first gives the page its name.
    pub names: &'static [&'static str],
    /// What they do, in a few words.
    pub purpose: &'static str,
    /// The page of the manual, from the project's root.
    pub source: &'static str,
}

/// All man pages.
pub const PAGES: [Page; 3] = [
    Page {
        names: &["mpiexec", "mpirun"],
        purpose: "start the ranks of an MPI job on this node",
        source: "docs/mpiexec.md",
    },
    Page {
        names: &["mpicc", "mpicxx", "mpic++", "mpiCC"],
        purpose: "compile and link C and C++ programs that use MPI",
        source: "docs/wrappers.md",
    },
    Page {
        names: &["mend-info"],
        purpose: "show versions, parameters and what can run here",
        source: "docs/mend-info.md",
    },
];

/// The whole man page, from the text of its source.
pub fn roff(page: &Page, text: &str) -> String {
    let mut writer = Writer { out: String::new(), synopsis_at: None };
    writer.opening(page);
    let mut lines = text.lines().filter(|line| !line.starts_with("<!--")).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            writer.code(lines.by_ref().take_while(|line| !line.starts_with("```")));
        } else if let Some(title) = heading(line) {
            writer.heading(title);
        } else if line.starts_with('|') {
            // The first line of a table names the columns; the second, `|---|---|`, has no content.
            let rows = std::iter::from_fn(|| lines.next_if(|line| line.starts_with('|')));
            writer.table(rows.skip(1));
        } else {
            writer.text(line);
        }
    }
    writer.see_also(page);
    writer.out
}

/// The titles below the page's own, which stands in the first line of the man page.
fn heading(line: &str) -> Option<&str> {
    line.starts_with('#').then(|| line.trim_start_matches('#').trim())
}

struct Writer {
    out: String,
    /// Where the synopsis goes, until it has been written.
    synopsis_at: Option<usize>,
}

impl Writer {
    fn opening(&mut self, page: &Page) {
        let name = page.names[0];
        self.out = format!(
            ".\\\" Made from {} by 'cargo xtask install'.\n.TH {} 1 \"\" \"Mend {}\" \"The manual of Mend\"\n.SH NAME\n{} \\- {}\n",
            page.source,
            name.to_uppercase().replace('-', "\\-"),
            env!("CARGO_PKG_VERSION"),
            page.names.join(", ").replace('-', "\\-"),
            page.purpose,
        );
        self.synopsis_at = Some(self.out.len());
        self.macro_line(".SH DESCRIPTION");
    }

    fn macro_line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn heading(&mut self, title: &str) {
        // The title of the page is the name of its first program.
        if self.out.ends_with(".SH DESCRIPTION\n") {
            return;
        }
        self.macro_line(&format!(".SH \"{}\"", verbatim(&title.replace('`', "")).to_uppercase()));
    }

    fn code<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let mut block = String::new();
        for line in lines {
            block.push_str(&protected(verbatim(line)));
            block.push('\n');
        }
        match self.synopsis_at.take() {
            Some(at) => self.out.insert_str(at, &format!(".SH SYNOPSIS\n.nf\n{block}.fi\n")),
            None => self.out.push_str(&format!(".PP\n.RS 4\n.nf\n{block}.fi\n.RE\n")),
        }
    }

    /// The first cell is the term, the others explain it.
    fn table<'a>(&mut self, rows: impl Iterator<Item = &'a str>) {
        for row in rows {
            let cells: Vec<_> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
            let explanations: Vec<_> =
                cells[1..].iter().filter(|cell| !cell.is_empty()).map(|cell| inline(cell)).collect();
            self.macro_line(".TP");
            self.macro_line(&protected(inline(cells[0])));
            self.macro_line(&protected(explanations.join("; ")));
        }
    }

    fn see_also(&mut self, page: &Page) {
        self.macro_line(".SH \"SEE ALSO\"");
        for other in PAGES.iter().filter(|other| other.names != page.names) {
            self.macro_line(&format!(".BR {} (1),", verbatim(other.names[0])));
        }
        self.macro_line("and the manual under share/doc/mend of the installation.");
    }

    fn text(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            if !self.out.ends_with(".PP\n") && !self.out.ends_with(".SH DESCRIPTION\n") {
                self.macro_line(".PP");
            }
        } else if let Some(item) = line.strip_prefix("* ") {
            self.macro_line(".IP \\(bu 2");
            self.macro_line(&protected(inline(item)));
        } else {
            self.macro_line(&protected(inline(line)));
        }
    }
}

/// Escapes text, so that roff prints a backslash and a minus as they are.
fn verbatim(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Escapes a dot or quote at the beginning of a line, which would be a request.
fn protected(line: String) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

/// Code and bold become bold, italic stays italic, and a link becomes its text.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in without_links(text).split('`').enumerate() {
        if number % 2 == 1 {
            out.push_str(&format!("\\fB{}\\fR", verbatim(part)));
        } else {
            out.push_str(&emphasis(&part.replace('\\', "\\e")));
        }
    }
    out
}

fn emphasis(text: &str) -> String {
    let mut out = String::new();
    for (number, part) in text.split("**").enumerate() {
        if number > 0 {
            out.push_str(if number % 2 == 1 { "\\fB" } else { "\\fR" });
        }
        for (number, part) in part.split('*').enumerate() {
            if number > 0 {
                out.push_str(if number % 2 == 1 { "\\fI" } else { "\\fR" });
            }
            out.push_str(part);
        }
    }
    out
}

fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((open, words)) = before.rsplit_once('[') else { break };
        out.push_str(open);
        out.push_str(words);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::{PAGES, inline, roff};

    #[test]
    fn a_page_becomes_sections_a_synopsis_terms_and_items() {
        let text = "<!-- SPDX -->\n# mend-info\n\nPrints `a-b`.\n\n```\nmend-info [--json]\n```\n\n## Options\n\n\
                    | option | what |\n|---|---|\n| `--json` | JSON |\n\n* one\n  more\n\n.hidden\n";
        let page = roff(&PAGES[2], text);
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part:?} is missing in {page}"));
        assert!(at(".SH NAME\nmend\\-info \\- ") < at(".SH SYNOPSIS\n.nf\nmend\\-info [\\-\\-json]\n.fi\n"));
        assert!(at(".fi\n") < at(".SH DESCRIPTION\nPrints \\fBa\\-b\\fR.\n"));
        assert!(at(".SH \"OPTIONS\"") < at(".TP\n\\fB\\-\\-json\\fR\nJSON\n"));
        assert!(at(".IP \\(bu 2\none\nmore\n") < at("\\&.hidden\n"));
        assert!(!page.contains("option") && !page.contains("---"));
    }

    #[test]
    fn marks_within_a_line_become_fonts_and_links_their_text() {
        assert_eq!(inline("a **b** *c* [d `e`](f.md#g), h\\i"), "a \\fBb\\fR \\fIc\\fR d \\fBe\\fR, h\\ei");
    }
}
