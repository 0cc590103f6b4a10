//! `unsafe` is only in `tier`, and there is no more of it than there was.

use crate::ceilings::Findings;
use crate::checkout::rust_files;
use crate::source::{Source, tokens};

/// Lines of code with the word.
fn unsafe_lines(code: &str) -> Vec<usize> {
    let words = tokens(code).into_iter();
    words
        .filter(|(_, word)| word == "unsafe")
        .map(|(line, _)| line)
        .collect()
}

#[test]
fn only_tier_is_unsafe() {
    let mut found = Findings::default();
    for file in rust_files(&["src", "tests", "examples"]) {
        for line in unsafe_lines(&Source::parse(&file.text).code) {
            let is_tier = file.crate_name() == "tier";
            let name = if is_tier {
                file.path.clone()
            } else {
                format!("not tier: {}", file.path)
            };
            found.count(&name, format!("line {line}"));
        }
    }
    found.check(
        "unsafe",
        "`unsafe` belongs to `tier`, in as few places as possible",
    );
}

#[test]
fn blocks_and_functions_are_found_and_words_in_comments_are_not() {
    let text = "// unsafe\n#![deny(unsafe_op_in_unsafe_fn)]\nunsafe fn f() {}\nlet a = unsafe { \"unsafe\" };\n";
    assert_eq!(unsafe_lines(&Source::parse(text).code), [3, 4]);
}
