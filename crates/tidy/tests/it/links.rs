//! Links in the documents lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::checkout::{TextFile, files, root};

/// The lines of a document without fenced code.
pub fn prose_lines(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (idx, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((idx + 1, line));
        }
    }
    lines
}

/// The targets of the links in a line: `[text](target)`.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("](") {
        rest = &rest[at + 2..];
        if let Some(end) = rest.find(')') {
            targets.push(rest[..end].split_whitespace().next().unwrap_or_default());
        }
    }
    targets
}

/// What the headings of a document are called in links.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose_lines(text) {
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let name = kept.collect::<String>().replace(' ', "-");
        let count = counts.entry(name.clone()).or_default();
        anchors.insert(match count {
            0 => name.clone(),
            _ => format!("{name}-{count}"),
        });
        *count += 1;
    }
    anchors
}

/// The links of a document that lead nowhere. `read` returns a file's text by its path from the root, and "" for a
/// folder.
fn broken(path: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (line, prose) in prose_lines(text) {
        for target in targets(prose) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.to_owned()
            } else {
                beside(path, file)
            };
            let Some(found) = read(&file) else {
                broken.push(format!("{path}:{line}: there is no {file}"));
                continue;
            };
            if !anchor.is_empty() && !anchors(&found).contains(anchor) {
                broken.push(format!("{path}:{line}: {file} has no heading #{anchor}"));
            }
        }
    }
    broken
}

/// A path that is relative to a document, from the root.
fn beside(document: &str, path: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The documents of the project.
pub fn documents() -> Vec<TextFile> {
    let mut documents = files(
        &[
            "docs".into(),
            "crates".into(),
            "benchmarks".into(),
            "lab".into(),
        ],
        "md",
    );
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        if let Ok(text) = std::fs::read_to_string(root().join(name)) {
            let path = name.to_owned();
            documents.push(TextFile { path, text });
        }
    }
    documents
}

#[test]
fn links_lead_somewhere() {
    let read = |path: &str| {
        let path = root().join(Path::new(path));
        match path.is_dir() {
            true => Some(String::new()),
            false => std::fs::read(path)
                .ok()
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        }
    };
    let documents = documents();
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|document| broken(&document.path, &document.text, read))
        .collect();
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn files_and_headings_that_are_missing_are_found() {
    let text = "# A `b` & c\n# A b  c\n[up](../x.md#a-b--c) [here](#a-b--c-1) ![picture](y.svg \"title\")\n```\n[code](none)\n```\n[web](https://a.b/c.md)\n[gone](#gone) [lost](z/lost.md)";
    let read = |path: &str| match path {
        "docs/a.md" | "x.md" => Some(text.to_owned()),
        "docs/y.svg" => Some(String::new()),
        _ => None,
    };
    let expected = [
        "docs/a.md:8: docs/a.md has no heading #gone",
        "docs/a.md:8: there is no docs/z/lost.md",
    ];
    assert_eq!(broken("docs/a.md", text, read), expected);
}
