//! Which columns of a build side tell its rows apart: what a star has looked up is determined by the key that it looked
//! up. Groups by a customer's number, name and address are groups by the number.

use std::sync::atomic::{AtomicBool, Ordering};

use super::narrow::Source;

/// Where the columns of a star's rows come from.
#[derive(Debug)]
pub(super) struct Lineage {
    /// By column; `None` for what is computed.
    sources: Vec<Option<Source>>,
    /// The column of the scan that each look-up is asked for.
    keys: Vec<usize>,
    /// Whether the star has run and the data was one: then no key of a look-up repeats.
    has_run: AtomicBool,
}

impl Lineage {
    pub fn new(sources: Vec<Option<Source>>, keys: Vec<usize>) -> Self {
        Self {
            sources,
            keys,
            has_run: AtomicBool::new(false),
        }
    }

    pub fn note_run(&self) {
        self.has_run.store(true, Ordering::Release);
    }

    /// Whether each of these columns is needed to tell rows apart by all of them. `None` is another expression.
    pub fn needed(&self, columns: &[Option<usize>]) -> Vec<bool> {
        if !self.has_run.load(Ordering::Acquire) {
            return vec![true; columns.len()];
        }
        let source = |column: &Option<usize>| *self.sources.get((*column)?)?;
        let sources: Vec<Option<Source>> = columns.iter().map(source).collect();
        let is_known = |key: &usize| sources.contains(&Some(Source::Probe(*key)));
        let needed = sources.iter().map(|source| match source {
            Some(Source::Build { join, .. }) => !self.keys.get(*join).is_some_and(is_known),
            Some(Source::Probe(_)) | None => true,
        });
        needed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_up_is_not_needed_beside_its_key() {
        let build = |join, column| Some(Source::Build { join, column });
        let probe = |column| Some(Source::Probe(column));
        let sources = vec![probe(0), probe(4), build(0, 0), build(1, 2), None];
        let lineage = Lineage::new(sources, vec![4, 7]);
        let columns = [Some(1), Some(2), Some(3), Some(4), None];
        assert_eq!(lineage.needed(&columns), [true; 5], "it has not run");
        lineage.note_run();
        let needed = lineage.needed(&columns);
        assert_eq!(needed, [true, false, true, true, true]);
        assert_eq!(lineage.needed(&[Some(0), Some(2)]), [true, true]);
    }
}
