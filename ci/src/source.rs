// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One file, parsed as far as the rules need it: code without comments and strings, comments without code, functions, and which
//! lines are tests.

/// One file.
#[derive(Debug)]
pub struct Source {
    /// Relative to the root, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The text with comments and the insides of strings blanked, byte for byte.
    pub code: String,
    /// The text with everything but comments blanked, byte for byte.
    pub comments: String,
    /// Where each line begins.
    starts: Vec<usize>,
    /// Whether the whole file is a test or belongs to one.
    pub all_test: bool,
    /// Byte ranges of `#[cfg(test)]` items.
    tests: Vec<(usize, usize)>,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`, from 1.
    pub line: usize,
    /// How many lines from there to the closing brace.
    pub lines: usize,
    /// The byte range of its body, without the braces.
    pub body: (usize, usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Text,
}

impl Source {
    /// Parses `text`; the language follows from `path`.
    pub fn new(path: &str, text: &str) -> Self {
        let kinds = if is_c_like(path) { classify(text.as_bytes()) } else { vec![Kind::Code; text.len()] };
        let code = keep(text, &kinds, Kind::Code);
        let comments = keep(text, &kinds, Kind::Comment);
        let starts = core::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let tests = if path.ends_with(".rs") { test_items(&code) } else { Vec::new() };
        let (path, text) = (path.to_owned(), text.to_owned());
        Source { path, text, code, comments, starts, all_test: false, tests }
    }

    /// The line of a byte, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|&start| start <= at)
    }

    /// Whether the byte belongs to a test.
    pub fn is_test(&self, at: usize) -> bool {
        self.all_test || self.tests.iter().any(|&(start, end)| (start..end).contains(&at))
    }

    /// The byte offsets of `word` in the code, as a whole word.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let whole = |at: &usize| is_whole_word(&self.code, *at, word.len());
        self.code.match_indices(word).map(|(at, _)| at).filter(whole)
    }

    /// The comments, one for each line that has one, with the byte offset of each.
    pub fn comment_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines =
            self.starts.iter().map(|&start| (start, self.comments[start..].lines().next().unwrap_or("")));
        lines.filter(|(_, line)| !line.trim().is_empty())
    }

    /// Its functions that have bodies.
    pub fn functions(&self) -> Vec<Function> {
        self.words("fn").filter_map(|at| self.function_at(at)).collect()
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let name: String =
            self.code[at + 2..].trim_start().chars().take_while(|&c| is_word(c) || c == '$').collect();
        if name.is_empty() {
            // A type such as `fn(u32)`.
            return None;
        }
        let open = body_start(&self.code, at)?;
        let close = closing(&self.code, open)?;
        let line = self.line_of(at);
        Some(Function { name, line, lines: self.line_of(close) - line + 1, body: (open + 1, close) })
    }

    /// The modules that this file declares as tests: `#[cfg(test)] mod name;`.
    pub fn test_modules(&self) -> Vec<String> {
        let declarations = self.tests.iter().filter_map(|&(start, end)| {
            let item = self.code[start..end].trim_end().strip_suffix(';')?;
            let (before, name) = item.rsplit_once(char::is_whitespace)?;
            before.trim_end().ends_with("mod").then(|| name.to_owned())
        });
        declarations.collect()
    }
}

/// Rust and C: comments by `//` and `/* */`, strings by `"`.
fn is_c_like(path: &str) -> bool {
    [".rs", ".c", ".h", ".cpp", ".cc"].iter().any(|ending| path.ends_with(ending))
}

/// The kind of each byte.
fn classify(text: &[u8]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; text.len()];
    let mut at = 0;
    while at < text.len() {
        let (kind, end) = token(text, at);
        kinds[at..end].fill(kind);
        if kind == Kind::Text {
            // The quotes stay, so that code keeps its shape.
            kinds[at] = Kind::Code;
            kinds[end - 1] = Kind::Code;
        }
        at = end;
    }
    kinds
}

/// The kind of the token that begins at `at`, and its end.
fn token(text: &[u8], at: usize) -> (Kind, usize) {
    let rest = &text[at..];
    let after_word = at > 0 && is_word(char::from(text[at - 1]));
    if rest.starts_with(b"//") {
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        (Kind::Comment, at + end)
    } else if rest.starts_with(b"/*") {
        (Kind::Comment, at + block_comment(rest))
    } else if rest[0] == b'"' {
        (Kind::Text, at + quoted(rest, b'"'))
    } else if !after_word && (rest.starts_with(b"r\"") || rest.starts_with(b"r#")) {
        raw_string(rest).map_or((Kind::Code, at + 1), |end| (Kind::Text, at + end))
    } else if rest[0] == b'\'' {
        character(rest).map_or((Kind::Code, at + 1), |end| (Kind::Text, at + end))
    } else {
        (Kind::Code, at + 1)
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`; `None` for a raw identifier.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = 2 + hashes;
    let end = rest[body..].windows(close.len()).position(|window| window == close);
    Some(end.map_or(rest.len(), |end| body + end + close.len()))
}

/// `'x'`, `'\n'`, `'\u{1F}'`; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    // One character of up to four bytes, then the quote.
    let width = rest[1..].iter().take(5).position(|&byte| byte == b'\'')?;
    let text = core::str::from_utf8(&rest[1..1 + width]).ok()?;
    (text.chars().count() == 1).then_some(width + 2)
}

/// `text` with every byte of another kind blanked; lines stay where they are.
fn keep(text: &str, kinds: &[Kind], kind: Kind) -> String {
    let bytes = text.bytes().zip(kinds).map(|(byte, &each)| match byte {
        b'\n' => b'\n',
        byte if each == kind => byte,
        _ => b' ',
    });
    // A character of several bytes is of one kind as a whole, or blanked as a whole.
    String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
}

/// The byte ranges of items under `#[cfg(test)]`, `#[cfg(all(test, ...))]` and `#[test]`, attribute included.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items: Vec<(usize, usize)> = Vec::new();
    for (at, _) in code.match_indices("#[") {
        let Some(end) = closing(code, at + 1) else { continue };
        let attribute = &code[at + 2..end];
        let conditional = attribute.starts_with("cfg(") && !attribute.contains("not(test");
        let is_test = attribute == "test" || (conditional && has_word(attribute, "test"));
        let inside = items.last().is_some_and(|&(_, last)| at < last);
        if is_test && !inside {
            items.push((at, item_end(code, end + 1)));
        }
    }
    items
}

/// The end of the item that begins at or after `from`: after its closing brace, or its semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return closing(code, at).map_or(code.len(), |close| close + 1),
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The brace that opens the body of the function at `at`; `None` for a declaration.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let end = item_end(code, at);
    let open = code[at..end].char_indices();
    let mut depth = 0;
    for (offset, c) in open {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at + offset),
            _ => {}
        }
    }
    None
}

/// The bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether `text` holds `word` as a whole word.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| is_whole_word(text, at, word.len()))
}

fn is_whole_word(text: &str, at: usize, len: usize) -> bool {
    let before = text[..at].chars().next_back();
    let after = text[at + len..].chars().next();
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "let a = \"unsafe // no\"; // unsafe\nlet b = r#\"unsafe \" \"#; /* /* unsafe */ */ c('\"', '\\'', 'ü');\n\
                    fn f<'a>(x: &'a str) {}";
        let source = Source::new("x.rs", text);
        assert_eq!(source.words("unsafe").count(), 0, "{}", source.code);
        assert_eq!(source.comment_lines().count(), 2);
        assert_eq!(source.functions()[0].name, "f");
        assert_eq!(source.code.len(), text.len());
    }

    #[test]
    fn functions_have_names_bodies_and_lengths() {
        let text = "trait T { fn declared(&self, x: [u8; 3]); }\nfn long(\n    f: fn(u8) -> [u8; 2],\n) -> u8 {\n    1\n}\n";
        let functions = Source::new("x.rs", text).functions();
        assert_eq!(functions.len(), 1);
        assert_eq!((functions[0].name.as_str(), functions[0].line, functions[0].lines), ("long", 2, 5));
        assert_eq!(text[functions[0].body.0..functions[0].body.1].trim(), "1");
    }

    #[test]
    fn test_items_are_known_and_what_is_not_a_test_is_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod paper;\n#[cfg(not(test))]\nfn b() {}\n#[cfg(test)]\nmod tests {\n#[test]\nfn c() {}\n}\nfn d() {}";
        let source = Source::new("x.rs", text);
        assert_eq!(source.test_modules(), ["paper"]);
        let is_test = |name: &str| source.is_test(text.find(name).unwrap());
        assert!(!is_test("fn a") && !is_test("fn b") && is_test("fn c") && !is_test("fn d"));
    }
}
