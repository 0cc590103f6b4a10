//! The codes of the first dimension, without the rows. The root names those that have a child of their own; only the
//! others are read from leaves.

use std::ops::{ControlFlow, Range};

use super::ElfHead;
use super::head::Link;
use super::shelved::{FetchBlocks, ShelvedElf};

impl ElfHead {
    /// The codes that the root names, ascending, and the rows of the others. The upper levels of a head know them, too.
    fn named_codes(&self) -> (Vec<u32>, Vec<Range<u32>>) {
        let (mut codes, mut rows) = (Vec::new(), Vec::new());
        let Link::Node(root) = self.root else {
            let all = 0..self.row_count as u32;
            rows.extend((!all.is_empty()).then_some(all));
            return (codes, rows);
        };
        let node = self.node(root);
        let _ = self.head.for_children(node, (0, u32::MAX), |child, code| {
            let own = self.head.rows_of(node, child);
            match code {
                _ if own.is_empty() => {}
                Some(code) => codes.push(code),
                None => rows.push(own),
            }
            ControlFlow::<()>::Continue(())
        });
        (codes, rows)
    }
}

impl<F: FetchBlocks> ShelvedElf<F> {
    /// The codes that rows have in the first dimension, ascending, each once.
    ///
    /// # Errors
    /// When blocks cannot be fetched.
    pub async fn first_codes(&mut self) -> Result<Vec<u32>, F::Error> {
        let (named, rows) = self.head().named_codes();
        let mut codes = [named];
        if !rows.is_empty() {
            self.read_rows(&rows, &[0], &mut codes).await?;
        }
        let [mut codes] = codes;
        codes.sort_unstable();
        codes.dedup();
        Ok(codes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::PackedElf;
    use super::super::shelved_tests::{Shelf, now, options};
    use crate::cases;
    use crate::keys::CodeTable;

    /// Checks them, and returns how many blocks were read.
    fn check(table: &CodeTable, bits: u8) -> u64 {
        let elf = PackedElf::build(table, &options(bits)).unwrap();
        let shelf = Shelf::new(&elf, 0, 3);
        let mut shelved = shelf.elf();
        let rows = 0..table.row_count();
        let expected: BTreeSet<u32> = rows.map(|row| table.row(row)[0]).collect();
        let expected: Vec<u32> = expected.into_iter().collect();
        assert_eq!(now(shelved.first_codes()).unwrap(), expected);
        shelved.reads().shelf_blocks
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn the_first_codes_are_those_of_the_rows(
            many in cases::table(900, u32::MAX),
            few in cases::table(900, 40),
            bits in any::<u8>(),
        ) {
            check(&many, bits);
            check(&few, bits);
        }
    }

    #[test]
    fn the_first_codes_of_every_tiny_table_are_found() {
        for (dimensions, codes, rows) in [(1, 3, 4), (2, 2, 4), (3, 2, 3), (2, 3, 2)] {
            for table in cases::all_tables(dimensions, codes, rows) {
                for bits in 0..8 {
                    check(&table, bits);
                }
            }
        }
    }

    #[test]
    fn the_root_names_codes_of_many_rows() {
        assert_eq!(check(&cases::uniform(20_000, 3, 40, 1), 0), 0);
    }
}
