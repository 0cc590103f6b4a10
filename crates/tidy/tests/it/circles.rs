//! No circle of imports is longer than two files.
//!
//! A file is a module. It imports what its `use` lines and its inline paths name, wherever a re-export leads; a child
//! that names its parent imports it. Test modules and the crate's root do not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ceilings::Findings;
use crate::checkout::{crates, files};
use crate::source::{Source, tokens};

type Path = Vec<String>;

/// A module of a crate: what it names, and the names it re-exports.
#[derive(Default)]
struct Module {
    named: Vec<Path>,
    exported: BTreeMap<String, Path>,
}

type Modules = BTreeMap<Path, Module>;

/// Takes a module apart. Paths begin with the crate's first module.
fn module(at: &Path, code: &str) -> Module {
    let mut module = Module::default();
    let tokens: Vec<String> = tokens(code).into_iter().map(|(_, token)| token).collect();
    let mut idx = 0;
    while idx < tokens.len() {
        match tokens[idx].as_str() {
            "use" => {
                let end = (idx..tokens.len()).find(|end| tokens[*end] == ";");
                let end = end.unwrap_or(tokens.len());
                let is_public = idx > 0 && matches!(tokens[idx - 1].as_str(), "pub" | ")");
                for (path, alias) in expand(&tokens[idx + 1..end]) {
                    let Some(path) = absolute(at, &path) else {
                        continue;
                    };
                    match is_public {
                        true => drop(module.exported.insert(alias, path)),
                        false => module.named.push(path),
                    }
                }
                idx = end;
            }
            "crate" | "super" => {
                let mut path = vec![tokens[idx].clone()];
                while tokens.get(idx + 1).is_some_and(|token| token == "::")
                    && tokens.get(idx + 2).is_some_and(|token| is_word(token))
                {
                    path.push(tokens[idx + 2].clone());
                    idx += 2;
                }
                if path.len() > 1 {
                    module.named.extend(absolute(at, &path));
                }
            }
            _ => {}
        }
        idx += 1;
    }
    module
}

fn is_word(token: &str) -> bool {
    token.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The paths of a `use`, each with the name it gets.
fn expand(tokens: &[String]) -> Vec<(Path, String)> {
    let Some(open) = tokens.iter().position(|token| token == "{") else {
        let names = tokens.iter().filter(|token| is_word(token));
        let mut path: Path = names.cloned().collect();
        let alias = match path.iter().position(|name| name == "as") {
            Some(idx) => {
                let alias = path.last().cloned().unwrap_or_default();
                path.truncate(idx);
                alias
            }
            None => path.last().cloned().unwrap_or_default(),
        };
        return vec![(path, alias)];
    };
    let before: Path = tokens[..open]
        .iter()
        .filter(|token| is_word(token))
        .cloned()
        .collect();
    let (mut paths, mut depth, mut start) = (Vec::new(), 0, open + 1);
    for (idx, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        let ends = (token == "," && depth == 1) || (token == "}" && depth == 0);
        if ends && start < idx {
            for (inner, alias) in expand(&tokens[start..idx]) {
                let path: Path = before.iter().chain(&inner).cloned().collect();
                paths.push(match inner.as_slice() {
                    [only] if only == "self" => {
                        let alias = before.last().cloned().unwrap_or_default();
                        (before.clone(), alias)
                    }
                    _ => (path, alias),
                });
            }
        }
        if token == "," && depth == 1 {
            start = idx + 1;
        }
    }
    paths
}

/// A path from the crate's root; `None` for one into another crate, as far as its first word tells.
fn absolute(at: &Path, path: &[String]) -> Option<Path> {
    let mut base = at.clone();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" | "super" => {}
        // Of a child module, or of another crate: then there is no such module.
        _ => return Some(base.into_iter().chain(path.iter().cloned()).collect()),
    }
    while let Some(first) = rest
        .first()
        .filter(|word| matches!(word.as_str(), "self" | "super"))
    {
        if first == "super" {
            base.pop();
        }
        rest = &rest[1..];
    }
    Some(base.into_iter().chain(rest.iter().cloned()).collect())
}

/// The module that holds what a path names, wherever it is re-exported.
fn holder(modules: &Modules, path: &Path, hops: usize) -> Path {
    let known = (0..=path.len())
        .rev()
        .find(|len| modules.contains_key(&path[..*len]));
    let len = known.unwrap_or(0);
    let exported = modules.get(&path[..len]).map(|module| &module.exported);
    if let (Some(name), Some(exported), true) = (path.get(len), exported, hops < 8)
        && let Some(target) = exported.get(name)
        && target != path
    {
        let target = target.iter().chain(&path[len + 1..]).cloned().collect();
        return holder(modules, &target, hops + 1);
    }
    path[..len].to_vec()
}

/// For each module the others it imports, without the root.
fn imports(modules: &Modules) -> BTreeMap<Path, BTreeSet<Path>> {
    let of = |(at, module): (&Path, &Module)| {
        let inside = module.named.iter().filter(|path| {
            // A path that is relative to a file without such a child leads into another crate.
            !path.starts_with(at)
                || path.len() == at.len()
                || modules.contains_key(&path[..at.len() + 1])
        });
        let named = inside.map(|path| holder(modules, path, 0));
        let others = named.filter(|to| to != at && !to.is_empty());
        (at.clone(), others.collect())
    };
    modules
        .iter()
        .filter(|(at, _)| !at.is_empty())
        .map(of)
        .collect()
}

/// The shortest circles of three and more modules, one for each import that closes one.
fn circles(imports: &BTreeMap<Path, BTreeSet<Path>>) -> BTreeSet<Vec<String>> {
    let mut circles = BTreeSet::new();
    for (from, targets) in imports {
        for to in targets {
            let Some(way) = way_back(imports, to, from) else {
                continue;
            };
            if way.len() > 2 {
                let names: Vec<String> = way.iter().map(|path| path.join("::")).collect();
                let first = names.iter().enumerate().min_by_key(|(_, name)| *name);
                let first = first.map_or(0, |(idx, _)| idx);
                circles.insert([&names[first..], &names[..first]].concat());
            }
        }
    }
    circles
}

/// The shortest way from `start` to `end` that is longer than one import.
fn way_back(
    imports: &BTreeMap<Path, BTreeSet<Path>>,
    start: &Path,
    end: &Path,
) -> Option<Vec<Path>> {
    let mut before: BTreeMap<&Path, Option<&Path>> = BTreeMap::from([(start, None)]);
    let mut queue = VecDeque::from([start]);
    while let Some(here) = queue.pop_front() {
        for next in imports.get(here).into_iter().flatten() {
            if before.contains_key(next) || (here == start && next == end) {
                continue;
            }
            before.insert(next, Some(here));
            queue.push_back(next);
        }
    }
    let mut way = vec![end.clone()];
    let mut here = before.get(end)?.as_ref();
    while let Some(path) = here {
        way.push((*path).clone());
        here = before.get(*path).and_then(Option::as_ref);
    }
    way.reverse();
    Some(way)
}

/// The modules of a crate from its files, each with its path below `src`.
fn modules<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> Modules {
    let mut modules = Modules::new();
    for (path, text) in files {
        let name = path.trim_end_matches(".rs");
        let name = name.strip_suffix("/mod").unwrap_or(name);
        let at: Path = match name {
            "lib" | "mod" => Vec::new(),
            name => name.split('/').map(str::to_owned).collect(),
        };
        let is_test = at
            .iter()
            .any(|part| part.contains("tests") || part == "testing");
        if name == "main" || is_test {
            continue;
        }
        let source = Source::parse(text).without_tests();
        modules.insert(at.clone(), module(&at, &source.code));
    }
    modules
}

#[test]
fn no_circle_of_imports_is_longer_than_two_files() {
    let mut found = Findings::default();
    for name in crates() {
        let folder = format!("crates/{name}/src");
        let files = files(std::slice::from_ref(&folder), "rs");
        let files = files
            .iter()
            .map(|file| (&file.path[folder.len() + 1..], &*file.text));
        for circle in circles(&imports(&modules(files))) {
            found.count(&name, format!("{} → {}", circle.join(" → "), circle[0]));
        }
    }
    found.check(
        "circles",
        "these files import each other in a circle: move what two of them share below both",
    );
}

#[cfg(test)]
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let circles = circles(&imports(&modules(files.iter().copied())));
    circles.into_iter().map(|circle| circle.join(" ")).collect()
}

#[test]
fn two_files_may_import_each_other_and_three_may_not() {
    let two = [
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "fn f() { crate::a::f() }"),
    ];
    assert!(circles_of(&two).is_empty());
    let three = [
        ("a.rs", "use crate::b::{self, B as C};"),
        ("b.rs", "use super::c;"),
        ("c/mod.rs", "mod d;\npub use d::f;"),
        ("c/d.rs", "use {std::fmt, crate::{a::x}};"),
    ];
    assert!(circles_of(&three).is_empty(), "nothing of c/d.rs is used");
    let mut closed = three.to_vec();
    closed[1].1 = "use super::c::f;";
    assert_eq!(
        circles_of(&closed),
        ["a b c::d"],
        "the re-export leads to c/d.rs"
    );
}

#[test]
fn comments_tests_and_other_crates_do_not_close_a_circle() {
    let files = [
        ("lib.rs", "mod a; use a::x;"),
        ("a.rs", "use crate::b::y; use b::z;"),
        ("b.rs", "use crate::c::z;"),
        (
            "c.rs",
            "// use crate::a::x;\n#[cfg(test)]\nmod tests { use crate::a::x; }",
        ),
        ("tests.rs", "use crate::a::x;"),
    ];
    assert!(circles_of(&files).is_empty());
}

#[test]
fn a_child_that_names_its_parent_imports_it() {
    let files = [
        ("a/mod.rs", "use crate::b::y;"),
        ("b.rs", "use crate::a::c::d;"),
        ("a/c.rs", "use super::X;"),
    ];
    assert_eq!(circles_of(&files), ["a b a::c"]);
}
