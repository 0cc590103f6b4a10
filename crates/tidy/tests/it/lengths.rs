//! Files, functions and lines are short.

use crate::ceilings::Findings;
use crate::checkout::rust_files;
use crate::source::{Source, closing};

/// Lines of a file without its test modules.
const FILE_LINES_MAX: usize = 500;
/// From the line of the name to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 120;

/// Parts of a crate where lengths count.
const PARTS: &[&str] = &["src", "examples"];

/// Files that only hold tests.
fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.ends_with("tests.rs") || path.contains("/tests/") || name == "testing.rs"
}

/// Each function that has a body, with the number of its lines.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut functions = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let behind = &code[at + 3..];
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let name: String = behind
            .trim_start()
            .chars()
            .take_while(|c| is_word(*c))
            .collect();
        // A type of functions has no name, a method without a body ends before its next brace.
        let body = body_start(behind);
        if let (false, Some(open)) = (name.is_empty(), body) {
            let end = closing(code, at + 3 + open);
            functions.push((name, code[at..end].matches('\n').count() + 1));
        }
    }
    functions
}

/// Where the body of a function opens, from behind its `fn`; `None` if it ends without one.
fn body_start(behind: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in behind.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[test]
fn files_are_short() {
    let mut found = Findings::default();
    for file in rust_files(PARTS)
        .iter()
        .filter(|file| !is_test_file(&file.path))
    {
        let code = Source::parse(&file.text).code;
        let lines = file.text.lines().count() - Source::test_line_count(&code);
        if lines > FILE_LINES_MAX {
            found.set(
                file.path.clone(),
                lines,
                format!("more than {FILE_LINES_MAX} lines"),
            );
        }
    }
    found.check("files", "files that are too long: a file has one subject");
}

#[test]
fn functions_are_short() {
    let mut found = Findings::default();
    for file in rust_files(PARTS)
        .iter()
        .filter(|file| !is_test_file(&file.path))
    {
        for (name, lines) in functions(&Source::parse(&file.text).without_tests().code) {
            if lines > FUNCTION_LINES_MAX {
                let what = format!("more than {FUNCTION_LINES_MAX} lines");
                found.set(format!("{}::{name}", file.path), lines, what);
            }
        }
    }
    found.check("functions", "functions that are too long");
}

#[test]
fn lines_are_short() {
    let mut found = Findings::default();
    for file in rust_files(&["src", "tests", "examples"]) {
        for (idx, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !line.contains("http") {
                found.count(&file.path, format!("line {}: {columns} columns", idx + 1));
            }
        }
    }
    found.check("columns", "lines that are too long");
}

#[test]
fn functions_are_measured_from_their_name_to_their_last_brace() {
    let code = "fn a() {\n    if x {\n    }\n}\n\
        pub const fn b(f: fn(u8) -> [u8; 2]) -> u8 {\n}\ntrait T { fn c(&self); }\n";
    let expected = [("a".to_owned(), 4), ("b".to_owned(), 2)];
    assert_eq!(functions(code), expected);
}
