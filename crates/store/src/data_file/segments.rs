//! Which column and row group each segment of a data file belongs to, from the footer's layout tree.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use hotshelf_tier::Corruption;
use hotshelf_tier::io::buffer_bytes;
use vortex::error::{VortexResult, vortex_err};
use vortex::file::{Footer, SegmentSpec};
use vortex::layout::{LayoutChildType, LayoutRef};

use super::sums::Sums;

/// One segment's place in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentPlace {
    /// Column of the schema; `None` for what belongs to the whole table.
    pub column_idx: Option<usize>,
    /// Row group the segment's first row is in.
    pub row_group_idx: u32,
    /// Whether it is a zone map, a dictionary or the like rather than rows.
    pub auxiliary: bool,
}

/// The segments of a file by place, and its row groups.
#[derive(Debug)]
pub struct SegmentMap {
    /// By segment index.
    pub specs: Vec<SegmentSpec>,
    /// By segment index.
    pub places: Vec<SegmentPlace>,
    /// Rows of each row group, in file order.
    pub row_groups: Vec<Range<u64>>,
    /// `by_column[column][row group]` lists the data segments that hold rows of the group.
    by_column: Vec<Vec<Vec<u32>>>,
}

/// A data segment as the walk finds it, before row groups are known.
struct FoundSegment {
    segment_idx: usize,
    column_idx: Option<usize>,
    rows: Range<u64>,
    auxiliary: bool,
}

impl SegmentMap {
    /// Walks the layout tree. The row groups are the boundaries common to most columns' chunks.
    pub fn new(footer: &Footer) -> VortexResult<Self> {
        let root = footer.layout();
        let column_names: Vec<String> = footer
            .dtype()
            .as_struct_fields_opt()
            .map(|fields| fields.names().iter().map(|name| name.to_string()).collect())
            .unwrap_or_default();
        let mut walk = Walk {
            column_names: &column_names,
            found: Vec::new(),
            boundaries: Vec::new(),
        };
        walk.visit(root, None, 0, false)?;
        let row_groups = row_groups(walk.boundaries, footer.row_count());
        let specs = footer.segment_map().to_vec();
        let none = SegmentPlace {
            column_idx: None,
            row_group_idx: 0,
            auxiliary: true,
        };
        let mut places = vec![none; specs.len()];
        let mut by_column = vec![vec![Vec::new(); row_groups.len()]; column_names.len()];
        for found in walk.found {
            let group = row_groups.partition_point(|rows| rows.end <= found.rows.start);
            let place = places.get_mut(found.segment_idx).ok_or_else(|| {
                vortex_err!(
                    "layout names segment {} of {}",
                    found.segment_idx,
                    specs.len()
                )
            })?;
            *place = SegmentPlace {
                column_idx: found.column_idx,
                row_group_idx: group as u32,
                auxiliary: found.auxiliary,
            };
            if let (Some(column), false) = (found.column_idx, found.auxiliary) {
                let end = row_groups.partition_point(|rows| rows.start < found.rows.end);
                for segments in by_column[column].get_mut(group..end).unwrap_or_default() {
                    segments.push(found.segment_idx as u32);
                }
            }
        }
        Ok(Self {
            specs,
            places,
            row_groups,
            by_column,
        })
    }

    /// There must be a checksum for every segment.
    pub(crate) fn check_count(&self, sums_path: &Path, sums: &Sums) -> Result<(), Corruption> {
        if self.specs.len() == sums.segments.len() {
            return Ok(());
        }
        Err(Corruption {
            file: sums_path.to_owned(),
            offset: 0,
            what: "segment count".into(),
            expected: self.specs.len().to_string(),
            found: sums.segments.len().to_string(),
        })
    }

    /// Memory that it takes, in bytes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let segment = size_of::<SegmentSpec>() + size_of::<SegmentPlace>();
        let lists = self.by_column.iter().flatten();
        let lists = lists.map(|list| size_of_val(list) + list.capacity() * size_of::<u32>());
        let groups = self.row_groups.len() * size_of::<Range<u64>>();
        (self.specs.len() * segment + lists.sum::<usize>() + groups) as u64
    }

    /// The data segments of a column that hold rows of a row group. A column whose chunks are longer than
    /// a row group has the same segment in several.
    pub fn data_segments(&self, column_idx: usize, row_group_idx: usize) -> &[u32] {
        self.by_column
            .get(column_idx)
            .and_then(|groups| groups.get(row_group_idx))
            .map_or(&[], Vec::as_slice)
    }

    /// Whether a segment's first row is in the row group: true in one row group of those that share it.
    pub fn starts_in(&self, segment_idx: u32, row_group_idx: usize) -> bool {
        self.places[segment_idx as usize].row_group_idx as usize == row_group_idx
    }

    /// DRAM that a segment takes once read.
    pub fn charged_bytes(&self, segment_idx: u32) -> u64 {
        let spec = &self.specs[segment_idx as usize];
        buffer_bytes(spec.offset, spec.length as usize) as u64
    }

    /// Bytes of a column's segments in the file, its zone maps and dictionaries included.
    pub fn column_bytes(&self, column_idx: usize) -> u64 {
        self.places
            .iter()
            .zip(&self.specs)
            .filter(|(place, _)| place.column_idx == Some(column_idx))
            .map(|(_, spec)| u64::from(spec.length))
            .sum()
    }
}

struct Walk<'a> {
    column_names: &'a [String],
    found: Vec<FoundSegment>,
    /// Chunk boundaries per column, each ascending.
    boundaries: Vec<Vec<u64>>,
}

impl Walk<'_> {
    fn visit(
        &mut self,
        layout: &LayoutRef,
        column: Option<usize>,
        row: u64,
        auxiliary: bool,
    ) -> VortexResult<()> {
        for segment in layout.segment_ids() {
            self.found.push(FoundSegment {
                segment_idx: *segment as usize,
                column_idx: column,
                rows: row..row.saturating_add(layout.row_count()),
                auxiliary,
            });
        }
        let is_table = column.is_none();
        for (child, kind) in layout.children()?.into_iter().zip(layout.child_types()) {
            match kind {
                LayoutChildType::Field(name) if is_table => {
                    let child_column = self
                        .column_names
                        .iter()
                        .position(|n| n.as_str() == name.as_ref());
                    self.boundaries.push(Vec::new());
                    self.visit(&child, child_column, row, auxiliary)?;
                }
                LayoutChildType::Auxiliary(_) => self.visit(&child, column, row, true)?,
                LayoutChildType::Chunk((_, offset)) => {
                    if !auxiliary && let Some(boundaries) = self.boundaries.last_mut() {
                        boundaries.push(row + offset);
                    }
                    self.visit(&child, column, row + offset, auxiliary)?;
                }
                _ => self.visit(&child, column, row, auxiliary)?,
            }
        }
        Ok(())
    }
}

/// Row ranges between the boundaries that at least half of the chunked columns have. A column whose chunks
/// lie elsewhere (a dictionary that filled up starts a new chunk) does not coarsen the row groups of all.
fn row_groups(columns: Vec<Vec<u64>>, row_count: u64) -> Vec<Range<u64>> {
    if row_count == 0 {
        return Vec::new();
    }
    let mut chunked_columns = 0;
    let mut columns_at: BTreeMap<u64, usize> = BTreeMap::new();
    for mut boundaries in columns {
        boundaries.sort_unstable();
        boundaries.dedup();
        chunked_columns += usize::from(!boundaries.is_empty());
        for row in boundaries {
            *columns_at.entry(row).or_default() += 1;
        }
    }
    let mut starts: Vec<u64> = columns_at
        .into_iter()
        .filter(|(row, columns)| *row > 0 && *row < row_count && 2 * columns >= chunked_columns)
        .map(|(row, _)| row)
        .collect();
    starts.insert(0, 0);
    let ends = starts
        .iter()
        .skip(1)
        .copied()
        .chain([row_count])
        .collect::<Vec<_>>();
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| start..end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_groups_are_the_boundaries_most_columns_share() {
        assert_eq!(
            row_groups(
                vec![vec![0, 10, 20, 30], vec![0, 20], vec![0, 20, 33], vec![]],
                35
            ),
            [0..20, 20..35]
        );
        assert_eq!(
            row_groups(vec![vec![], vec![]], 7),
            std::slice::from_ref(&(0..7))
        );
        assert!(row_groups(vec![], 0).is_empty());
    }
}
