//! README and guide: every code block runs, and the output on the page is the output of the program.
//!
//! The blocks of a page run in order in one scratch folder: `sh` with the program on PATH, `sql` on the database `db`.
//! Words after the language say what differs: `fails` means that the block ends with an error, `no-run` that it cannot
//! run here. A `text` block shows the output of the block before it; in `text varies` numbers may differ, a line `…`
//! stands for any lines, and `…` inside a line for any words. `text example` depends on timing and is not compared.
//! `rust` blocks are tests of the documentation of the crate `hotshelf`.
//!
//! `HOTSHELF_ACCEPT=1 cargo test --workspace --test cli guide` writes what the program prints into the pages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::reference::{accepts, repository};

/// Blocks that no test runs, in all pages: the first build, and the measurement of a device, which takes a minute.
const NO_RUN_MAX: usize = 2;

struct Block {
    /// Index of the opening fence in the page's lines.
    first: usize,
    /// Index of the closing fence.
    last: usize,
    language: String,
    words: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, word: &str) -> bool {
        self.words.iter().any(|each| each == word)
    }
}

fn blocks(lines: &[String]) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    for (idx, line) in lines.iter().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(""), Some(_)) => {
                let mut block = open.take().unwrap();
                block.last = idx;
                found.push(block);
            }
            (Some(info), None) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                open = Some(Block {
                    first: idx,
                    last: idx,
                    language: words.next().expect("a fence names its language"),
                    words: words.collect(),
                    text: String::new(),
                });
            }
            (_, Some(block)) => block.text.push_str(&format!("{line}\n")),
            (_, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// All but the page that holds only output, which a test of its own makes.
fn pages() -> Vec<PathBuf> {
    let root = repository();
    let folder = std::fs::read_dir(root.join("docs/guide")).unwrap();
    let mut pages: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| !page.ends_with("command-line.md"));
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

fn lines_of(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What a page's blocks print, one after the other.
struct Reader {
    folder: tempfile::TempDir,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin");
        std::fs::create_dir(&program).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hotshelf"), program.join("hotshelf"))
            .unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder }
    }

    fn run(&self, block: &Block, place: &str) -> String {
        let script = match block.language.as_str() {
            "sh" => block.text.clone(),
            "sql" => format!("hotshelf sql --db db <<'END'\n{}END\n", block.text),
            other => panic!("{place}: nothing runs a block of '{other}'"),
        };
        let paths = format!(
            "{}:{}",
            self.folder.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let done = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")])
            .current_dir(self.folder.path().join("work"))
            .env("PATH", paths)
            .env("HOTSHELF_HISTORY", self.folder.path().join("history"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env_remove("RUST_LOG")
            .output()
            .unwrap();
        let output = String::from_utf8(done.stdout).unwrap();
        assert_ne!(
            done.status.success(),
            block.is("fails"),
            "{place}: {output}"
        );
        output
    }
}

/// Words of a line that do not depend on the run: neither numbers nor their units.
fn words_of(line: &str) -> Vec<&str> {
    const UNITS: &[&str] = &[
        "ns", "us", "µs", "ms", "s", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB",
    ];
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()))
        .filter(|word| !word.is_empty() && !UNITS.contains(word))
        .collect()
}

/// Whether a line of the page stands for a line that was printed; `…` inside it stands for any words.
fn is_equal(shown: &str, printed: &str, varies: bool) -> bool {
    if !varies {
        return shown.trim_end() == printed.trim_end();
    }
    let printed = words_of(printed);
    match shown.split_once('…') {
        Some((before, after)) => {
            let (before, after) = (words_of(before), words_of(after));
            before.len() + after.len() <= printed.len()
                && printed.starts_with(&before)
                && printed.ends_with(&after)
        }
        None => words_of(shown) == printed,
    }
}

/// Whether the page shows what was printed; a line `…` stands for any lines.
fn shows(shown: &[&str], printed: &[&str], varies: bool) -> bool {
    let Some((line, rest)) = shown.split_first() else {
        return printed.is_empty();
    };
    if line.trim() == "…" {
        return (0..=printed.len()).any(|skipped| shows(rest, &printed[skipped..], varies));
    }
    match printed.split_first() {
        Some((first, others)) => is_equal(line, first, varies) && shows(rest, others, varies),
        None => false,
    }
}

/// A manifest on a page names what the one of the program outside the workspace names, which CI builds.
fn check_manifest(block: &Block, place: &str) {
    let manifest = repository().join("examples/embedding/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    let lines = || block.text.lines().filter(|line| !line.trim().is_empty());
    assert!(lines().count() > 0, "{place}: an empty manifest");
    for line in lines() {
        let known = match line.split_once('=') {
            Some((name, _)) => format!("\n{} = {{ path = ", name.trim()),
            None => format!("\n{line}\n"),
        };
        assert!(
            manifest.contains(&known),
            "{place}: {line} is not in examples/embedding/Cargo.toml"
        );
    }
}

#[test]
fn every_block_of_readme_and_guide_runs_and_prints_what_the_page_shows() {
    let mut different = Vec::new();
    for page in pages() {
        let mut lines = lines_of(&page);
        let reader = Reader::new();
        let mut printed: Option<String> = None;
        let mut corrections: Vec<(usize, usize, String)> = Vec::new();
        for block in blocks(&lines) {
            let place = format!("{}:{}", page.display(), block.first + 1);
            match block.language.as_str() {
                "rust" => printed = None,
                "toml" => {
                    check_manifest(&block, &place);
                    printed = None;
                }
                _ if block.is("no-run") => printed = None,
                "text" => {
                    let output = printed
                        .take()
                        .unwrap_or_else(|| panic!("{place}: output of no block"));
                    let shown: Vec<&str> = block.text.lines().collect();
                    if block.is("example") && !shown.is_empty() {
                        continue;
                    }
                    let lines: Vec<&str> = output.lines().collect();
                    if !shows(&shown, &lines, block.is("varies")) {
                        different.push(format!("{place}: the program prints\n{output}"));
                        corrections.push((block.first, block.last, output));
                    }
                }
                _ => printed = Some(reader.run(&block, &place)),
            }
        }
        if accepts() {
            for (first, last, output) in corrections.into_iter().rev() {
                let output = output.lines().map(|line| line.trim_end().to_owned());
                lines.splice(first + 1..last, output);
            }
            std::fs::write(&page, lines.join("\n") + "\n").unwrap();
        }
    }
    assert!(
        different.is_empty() || accepts(),
        "{}",
        different.join("\n")
    );
}

#[test]
fn few_blocks_cannot_run() {
    let count = |page: &PathBuf| {
        let blocks = blocks(&lines_of(page));
        blocks.iter().filter(|block| block.is("no-run")).count()
    };
    let no_run: usize = pages().iter().map(count).sum();
    assert!(no_run <= NO_RUN_MAX, "{no_run} blocks are not run");
}

#[test]
fn pages_with_rust_are_tests_of_the_crate() {
    let library = std::fs::read_to_string(repository().join("crates/hotshelf/src/lib.rs")).unwrap();
    for page in pages() {
        let has_rust = blocks(&lines_of(&page))
            .iter()
            .any(|block| block.language == "rust");
        let name = page
            .strip_prefix(repository())
            .unwrap()
            .display()
            .to_string();
        assert_eq!(
            has_rust,
            library.contains(&format!("/{name}\"")),
            "{name} in lib.rs"
        );
    }
}

#[test]
fn numbers_and_left_out_lines_do_not_count() {
    let shown = ["| rows 1 | 2.5 ms |", "…", "end"];
    assert!(shows(
        &shown,
        &["| rows 17 | 980 us |", "a", "b", "end"],
        true
    ));
    assert!(!shows(&shown, &["| row 17 | 980 us |", "end"], true));
    assert!(!shows(&shown, &["| rows 17 | 980 us |", "end"], false));
    assert!(shows(&["scan: … of 2"], &["scan: a b of 7"], true));
    assert!(!shows(&["scan: … of 2"], &["scan: a b 7"], true));
}
