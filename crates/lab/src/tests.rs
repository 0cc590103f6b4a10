use clap::{CommandFactory, Parser};
use hotshelf_cli::failure::Failure;

use super::{Command, Flags};

fn refusal(line: &str) -> String {
    let refused = match Flags::try_parse_from(line.split_whitespace())
        .unwrap()
        .command
    {
        Command::Hpcache(flags) => flags.validate().map(drop),
        Command::Ssb(flags) => flags.validate().map(drop),
        Command::Pmem(flags) => flags.validate().map(drop),
        Command::Elf(flags) => flags.validate().map(drop),
        other => panic!("{other:?}"),
    };
    match refused {
        Err(Failure::Usage { message, hint }) => {
            format!("{message} | {}", hint.unwrap_or_default())
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_flags_are_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn every_command_shows_examples() {
    for command in Flags::command().get_subcommands() {
        let help = command.get_after_help().map(ToString::to_string);
        let call = format!("  hotshelf-lab {}", command.get_name());
        assert!(help.unwrap_or_default().contains(&call), "{call}");
    }
}

#[test]
fn bad_values_are_refused_with_what_would_be_right() {
    for (line, expected) in [
        ("hotshelf-lab hpcache --sequence papr", "two-tenants"),
        (
            "hotshelf-lab hpcache --sequence paper --policy lru,hpcash",
            "hpcache-paper, hpcache",
        ),
        ("hotshelf-lab pmem --figure 2", "13, 14, table1"),
        ("hotshelf-lab pmem --figure 3 --tier disk", "simulated:NAME"),
        (
            "hotshelf-lab pmem --figure 3 --tier emulated:x",
            "optane100-128",
        ),
        ("hotshelf-lab elf --experiment speed", "selectivity"),
        ("hotshelf-lab elf --figure table2", "table1, 2020-3"),
        ("hotshelf-lab elf --lineitem 0", "--lineitem 1"),
        ("hotshelf-lab ssb --handcrafted --query Q5.1", "Q4.3"),
        (
            "hotshelf-lab ssb --handcrafted --tier emulated:x",
            "optane100-128",
        ),
        ("hotshelf-lab ssb --handcrafted --tier disk", "file:FOLDER"),
        ("hotshelf-lab ssb --price 5,7/2", "575/128"),
        ("hotshelf-lab ssb --price 5/1", "two prices"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for line in [
        "hotshelf-lab hpcache",
        "hotshelf-lab hpcache --sequence paper --figure 1",
        "hotshelf-lab hpcache --sequence paper --measured",
        "hotshelf-lab hpcache --sequence paper --runs 0",
        "hotshelf-lab elf --rows 5 --lineitem 1",
        "hotshelf-lab elf --columns 65",
        "hotshelf-lab ssb",
        "hotshelf-lab ssb --handcrafted --look-up-rates 5",
        "hotshelf-lab ssb --handcrafted --look-ups tree",
    ] {
        assert!(
            Flags::try_parse_from(line.split_whitespace()).is_err(),
            "{line}"
        );
    }
}
