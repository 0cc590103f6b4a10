//! An execution of a scan begins: the plan that its workers share, for DataFusion's operators and for star pipelines.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use hotshelf_cache::ScanContext;
use hotshelf_cache::tuner::Tuner;
use vortex::dtype::Nullability;
use vortex::expr::{Expression, get_item, pack, root};

use super::filters::{DynamicFilter, IntegerRange};
use super::metrics::Reported;
use super::plan::{ChooseLate, Predicate, Role, ScanPlan};
use super::queue::ScanQueue;
use super::source::{Filter, TableScan, Taker};
use crate::index::AccessPath;
use crate::pipelines::Operator;
use crate::settings::SessionSettings;

/// What a star pipeline reads of its scan, by index in the scan's output.
pub(crate) struct StarColumns<'a> {
    /// Read with the filters' columns, for look-ups.
    pub keys: &'a [usize],
    /// Read where rows survive.
    pub payload: &'a [usize],
}

/// What the look-ups of a star pipeline say about its scan's rows.
pub(crate) struct StarKeys<'a> {
    pub ranges: &'a [DynamicFilter],
    /// All keys of columns that have few, by index in the scan's output.
    pub lists: &'a [(usize, &'a [ScalarValue])],
}

impl TableScan {
    /// The same scan without what executions have left in it.
    pub fn anew(&self) -> Self {
        let mut scan = self.clone();
        scan.outcome = Arc::default();
        scan.taken = Arc::default();
        scan.reported = Arc::default();
        scan.metrics = ExecutionPlanMetricsSet::new();
        scan
    }

    /// The queue that the workers of one execution share.
    pub(super) fn scan_queue(&self, config: &ConfigOptions) -> Arc<ScanQueue> {
        *self.reported.lock() = Reported::default();
        *self.taken.lock() = None;
        let predicates = self.filters.iter().map(Filter::evaluated).collect();
        let plan = ScanPlan {
            outcome: self.outcome.clone(),
            choose: self.late_choice(),
            ..self.plan(self.access.clone(), predicates)
        };
        self.queue(plan, config)
    }

    /// How rows are found by what joins have said about their keys when the first worker begins, if they may say
    /// something.
    fn late_choice(&self) -> Option<ChooseLate> {
        if self.dynamic.is_empty() || !self.can_use_elfs() {
            return None;
        }
        let scan = self.clone();
        let choose = move || {
            let keys = scan.join_keys(&scan.dynamic);
            let access = scan.access_within(Taker::Operators, &keys);
            *scan.taken.lock() = Some(access.clone());
            access
        };
        Some(Box::new(choose))
    }

    /// The queue of a star pipeline. The ranges of its look-ups' keys skip row groups; the worker has to test the
    /// plan's own ranges.
    pub fn star_queue(
        &self,
        config: &ConfigOptions,
        columns: StarColumns<'_>,
        known: StarKeys<'_>,
    ) -> Arc<ScanQueue> {
        let taker = Taker::Star {
            key_count: distinct(columns.keys),
        };
        let mut keys = self.join_keys(known.ranges);
        keys.extend(self.join_keys(&self.dynamic));
        let lists = known.lists.iter();
        keys.conditions
            .extend(lists.filter_map(|(column, values)| self.listed(*column, *values)));
        let access = self.access_within(taker, &keys);
        let leaves_ranges = access.elf.is_none();
        let filters = self.filters.iter();
        let mut predicates: Vec<Predicate> = filters
            .map(|filter| match filter.tested() {
                // What an Elf answers exactly needs no test; the worker would read the columns for it.
                Some(tested) if leaves_ranges => tested,
                _ => filter.evaluated(),
            })
            .collect();
        let key_ranges = known.ranges.iter();
        let key_ranges = key_ranges.filter_map(|range| range.current(&self.env.vortex));
        predicates.extend(key_ranges.flatten().map(|part| Predicate {
            expr: part.expr,
            columns: Vec::new(),
            role: Role::Prune,
        }));
        let in_table = |indices: &[usize]| -> Vec<usize> {
            indices.iter().map(|idx| self.columns[*idx]).collect()
        };
        let plan = ScanPlan {
            operator: Operator::Star,
            columns: in_table(columns.payload),
            projection: projection(columns.payload.iter().map(|idx| self.schema.field(*idx))),
            keys: in_table(columns.keys),
            ..self.plan(access, predicates)
        };
        self.queue(plan, config)
    }

    fn plan(&self, access: AccessPath, predicates: Vec<Predicate>) -> ScanPlan {
        let stored = self.schema.fields().iter().take(self.columns.len());
        let mut files = self.table.files.clone();
        if let Some(wanted) = &self.wanted {
            files.retain(|file| wanted.contains_key(&file.paths.number));
        }
        ScanPlan {
            table: self.table.name.clone(),
            operator: Operator::Scan,
            files,
            columns: self.columns.clone(),
            projection: projection(stored.map(AsRef::as_ref)),
            keys: Vec::new(),
            predicates,
            dynamic: self.dynamic.clone(),
            scan_columns: self.columns.clone(),
            first: self.first.clone(),
            numbers_rows: self.numbers_rows,
            wanted: self.wanted.clone(),
            access,
            choose: None,
            outcome: Arc::default(),
            batch_rows: 0,
            look_ahead_bytes: self.env.look_ahead_bytes(),
            decoded_bytes_max: self.env.decoded_bytes_max(self.partitions),
            prices: self.env.prices.clone(),
            near: self.env.shelves.near_cpus_of(&self.table.folder),
            look_ahead_row_groups: self.env.look_ahead_row_groups(),
            column_ids: self.table.column_ids.clone(),
            priority: 1.0,
            weight: 1.0,
            predicted_s: None,
        }
    }

    /// The query and the pipeline that its reads of segments are for.
    pub(super) fn read_context(&self, settings: &SessionSettings) -> ScanContext {
        let mut context = ScanContext::new(settings.query_id, self.pipeline(), settings.template);
        context.populate = settings.populate;
        let cache = &self.env.cache;
        context.weight = cache.query_weight(settings.template, settings.priority);
        context
    }

    fn queue(&self, plan: ScanPlan, config: &ConfigOptions) -> Arc<ScanQueue> {
        let settings = config.extensions.get::<SessionSettings>();
        let settings = settings.cloned().unwrap_or_default();
        let context = self.read_context(&settings);
        let plan = ScanPlan {
            priority: settings.priority,
            weight: context.weight,
            predicted_s: self.predicted_s(settings.template),
            batch_rows: config.execution.batch_size.into(),
            ..plan
        };
        let session = self.env.vortex.clone();
        Arc::new(ScanQueue::new(plan, Arc::new(context), session))
    }

    /// What the tuner expects of the pipeline with what is in memory now, in seconds.
    fn predicted_s(&self, template: u64) -> Option<f64> {
        let tuner = self.env.observers.tuner.as_ref()?;
        let cache = &self.env.cache;
        if !cache.policy().is_tuned() {
            return None; // what is in memory will not stay
        }
        let (sizes, resident) = (cache.column_sizes(), cache.resident_bytes());
        let share = |column| {
            let bytes = |of: &BTreeMap<_, u64>| of.get(&column).copied().unwrap_or(0) as f64;
            bytes(&resident) / bytes(&sizes).max(1.0)
        };
        let predict = |tuner: &Tuner| tuner.predicted_with(template, self.pipeline(), share);
        tuner.try_inspect(predict).flatten()
    }

    /// A number for this scan within its query, the same in every run of the template.
    fn pipeline(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        (self.table.id, &self.columns, self.filters.len()).hash(&mut hasher);
        (self.numbers_rows, self.wanted.is_some()).hash(&mut hasher);
        hasher.finish() as u32
    }
}

impl Filter {
    /// The filter as the scan evaluates it.
    fn evaluated(&self) -> Predicate {
        Predicate {
            expr: self.converted.clone(),
            columns: self.conjunct.columns.clone(),
            role: Role::Evaluate,
        }
    }

    /// The filter as the worker of a star pipeline tests it, if it is a range of integers or compares two columns of
    /// them.
    fn tested(&self) -> Option<Predicate> {
        let columns = self.conjunct.columns.as_slice();
        let role = match (IntegerRange::of(&self.expr), columns, &self.comparison) {
            (Some(range), [column], _) => Role::Test(IntegerRange {
                column: *column,
                ..range
            }),
            (_, _, Some(comparison)) => Role::Compare(comparison.clone()),
            _ => return None,
        };
        Some(Predicate {
            role,
            ..self.evaluated()
        })
    }
}

/// How many different numbers there are.
fn distinct(numbers: &[usize]) -> usize {
    numbers.iter().collect::<BTreeSet<_>>().len()
}

/// A struct of columns.
fn projection<'a>(fields: impl Iterator<Item = &'a Field>) -> Expression {
    let columns = fields.map(|field| {
        let name = field.name().clone();
        (name.clone(), get_item(name, root()))
    });
    pack(columns, Nullability::NonNullable)
}
