//! Lists of what breaks a rule already, with numbers that must not grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use crate::checkout::root;

/// What a check found: for each name a number, and where it comes from in words.
#[derive(Default)]
pub struct Findings(BTreeMap<String, (usize, Vec<String>)>);

impl Findings {
    /// Counts one more for this name.
    pub fn count(&mut self, name: &str, what: String) {
        let entry = self.0.entry(name.to_owned()).or_default();
        entry.0 += 1;
        entry.1.push(what);
    }

    /// The number for this name.
    pub fn set(&mut self, name: String, number: usize, what: String) {
        self.0.insert(name, (number, vec![what]));
    }

    /// Everything that exceeds its number in the list. Names that the list does not have may not be found at all.
    fn excess(&self, allowed: &BTreeMap<String, usize>) -> String {
        let mut excess = String::new();
        for (name, (number, whats)) in &self.0 {
            let most = allowed.get(name).copied().unwrap_or(0);
            if *number > most {
                let _ = writeln!(excess, "{name}: {number}, {most} allowed");
                for what in whats {
                    let _ = writeln!(excess, "    {what}");
                }
            }
        }
        excess
    }

    /// Compares what was found with the list of this name, or writes the list if the environment says so.
    pub fn check(&self, list: &str, rule: &str) {
        let path = root().join(format!("crates/tidy/ceilings/{list}.txt"));
        if std::env::var("HOTSHELF_TIDY").is_ok_and(|mode| mode == "accept") {
            let lines = self.0.iter();
            let lines = lines.map(|(name, (number, _))| format!("{number} {name}\n"));
            fs::write(path, lines.collect::<String>()).expect("a writable list");
            return;
        }
        let allowed = parse(&fs::read_to_string(path).unwrap_or_default());
        let excess = self.excess(&allowed);
        assert!(excess.is_empty(), "{rule}\n{excess}");
    }
}

/// A number and a name on each line.
fn parse(list: &str) -> BTreeMap<String, usize> {
    let entry = |line: &str| {
        let (number, name) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let lines = list.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| entry(line).unwrap_or_else(|| panic!("not a number and a name: {line}")))
        .collect()
}

#[test]
fn a_listed_name_may_keep_its_number_and_an_unlisted_one_has_none() {
    let allowed = parse("2 a.rs\n1 b.rs\n");
    let mut found = Findings::default();
    found.count("a.rs", "line 1".into());
    found.count("a.rs", "line 2".into());
    assert_eq!(found.excess(&allowed), "");
    found.count("a.rs", "line 3".into());
    found.set("c.rs".into(), 600, "lines".into());
    let excess = found.excess(&allowed);
    assert!(
        excess.starts_with("a.rs: 3, 2 allowed\n    line 1\n"),
        "{excess}"
    );
    assert!(
        excess.ends_with("c.rs: 600, 0 allowed\n    lines\n"),
        "{excess}"
    );
}
