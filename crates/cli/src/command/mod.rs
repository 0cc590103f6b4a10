//! The commands, one file each.

mod bench;
mod demo;
mod demo_table;
mod generate;
mod import;
mod probe;
mod repair;
mod shell;
mod sql;
mod tables;
mod verify;

use crate::failure::Result;
use crate::flags::Command;
use crate::interrupt;

/// Does what the flags ask for.
pub fn run(command: Command) -> Result<()> {
    if !matches!(command, Command::Shell(_)) {
        interrupt::listen()?;
    }
    match command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Import(import) => import::run(&import),
        Command::Sql(sql) => sql::run(sql),
        Command::Shell(engine) => shell::run(&engine),
        Command::Tables(tables) => tables::run(tables),
        Command::Verify { db } => verify::run(&db),
        Command::Repair { db } => repair::run(&db),
        Command::Generate(generate) => generate::run(&generate),
        Command::Bench(bench) => bench::run(&bench),
        Command::Probe(probe) => probe::run(&probe),
    }
}
