//! What one execution of a scan reads and tests: the same for all of its workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use hotshelf_cache::ColumnId;
use hotshelf_store::data_file::TableFile;
use vortex::expr::Expression;

use super::comparison::Comparison;
use super::filters::{DynamicFilter, IntegerRange, KnownPart};
use super::numbers::RowsByFile;
use super::read_first::ReadFirst;
use crate::index::{AccessPath, Outcome};
use crate::pipelines::Operator;
use crate::prices::{PriceBook, Unit};

/// Chooses how rows are found when what joins say about them is known.
pub(crate) type ChooseLate = Box<dyn Fn() -> AccessPath + Send + Sync>;

/// What to scan.
pub(crate) struct ScanPlan {
    pub table: String,
    /// What takes the rows.
    pub operator: Operator,
    pub files: Vec<Arc<TableFile>>,
    /// Columns of the output, by index in the table.
    pub columns: Vec<usize>,
    pub projection: Expression,
    /// Columns that the worker looks up, by index in the table; only a star pipeline has some.
    pub keys: Vec<usize>,
    /// What rows have to meet. The scan's filters come first, in the order in which the access path numbers them.
    pub predicates: Vec<Predicate>,
    /// Predicates whose bounds become known while the query runs, over the output that was planned.
    pub dynamic: Vec<DynamicFilter>,
    /// Its columns, by index in the table.
    pub scan_columns: Vec<usize>,
    /// What a sort above wants first, if it lets row groups be skipped then.
    pub first: Option<ReadFirst>,
    /// Whether the last column has the numbers of rows.
    pub numbers_rows: bool,
    /// The only rows that are read.
    pub wanted: Option<Arc<RowsByFile>>,
    /// How rows are found.
    pub access: AccessPath,
    /// Chooses another way when the first worker begins.
    pub choose: Option<ChooseLate>,
    /// What the Elfs did.
    pub outcome: Arc<Outcome>,
    /// Most rows of a batch that comes from an index.
    pub batch_rows: usize,
    pub look_ahead_bytes: u64,
    /// A worker decodes about as much at once, in bytes.
    pub decoded_bytes_max: u64,
    /// Learns what testing rows takes.
    pub prices: Arc<PriceBook>,
    /// The processors near the table's shelf, if it is to be read from those only.
    pub near: Option<Vec<u32>>,
    /// Row groups that are read ahead at most.
    pub look_ahead_row_groups: usize,
    /// The cache's numbers of the table's columns.
    pub column_ids: Vec<ColumnId>,
    /// How much the query's time matters to the tuner.
    pub priority: f64,
    /// What uses of other things than columns count: the priority, and more where the goal asks for it.
    pub weight: f64,
    /// What the tuner expects the pipeline to take, if it knows the template, in seconds.
    pub predicted_s: Option<f64>,
}

/// A predicate. Row groups that cannot meet it are skipped; its role says who tests the rows of the others.
pub(crate) struct Predicate {
    pub expr: Expression,
    /// The columns it reads, by index in the table.
    pub columns: Vec<usize>,
    pub role: Role,
}

/// Who tests a predicate on rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// The scan evaluates it, unless an Elf's answer covers it.
    Evaluate,
    /// The worker of a star pipeline tests this range.
    Test(IntegerRange),
    /// It compares these columns.
    Compare(Comparison),
    /// A look-up does, so that it only skips row groups here.
    Prune,
}

impl ScanPlan {
    /// Columns that the worker reads of every row group, before rows are chosen.
    pub fn worker_columns(&self) -> impl Iterator<Item = usize> {
        let tested = self.predicates.iter();
        let tested =
            tested.filter(|predicate| matches!(predicate.role, Role::Test(_) | Role::Compare(_)));
        let tested = tested.flat_map(|predicate| predicate.columns.iter());
        self.keys.iter().chain(tested).copied()
    }

    /// Columns that are read to choose rows, in ascending order. `is_covered` says which predicates, by number, need
    /// no test.
    pub fn filter_columns(&self, is_covered: impl Fn(usize) -> bool) -> Vec<usize> {
        let predicates = self.predicates.iter().enumerate();
        let evaluated = predicates
            .filter(|(idx, predicate)| predicate.role == Role::Evaluate && !is_covered(*idx));
        let evaluated = evaluated.flat_map(|(_, predicate)| predicate.columns.iter().copied());
        let mut columns: Vec<usize> = evaluated.chain(self.worker_columns()).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The table's columns that a part of a dynamic filter reads, if they are read of surviving rows in any case.
    pub fn columns_of(&self, part: &KnownPart) -> Option<Vec<usize>> {
        let columns = part.columns.iter().map(|idx| {
            let column = self.scan_columns.get(*idx).copied()?;
            self.columns.contains(&column).then_some(column)
        });
        columns.collect()
    }

    /// Values that are tested and keys that are looked up of each row that is scanned, as the choice of an access path
    /// counts them.
    pub fn work_per_row(&self) -> [(Unit, usize); 2] {
        let tested = self
            .predicates
            .iter()
            .filter(|predicate| predicate.role != Role::Prune);
        let value_count = tested.map(|predicate| predicate.columns.len().max(1)).sum();
        let keys: BTreeSet<usize> = self.keys.iter().copied().collect();
        [(Unit::Test, value_count), (Unit::LookUp, keys.len())]
    }

    /// The ranges that the worker tests, one for each column.
    pub fn tested_ranges(&self) -> Vec<IntegerRange> {
        let mut ranges = Vec::new();
        for predicate in &self.predicates {
            if let Role::Test(range) = &predicate.role {
                range.clone().add_to(&mut ranges);
            }
        }
        ranges
    }

    /// The comparisons of columns that the worker makes.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let roles = self.predicates.iter().map(|predicate| &predicate.role);
        let comparisons = roles.filter_map(|role| match role {
            Role::Compare(comparison) => Some(comparison.clone()),
            _ => None,
        });
        comparisons.collect()
    }
}
