//! Columns that depend on a group key, and the plan that takes them last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::{Column, NullEquality, internal_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, JoinType, LogicalPlan, LogicalPlanBuilder, Projection, Sort,
    SubqueryAlias,
};

use super::groups::Groups;
use super::origin::{Origin, equalities};
use crate::plan::expressions::is_wide;
use crate::plan::semi_join::plain_column;

/// What the tables that are read last are called in the plan, with a number behind; and their key among the groups.
const LATE: &str = "__late";
const LATE_KEY: &str = "__late_key";
/// Rows of the table whose columns are taken last, at least.
const ROWS_MIN: usize = 50_000;

/// A table that is read last.
struct LateTable {
    /// A column of it that has no value twice.
    key: Origin,
    /// The table before it, by index, and its column that is equal to the key: none for the first table, which has the
    /// group key.
    parent: Option<(usize, usize)>,
    /// Columns that are read, by index in the table.
    columns: BTreeSet<usize>,
}

/// What is taken last.
pub(super) struct Late {
    /// The group key that stays, by index.
    key: usize,
    tables: Vec<LateTable>,
    /// Of each group key that is taken last the table, and the column's index in it.
    columns: BTreeMap<usize, (usize, usize)>,
}

impl Late {
    /// `None` where no group key is known to have no value twice in a large table, or nothing wide depends on one.
    /// What would have to be known is asked for.
    pub fn of(groups: &Groups, asked: &mut Vec<Origin>) -> Option<Self> {
        let input = &groups.aggregate.input;
        let origin = |expr: &Expr| Origin::of(input, &plain_column(expr)?, Vec::new());
        let origins = groups.aggregate.group_expr.iter().map(origin);
        let origins: Vec<Option<Origin>> = origins.collect();
        let fields = groups.aggregate.schema.fields();
        let wide = |idx: usize| is_wide(fields[idx].data_type()) && !groups.used.contains(&idx);
        if !(0..origins.len()).any(|idx| origins[idx].is_some() && wide(idx)) {
            return None;
        }
        let mut equal = None;
        let mut keys = origins.iter().enumerate();
        keys.find_map(|(key, origin)| {
            let origin = origin.as_ref()?;
            if origin.row_count() < ROWS_MIN || !origin.is_unique(asked) {
                return None;
            }
            let equal = equal.get_or_insert_with(|| {
                let mut equal = Vec::new();
                equalities(input, &[], &mut equal);
                equal
            });
            Self::by(key, &origins, groups, equal, asked)
        })
    }

    /// What depends on one group key, if something wide does.
    fn by(
        key: usize,
        origins: &[Option<Origin>],
        groups: &Groups,
        equal: &[[Origin; 2]],
        asked: &mut Vec<Origin>,
    ) -> Option<Self> {
        let of_key = origins[key].as_ref()?;
        let mut tables = vec![LateTable {
            key: of_key.clone(),
            parent: None,
            columns: BTreeSet::from([of_key.column]),
        }];
        let mut at = 0;
        while at < tables.len() {
            let mut found: Vec<LateTable> = Vec::new();
            let ways = equal.iter().flat_map(|[a, b]| [(a, b), (b, a)]);
            for (from, to) in ways.filter(|(from, _)| from.path == tables[at].key.path) {
                let mut known = tables.iter().chain(&found);
                if !known.any(|table| table.key.path == to.path) && to.is_unique(asked) {
                    found.push(LateTable {
                        key: to.clone(),
                        parent: Some((at, from.column)),
                        columns: BTreeSet::from([to.column]),
                    });
                }
            }
            tables.extend(found);
            at += 1;
        }
        let mut late = Self {
            key,
            tables,
            columns: BTreeMap::new(),
        };
        for (idx, origin) in origins.iter().enumerate() {
            if let Some(origin) = origin
                && idx != key
                && !groups.used.contains(&idx)
                && let Some(table) = late.table(&origin.path)
            {
                late.columns.insert(idx, (table, origin.column));
            }
        }
        let schema = groups.aggregate.schema.fields();
        let mut taken = late.columns.keys();
        if !taken.any(|idx| is_wide(schema[*idx].data_type())) {
            return None;
        }
        late.keep_needed();
        Some(late)
    }

    fn table(&self, path: &[u8]) -> Option<usize> {
        self.tables.iter().position(|table| table.key.path == path)
    }

    /// Drops tables of which no column is taken, and notes which columns are read.
    fn keep_needed(&mut self) {
        for (table, column) in self.columns.values() {
            self.tables[*table].columns.insert(*column);
        }
        let mut needed: BTreeSet<usize> = self.columns.values().map(|(table, _)| *table).collect();
        needed.insert(0);
        for idx in (0..self.tables.len()).rev() {
            if let (true, Some((parent, column))) = (needed.contains(&idx), self.tables[idx].parent)
            {
                needed.insert(parent);
                self.tables[parent].columns.insert(column);
            }
        }
        let numbers: BTreeMap<usize, usize> = needed.iter().copied().zip(0..).collect();
        let tables = std::mem::take(&mut self.tables).into_iter().enumerate();
        let tables = tables.filter(|(idx, _)| needed.contains(idx));
        self.tables = tables.map(|(_, table)| table).collect();
        for table in &mut self.tables {
            table.parent = table
                .parent
                .map(|(parent, column)| (numbers[&parent], column));
        }
        for (table, _) in self.columns.values_mut() {
            *table = numbers[table];
        }
    }

    /// The plan: groups by the key, sorted and limited, joined with the tables, and sorted again.
    pub fn last(&self, sort: &Sort, groups: &Groups) -> QueryResult<LogicalPlan> {
        let (thin, key) = self.thin(groups)?;
        let first = LogicalPlanBuilder::from(LogicalPlan::Sort(Sort {
            expr: sort.expr.clone(),
            input: Arc::new(thin),
            fetch: sort.fetch,
        }));
        let on = (vec![key], vec![column_of(0, self.tables[0].key.column)]);
        let joined = join(first, self.read()?, on)?;
        let columns = sort.input.schema().iter().zip(&groups.columns);
        let columns = columns.map(|((qualifier, field), key)| {
            let taken = key.and_then(|key| self.columns.get(&key));
            match taken {
                Some((table, column)) => Expr::Column(column_of(*table, *column))
                    .alias_qualified(qualifier.cloned(), field.name()),
                None => Expr::Column(Column::new(qualifier.cloned(), field.name())),
            }
        });
        let rows = joined.project(columns.collect::<Vec<_>>())?.build()?;
        Ok(LogicalPlan::Sort(Sort {
            expr: sort.expr.clone(),
            input: Arc::new(rows),
            fetch: sort.fetch,
        }))
    }

    /// The groups without what is taken last, up to the sort, and what their key is called there.
    fn thin(&self, groups: &Groups) -> QueryResult<(LogicalPlan, Column)> {
        let Aggregate {
            input,
            group_expr,
            aggr_expr,
            schema,
            ..
        } = groups.aggregate;
        let kept = group_expr.iter().enumerate();
        let kept = kept.filter(|(idx, _)| !self.columns.contains_key(idx));
        let kept = kept.map(|(_, expr)| expr.clone()).collect();
        let plan =
            LogicalPlan::Aggregate(Aggregate::try_new(input.clone(), kept, aggr_expr.clone())?);
        let column = |idx: usize| Column::from(schema.qualified_field(idx));
        let mut thin = Thin {
            plan,
            key: column(self.key),
            late: self.columns.keys().map(|idx| column(*idx)).collect(),
        };
        for node in &groups.above {
            thin = thin.below(node)?;
        }
        Ok((thin.plan, thin.key))
    }

    /// The tables that are read last, joined. Their columns have names that the rows they are joined with do not have.
    fn read(&self) -> QueryResult<LogicalPlanBuilder> {
        let mut read: Option<LogicalPlanBuilder> = None;
        for (idx, table) in self.tables.iter().enumerate() {
            let scan = &table.key.scan;
            let columns: Vec<usize> = table.columns.iter().copied().collect();
            let (name, source) = (scan.table_name.clone(), scan.source.clone());
            let scan = LogicalPlanBuilder::scan(name, source, Some(columns.clone()))?;
            let read_columns = scan.schema().columns().into_iter().zip(columns);
            let named = read_columns.map(|(read, column)| {
                let name = column_of(idx, column).name;
                Expr::Column(read).alias(name)
            });
            let named = named.collect::<Vec<_>>();
            let scan = scan.project(named)?.alias(name_of(idx))?;
            read = Some(match (read, table.parent) {
                (Some(read), Some((parent, column))) => {
                    let key = column_of(idx, table.key.column);
                    join(read, scan, (vec![column_of(parent, column)], vec![key]))?
                }
                _ => scan,
            });
        }
        Ok(read.unwrap_or_else(|| LogicalPlanBuilder::empty(false)))
    }
}

/// Groups without what is taken last.
struct Thin {
    plan: LogicalPlan,
    /// Their key.
    key: Column,
    /// What is missing, as it would be called.
    late: Vec<Column>,
}

impl Thin {
    /// The same below a node of the plan.
    fn below(self, node: &LogicalPlan) -> QueryResult<Self> {
        Ok(match node {
            LogicalPlan::Projection(projection) => self.projected(projection)?,
            LogicalPlan::Filter(filter) => {
                let filter = Filter::try_new(filter.predicate.clone(), Arc::new(self.plan))?;
                Self {
                    plan: LogicalPlan::Filter(filter),
                    ..self
                }
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { alias, .. }) => {
                let renamed = SubqueryAlias::try_new(Arc::new(self.plan), alias.clone())?;
                let name = |column: Column| Column::new(Some(alias.clone()), column.name);
                Self {
                    plan: LogicalPlan::SubqueryAlias(renamed),
                    key: name(self.key),
                    late: self.late.into_iter().map(name).collect(),
                }
            }
            _ => return internal_err!("{} above groups", node.display()),
        })
    }

    fn projected(self, projection: &Projection) -> QueryResult<Self> {
        let (mut exprs, mut key, mut late) = (Vec::new(), None, Vec::new());
        for (expr, column) in projection.expr.iter().zip(projection.schema.columns()) {
            let plain = plain_column(expr);
            if plain
                .as_ref()
                .is_some_and(|plain| self.late.contains(plain))
            {
                late.push(column);
                continue;
            }
            if plain.as_ref() == Some(&self.key) {
                key.get_or_insert(column);
            }
            exprs.push(expr.clone());
        }
        let key = key.unwrap_or_else(|| {
            let mut names = (0..).map(|number| format!("{LATE_KEY}_{number}"));
            let is_free = |name: &String| !projection.schema.has_column_with_unqualified_name(name);
            let name = names.find(is_free).unwrap_or_default();
            exprs.push(Expr::Column(self.key).alias(&name));
            Column::new_unqualified(name)
        });
        let plan = Projection::try_new(exprs, Arc::new(self.plan))?;
        Ok(Self {
            plan: LogicalPlan::Projection(plan),
            key,
            late,
        })
    }
}

fn name_of(table: usize) -> String {
    format!("{LATE}_{table}")
}

/// A column of a table that is read last, by index in the stored table.
fn column_of(table: usize, column: usize) -> Column {
    Column::new(Some(name_of(table)), format!("{LATE}_{table}_{column}"))
}

fn join(
    left: LogicalPlanBuilder,
    right: LogicalPlanBuilder,
    on: (Vec<Column>, Vec<Column>),
) -> QueryResult<LogicalPlanBuilder> {
    let null_equality = NullEquality::NullEqualsNothing;
    left.join_detailed(right.build()?, JoinType::Inner, on, None, null_equality)
}
