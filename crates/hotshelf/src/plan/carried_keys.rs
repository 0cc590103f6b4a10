//! Group keys that depend on others: `GROUP BY k, name` where k has no value twice in its table, and name is of that
//! table or of one that is joined to it by such a key.
//!
//! Hotshelf's aggregation finds groups by k alone. What depends on it comes with the first row of a group and is
//! neither hashed nor compared, in rows that meet their group not even looked at. Stars see all keys, and number build
//! rows (`star/determined`). As it is found out for the plan that is about to run, what is known about a table holds
//! for the rows that are read, whenever the query was planned first.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use super::padded_rows::ForgetExec;
use crate::scan::TableScan;
use crate::shared::shared_part;
use crate::star::fallback;
use crate::statistics::origin::{aggregation, column_of, hash_join};
use crate::table::Table;

/// The keys of an aggregation, by index, that are equal in all rows that agree in the others.
pub(super) fn carried_keys(aggregate: &AggregateExec) -> Vec<usize> {
    let group_by = aggregate.group_expr();
    if !group_by.is_single() || group_by.expr().len() < 2 {
        return Vec::new();
    }
    let rows = Lineage::of(aggregate.input());
    let keys = group_by.expr().iter().map(|(key, _)| column_of(key));
    rows.picking(keys).dependent().into_iter().collect()
}

/// Where the columns of rows come from.
#[derive(Default)]
struct Lineage {
    /// Of each scan below.
    tables: Vec<Arc<Table>>,
    /// `None`: computed, or not known. Those of one scan are from one row of it, or all NULL as an outer join found no
    /// row.
    columns: Vec<Option<Source>>,
    /// In each row both are equal and not NULL, or an outer join found a row for neither of the scans.
    equal: Vec<[Source; 2]>,
}

/// A column of a scan, by index in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    scan: usize,
    column: usize,
}

impl Lineage {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let same_rows = fallback(plan).or_else(|| shared_part(plan).map(|(_, part)| part));
        if let Some(same_rows) = same_rows {
            return Self::of(same_rows);
        }
        if let Some(scan) = TableScan::of(plan) {
            return Self::of_scan(scan);
        }
        if let Some(join) = hash_join(plan) {
            return Self::of_join(join);
        }
        if let Some(groups) = aggregation(plan) {
            return match groups.group_expr().is_single() {
                true => {
                    let keys = groups.group_expr().expr().iter();
                    Self::of(groups.input()).picking(keys.map(|(key, _)| column_of(key)))
                }
                false => Self::default(),
            };
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let columns = projection.expr().iter();
            let columns = columns.map(|projected| column_of(&projected.expr));
            return Self::of(projection.input()).picking(columns);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            return Self::of(filter.input()).projected(filter.projection().as_ref());
        }
        match plan.children()[..] {
            [input] if hands_on(plan) => Self::of(input),
            _ => Self::default(),
        }
    }

    fn of_scan(scan: &TableScan) -> Self {
        let columns = scan.columns.iter();
        let columns = columns.map(|&column| Some(Source { scan: 0, column }));
        Self {
            tables: vec![scan.table.clone()],
            columns: columns.collect(),
            equal: Vec::new(),
        }
    }

    fn of_join(join: &HashJoinExec) -> Self {
        let [mut left, right] = [join.left(), join.right()].map(|side| {
            let mut rows = Self::of(side);
            rows.columns.resize(side.schema().fields().len(), None);
            rows
        });
        let scans = left.tables.len();
        let moved = |source: Source| Source {
            scan: source.scan + scans,
            ..source
        };
        let right_columns = right.columns.into_iter();
        let right_columns: Vec<_> = right_columns.map(|column| column.map(moved)).collect();
        let right_equal = right.equal.into_iter().map(|pair| pair.map(moved));
        left.equal.extend(right_equal);
        if *join.join_type() == JoinType::Inner
            && join.null_equality() == NullEquality::NullEqualsNothing
        {
            let pairs = join.on().iter().filter_map(|(a, b)| {
                let a = *left.columns.get(column_of(a)?)?;
                let b = *right_columns.get(column_of(b)?)?;
                Some([a?, b?])
            });
            left.equal.extend(pairs);
        }
        let columns = match join.join_type() {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                left.columns.into_iter().chain(right_columns).collect()
            }
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left.columns,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right_columns,
        };
        let rows = Self {
            tables: left.tables.into_iter().chain(right.tables).collect(),
            columns,
            equal: left.equal,
        };
        rows.projected(join.projection.as_ref())
    }

    fn projected(self, projection: Option<&Arc<[usize]>>) -> Self {
        match projection {
            Some(columns) => self.picking(columns.iter().copied().map(Some)),
            None => self,
        }
    }

    /// Of rows of these columns, by index; `None` is another expression.
    fn picking(self, columns: impl Iterator<Item = Option<usize>>) -> Self {
        let source = |column: Option<usize>| *self.columns.get(column?)?;
        Self {
            columns: columns.map(source).collect(),
            ..self
        }
    }

    /// The columns, by index, that are equal in all rows that agree in the others.
    fn dependent(&self) -> BTreeSet<usize> {
        let known = || {
            let columns = self.columns.iter().enumerate();
            columns.filter_map(|(idx, source)| Some((idx, (*source)?)))
        };
        let mut dependent = BTreeSet::new();
        for (idx, source) in known() {
            // What a column determines depends on whatever determines that column.
            if !dependent.contains(&idx) {
                let scans = self.determined_by(source);
                let others =
                    known().filter(|(other, source)| *other != idx && scans.contains(&source.scan));
                dependent.extend(others.map(|(other, _)| other));
            }
        }
        dependent
    }

    /// The scans whose rows are the same where this column's value is.
    fn determined_by(&self, key: Source) -> BTreeSet<usize> {
        let ways = || self.equal.iter().flat_map(|[a, b]| [(*a, *b), (*b, *a)]);
        let equal = ways().filter_map(|(from, to)| (from == key).then_some(to));
        let own = [key].into_iter().chain(equal);
        let own = own.filter(|source| self.is_unique(*source));
        let mut scans: BTreeSet<usize> = own.map(|source| source.scan).collect();
        loop {
            let found = ways().filter(|(from, to)| {
                scans.contains(&from.scan) && !scans.contains(&to.scan) && self.is_unique(*to)
            });
            let found: Vec<usize> = found.map(|(_, to)| to.scan).collect();
            if found.is_empty() {
                return scans;
            }
            scans.extend(found);
        }
    }

    /// Whether a column is known to have no value twice, and not NULL.
    fn is_unique(&self, source: Source) -> bool {
        let table = self.tables.get(source.scan);
        table.is_some_and(|table| table.unique.get(source.column) == Some(true))
    }
}

/// Whether an operator gives rows of its input as they are.
fn hands_on(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ForgetExec>()
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_name_is_carried_by_the_groups_of_its_key() {
        let statements = [
            "SET hotshelf.star_pipelines = off",
            "CREATE TABLE c AS SELECT value * 3 AS k, 'name ' || value AS name FROM generate_series(1, 60000) AS \
                g(value)",
            "SELECT name, k, count(*) FROM c GROUP BY name, k",
        ];
        before_after("own_hash_operators", &statements).is(
            "
            ProjectionExec: expr=[name@0 as name, k@1 as k, count(Int64(1))@2 as count(*)]
              AggregateExec: mode=FinalPartitioned, gby=[name@0 as name, k@1 as k], aggr=[count(Int64(1))]
                RepartitionExec: partitioning=Hash([name@0, k@1], 2), input_partitions=2
                  AggregateExec: mode=Partial, gby=[name@1 as name, k@0 as k], aggr=[count(Int64(1))]
                    RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                      DataSourceExec: HotshelfScan: table=c, columns=[k, name]
            ",
            "
            ProjectionExec: expr=[name@0 as name, k@1 as k, count(Int64(1))@2 as count(*)]
              SpillingAggregateExec: mode=FinalPartitioned, gby=[name@0 as name, k@1 as k], aggr=[count(Int64(1))], \
                  carried=[name]
                RepartitionExec: partitioning=Hash([name@0, k@1], 2), input_partitions=2
                  SpillingAggregateExec: mode=Partial, gby=[name@1 as name, k@0 as k], aggr=[count(Int64(1))], \
                      carried=[name]
                    RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                      DataSourceExec: HotshelfScan: table=c, columns=[k, name]
            ",
        );
    }

    #[test]
    fn a_name_is_a_key_where_no_column_is_known_to_determine_it() {
        let statements = [
            "SET hotshelf.star_pipelines = off",
            "SELECT s.x, s.name, sum(t.n) AS a FROM t JOIN s ON t.k = s.k GROUP BY s.x, s.name",
        ];
        let plan = format!("{:?}", before_after("own_hash_operators", &statements));
        assert!(plan.contains("gby") && !plan.contains("carried"), "{plan}");
    }
}
