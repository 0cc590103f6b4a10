//! Merging Elfs, for compaction: their rows come in order already.

use std::path::Path;

use crate::error::{ElfError, Result};
use crate::keys::{CodeMap, ColumnEncoding};
use crate::rows::{Merger, RowShape, RowStream};

use super::rows::RowReader;
use super::stream::{SortedSource, build_into};
use super::{PackedElf, PackedOptions};

/// An Elf to be merged, and what becomes of its codes and TIDs.
pub struct MergeInput<'a, S> {
    /// The Elf.
    pub elf: &'a PackedElf<S>,
    /// Per dimension, its codes in the merged Elf's encoding.
    pub code_maps: Vec<CodeMap>,
    /// The new TID of a TID, ascending with it; `None` for rows that are deleted. For a clustered Elf
    /// TIDs are row numbers, and the new ones only say in which order equal rows stand.
    pub new_tid: &'a dyn Fn(u32) -> Option<u32>,
}

/// Writes the Elf of the live rows of several Elfs to `path`, overwriting it, and syncs it. It equals, byte
/// for byte, an Elf built from these rows with the same options and [`PackedOptions::code_max`], which
/// must be given here. Only the head is kept in memory.
///
/// # Errors
/// When inputs differ in dimensions, a code exceeds `code_max`, or the file cannot be written.
pub fn merge<S: AsRef<[u64]>>(
    inputs: &[MergeInput<'_, S>],
    code_max: &[u32],
    options: &PackedOptions,
    encodings: &[ColumnEncoding],
    path: &Path,
) -> Result<()> {
    let expected = code_max.len();
    for input in inputs {
        for found in [input.elf.dimension_count(), input.code_maps.len()] {
            if found != expected {
                return Err(ElfError::DimensionMismatch { expected, found });
            }
        }
    }
    let shape = RowShape::new(code_max, u32::MAX);
    build_into(
        path,
        &shape,
        options,
        encodings,
        &Inputs {
            inputs,
            code_max,
            shape: &shape,
        },
    )
}

struct Inputs<'a, S> {
    inputs: &'a [MergeInput<'a, S>],
    code_max: &'a [u32],
    shape: &'a RowShape,
}

impl<S: AsRef<[u64]>> SortedSource for Inputs<'_, S> {
    fn for_each(&self, visit: &mut dyn FnMut(&[u64]) -> Result<()>) -> Result<()> {
        let streams = self.inputs.iter().map(|input| ElfStream {
            reader: RowReader::new(input.elf),
            input,
            code_max: self.code_max,
            shape: self.shape,
            codes: Vec::with_capacity(self.code_max.len()),
        });
        Merger::new(streams.collect(), self.shape.word_count())?.for_each(visit)
    }
}

/// The live rows of one input in the merged encoding.
struct ElfStream<'a, S> {
    reader: RowReader<'a, S>,
    input: &'a MergeInput<'a, S>,
    code_max: &'a [u32],
    shape: &'a RowShape,
    codes: Vec<u32>,
}

impl<S: AsRef<[u64]>> RowStream for ElfStream<'_, S> {
    fn next_into(&mut self, row: &mut [u64]) -> Result<bool> {
        while let Some((codes, tid)) = self.reader.next_row() {
            let Some(tid) = (self.input.new_tid)(tid) else {
                continue;
            };
            self.codes.clear();
            for (dimension, (&code, map)) in codes.iter().zip(&self.input.code_maps).enumerate() {
                let (code, max) = (map.map(code), self.code_max[dimension]);
                if code > max {
                    return Err(ElfError::CodeTooLarge {
                        dimension,
                        code,
                        max,
                    });
                }
                self.codes.push(code);
            }
            self.shape.pack(self.codes.iter().copied(), tid, row);
            return Ok(true);
        }
        Ok(false)
    }
}
