//! Statements that ask an index for few rows, recognised once and answered without planning: `SELECT` of the number of
//! rows or of indexed columns, `FROM` one stored table, `WHERE` indexed columns are compared with parameters, one by
//! one or in lists.

use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::utils::{split_binary, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan, Operator, TableScan};
use parking_lot::RwLock;

use super::fingerprint;
use super::template::parameter;
use crate::index::{Condition, JoinKeys, PointAsker, PointQuestion, Sought, among, compared};
use crate::kept_plans::SettingsVersion;
use crate::stored_table::StoredTable;
use crate::table::Table;

/// Digits of decimals that a double holds exactly.
const DOUBLE_DIGITS: u8 = 15;

/// What is known about a statement since it was last planned; its copies share it.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownPoint(Arc<RwLock<Option<Arc<PointStatement>>>>);

/// A statement that an index may answer.
#[derive(Debug)]
pub(super) struct PointStatement {
    /// The table as it was when the statement was planned. It does not keep files that a change took out.
    table: Weak<Table>,
    pub table_name: String,
    /// Of the session that planned it: what names and literals mean.
    settings: SettingsVersion,
    question: PointQuestion,
    tests: Vec<Test>,
    keys: Option<Keys>,
    /// The statement's fingerprint.
    pub template: u64,
}

/// What a column of the table has to meet.
#[derive(Debug)]
struct Test {
    column: usize,
    kind: TestKind,
}

#[derive(Debug)]
enum TestKind {
    Compare(Operator, Operand),
    /// It equals one of these.
    Among(Vec<Operand>),
}

/// Rows whose columns have the values of one of these keys.
#[derive(Debug)]
struct Keys {
    /// At least two, ascending.
    columns: Vec<usize>,
    /// For each of these columns.
    keys: Vec<Vec<Operand>>,
}

#[derive(Debug)]
enum Operand {
    Literal(ScalarValue),
    /// A parameter, counted from 0.
    Parameter(usize),
}

impl KnownPoint {
    /// Notes what a plan with parameters says.
    pub fn learn(&self, plan: &LogicalPlan, settings: SettingsVersion) {
        let known = PointStatement::of(plan, settings).map(Arc::new);
        if known.is_some() || self.0.read().is_some() {
            *self.0.write() = known;
        }
    }

    pub fn get(&self) -> Option<Arc<PointStatement>> {
        self.0.read().clone()
    }
}

impl PointStatement {
    pub fn of(plan: &LogicalPlan, settings: SettingsVersion) -> Option<Self> {
        let LogicalPlan::Projection(projection) = plan else {
            return None;
        };
        let (filter, counts) = match projection.input.as_ref() {
            LogicalPlan::Filter(filter) => (filter, None),
            LogicalPlan::Aggregate(aggregate) => match aggregate.input.as_ref() {
                LogicalPlan::Filter(filter) => (filter, Some(aggregate)),
                _ => return None,
            },
            _ => return None,
        };
        let (scan, stored) = scanned(filter)?;
        let column = |expr: &Expr| column_of(expr, scan, &stored);
        let sought = match counts {
            Some(aggregate) => counted(&projection.expr, aggregate).then_some(Sought::Count)?,
            None => Sought::Columns(projection.expr.iter().map(column).collect::<Option<_>>()?),
        };
        let (mut tests, mut keys) = (Vec::new(), None);
        for conjunct in split_conjunction(&filter.predicate) {
            match tests_of(conjunct, &column) {
                Some(of_conjunct) => tests.extend(of_conjunct),
                None if keys.is_none() => keys = Some(Keys::of(conjunct, &column)?),
                None => return None,
            }
        }
        let tested = tests.iter().map(|test| &test.column);
        let listed = keys.iter().flat_map(|keys| &keys.columns);
        let columns: Vec<usize> = tested.chain(listed).copied().collect();
        let index = PointQuestion::index_for(&stored.table, &columns, &sought)?;
        Some(Self {
            table: Arc::downgrade(&stored.table),
            table_name: stored.table.name.clone(),
            settings,
            question: PointQuestion {
                index,
                sought,
                schema: Arc::new(plan.schema().as_arrow().clone()),
            },
            tests,
            keys,
            template: fingerprint::template(plan),
        })
    }

    /// Whether the statement would be planned in the same way: on this table, as it is, with these settings.
    pub fn is_about(&self, table: &Arc<Table>, settings: SettingsVersion) -> bool {
        std::ptr::eq(self.table.as_ptr(), Arc::as_ptr(table)) && self.settings == settings
    }

    /// The answer; `None` if the statement has to be planned.
    pub async fn ask(
        &self,
        table: &Table,
        asker: PointAsker<'_>,
        values: &[ScalarAndMetadata],
    ) -> Option<RecordBatch> {
        let conditions = self.conditions(&table.schema, values)?;
        let keys = match &self.keys {
            Some(keys) => keys.known(&table.schema, values)?,
            None => JoinKeys::default(),
        };
        self.question.ask(table, asker, conditions, &keys).await
    }

    /// The conditions with values; `None` where they might mean something else than the planned comparison.
    fn conditions(
        &self,
        schema: &SchemaRef,
        values: &[ScalarAndMetadata],
    ) -> Option<Vec<Condition>> {
        let condition = |test: &Test| {
            let column = test.column;
            match &test.kind {
                TestKind::Compare(op, operand) => {
                    let data_type = schema.field(column).data_type();
                    let value = as_column(operand.value(values)?, data_type)?;
                    compared(column, *op, &value, schema)
                }
                TestKind::Among(list) => {
                    let list = list.iter().map(|operand| operand.value(values));
                    let list = list.collect::<Option<Vec<_>>>()?;
                    among(
                        column,
                        &members(&list, schema.field(column).data_type())?,
                        schema,
                    )
                }
            }
        };
        self.tests.iter().map(condition).collect()
    }
}

impl Keys {
    /// `a = 1 AND b = 2 OR a = $1 AND b = $2`.
    fn of(conjunct: &Expr, column: &impl Fn(&Expr) -> Option<usize>) -> Option<Self> {
        let mut keys = Vec::new();
        let mut columns: Option<Vec<usize>> = None;
        for alternative in split_binary(conjunct, Operator::Or) {
            let mut key = Vec::new();
            for part in split_conjunction(alternative) {
                let (column, mut equal) = equality(part, column)?;
                key.push((column, equal.pop()?));
            }
            key.sort_by_key(|(column, _)| *column);
            let of_key: Vec<usize> = key.iter().map(|(column, _)| *column).collect();
            let is_ascending = of_key.windows(2).all(|pair| pair[0] < pair[1]);
            if !is_ascending || columns.as_ref().is_some_and(|columns| *columns != of_key) {
                return None;
            }
            columns = Some(of_key);
            keys.push(key.into_iter().map(|(_, operand)| operand).collect());
        }
        let columns = columns.filter(|columns| columns.len() > 1)?;
        Some(Self { columns, keys })
    }

    /// The keys with values; `None` where they might mean something else than the planned comparisons.
    fn known(&self, schema: &SchemaRef, values: &[ScalarAndMetadata]) -> Option<JoinKeys> {
        let mut known: Vec<Vec<ScalarValue>> = Vec::new();
        for key in &self.keys {
            let key = key.iter().map(|operand| operand.value(values));
            let key = key.collect::<Option<Vec<_>>>()?;
            // NULL is equal to nothing.
            if key.iter().any(|value| value.is_null()) {
                continue;
            }
            let pairs = key.iter().zip(&self.columns);
            let own =
                pairs.map(|(value, column)| as_column(value, schema.field(*column).data_type()));
            known.push(own.collect::<Option<_>>()?);
        }
        JoinKeys::of(&self.columns, &known, schema)
    }
}

impl Operand {
    fn value<'a>(&'a self, values: &'a [ScalarAndMetadata]) -> Option<&'a ScalarValue> {
        match self {
            Self::Literal(value) => Some(value),
            Self::Parameter(idx) => Some(&values.get(*idx)?.value),
        }
    }
}

/// The stored table that a filter's rows come from, all of them.
fn scanned(filter: &Filter) -> Option<(&TableScan, StoredTable)> {
    let mut input = filter.input.as_ref();
    if let LogicalPlan::SubqueryAlias(alias) = input {
        input = alias.input.as_ref();
    }
    let LogicalPlan::TableScan(scan) = input else {
        return None;
    };
    let stored = StoredTable::of(scan)?;
    let is_whole = scan.filters.is_empty() && scan.fetch.is_none() && scan.projection.is_none();
    let is_sound = stored.table.damage.is_none() && stored.table.unavailable.is_none();
    (is_whole && is_sound).then_some((scan, stored))
}

/// The column of the table that an expression names under its own name.
fn column_of(expr: &Expr, scan: &TableScan, stored: &StoredTable) -> Option<usize> {
    let Expr::Column(Column { name, .. }) = expr else {
        return None;
    };
    let found = stored.table.schema.index_of(name).ok()?;
    // All columns come from the one scan, so that the name says which.
    scan.projected_schema
        .has_column_with_unqualified_name(name)
        .then_some(found)
}

/// Whether this is `SELECT count(*)`.
fn counted(outputs: &[Expr], aggregate: &Aggregate) -> bool {
    let [Expr::AggregateFunction(call)] = aggregate.aggr_expr.as_slice() else {
        return false;
    };
    let params = &call.params;
    let is_plain = !params.distinct && params.filter.is_none() && params.order_by.is_empty();
    let counts_rows = match params.args.as_slice() {
        [] => true,
        [Expr::Literal(value, _)] => !value.is_null(),
        _ => false,
    };
    let output = match outputs {
        [Expr::Alias(alias)] => alias.expr.as_ref(),
        [output] => output,
        _ => return false,
    };
    let name = aggregate.aggr_expr[0].schema_name().to_string();
    let is_output = matches!(output, Expr::Column(column) if column.name == name);
    let is_count = call.func.name() == "count" && is_plain && counts_rows;
    is_count && aggregate.group_expr.is_empty() && is_output
}

/// A conjunct as tests of columns.
fn tests_of(conjunct: &Expr, column: &impl Fn(&Expr) -> Option<usize>) -> Option<Vec<Test>> {
    let compare = |of: &Expr, op: Operator, value: &Expr| {
        Some(Test {
            column: column(of)?,
            kind: TestKind::Compare(op, operand(value)?),
        })
    };
    if let Some(test) = membership(conjunct, column) {
        return Some(vec![test]);
    }
    match conjunct {
        Expr::BinaryExpr(binary) => {
            let (left, right) = (binary.left.as_ref(), binary.right.as_ref());
            let found = compare(left, binary.op, right);
            let found = found.or_else(|| compare(right, binary.op.swap()?, left));
            Some(vec![found?])
        }
        Expr::Between(between) if !between.negated => {
            let expr = between.expr.as_ref();
            Some(vec![
                compare(expr, Operator::GtEq, &between.low)?,
                compare(expr, Operator::LtEq, &between.high)?,
            ])
        }
        _ => None,
    }
}

/// `a IN (1, $1)`, or `a = 1 OR a IN (2, $1)`.
fn membership(expr: &Expr, column: &impl Fn(&Expr) -> Option<usize>) -> Option<Test> {
    let (column, list) = match expr {
        Expr::InList(list) if !list.negated => {
            let operands = list.list.iter().map(operand).collect::<Option<_>>()?;
            (column(&list.expr)?, operands)
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::Or => {
            let left = alternative(&binary.left, column)?;
            let right = alternative(&binary.right, column)?;
            let is_one_column = left.0 == right.0;
            is_one_column.then(|| (left.0, left.1.into_iter().chain(right.1).collect()))?
        }
        _ => return None,
    };
    Some(Test {
        column,
        kind: TestKind::Among(list),
    })
}

/// The column and the values of an alternative: an equality, or again a membership.
fn alternative(
    expr: &Expr,
    column: &impl Fn(&Expr) -> Option<usize>,
) -> Option<(usize, Vec<Operand>)> {
    if let Some(equal) = equality(expr, column) {
        return Some(equal);
    }
    let test = membership(expr, column)?;
    match test.kind {
        TestKind::Among(list) => Some((test.column, list)),
        TestKind::Compare(..) => None,
    }
}

fn equality(
    expr: &Expr,
    column: &impl Fn(&Expr) -> Option<usize>,
) -> Option<(usize, Vec<Operand>)> {
    let Expr::BinaryExpr(binary) = expr else {
        return None;
    };
    let (left, right) = (binary.left.as_ref(), binary.right.as_ref());
    let equal = |of, value| Some((column(of)?, vec![operand(value)?]));
    let found = equal(left, right).or_else(|| equal(right, left));
    found.filter(|_| binary.op == Operator::Eq)
}

fn operand(expr: &Expr) -> Option<Operand> {
    match expr {
        Expr::Literal(value, _) => Some(Operand::Literal(value.clone())),
        Expr::Placeholder(own) => Some(Operand::Parameter(parameter(&own.id)?)),
        _ => None,
    }
}

/// The values of a list as those of a column's type. NULL is equal to nothing. Values of several types are compared as
/// a type that all of them have, which may not be the column's.
fn members(list: &[&ScalarValue], column: &DataType) -> Option<Vec<ScalarValue>> {
    let mut types = list.iter().map(|value| value.data_type());
    let mut types = types.by_ref().filter(|data_type| !data_type.is_null());
    if let Some(first) = types.next()
        && types.any(|other| other != first)
    {
        return None;
    }
    let present = list.iter().filter(|value| !value.is_null());
    present.map(|value| as_column(value, column)).collect()
}

/// A value as one of a column's type that compares with its values in the same way.
fn as_column(value: &ScalarValue, column: &DataType) -> Option<ScalarValue> {
    let own = value.data_type();
    if value.is_null() || column.is_floating() {
        return None;
    }
    let cast = |value: &ScalarValue, to: &DataType| value.cast_to(to).ok();
    let there_and_back = || {
        let cast_value = cast(value, column).filter(|cast_value| !cast_value.is_null())?;
        (cast(&cast_value, &own)? == *value).then_some(cast_value)
    };
    let is_decimal = matches!(column, DataType::Decimal128(_, _));
    match (&own, column) {
        (own, column) if own == column => Some(value.clone()),
        (own, column) if own.is_string() && column.is_string() => cast(value, column),
        (own, column) if own.is_string() && *column == DataType::Date32 => {
            cast(value, column).filter(|cast_value| !cast_value.is_null())
        }
        (own, column) if own.is_integer() && (column.is_integer() || is_decimal) => {
            there_and_back()
        }
        (DataType::Float64, DataType::Decimal128(precision, _)) if *precision <= DOUBLE_DIGITS => {
            there_and_back()
        }
        (own, DataType::Decimal128(_, scale)) if own.is_string() => {
            // More digits than the column has would make other numbers of both.
            let wide = DataType::Decimal128(38, (*scale).max(0) + 8);
            let (exact, cast_value) = (cast(value, &wide)?, cast(value, column)?);
            let is_exact = !exact.is_null() && cast(&cast_value, &wide)? == exact;
            is_exact.then_some(cast_value)
        }
        _ => None,
    }
}
