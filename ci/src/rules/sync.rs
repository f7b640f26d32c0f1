// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory orderings are named in pairs: `// SYNC: slot content, with Ring::pop` at the Release, and the same subject, with the
//! other place, at the Acquire. A label without its counterpart marks an ordering without effect. A fence that has no other side by
//! design says so: `// SYNC: asleep before the last poll, with no other side: why`.

use crate::{Finding, Source, Tree};
use std::collections::BTreeMap;

const LABEL: &str = "SYNC: ";
const ONE_SIDED: &str = "no other side: ";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut subjects: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for source in tree.rust().filter(|source| source.first_folder() != "ci") {
        for (line, label) in labels(source) {
            let place = (source.path.clone(), line);
            match label.split_once(", with ") {
                Some((_, other)) if other.starts_with(ONE_SIDED) => {}
                Some((subject, _)) => subjects.entry(subject.to_owned()).or_default().push(place),
                None => {
                    findings.push(finding(place, format!("'{label}' is not 'subject, with the other place'")))
                }
            }
        }
    }
    let lonely = subjects.into_iter().filter(|(_, places)| places.len() < 2);
    findings.extend(lonely.flat_map(|(subject, places)| {
        let what = format!("'{subject}' is named once; the other side of the pair is missing");
        places.into_iter().map(move |place| finding(place, what.clone()))
    }));
    findings
}

/// The line of each label, and the label with the comment lines that go on from it.
fn labels(source: &Source) -> Vec<(usize, String)> {
    let mut labels: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (at, comment) in source.comment_lines() {
        let line = source.line_of(at);
        let text = comment.trim().trim_start_matches('/').trim();
        if let Some(label) = text.strip_prefix(LABEL) {
            labels.push((line, label.to_owned()));
            last = line;
        } else if let Some((_, label)) = labels.last_mut()
            && line == last + 1
        {
            label.push(' ');
            label.push_str(text);
            last = line;
        }
    }
    labels
}

fn finding((file, line): (String, usize), what: String) -> Finding {
    Finding { file, line, rule: "sync", what }
}

#[cfg(test)]
mod tests {
    use crate::rules::places;

    #[test]
    fn a_label_without_its_other_side_is_found() {
        let good = "// SYNC: bell, with no other side: a hint.\n\n// SYNC: slot,\n// with `pop`\n// SYNC: slot, with `push`\n";
        assert_eq!(places(super::check, [("a/src/x.rs", good)]), [""; 0]);
        let bad = "// SYNC: slot, with `pop`\n// SYNC: credit\n";
        assert_eq!(places(super::check, [("a/src/x.rs", bad)]), ["a/src/x.rs:2", "a/src/x.rs:1"]);
    }
}
