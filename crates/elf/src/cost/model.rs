//! The cost of a query on a packed Elf.
//!
//! How many nodes, groups and rows there are at each level is known exactly from the Elf; a query reaches
//! the share of them that the restrictions on the columns before that level accept. Columns are taken as
//! independent, each with its own histogram. (Schneider, arXiv 1609.01319, shows that the size of the
//! visited region explains the time.)

use std::path::Path;

use crate::codec::{Reader, Writer};
use crate::error::Result;
use crate::keys::{CodeTable, QueryBox, Restriction};
use crate::layout::packed::{ElfHead, LevelShape, PackedElf};

use super::Histogram;

/// What answering a query takes, in units that cost about the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Nodes of the head looked at.
    pub nodes: f64,
    /// Child entries looked at.
    pub children: f64,
    /// Places in the leaves where reading starts anew.
    pub jumps: f64,
    /// Suffix words tested.
    pub words: f64,
    /// Rows returned.
    pub results: f64,
    /// Rows of the leaves that are tested, and those with the others whose TIDs are read. They are bytes to read where
    /// the leaves are not in memory, and have no price of their own.
    pub tested_rows: f64,
    /// See [`Self::tested_rows`].
    pub leaf_rows: f64,
}

impl Work {
    /// The terms that have a price, in the order of the fields.
    pub fn terms(&self) -> [f64; 5] {
        [
            self.nodes,
            self.children,
            self.jumps,
            self.words,
            self.results,
        ]
    }
}

/// Nanoseconds per unit of [`Work`], and per query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// One node.
    pub node_ns: f64,
    /// One child entry.
    pub child_ns: f64,
    /// One jump: the latency of memory, where it cannot be hidden.
    pub jump_ns: f64,
    /// One suffix word.
    pub word_ns: f64,
    /// One result.
    pub result_ns: f64,
    /// A query that finds nothing.
    pub query_ns: f64,
}

impl Costs {
    /// The predicted time of some work on one thread.
    pub fn predict_ns(&self, work: &Work) -> f64 {
        let prices = [
            self.node_ns,
            self.child_ns,
            self.jump_ns,
            self.word_ns,
            self.result_ns,
        ];
        self.query_ns
            + prices
                .iter()
                .zip(work.terms())
                .map(|(price, term)| price * term)
                .sum::<f64>()
    }
}

/// Statistics of one Elf.
#[derive(Debug, Clone)]
pub struct CostModel {
    row_count: f64,
    levels: Vec<LevelShape>,
    histograms: Vec<Histogram>,
}

impl CostModel {
    /// The model of an Elf and the table it was built from.
    pub fn new<S>(elf: &PackedElf<S>, table: &CodeTable) -> Self {
        let histograms = table.columns().iter().map(Histogram::from_column);
        Self::with_histograms(elf.upper(), histograms.collect())
    }

    /// The model of an Elf with this head, and of columns with these histograms.
    pub(crate) fn with_histograms(head: &ElfHead, histograms: Vec<Histogram>) -> Self {
        Self {
            row_count: head.row_count() as f64,
            levels: head.level_shapes(),
            histograms,
        }
    }

    /// The model as bytes, for a file of the caller's.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.row_count.to_bits());
        out.u32(self.levels.len() as u32);
        for level in &self.levels {
            let figures = [
                level.nodes,
                level.children,
                level.groups,
                level.rows,
                level.words,
            ];
            out.u64s(&figures.map(f64::to_bits));
        }
        out.u32(self.histograms.len() as u32);
        self.histograms
            .iter()
            .for_each(|histogram| histogram.write(&mut out));
        out.bytes
    }

    /// Reads what [`Self::to_bytes`] wrote. `file` is named in errors.
    ///
    /// # Errors
    /// When the bytes are not a model.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self> {
        let mut input = Reader::new(file, bytes, 0);
        let row_count = f64::from_bits(input.u64("rows of a model")?);
        let level_count = input.u32("levels of a model")? as usize;
        let mut levels = Vec::with_capacity(level_count.min(input.remaining() / 40));
        for _ in 0..level_count {
            let figures = input.u64s(5, "level of a model")?;
            let figure = |idx: usize| f64::from_bits(figures[idx]);
            levels.push(LevelShape {
                nodes: figure(0),
                children: figure(1),
                groups: figure(2),
                rows: figure(3),
                words: figure(4),
            });
        }
        let histogram_count = input.u32("histograms of a model")? as usize;
        let mut histograms = Vec::with_capacity(histogram_count.min(input.remaining() / 16));
        for _ in 0..histogram_count {
            histograms.push(Histogram::read(&mut input)?);
        }
        if levels.len() != histograms.len() + 1 || input.remaining() > 0 {
            let found = input.corrupt("model", "one level more than histograms", levels.len());
            return Err(found.into());
        }
        Ok(Self {
            row_count,
            levels,
            histograms,
        })
    }

    fn selectivities(&self, query: &QueryBox) -> Result<Vec<f64>> {
        query.check(self.histograms.len())?;
        let pairs = self.histograms.iter().zip(query.dimensions());
        Ok(pairs
            .map(|(histogram, restriction)| histogram.selectivity(restriction))
            .collect())
    }

    /// What answering a query through the Elf takes.
    ///
    /// # Errors
    /// When the query has another number of dimensions.
    pub fn work(&self, query: &QueryBox) -> Result<Work> {
        let selectivities = self.selectivities(query)?;
        let restricted_end = query
            .dimensions()
            .iter()
            .rposition(|one| !one.is_any())
            .map_or(0, |last| last + 1);
        let mut work = Work {
            results: self.row_count * selectivities.iter().product::<f64>(),
            ..Work::default()
        };
        // The share of this level's nodes that is reached, and in how many stretches.
        let (mut reached, mut stretches) = (1.0f64, 1.0f64);
        for (level, shape) in self.levels.iter().enumerate() {
            if level > 0 {
                reached *= selectivities[level - 1];
                let places = ranges(&query.dimensions()[level - 1]);
                if places > 0 {
                    // One stretch of neighbours per node reached above, and per range of a set.
                    let nodes = self.levels[level - 1].nodes * reached
                        / selectivities[level - 1].max(1e-12);
                    stretches = nodes.max(1.0) * places as f64;
                }
            }
            let has_tests = level < restricted_end;
            let nodes = shape.nodes * reached;
            let fanout = if shape.nodes > 0.0 {
                shape.children / shape.nodes
            } else {
                0.0
            };
            let here = selectivities.get(level).copied().unwrap_or(1.0);
            work.nodes += nodes;
            work.children += nodes * fanout * here;
            let (groups, places) = match query.dimensions().first() {
                // The root's groups are its children: its own restriction decides which of them are reached.
                Some(first) if level == 0 && shape.nodes > 0.0 => {
                    let places = ranges(first).max(1) as f64;
                    ((shape.groups * here).max(places.min(shape.groups)), places)
                }
                _ => (shape.groups * reached, stretches),
            };
            work.jumps += groups.min(places);
            let rows = shape.rows * groups / shape.groups.max(1.0);
            work.leaf_rows += rows;
            if has_tests {
                work.tested_rows += rows;
                work.words += rows * shape.words.max(1.0);
            }
        }
        Ok(work)
    }
}

/// In how many ranges of codes a restriction looks; none if it accepts all.
fn ranges(restriction: &Restriction) -> usize {
    match restriction {
        Restriction::Any => 0,
        Restriction::Range { .. } => 1,
        Restriction::Set(set) => set.ranges().len(),
    }
}
