//! The smallest and largest code of each indexed column in every stretch of the data file's rows: what the zone maps of
//! a scan will leave out, known before the scan begins.

use std::ops::Range;
use std::path::Path;

use hotshelf_elf::keys::{CodeTable, QueryBox};
use hotshelf_tier::Corruption;

/// Rows of a zone: those of the largest row group.
pub const ZONE_ROWS: u64 = super::STRETCH_ROWS_MIN;

/// Bounds of codes, zone by zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    dimension_count: usize,
    /// Smallest and largest code of each column of the first zone, of the second, and so on.
    bounds: Vec<[u32; 2]>,
}

impl Zones {
    /// The zones of a table's rows, in the order of its rows.
    pub fn new(table: &CodeTable) -> Self {
        let mut bounds = Vec::new();
        for first in (0..table.row_count()).step_by(ZONE_ROWS as usize) {
            let end = table.row_count().min(first + ZONE_ROWS as usize);
            for column in table.columns() {
                let codes = (first..end).map(|row| column.get(row));
                bounds.push(codes.fold([u32::MAX, 0], |[least, most], code| {
                    [least.min(code), most.max(code)]
                }));
            }
        }
        Self {
            dimension_count: table.dimension_count(),
            bounds,
        }
    }

    /// Adds the zones of the rows that follow. Those before them fill whole zones.
    pub fn append(&mut self, following: Self) {
        self.dimension_count = following.dimension_count;
        self.bounds.extend(following.bounds);
    }

    /// Whether rows of a zone may lie in the box; yes for zones that do not exist.
    pub fn may_match(&self, zone: usize, query: &QueryBox) -> bool {
        let bounds = self.bounds.iter().skip(zone * self.dimension_count);
        let dimensions = bounds.zip(query.dimensions());
        dimensions
            .filter(|(_, restriction)| !restriction.is_any())
            .all(|([least, most], restriction)| {
                let (lo, hi) = restriction.hull();
                lo <= *most && *least <= hi
            })
    }

    /// As they are stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let codes = self.bounds.iter().flatten();
        codes.flat_map(|code| code.to_le_bytes()).collect()
    }

    /// The zones of this many rows.
    pub fn from_bytes(
        path: &Path,
        bytes: &[u8],
        rows: &Range<u64>,
        dimension_count: usize,
    ) -> Result<Self, Corruption> {
        let zone_count = (rows.end - rows.start).div_ceil(ZONE_ROWS);
        let expected = zone_count.saturating_mul((dimension_count as u64).saturating_mul(8));
        let (words, _) = bytes.as_chunks::<4>();
        if bytes.len() as u64 != expected {
            return Err(Corruption {
                file: path.to_owned(),
                offset: 0,
                what: "zones of a stretch".into(),
                expected: format!("{expected} bytes"),
                found: bytes.len().to_string(),
            });
        }
        let (pairs, _) = words.as_chunks::<2>();
        let bounds = pairs.iter().map(|pair| pair.map(u32::from_le_bytes));
        Ok(Self {
            dimension_count,
            bounds: bounds.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_elf::keys::{CodeColumn, Restriction};

    /// Two zones and a bit: a column that rises, one that repeats.
    fn table() -> CodeTable {
        let rows = 2 * ZONE_ROWS as u32 + 3;
        let rising = CodeColumn::from_codes((0..rows).map(|row| row / 1000), rows / 1000);
        let repeating = CodeColumn::from_codes((0..rows).map(|row| row % 7), 6);
        CodeTable::new(vec![rising, repeating]).expect("columns of equal length")
    }

    #[test]
    fn only_zones_whose_bounds_meet_the_box_may_match() {
        let zones = Zones::new(&table());
        assert_eq!(zones.bounds.len(), 3 * 2);
        let matching = |rising: Restriction, repeating: Restriction| -> Vec<usize> {
            let query = QueryBox::new(vec![rising, repeating]);
            (0..3)
                .filter(|zone| zones.may_match(*zone, &query))
                .collect()
        };
        let any = Restriction::Any;
        assert_eq!(matching(any.clone(), any.clone()), [0, 1, 2]);
        assert_eq!(matching(Restriction::exactly(5), any.clone()), [0]);
        assert_eq!(matching(Restriction::exactly(131), any.clone()), [0, 1]);
        assert_eq!(matching(Restriction::exactly(262), any.clone()), [1, 2]);
        assert_eq!(matching(any.clone(), Restriction::exactly(6)), [0, 1]);
        assert_eq!(matching(any, Restriction::exactly(7)), [0usize; 0]);
        assert!(zones.may_match(99, &QueryBox::unrestricted(2)));
    }

    #[test]
    fn zones_are_read_as_they_were_written() {
        let (path, zones) = (Path::new("x.elf"), Zones::new(&table()));
        let rows = 500..500 + 2 * ZONE_ROWS + 3;
        let bytes = zones.to_bytes();
        assert_eq!(Zones::from_bytes(path, &bytes, &rows, 2), Ok(zones));
        let error = Zones::from_bytes(path, &bytes[1..], &rows, 2).expect_err("too short");
        assert_eq!(error.found, (bytes.len() - 1).to_string());
    }

    #[test]
    fn zones_of_another_length_are_refused() {
        let path = Path::new("x.elf");
        for (rows, columns, length) in [(0, 3, 0), (5, 0, 0), (5, 1, 8), (2 * ZONE_ROWS, 2, 32)] {
            for found in 0..64 {
                let zones = Zones::from_bytes(path, &vec![7; found], &(0..rows), columns);
                assert_eq!(
                    zones.is_ok(),
                    found == length,
                    "{rows} rows, {columns} columns: {found}"
                );
            }
        }
        let endless = Zones::from_bytes(path, &[], &(0..u64::MAX), usize::MAX);
        assert!(endless.is_err());
    }
}
