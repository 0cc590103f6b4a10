//! The crates depend on each other in one direction only (`docs/ARCHITECTURE.md`).

use std::process::Command;

use serde_json::Value;

use crate::ceilings::Findings;
use crate::checkout::{PRODUCT, crates, root, rust_files};
use crate::source::{Source, tokens};

const TIER: &str = "hotshelf-tier";
const CACHE: &str = "hotshelf-cache";
const ELF: &str = "hotshelf-elf";
const STORE: &str = "hotshelf-store";
const OPERATORS: &str = "hotshelf-operators";
const ENGINE: &str = "hotshelf";
const DATAGEN: &str = "hotshelf-datagen";
const CLI: &str = "hotshelf-cli";
const LAB: &str = "hotshelf-lab";

/// Each crate with the crates of ours that it may name.
const ALLOWED: &[(&str, &[&str])] = &[
    (TIER, &[]),
    (CACHE, &[TIER]),
    (ELF, &[TIER]),
    (STORE, &[TIER, CACHE, ELF]),
    (OPERATORS, &[TIER]),
    (ENGINE, &[TIER, CACHE, ELF, STORE, OPERATORS]),
    (DATAGEN, &[]),
    (CLI, &[ENGINE, DATAGEN]),
    (
        LAB,
        &[TIER, CACHE, ELF, STORE, OPERATORS, ENGINE, DATAGEN, CLI],
    ),
    ("hotshelf-tidy", &[]),
];

/// What a package must not name, of what it names.
fn forbidden(package: &str, dependencies: &[&str]) -> Vec<String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == package) else {
        return vec![format!("{package} is missing from the list of crates")];
    };
    let is_forbidden = |on: &&&str| {
        let is_ours = on.starts_with("hotshelf") && !allowed.contains(on);
        let is_engine = on.contains("datafusion") && !matches!(package, ENGINE | LAB);
        let is_format = on.starts_with("vortex") && !matches!(package, STORE | ENGINE | LAB);
        is_ours || is_engine || is_format
    };
    let found = dependencies.iter().filter(is_forbidden);
    found
        .map(|on| format!("{package} must not name {on}"))
        .collect()
}

#[test]
fn dependencies_point_down() {
    let arguments = [
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ];
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut found = Findings::default();
    let packages = metadata["packages"].as_array().expect("packages");
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let names: Vec<&str> = dependencies
            .iter()
            .map(|dependency| dependency["name"].as_str().expect("a name"))
            .collect();
        for broken in forbidden(name, &names) {
            found.count(
                &broken,
                "see the picture of the crates in docs/ARCHITECTURE.md".into(),
            );
        }
    }
    assert_eq!(
        packages.len(),
        crates().len(),
        "every folder of crates is a package"
    );
    found.check("directions", "a crate names one that it must not name");
}

/// Words of code that name a paper.
fn names_of_papers(code: &str) -> Vec<(usize, String)> {
    let is_paper = |(_, word): &(usize, String)| word.to_lowercase().contains("paper");
    tokens(code).into_iter().filter(is_paper).collect()
}

#[test]
fn the_product_does_not_name_papers() {
    let mut found = Findings::default();
    for file in rust_files(&["src"]) {
        if PRODUCT.contains(&file.crate_name()) {
            for (line, word) in names_of_papers(&Source::parse(&file.text).code) {
                found.count(&file.path, format!("line {line}: {word}"));
            }
        }
    }
    found.check(
        "papers",
        "experiments of papers belong to the lab, and names say what a thing does",
    );
}

#[test]
fn arrows_up_and_sideways_are_found() {
    assert!(forbidden(STORE, &["hotshelf-tier", "vortex", "arrow"]).is_empty());
    assert!(forbidden(LAB, &["hotshelf", "datafusion", "hotshelf-elf"]).is_empty());
    assert_eq!(forbidden(CACHE, &["hotshelf-elf", "serde"]).len(), 1);
    assert_eq!(
        forbidden(
            "hotshelf-cli",
            &["hotshelf-lab", "datafusion", "hotshelf-tier"]
        )
        .len(),
        3
    );
    assert_eq!(
        forbidden(TIER, &["vortex-io"]),
        ["hotshelf-tier must not name vortex-io"]
    );
    assert_eq!(forbidden("hotshelf-new", &[]).len(), 1);
    let code = Source::parse("// the paper\nfn paper_model() {}\nenum Form { OfPaper }").code;
    let words: Vec<String> = names_of_papers(&code)
        .into_iter()
        .map(|(_, word)| word)
        .collect();
    assert_eq!(words, ["paper_model", "OfPaper"]);
}
