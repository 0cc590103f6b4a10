//! Groups are made before tables are joined that only give them names, or repeat or drop them:
//! `SELECT n_name, sum(x) … WHERE s_nationkey = n_nationkey GROUP BY n_name`.
//!
//! The rows are grouped by what such tables are joined by, the few groups are joined with them, and those of the same
//! names are put together: eager aggregation (Yan and Larson, VLDB 1995). Where rows are joined by several keys, small
//! whole tables that only name the groups come last, so that no text has to go through joins (TPC-H Q9). Elsewhere the
//! work is estimated with and without (`choice`): with groups of tables of inner joins (`tables`), or of the right side
//! of a left join (`padded`). Stars look each row up in a few cycles, and have texts as codes; they stay as they are.

mod choice;
mod grouping;
mod joins;
mod padded;
mod tables;
mod values;

use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::ApplyOrder;

use super::expressions::is_wide;
use super::join_order::{join_work, rows_cannot_fail};
use super::node_rule::NodeRule;
use crate::settings::SessionSettings;
use choice::{Choice, ROWS_MIN, ROWS_PER_GROUP};
use grouping::Grouping;
use joins::{Joins, Names};
use values::{KEY, Padded, Values, exprs_of};

/// Groups rows before other tables are joined.
pub(super) const EARLY_GROUPS: NodeRule = NodeRule {
    name: "early_groups",
    says: Some("rows are grouped before other tables are joined"),
    order: ApplyOrder::TopDown,
    rewrite,
};

fn rewrite(plan: &LogicalPlan, settings: &SessionSettings) -> QueryResult<Option<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return Ok(None);
    };
    let Some(grouping) = Grouping::of(aggregate)? else {
        return Ok(None);
    };
    // Keys of joins may spare a scan the row for which a condition fails, but not below groups.
    if !rows_cannot_fail(grouping.input) {
        return Ok(None);
    }
    // A name of the plan may be a name of a table's column.
    let logged = |early: QueryResult<Option<Choice>>| {
        let early = early.inspect_err(|error| tracing::debug!(%error, "groups are not made early"));
        early.ok().flatten()
    };
    let named = match has_wide_key(aggregate) {
        true => Early::of(&grouping)?.map(|early| early.plan(aggregate)),
        false => None,
    };
    let named = named.and_then(|plan| logged(plan.map(|plan| plan.map(Choice::Early))));
    let chosen = named.or_else(|| logged(choice::choose(&grouping, aggregate, settings)));
    Ok(match chosen {
        Some(Choice::Early(plan)) => Some(plan),
        Some(Choice::Late(reason)) if settings.decisions.are_wanted() => {
            let at = plan.display();
            let note = format!("rows are not grouped before they are joined, as {reason}, at {at}");
            settings.decisions.note(note);
            None
        }
        _ => None,
    })
}

/// Whether a group key could be a name: most aggregations have none.
fn has_wide_key(aggregate: &Aggregate) -> bool {
    let fields = aggregate.schema.fields().iter();
    let mut keys = fields.take(aggregate.group_expr.len());
    keys.any(|key| is_wide(key.data_type()))
}

/// What is grouped before tables that only name the groups are joined.
struct Early {
    /// Without the tables that name groups.
    rows: LogicalPlan,
    names: Vec<Names>,
    /// The group keys, over what is joined, and whether a table gives them that only names groups.
    keys: Vec<(Expr, bool)>,
    /// Over what is joined.
    values: Values,
}

impl Early {
    /// None where no table only names groups, or the rows are few or the groups many.
    fn of(grouping: &Grouping) -> QueryResult<Option<Self>> {
        let (keys, calls) = (&grouping.keys, &grouping.calls);
        let Some(joins) = Joins::of(grouping.input) else {
            return Ok(None);
        };
        let exprs = || calls.iter().flat_map(exprs_of);
        let names = joins.names(keys, exprs());
        if names.is_empty()
            || !joins.have_several_keys(&names)
            || !joins.can_compute(keys.iter().chain(exprs()))
        {
            return Ok(None);
        }
        let of_names = |key: &Expr| names.iter().any(|table| table.gives(key));
        let keys: Vec<_> = keys
            .iter()
            .map(|key| (key.clone(), of_names(key)))
            .collect();
        let rows = joins.without(&names)?;
        let mut early: Vec<Expr> = keys
            .iter()
            .filter(|(_, is_name)| !is_name)
            .map(|(key, _)| key.clone())
            .collect();
        early.extend(names.iter().flat_map(Names::row_keys).cloned());
        let row_count = join_work(&rows).map_or(0.0, |work| work.rows);
        let groups = joins.group_count(&early);
        if row_count < ROWS_MIN || groups.is_none_or(|groups| groups * ROWS_PER_GROUP > row_count) {
            return Ok(None);
        }
        let values = Values::of(calls.iter().map(|call| (call, true)));
        Ok(joins.can_sum(&values.parts).then_some(Self {
            rows,
            names,
            keys,
            values,
        }))
    }

    /// Early groups, joined with the tables that name them, and those of the same names put together; none where not
    /// each column of the aggregation has one of its own.
    fn plan(self, aggregate: &Aggregate) -> QueryResult<Option<LogicalPlan>> {
        let mut early: Vec<Expr> = Vec::new();
        let mut key_of = |key: &Expr| {
            let place = early.iter().position(|known| known == key);
            let place = place.unwrap_or_else(|| {
                early.push(key.clone());
                early.len() - 1
            });
            Column::new_unqualified(format!("{KEY}_{place}"))
        };
        let keys: Vec<Expr> = self
            .keys
            .into_iter()
            .map(|(key, is_name)| match is_name {
                true => key,
                false => Expr::Column(key_of(&key)),
            })
            .collect();
        let on: Vec<(Vec<Column>, Vec<Column>)> = self
            .names
            .iter()
            .map(|table| {
                table
                    .on
                    .iter()
                    .map(|(key, name)| (key_of(key), name.clone()))
                    .unzip()
            })
            .collect();
        let Some(groups) = self.values.grouped(self.rows, &early)? else {
            return Ok(None);
        };
        let mut joined = LogicalPlanBuilder::from(groups);
        for (table, on) in self.names.iter().zip(on) {
            let nulls = NullEquality::NullEqualsNothing;
            joined = joined.join_detailed(table.plan.clone(), JoinType::Inner, on, None, nulls)?;
        }
        let joined = joined.build()?;
        self.values.merged(joined, keys, aggregate, Padded::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    const ROWS: &str =
        "CREATE TABLE f AS SELECT value % 1000 AS a, value % 7 AS b, value / 3000 AS k, value AS n
        FROM generate_series(1, 300000) AS g(value)";
    const PAIRS: &str = "CREATE TABLE p AS SELECT value % 1000 AS a, value % 7 AS b, value AS c
        FROM generate_series(1, 7000) AS g(value)";

    #[test]
    fn rows_are_grouped_by_keys_before_the_names_of_groups_are_looked_up() {
        let query = "SELECT s.name, p.b, count(*) AS c, sum(f.n) AS a FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND \
            f.k = s.k GROUP BY s.name, p.b";
        before_after("early_groups", &[ROWS, PAIRS, query]).is(
            "
            Projection: s.name, p.b, count(Int64(1)) AS count(*) AS c, sum(f.n) AS a
              Aggregate: groupBy=[[s.name, p.b]], aggr=[[count(Int64(1)), sum(f.n)]]
                Inner Join: f.k = s.k
                  Inner Join: f.a = p.a, f.b = p.b
                    TableScan: f
                    TableScan: p
                  TableScan: s
            ",
            "
            Projection: s.name, p.b, count(Int64(1)) AS count(*) AS c, sum(f.n) AS a
              Projection: s.name AS name, __early_key_0 AS b, sum(__early_value_0) AS count(Int64(1)), \
                    sum(__early_value_1) AS sum(f.n)
                Aggregate: groupBy=[[s.name, __early_key_0]], aggr=[[sum(__early_value_0), sum(__early_value_1)]]
                  Inner Join: __early_key_1 = s.k
                    Projection: p.b AS __early_key_0, f.k AS __early_key_1, count(Int64(1)) AS __early_value_0, \
                    sum(f.n) AS __early_value_1
                      Aggregate: groupBy=[[p.b, f.k]], aggr=[[count(Int64(1)), sum(f.n)]]
                        Inner Join: f.a = p.a, f.b = p.b
                          TableScan: f
                          TableScan: p
                    TableScan: s
            ",
        );
    }

    #[test]
    fn a_table_that_does_more_than_name_groups_stays_where_it_is() {
        for query in [
            "SELECT s.name, sum(f.n + s.x) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k AND s.x > 3 \
                GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k AND s.x < p.c \
                GROUP BY s.name",
            "SELECT s.name, sum(f.n) FROM f, s WHERE f.k = s.k GROUP BY s.name",
            "SELECT s.name, f.n, count(*) FROM f, p, s WHERE f.a = p.a AND f.b = p.b AND f.k = s.k \
                GROUP BY s.name, f.n",
        ] {
            before_after("early_groups", &[ROWS, PAIRS, query]).is_the_same();
        }
    }

    /// Three rows for each of the first key's values.
    const REPEATED: &str = "CREATE TABLE g AS SELECT value % 1000 AS a, value AS c
        FROM generate_series(1, 3000) AS g(value)";

    #[test]
    fn rows_that_a_join_repeats_are_grouped_before() {
        let query = "SELECT g.c, sum(f.n) AS t FROM f, g WHERE f.a = g.a GROUP BY g.c";
        before_after("early_groups", &[ROWS, REPEATED, query]).is(
            "
            Projection: g.c, sum(f.n) AS t
              Aggregate: groupBy=[[g.c]], aggr=[[sum(f.n)]]
                Inner Join: f.a = g.a
                  TableScan: f
                  TableScan: g
            ",
            "
            Projection: g.c, sum(f.n) AS t
              Projection: g.c AS c, sum(__early_value_0) AS sum(f.n)
                Aggregate: groupBy=[[g.c]], aggr=[[sum(__early_value_0)]]
                  Inner Join: __early_key_0 = g.a
                    Projection: f.a AS __early_key_0, sum(f.n) AS __early_value_0
                      Aggregate: groupBy=[[f.a]], aggr=[[sum(f.n)]]
                        TableScan: f
                    TableScan: g
            ",
        );
    }

    #[test]
    fn rows_that_a_left_join_adds_are_grouped_before() {
        let query = "SELECT g.c, count(f.n) AS t FROM g LEFT JOIN f ON g.a = f.a GROUP BY g.c";
        before_after("early_groups", &[ROWS, REPEATED, query]).is(
            "
            Projection: g.c, count(f.n) AS t
              Aggregate: groupBy=[[g.c]], aggr=[[count(f.n)]]
                Left Join: g.a = f.a
                  TableScan: g
                  TableScan: f
            ",
            "
            Projection: g.c, count(f.n) AS t
              Projection: g.c AS c, CASE WHEN sum(__early_value_0) IS NULL THEN Int64(0) ELSE sum(__early_value_0) \
                    END AS count(f.n)
                Aggregate: groupBy=[[g.c]], aggr=[[sum(__early_value_0)]]
                  Left Join: g.a = __early_key_0
                    TableScan: g
                    Projection: f.a AS __early_key_0, count(f.n) AS __early_value_0
                      Aggregate: groupBy=[[f.a]], aggr=[[count(f.n)]]
                        TableScan: f
            ",
        );
    }

    #[test]
    fn rows_whose_groups_are_many_or_not_the_same_are_not_grouped_before() {
        for query in [
            "SELECT g.c, sum(f.n) FROM f, g WHERE f.a = g.a AND f.n > g.c GROUP BY g.c",
            "SELECT g.c, sum(f.n * g.c) FROM f, g WHERE f.a = g.a GROUP BY g.c",
            "SELECT g.c, count(DISTINCT f.n) FROM f, g WHERE f.a = g.a GROUP BY g.c",
            "SELECT g.c, sum(f.n) FROM f, g WHERE CAST(f.a AS DOUBLE) = CAST(g.a AS DOUBLE) GROUP BY g.c",
            "SELECT f.k, count(f.n) FROM g LEFT JOIN f ON g.a = f.a GROUP BY f.k",
            "SELECT g.c, sum(coalesce(f.n, 1)) FROM g LEFT JOIN f ON g.a = f.a GROUP BY g.c",
            "SELECT g.c, sum(1) FROM g LEFT JOIN f ON g.a = f.a GROUP BY g.c",
            "SELECT g.c, count(*) FILTER (WHERE f.k IS NULL) FROM g LEFT JOIN f ON g.a = f.a GROUP BY g.c",
            "SELECT g.c, count(f.n) FROM g FULL JOIN f ON g.a = f.a GROUP BY g.c",
        ] {
            before_after("early_groups", &[ROWS, REPEATED, query]).is_the_same();
        }
    }
}
