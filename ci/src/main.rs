// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `tidy [ROOT]`: prints every finding and ends with 1 if there is one.
#![forbid(unsafe_code)]

use mend_ci::{Tree, rules};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let tree = match Tree::read(&root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    // Without files there are no findings, so an empty tree must be an error.
    let (rust, rows) = (tree.rust().count(), rules::rows::count(&tree));
    if rust < RUST_FILES_MIN || rows < ROWS_MIN {
        eprintln!(
            "tidy: {}: {rust} Rust files and {rows} rows of semantics: not the project",
            root.display()
        );
        return ExitCode::from(2);
    }
    let findings = rules::check(&tree);
    findings.iter().for_each(|finding| println!("{finding}"));
    let lines: usize = tree.sources.iter().map(|source| source.text.lines().count()).sum();
    let (files, rows) = (tree.sources.len(), rules::rows::summary(&tree));
    println!("tidy: {files} files, {lines} lines, {} findings; {rows}", findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lower bounds, somewhat below the real numbers.
const RUST_FILES_MIN: usize = 200;
const ROWS_MIN: usize = 100;
