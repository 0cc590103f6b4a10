//! What EXPLAIN says about each operator of a plan.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};

use crate::shared::shared_part;
use crate::statistics::rows::Expectations;

/// Operators that only keep others apart from the engine.
const NOT_SHOWN: [&str; 2] = ["ForgetExec", "CooperativeExec"];

/// An operator, and those that give it rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Node {
    pub name: String,
    /// What it does, one part each.
    pub details: Vec<String>,
    /// Rows that it is expected to give.
    pub expected_rows: Option<u64>,
    pub ran: Ran,
    pub inputs: Vec<Node>,
}

/// What running it took. `None`: not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Ran {
    /// Rows that it gave.
    pub rows: Option<u64>,
    /// Processor time of all its threads.
    pub time: Option<Duration>,
    /// Bytes that it read from memory.
    pub memory_bytes: Option<u64>,
    /// Bytes that it read from storage.
    pub storage_bytes: Option<u64>,
    /// The most memory that it held, summed over its partitions.
    pub held_bytes: Option<u64>,
    /// Bytes that it wrote to the spill folder.
    pub spilled_bytes: Option<u64>,
}

impl Node {
    /// The operators of a plan.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Self::with(plan, &mut Expectations::default(), &mut HashSet::new())
    }

    /// Shared parts are shown where they come first.
    fn with(
        plan: &Arc<dyn ExecutionPlan>,
        expected: &mut Expectations,
        shown: &mut HashSet<usize>,
    ) -> Self {
        let mut children = plan.children();
        if let ([input], true) = (&children[..], NOT_SHOWN.contains(&plan.name())) {
            return Self::with(input, expected, shown);
        }
        let part = shared_part(plan).filter(|(number, _)| shown.insert(*number));
        children.extend(part.map(|(_, part)| part));
        let known = expected.of(plan);
        let rows = known
            .ok()
            .and_then(|known| known.num_rows.get_value().copied());
        let name = plan.name();
        let details = Described(plan.as_ref()).to_string();
        Self {
            name: name.strip_suffix("Exec").unwrap_or(name).to_owned(),
            details: details.lines().filter_map(detail).collect(),
            expected_rows: rows.map(|rows| rows as u64),
            ran: plan.metrics().as_ref().map(Ran::of).unwrap_or_default(),
            inputs: children
                .into_iter()
                .map(|input| Self::with(input, expected, shown))
                .collect(),
        }
    }

    /// All operators, those that give rows after those that take them.
    pub fn all(&self) -> Vec<&Self> {
        let inputs = self.inputs.iter().flat_map(Self::all);
        [self].into_iter().chain(inputs).collect()
    }
}

impl Ran {
    fn of(metrics: &MetricsSet) -> Self {
        let sum = |name: &str| {
            metrics
                .sum_by_name(name)
                .map(|value| value.as_usize() as u64)
        };
        let bytes = |name: &str| sum(name).filter(|bytes| *bytes > 0);
        // A scan and a star count the time of their parts.
        let compute_ns = metrics.elapsed_compute().unwrap_or(0) as u64;
        let time_ns = compute_ns.max(sum("decode").unwrap_or(0));
        Self {
            rows: metrics.output_rows().map(|rows| rows as u64),
            time: (time_ns > 0).then(|| Duration::from_nanos(time_ns)),
            memory_bytes: bytes("bytes_cache"),
            storage_bytes: bytes("bytes_storage"),
            held_bytes: bytes("peak_mem_used"),
            spilled_bytes: metrics
                .spilled_bytes()
                .map(|bytes| bytes as u64)
                .filter(|bytes| *bytes > 0),
        }
    }
}

/// A line of what an operator says about itself, if it is not empty.
fn detail(line: &str) -> Option<String> {
    let line = line.trim();
    (!line.is_empty()).then(|| match line.split_once('=') {
        Some((name, value)) if is_word(name) => format!("{name}: {value}"),
        _ => line.to_owned(),
    })
}

fn is_word(text: &str) -> bool {
    text.chars()
        .all(|letter| letter.is_alphanumeric() || "_-#".contains(letter))
}

/// What an operator says about itself, a thing in each line.
struct Described<'a>(&'a dyn ExecutionPlan);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayAs::fmt_as(self.0, DisplayFormatType::TreeRender, f)
    }
}
