//! The public interface as text, `public-api.txt`: what comes, goes or changes there shows in the diff.
//!
//! It is read from the sources: the names that `lib.rs` exports, their public fields, variants, functions and traits.
//! `HOTSHELF_WRITE_API=1 cargo test --workspace --test it -- surface` writes the file again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

const FILE: &str = "public-api.txt";
/// Crates whose names `lib.rs` exports, too.
const BELOW: &[&str] = &["../store/src", "../cache/src"];

/// A source file.
struct Source {
    path: PathBuf,
    items: Vec<Item>,
}

#[test]
fn the_public_interface_is_as_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = surface(root).join("\n") + "\n";
    if std::env::var_os("HOTSHELF_WRITE_API").is_some() {
        std::fs::write(root.join(FILE), &found).unwrap();
    }
    let written = std::fs::read_to_string(root.join(FILE)).unwrap();
    let (found, written): (BTreeSet<_>, BTreeSet<_>) =
        (found.lines().collect(), written.lines().collect());
    let new: Vec<_> = found.difference(&written).collect();
    let gone: Vec<_> = written.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "the public interface has changed: if this is wanted, write {FILE} again and add a line to CHANGELOG.md\n\
         new: {new:#?}\ngone: {gone:#?}"
    );
}

#[test]
fn no_library_underneath_shows_in_the_public_interface() {
    let surface = surface(Path::new(env!("CARGO_MANIFEST_DIR")));
    let leaks = [
        "DataFusion",
        "datafusion",
        "Vortex",
        "vortex",
        "rusqlite",
        "TierError",
        "StoreError",
        "ReadError",
        "ElfError",
        "ExecutionPlan",
        "SessionContext",
        "ScalarValue",
        "CacheManager",
    ];
    for line in &surface {
        let leak = leaks.iter().find(|leak| line.contains(**leak));
        assert!(leak.is_none(), "{line} shows {leak:?}");
    }
}

/// One line for each public thing, sorted.
fn surface(root: &Path) -> Vec<String> {
    let own = sources(&root.join("src"));
    let below: Vec<_> = BELOW
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .collect();
    let library = own
        .iter()
        .find(|source| source.path.ends_with("src/lib.rs"))
        .unwrap();
    let mut names = Vec::new();
    for item in &library.items {
        match item {
            Item::Use(item) if is_public(&item.vis) => {
                exported(&item.tree, &mut Vec::new(), &mut names)
            }
            Item::Mod(module) if is_public(&module.vis) && !is_hidden(&module.attrs) => {
                panic!(
                    "public module {}: this test does not look inside",
                    module.ident
                )
            }
            _ => {}
        }
    }
    let mut lines = BTreeSet::new();
    for (path, name) in names {
        let within = |source: &&Source| {
            path.len() < 2 || source.path.ends_with(format!("{}.rs", path.join("/")))
        };
        let places = own.iter().filter(within).chain(&own).chain(&below);
        let Some(home) = places.into_iter().find(|source| publishes(source, &name)) else {
            lines.insert(format!("use {}", [path, vec![name]].concat().join("::")));
            continue;
        };
        definition(home, &name, &mut lines);
        let near = if own.iter().any(|source| source.path == home.path) {
            &own
        } else {
            &below
        };
        for source in near
            .iter()
            .filter(|source| source.path == home.path || !defines(source, &name))
        {
            for item in &source.items {
                if let Item::Impl(item) = item {
                    implementation(item, &name, &mut lines);
                }
            }
        }
    }
    lines.into_iter().collect()
}

fn sources(folder: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let items = syn::parse_file(&text).unwrap().items;
            found.push(Source { path, items });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The names of a `pub use`, each with the path before it.
fn exported(tree: &UseTree, path: &mut Vec<String>, names: &mut Vec<(Vec<String>, String)>) {
    match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            exported(&step.tree, path, names);
            path.pop();
        }
        UseTree::Name(name) => names.push((path.clone(), name.ident.to_string())),
        UseTree::Rename(name) => names.push((path.clone(), name.rename.to_string())),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| exported(tree, path, names)),
        UseTree::Glob(_) => panic!("lib.rs exports a glob"),
    }
}

fn defines(source: &Source, name: &str) -> bool {
    source
        .items
        .iter()
        .any(|item| defined(item, name).is_some())
}

fn publishes(source: &Source, name: &str) -> bool {
    let mut found = source.items.iter().filter_map(|item| defined(item, name));
    found.any(is_public)
}

/// The visibility of an item of that name.
fn defined<'a>(item: &'a Item, name: &str) -> Option<&'a Visibility> {
    let (ident, visibility) = match item {
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        _ => return None,
    };
    (ident == name).then_some(visibility)
}

fn definition(source: &Source, name: &str, lines: &mut BTreeSet<String>) {
    for item in &source.items {
        match item {
            Item::Struct(item) if item.ident == name => {
                lines.insert(format!("struct {name}{}", derives(&item.attrs)));
                fields(&item.fields, name, lines);
            }
            Item::Enum(item) if item.ident == name => {
                lines.insert(format!("enum {name}{}", derives(&item.attrs)));
                for variant in &item.variants {
                    let fields = text(&variant.fields);
                    lines.insert(format!("{name}::{}{fields}", variant.ident));
                }
            }
            Item::Type(item) if item.ident == name => {
                lines.insert(format!("type {name} = {}", text(&item.ty)));
            }
            Item::Const(item) if item.ident == name => {
                lines.insert(format!("const {name}: {}", text(&item.ty)));
            }
            Item::Fn(item) if item.sig.ident == name => {
                lines.insert(text(&item.sig));
            }
            _ => {}
        }
    }
}

fn fields(fields: &Fields, name: &str, lines: &mut BTreeSet<String>) {
    for (idx, field) in fields.iter().enumerate() {
        if is_public(&field.vis) {
            let field_name = field
                .ident
                .as_ref()
                .map_or(idx.to_string(), ToString::to_string);
            lines.insert(format!("{name}.{field_name}: {}", text(&field.ty)));
        }
    }
}

fn implementation(item: &ItemImpl, name: &str, lines: &mut BTreeSet<String>) {
    let Type::Path(of) = item.self_ty.as_ref() else {
        return;
    };
    if !of.path.is_ident(name) {
        return;
    }
    if let Some((_, of_trait, _)) = &item.trait_ {
        let of_trait = text(of_trait);
        // Conversions from what the crate keeps to itself.
        if of_trait != "From<Cause>" {
            lines.insert(format!("impl {of_trait} for {name}"));
        }
        return;
    }
    for item in &item.items {
        match item {
            ImplItem::Fn(function) if is_public(&function.vis) && !is_hidden(&function.attrs) => {
                lines.insert(format!("{name}: {}", text(&function.sig)));
            }
            ImplItem::Const(constant) if is_public(&constant.vis) => {
                lines.insert(format!(
                    "{name}: const {}: {}",
                    constant.ident,
                    text(&constant.ty)
                ));
            }
            _ => {}
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("doc") && text(attribute).contains("hidden"))
}

/// Derived traits, and whether more fields or variants may come.
fn derives(attributes: &[Attribute]) -> String {
    let told = attributes.iter().filter(|attribute| {
        attribute.path().is_ident("derive") || attribute.path().is_ident("non_exhaustive")
    });
    told.map(|attribute| format!(" {}", text(attribute)))
        .collect()
}

/// Tokens as one writes them, on one line and without comments.
fn text(tokens: &impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    let mut plain = text
        .split('\n')
        .map(str::trim)
        .collect::<Vec<_>>()
        .join(" ");
    for (spaced, tight) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" : ", ": "),
        ("& ", "&"),
        ("# [", "#["),
        ("[ ", "["),
        (" ]", "]"),
        (" ;", ";"),
        ("- >", "->"),
    ] {
        plain = plain.replace(spaced, tight);
    }
    plain
}
