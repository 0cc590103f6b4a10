//! Which states may a power cut leave? This module enumerates them from a recorded trace and asks a check about each.
//!
//! A store becomes durable at some unknown time after it was executed; flushes, fences and msync set the latest time.
//! At every moment of a trace, each *unit* (a cache line, a sector, or the whole cache) has an ordered list of pending
//! pieces of at most eight bytes, of which some first part may have reached the media. The states of that moment are
//! all combinations. The check sees the bytes and what the program had [`Note`]d, and says whether recovery is right.
//! [`mutants`] breaks a trace in every way a programmer would, to show that the check notices.
//!
//! Sources: Vinter (ATC 2022) for pending lists per line; Yat (ATC 2014) for enumerating at each barrier; the x86
//! persistency model of Px86 (POPL 2020) for what a flush and a fence mean.

mod enumerate;
mod file_model;
mod memory_model;
mod mutate;

#[cfg(test)]
mod tests;

pub use enumerate::{EnumerateOptions, Promise, Report, enumerate};
pub use file_model::{FileEvent, FileTrace, enumerate_files};
pub use memory_model::Model;
pub use mutate::{Mutant, MutantKind, mutants};

#[cfg(doc)]
use crate::persist::Note;
