//! The crates depend on each other in one direction only (`docs/ARCHITECTURE.md`).

use std::process::Command;

/// Each crate with the crates of ours that it may name.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hotshelf-tier", &[]),
    ("hotshelf-cache", &["hotshelf-tier"]),
    ("hotshelf-elf", &["hotshelf-tier"]),
    (
        "hotshelf-store",
        &["hotshelf-tier", "hotshelf-cache", "hotshelf-elf"],
    ),
    (
        "hotshelf",
        &[
            "hotshelf-tier",
            "hotshelf-cache",
            "hotshelf-elf",
            "hotshelf-store",
        ],
    ),
    ("hotshelf-datagen", &[]),
    (
        "hotshelf-bench",
        &[
            "hotshelf",
            "hotshelf-datagen",
            "hotshelf-tier",
            "hotshelf-cache",
            "hotshelf-elf",
        ],
    ),
    (
        "hotshelf-cli",
        &[
            "hotshelf",
            "hotshelf-datagen",
            "hotshelf-bench",
            "hotshelf-tier",
            "hotshelf-cache",
            "hotshelf-elf",
        ],
    ),
    ("hotshelf-lab", &["hotshelf"]),
];

/// Only this crate and what is above it may name the query engine.
const ENGINE: &str = "hotshelf";
/// This crate, too, may name the file format.
const STORE: &str = "hotshelf-store";

#[test]
fn dependencies_point_down() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert_eq!(
        packages.len(),
        ALLOWED.len(),
        "a crate is missing from the list"
    );
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let allowed = ALLOWED
            .iter()
            .find(|(known, _)| *known == name)
            .expect(name)
            .1;
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("a name");
            if on.starts_with("hotshelf") {
                assert!(allowed.contains(&on), "{name} must not depend on {on}");
            }
            let is_engine = on.contains("datafusion");
            let is_format = on.starts_with("vortex");
            let above = matches!(name, ENGINE | "hotshelf-bench" | "hotshelf-cli");
            assert!(!is_engine || above, "{name} must not name {on}");
            assert!(
                !is_format || above || name == STORE,
                "{name} must not name {on}"
            );
        }
    }
}
