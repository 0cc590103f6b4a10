//! What operators do with their memory, by the names under which they borrow it.

use std::fmt;

use datafusion::execution::memory_pool::MemoryConsumer;

/// A kind of operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorKind {
    /// Sorts, our own and DataFusion's, and window functions, which keep a partition. They spill all they hold.
    Sort,
    /// Our joins. They spill a partition.
    Join,
    /// Our aggregations, which spill a partition, and DataFusion's that spill their groups and merge them when their
    /// input has ended. Those that emit groups early instead save no reading and writing; those of grouping sets do
    /// not show when they merge.
    Aggregation,
    /// All others, among them those that hand on what they hold.
    Other,
}

/// The beginnings of the names.
const NAMES: [(&str, OperatorKind); 7] = [
    ("Sort[", OperatorKind::Sort),
    ("ExternalSorter[", OperatorKind::Sort),
    ("window functions", OperatorKind::Sort),
    ("join", OperatorKind::Join),
    ("aggregation", OperatorKind::Aggregation),
    ("FinalHashAggregateStream[", OperatorKind::Aggregation),
    ("SingleHashAggregateStream[", OperatorKind::Aggregation),
];

impl OperatorKind {
    pub const COUNT: usize = 4;

    pub const ALL: [Self; Self::COUNT] = [Self::Sort, Self::Join, Self::Aggregation, Self::Other];

    /// The kind of a borrower.
    pub fn of(consumer: &MemoryConsumer) -> Self {
        let mut names = NAMES.iter();
        let named = names.find(|(start, _)| consumer.name().starts_with(start));
        match named {
            Some((_, kind)) if consumer.can_spill() => *kind,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for OperatorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sort => "sorts",
            Self::Join => "joins",
            Self::Aggregation => "aggregations",
            Self::Other => "others",
        })
    }
}
