//! Columns that the same pipelines read are interchangeable in the shared form: only the sum of what is kept of them
//! counts. It is spread evenly over them. A query yet unknown that reads one of them then finds a part of it, instead
//! of all or nothing, and what a scan leaves behind before anything is known is even, too.

use crate::model::Problem;
use std::collections::BTreeMap;

/// Parts of a column that are read count as equal if they differ by less than one in this many.
const PARTS: f64 = 1000.0;

/// Gives columns that the same terms read, by the same parts of their sizes, the same proportion. Keeps the sum of
/// bytes.
pub(super) fn level(problem: &Problem, x: &mut [f64]) {
    let mut readers: Vec<Vec<(usize, u64)>> = vec![Vec::new(); x.len()];
    for (term_idx, term) in problem.terms.iter().enumerate() {
        for column in &term.reads {
            let part = column.bytes / problem.items[column.item_idx].bytes;
            readers[column.item_idx].push((term_idx, (part * PARTS).round() as u64));
        }
    }
    let mut alike: BTreeMap<&[(usize, u64)], Vec<usize>> = BTreeMap::new();
    let is_column = |item_idx: &usize| problem.choices[*item_idx].saved_s == 0.0;
    for (item_idx, readers) in readers.iter().enumerate().filter(|(idx, _)| is_column(idx)) {
        alike.entry(readers).or_default().push(item_idx);
    }
    for columns in alike.values().filter(|columns| columns.len() > 1) {
        let bytes = |item_idx: &usize| problem.items[*item_idx].bytes;
        let kept = columns
            .iter()
            .map(|item_idx| bytes(item_idx) * x[*item_idx]);
        let proportion = kept.sum::<f64>() / columns.iter().map(bytes).sum::<f64>();
        for item_idx in columns {
            x[*item_idx] = proportion.min(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ColumnId;
    use crate::model::{Term, TermRead, Tiers};

    fn term(columns: &[(usize, f64)]) -> Term {
        let columns = columns.iter();
        Term {
            weight: 1.0,
            reads: columns
                .map(|(item_idx, bytes)| TermRead {
                    item_idx: *item_idx,
                    bytes: *bytes,
                })
                .collect(),
            processing_bandwidth: f64::INFINITY,
            query_idx: 0,
            template: 0,
            pipeline: 0,
        }
    }

    #[test]
    fn columns_with_equal_readers_share_what_is_kept_of_them_and_others_keep_theirs() {
        let tiers = Tiers {
            storage_bandwidth: 1.0,
            memory_bandwidth: 10.0,
        };
        let mut problem = Problem::empty(tiers.shelves(1000.0));
        for (bytes, idx) in [100.0, 300.0, 100.0, 100.0].into_iter().zip(0..) {
            problem.add_column(ColumnId(idx), bytes);
        }
        // Columns 0 and 1 are read alike, 2 by one more, of 3 only a part.
        problem.terms = vec![
            term(&[(0, 100.0), (1, 300.0), (2, 100.0), (3, 50.0)]),
            term(&[(2, 100.0)]),
        ];
        let mut x = [1.0, 0.0, 0.7, 0.2];
        let before_s = problem.total_s(&x);
        level(&problem, &mut x);
        assert_eq!(x, [0.25, 0.25, 0.7, 0.2]);
        assert!((problem.total_s(&x) - before_s).abs() < 1e-9);
    }
}
