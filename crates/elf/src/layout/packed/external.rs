//! Building from more rows than fit into memory: sorted runs in files, merged into one, then twice through the rows in
//! order: for the skeleton, and for leaves and zones. The bytes are those of a build in memory.

use std::fs::File;
use std::io;

use hotshelf_tier::simd::Backend;

use crate::cost::{CostModel, HistogramBuilder};
use crate::error::{ElfError, Result};
use crate::keys::{CodeTable, DIMENSION_COUNT_MAX, ROW_COUNT_MAX};
use crate::rows::{RowShape, Run, RunWriter, SortedRows, merge};

use super::fill::{Filler, Zoner};
use super::geometry::Geometry;
use super::skeleton::{Skeleton, SkeletonBuilder};
use super::zones::Zones;
use super::{ElfHead, PackedOptions};

/// This many runs become one, so that few files are open.
const RUNS_MAX: usize = if cfg!(test) { 4 } else { 128 };

/// Takes rows part by part and builds one Elf of them. Runs are in files of the caller's, which needs nothing of them
/// afterwards.
#[derive(Debug)]
pub struct ExternalBuilder {
    options: PackedOptions,
    /// Bytes that the buffers of runs that are merged have together, about.
    buffer_bytes: usize,
    shape: RowShape,
    /// Rows that will come, and those that have.
    row_count: usize,
    taken: usize,
    /// With how often each was merged, which does not rise from one to the next.
    runs: Vec<(usize, Run)>,
    histograms: Vec<HistogramBuilder>,
}

/// An Elf that was written to a file.
#[derive(Debug)]
pub struct WrittenElf {
    /// Bytes of the Elf.
    pub len_bytes: u64,
    /// Those before its leaves.
    pub leaf_offset: u64,
    /// What asking it costs.
    pub model: CostModel,
}

impl ExternalBuilder {
    /// A builder for this many rows with codes up to `code_max` in each dimension. While runs are merged, their buffers
    /// have about `buffer_bytes` together.
    ///
    /// # Errors
    /// When the number of dimensions or rows is unsupported.
    pub fn new(
        code_max: &[u32],
        row_count: usize,
        options: PackedOptions,
        buffer_bytes: usize,
    ) -> Result<Self> {
        if code_max.is_empty() || code_max.len() > DIMENSION_COUNT_MAX {
            return Err(ElfError::DimensionCount {
                found: code_max.len(),
                max: DIMENSION_COUNT_MAX,
            });
        }
        if row_count > ROW_COUNT_MAX {
            return Err(ElfError::TooManyRows {
                found: row_count as u64,
                max: ROW_COUNT_MAX as u64,
            });
        }
        let histogram = |max: &u32| HistogramBuilder::new(*max, row_count);
        Ok(Self {
            options,
            buffer_bytes,
            shape: RowShape::new(code_max, row_count.saturating_sub(1) as u32),
            row_count,
            taken: 0,
            runs: Vec::new(),
            histograms: code_max.iter().map(histogram).collect(),
        })
    }

    /// Adds rows, whose TIDs follow those of the last ones: sorts them and writes them to `run`. Runs that have become
    /// many are merged into `spare`. Both are empty files.
    ///
    /// # Errors
    /// When the rows have other dimensions or larger codes, are more than were announced, or cannot be written.
    pub fn add(&mut self, rows: CodeTable, run: File, spare: File) -> Result<()> {
        let expected = self.shape.dimension_count();
        if rows.dimension_count() != expected {
            return Err(ElfError::DimensionMismatch {
                expected,
                found: rows.dimension_count(),
            });
        }
        for (dimension, (column, max)) in
            rows.columns().iter().zip(self.shape.code_max()).enumerate()
        {
            let (code, max) = (column.max(), *max);
            if code > max {
                return Err(ElfError::CodeTooLarge {
                    dimension,
                    code,
                    max,
                });
            }
        }
        let end = self.taken + rows.row_count();
        if end > self.row_count {
            return Err(ElfError::RowCountMismatch {
                dimension: 0,
                expected: self.row_count,
                found: end,
            });
        }
        for (histogram, column) in self.histograms.iter_mut().zip(rows.columns()) {
            histogram.add(column, self.taken);
        }
        let rows = rows.with_tids((self.taken as u32..end as u32).collect())?;
        let sorted = SortedRows::with_shape(&rows, self.shape.clone(), self.options.thread_count);
        drop(rows);
        let run = Run::write(&sorted, run).map_err(failed("write rows of"))?;
        self.runs.push((0, run));
        self.taken = end;
        self.merge_many(spare)
    }

    /// Merges the last runs if as many as may be open were merged equally often.
    fn merge_many(&mut self, spare: File) -> Result<()> {
        let Some(first) = self.runs.len().checked_sub(RUNS_MAX) else {
            return Ok(());
        };
        let merged = self.runs[first].0;
        if self.runs.last().is_none_or(|(last, _)| *last != merged) {
            return Ok(());
        }
        let runs = runs_of(self.runs.split_off(first));
        let mut rows = RunWriter::new(spare);
        merge(&runs, self.shape.word_count(), self.buffer_bytes, |row| {
            rows.add(row)
        })
        .and_then(|()| rows.finish())
        .map(|run| self.runs.push((merged + 1, run)))
        .map_err(failed("merge rows of"))
    }

    /// Writes the Elf of all rows to `out` from `offset` on. `merged` is an empty file.
    ///
    /// # Errors
    /// When rows are missing, or files cannot be read or written.
    pub fn finish(self, merged: File, out: &File, offset: u64) -> Result<WrittenElf> {
        if self.taken != self.row_count {
            return Err(ElfError::RowCountMismatch {
                dimension: 0,
                expected: self.row_count,
                found: self.taken,
            });
        }
        let Self {
            options,
            buffer_bytes,
            shape,
            runs,
            histograms,
            ..
        } = self;
        let mut skeleton = SkeletonBuilder::new(&shape, options.cut());
        let mut rows = RunWriter::new(merged);
        let runs = runs_of(runs);
        let merging = merge(&runs, shape.word_count(), buffer_bytes, |row| {
            skeleton.push(row);
            rows.add(row)
        });
        merging.map_err(failed("merge rows of"))?;
        drop(runs);
        let rows = rows.finish().map_err(failed("merge rows of"))?;
        let head = write(&shape, &options, &skeleton.finish(), &rows, (out, offset));
        let (head, leaf_offset) = head.map_err(failed("write"))?;
        let histograms = histograms.into_iter().map(HistogramBuilder::finish);
        Ok(WrittenElf {
            len_bytes: leaf_offset + head.leaf_bytes(),
            leaf_offset,
            model: CostModel::with_histograms(&head, histograms.collect()),
        })
    }
}

fn runs_of(runs: Vec<(usize, Run)>) -> Vec<Run> {
    runs.into_iter().map(|(_, run)| run).collect()
}

/// Writes the Elf of a skeleton and its rows. Returns its head, and the offset of its leaves.
fn write(
    shape: &RowShape,
    options: &PackedOptions,
    skeleton: &Skeleton,
    rows: &Run,
    (out, offset): (&File, u64),
) -> io::Result<(ElfHead, u64)> {
    let mut zoner = Zoner::new(shape, skeleton, options.zones);
    let mut head = without_contents(shape, options, skeleton);
    head.zones = zoner.empty().clone();
    head.fences = vec![0; head.geometry.block_count()];
    let mut bytes = Vec::new();
    head.write(&mut bytes)?;
    let leaf_offset = bytes.len() as u64;
    drop(bytes);
    let geometry = &head.geometry;
    let mut filler = Filler::new(out, offset + leaf_offset, shape, geometry, &skeleton.groups);
    let mut reader = rows.reader(shape.word_count(), usize::MAX);
    let mut row = vec![0; shape.word_count()];
    let mut row_idx = 0;
    while reader.next_into(&mut row)? {
        zoner.add(row_idx, &row);
        filler.add(row_idx, &row)?;
        row_idx += 1;
    }
    let fences = filler.finish()?;
    head.fences = fences;
    head.zones = zoner.finish(skeleton);
    let mut bytes = Vec::with_capacity(leaf_offset as usize);
    head.write(&mut bytes)?;
    std::os::unix::fs::FileExt::write_all_at(out, &bytes, offset)?;
    Ok((head, leaf_offset))
}

fn without_contents(shape: &RowShape, options: &PackedOptions, skeleton: &Skeleton) -> ElfHead {
    ElfHead {
        row_count: skeleton.row_count,
        geometry: Geometry::new(
            shape.code_max().to_vec(),
            options.tids(shape),
            skeleton.slot_counts.clone(),
        )
        .salted(options.salt),
        head: skeleton.head.clone(),
        root: skeleton.root,
        zones: Zones::default(),
        fences: Vec::new(),
        prefix_counts: skeleton.prefix_counts.clone(),
        backend: Backend::detect(),
    }
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> ElfError {
    move |source| ElfError::Io {
        operation,
        source: std::sync::Arc::new(source),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cases;
    use crate::keys::CodeColumn;
    use crate::layout::packed::PackedElf;

    /// Some rows of a table, with room for the codes of all of them.
    fn part(table: &CodeTable, rows: std::ops::Range<usize>) -> CodeTable {
        let columns = table.columns().iter().map(|column| {
            CodeColumn::from_codes(rows.clone().map(|row| column.get(row)), column.max())
        });
        CodeTable::new(columns.collect()).unwrap()
    }

    fn scratch() -> File {
        tempfile::tempfile().unwrap()
    }

    fn code_max(table: &CodeTable) -> Vec<u32> {
        table.columns().iter().map(CodeColumn::max).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn runs_become_the_bytes_of_a_build_in_memory(
            table in cases::table(1500, u32::MAX),
            bits in any::<u8>(),
            run_rows in prop_oneof![Just(7usize), Just(40), Just(100), Just(10_000)],
        ) {
            let options = PackedOptions {
                clustered: bits & 1 != 0,
                zones: bits & 4 != 0,
                group_rows_max: if bits & 8 != 0 { 4 } else { 300 },
                bucket_rows_max: if bits & 8 != 0 { 2 } else { 300 },
                thread_count: 1 + usize::from(bits >> 4 & 1),
                salt: u64::from(bits),
            };
            // With row numbers as TIDs.
            let row_count = table.row_count();
            let table = part(&table, 0..row_count);
            let mut builder = ExternalBuilder::new(&code_max(&table), row_count, options.clone(), 0).unwrap();
            for first in (0..row_count).step_by(run_rows) {
                let rows = part(&table, first..row_count.min(first + run_rows));
                builder.add(rows, scratch(), scratch()).unwrap();
            }
            let (out, offset) = (tempfile::NamedTempFile::new().unwrap(), 4096);
            let written = builder.finish(scratch(), out.as_file(), offset).unwrap();
            let found = std::fs::read(out.path()).unwrap();
            let elf = PackedElf::build(&table, &options).unwrap();
            let mut expected = Vec::new();
            elf.write_to(&mut expected).unwrap();
            prop_assert_eq!(written.len_bytes, expected.len() as u64);
            prop_assert_eq!(expected.len() as u64 - written.leaf_offset, elf.leaf_bytes());
            let found = found.get(offset as usize..).unwrap_or_default();
            prop_assert!(found == expected, "the bytes differ");
            prop_assert_eq!(written.model.to_bytes(), CostModel::new(&elf, &table).to_bytes());
        }
    }

    #[test]
    fn rows_that_were_not_announced_are_refused() {
        let rows = |codes: Vec<u8>| CodeTable::new(vec![CodeColumn::U8(codes)]).unwrap();
        let builder = || ExternalBuilder::new(&[3], 2, PackedOptions::default(), 0).unwrap();
        let refused = |rows| builder().add(rows, scratch(), scratch()).unwrap_err();
        let larger = refused(rows(vec![4]));
        assert!(matches!(
            larger,
            ElfError::CodeTooLarge {
                code: 4,
                max: 3,
                ..
            }
        ));
        let more = refused(rows(vec![0; 3]));
        assert!(matches!(more, ElfError::RowCountMismatch { found: 3, .. }));
        let two = CodeTable::new(vec![CodeColumn::U8(vec![1]), CodeColumn::U8(vec![1])]);
        let other = refused(two.unwrap());
        assert!(matches!(
            other,
            ElfError::DimensionMismatch { found: 2, .. }
        ));
        let mut fewer = builder();
        fewer.add(rows(vec![1]), scratch(), scratch()).unwrap();
        let fewer = fewer.finish(scratch(), &scratch(), 0).unwrap_err();
        assert!(matches!(fewer, ElfError::RowCountMismatch { found: 1, .. }));
        assert!(ExternalBuilder::new(&[], 0, PackedOptions::default(), 0).is_err());
        let endless = ExternalBuilder::new(&[1], ROW_COUNT_MAX + 1, PackedOptions::default(), 0);
        assert!(matches!(endless, Err(ElfError::TooManyRows { .. })));
    }
}
