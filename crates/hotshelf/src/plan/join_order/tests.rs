//! Orders before and after, over tables that have statistics and no rows: those of TPC-H at scale 1.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics, not_impl_err};
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result as QueryResult;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::executor::block_on;

use super::cost::Costs;
use super::enumerate;
use super::graph::Graph;
use super::prices::JoinPrices;
use super::tree::{LeftJoins, is_inside};
use crate::settings::{SessionSettings, Use};
use crate::statistics::error::EstimateError;

/// A table of which the statistics alone are there.
#[derive(Debug)]
struct Known {
    schema: SchemaRef,
    statistics: Option<Statistics>,
}

#[async_trait]
impl TableProvider for Known {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn statistics(&self) -> Option<Statistics> {
        self.statistics.clone()
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        not_impl_err!("there are no rows")
    }
}

/// A column: its name, type, distinct values, and bounds of numbers.
type ColumnOf = (&'static str, DataType, usize, Option<(i32, i32)>);

fn key(name: &'static str, values: usize) -> ColumnOf {
    let most = i32::try_from(values).unwrap();
    (name, DataType::Int32, values, Some((1, most)))
}

fn day(name: &'static str) -> ColumnOf {
    // 1992-01-01 to 1998-12-01.
    (name, DataType::Date32, 2_500, Some((8_035, 10_561)))
}

fn word(name: &'static str, values: usize) -> ColumnOf {
    (name, DataType::Utf8, values, None)
}

fn money(name: &'static str) -> ColumnOf {
    (name, DataType::Decimal128(12, 2), 100_000, None)
}

fn table(rows: usize, columns: &[ColumnOf]) -> Known {
    let fields = columns.iter();
    let fields = fields.map(|(name, data_type, ..)| Field::new(*name, data_type.clone(), true));
    let statistics = columns.iter().map(|(_, data_type, values, bounds)| {
        let bound = |value: i32| match data_type {
            DataType::Date32 => Precision::Exact(ScalarValue::Date32(Some(value))),
            _ => Precision::Exact(ScalarValue::Int32(Some(value))),
        };
        let absent = || Precision::Absent;
        ColumnStatistics {
            null_count: Precision::Exact(0),
            distinct_count: Precision::Inexact(*values),
            min_value: bounds.map_or_else(absent, |(min, _)| bound(min)),
            max_value: bounds.map_or_else(absent, |(_, max)| bound(max)),
            ..ColumnStatistics::new_unknown()
        }
    });
    Known {
        statistics: Some(Statistics {
            num_rows: Precision::Exact(rows),
            total_byte_size: Precision::Absent,
            column_statistics: statistics.collect(),
        }),
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
    }
}

/// TPC-H at scale 1: some of its columns.
fn tables() -> Vec<(&'static str, Known)> {
    let lineitem = [
        key("l_orderkey", 1_500_000),
        key("l_partkey", 200_000),
        key("l_suppkey", 10_000),
        day("l_shipdate"),
        money("l_extendedprice"),
    ];
    let orders = [
        key("o_orderkey", 1_500_000),
        key("o_custkey", 100_000),
        day("o_orderdate"),
        word("o_orderstatus", 3),
    ];
    let customer = [key("c_custkey", 150_000), key("c_nationkey", 25)];
    let supplier = [key("s_suppkey", 10_000), key("s_nationkey", 25)];
    let nation = [
        key("n_nationkey", 25),
        key("n_regionkey", 5),
        word("n_name", 25),
    ];
    let region = [key("r_regionkey", 5), word("r_name", 5)];
    let part = [key("p_partkey", 200_000), word("p_type", 150)];
    let partsupp = [
        key("ps_partkey", 200_000),
        key("ps_suppkey", 10_000),
        money("ps_supplycost"),
    ];
    vec![
        ("lineitem", table(6_000_000, &lineitem)),
        ("orders", table(1_500_000, &orders)),
        ("customer", table(150_000, &customer)),
        ("supplier", table(10_000, &supplier)),
        ("nation", table(25, &nation)),
        ("region", table(5, &region)),
        ("part", table(200_000, &part)),
        ("partsupp", table(800_000, &partsupp)),
    ]
}

/// A query's optimized plan, and its joins whose order changed.
fn planned(sql: &str, join_order: Use) -> (LogicalPlan, Vec<String>) {
    let mut settings = SessionSettings::default();
    settings.join_order = join_order;
    let mut config = SessionConfig::new();
    let extensions = &mut config.options_mut().extensions;
    extensions.insert(settings.clone());
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(crate::plan::analyzer_rules())
        .with_optimizer_rules(crate::plan::logical_rules())
        .build();
    let context = SessionContext::new_with_state(state);
    let unknown = Known {
        statistics: None,
        ..table(1, &[key("u_key", 1)])
    };
    for (name, table) in tables().into_iter().chain([("unknown", unknown)]) {
        context.register_table(name, Arc::new(table)).unwrap();
    }
    let state = context.state();
    let plan = block_on(state.create_logical_plan(sql)).unwrap();
    let plan = state.optimize(&plan).unwrap();
    let orders = settings.join_orders.lock();
    (
        plan,
        orders.iter().map(|(order, _)| order.clone()).collect(),
    )
}

fn orders(sql: &str) -> Vec<String> {
    planned(sql, Use::On).1
}

/// A plan without the nodes that only drop columns.
fn text(plan: &LogicalPlan) -> String {
    let all = plan.display_indent().to_string();
    let lines = all
        .lines()
        .filter(|line| !line.trim().starts_with("Projection"));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    format!("\n{lines}")
}

/// The cost of the topmost tree of joins of a plan.
fn cost(plan: &LogicalPlan) -> f64 {
    match plan {
        _ if is_inside(plan, LeftJoins::Apart) => {
            let graph = Graph::of(plan, LeftJoins::Apart).unwrap();
            Costs::new(
                &graph,
                u64::MAX,
                JoinPrices::default(),
                EstimateError::default(),
                &[],
            )
            .of(&graph.order)
            .unwrap()
            .cost
        }
        _ => cost(plan.inputs()[0]),
    }
}

/// The cheapest order of the topmost tree of joins of a plan where operators may hold this many bytes.
fn cheapest(plan: &LogicalPlan, operator_bytes: u64) -> String {
    match plan {
        _ if is_inside(plan, LeftJoins::Apart) => {
            let graph = Graph::of(plan, LeftJoins::Apart).unwrap();
            let best = enumerate::cheapest(
                &graph,
                &Costs::new(
                    &graph,
                    operator_bytes,
                    JoinPrices::default(),
                    EstimateError::default(),
                    &[],
                ),
            );
            graph.describe(&best.unwrap().tree)
        }
        _ => cheapest(plan.inputs()[0], operator_bytes),
    }
}

const Q5: &str = "SELECT n_name, sum(l_extendedprice) FROM customer, orders, lineitem, supplier, nation, region \
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey \
    AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA' \
    AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1995-01-01' GROUP BY n_name";
const Q7: &str = "SELECT n1.n_name, n2.n_name, sum(l_extendedprice) \
    FROM supplier, lineitem, orders, customer, nation n1, nation n2 \
    WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey \
    AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey \
    AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE')) \
    AND l_shipdate BETWEEN date '1995-01-01' AND date '1996-12-31' GROUP BY n1.n_name, n2.n_name";
const Q21: &str = "SELECT s_suppkey, count(*) FROM supplier, lineitem l1, orders, nation \
    WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F' \
    AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey) \
    AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA' GROUP BY s_suppkey";

#[test]
fn small_and_filtered_tables_come_before_large_ones() {
    // Customers of the region alone, by an equality that the text only implies; suppliers are looked up at the end.
    let q5 = "(supplier ⋈ ((((region ⋈ nation) ⋈ customer) ⋈ orders) ⋈ lineitem))";
    // Both nations reduce their side before the large tables meet.
    let q7 = "(((n2 ⋈ customer) ⋈ orders) ⋈ ((n1 ⋈ supplier) ⋈ lineitem))";
    let q21 = "((orders ⋈ ((nation ⋈ supplier) ⋈ l1)) ⋈ __correlated_sq_1)";
    assert_eq!(orders(Q5), [q5]);
    assert_eq!(orders(Q7), [q7]);
    assert_eq!(orders(Q21), [q21]);
}

#[test]
fn semi_joins_come_where_they_drop_rows_early() {
    let sql = "SELECT o_orderkey, sum(l_extendedprice) FROM lineitem, orders, customer \
        WHERE c_custkey = o_custkey AND o_orderkey = l_orderkey AND o_custkey IN \
        (SELECT o_custkey FROM orders WHERE o_orderkey < 100 GROUP BY o_custkey HAVING count(*) > 3) GROUP BY 1";
    let plan = text(&planned(sql, Use::On).0);
    let order = plan.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let first = "LeftSemi Join: orders.o_custkey = __correlated_sq_1.o_custkey TableScan: orders";
    assert!(order.contains(first), "{plan}");
}

#[test]
fn what_does_not_fit_is_streamed() {
    // Of 1.5 million orders a quarter of a year, of customers and all of theirs.
    let sql = "SELECT c_custkey, c_nationkey, sum(l_extendedprice) FROM customer, orders, lineitem \
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey \
        AND o_orderdate >= date '1993-10-01' AND o_orderdate < date '1994-01-01' GROUP BY 1, 2";
    let (plan, _) = planned(sql, Use::Off);
    let order = |mb: u64| cheapest(&plan, mb << 20);
    assert_eq!(order(1 << 10), "((customer ⋈ orders) ⋈ lineitem)");
    assert_eq!(order(8), "((orders ⋈ customer) ⋈ lineitem)");
    assert_eq!(order(2), "(customer ⋈ (orders ⋈ lineitem))");
}

/// A query with its FROM clause in an order of our own.
fn shuffled(sql: &str, random: &mut fastrand::Rng) -> String {
    let (before, rest) = sql.split_once(" FROM ").unwrap();
    let (tables, rest) = rest.split_once(" WHERE ").unwrap();
    let mut tables: Vec<&str> = tables.trim().split(", ").collect();
    random.shuffle(&mut tables);
    format!("{before} FROM {} WHERE {rest}", tables.join(", "))
}

#[test]
fn the_order_of_from_does_not_matter() {
    let mut random = fastrand::Rng::with_seed(7);
    for sql in [Q5, Q7, Q21] {
        let expected = planned(sql, Use::On).0;
        assert!(cost(&expected) <= cost(&planned(sql, Use::Off).0), "{sql}");
        for _ in 0..8 {
            let sql = shuffled(sql, &mut random);
            assert_eq!(text(&planned(&sql, Use::On).0), text(&expected), "{sql}");
        }
    }
}

#[test]
fn an_order_that_is_best_or_cannot_be_judged_stays() {
    let left_alone = [
        // As cheap as any.
        "SELECT count(*) FROM region, nation, supplier WHERE r_regionkey = n_regionkey AND n_nationkey = s_nationkey",
        // A table without statistics.
        "SELECT count(*) FROM lineitem, orders, customer, unknown \
         WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = u_key AND c_custkey = 7",
        // What a predicate gives differs from row to row.
        "SELECT count(*) FROM lineitem, orders, customer WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey \
         AND c_custkey = 7 AND l_orderkey + c_custkey > random()",
        // A cast may fail for rows that another join drops.
        "SELECT count(*) FROM lineitem, orders, customer, part WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey \
         AND c_custkey = 7 AND cast(p_type AS INT) = l_partkey",
        // Two tables: the engine chooses their sides.
        "SELECT count(*) FROM lineitem, orders WHERE l_orderkey = o_orderkey AND o_custkey = 7",
    ];
    for sql in left_alone {
        assert_eq!(orders(sql), [""; 0], "{sql}");
    }
    assert_eq!(planned(Q5, Use::Off).1, [""; 0]);
}

#[test]
fn outer_joins_and_groups_are_borders_with_orders_of_their_own_below() {
    let sql = "SELECT count(*) FROM (SELECT c_custkey, o_orderkey FROM lineitem, orders, customer, nation \
               WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n_nationkey \
               AND n_name = 'CHINA') AS t FULL JOIN supplier ON c_custkey = s_suppkey";
    let order = "(((nation ⋈ customer) ⋈ orders) ⋈ lineitem)";
    assert_eq!(orders(sql), [order]);
    // What a left join adds is tested after it.
    let sql = "SELECT count(*) FROM (SELECT c_custkey, o_orderkey FROM lineitem, orders, customer, nation \
               WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND c_nationkey = n_nationkey \
               AND n_name = 'CHINA') AS t LEFT JOIN supplier ON c_custkey = s_suppkey WHERE s_nationkey IS NULL";
    assert_eq!(orders(sql), [order]);
    let sql = "SELECT count(*) FROM part, lineitem, (SELECT o_custkey, max(l_partkey) AS most \
               FROM lineitem, orders, customer, nation WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey \
               AND c_nationkey = n_nationkey AND n_name = 'CHINA' GROUP BY o_custkey) AS t \
               WHERE p_partkey = l_partkey AND p_partkey = most";
    assert_eq!(orders(sql), [order, "((t ⋈ part) ⋈ lineitem)"]);
}

#[test]
fn left_joins_come_when_other_joins_have_dropped_rows() {
    let sql = "SELECT l_orderkey, p_partkey FROM lineitem LEFT JOIN part ON l_partkey = p_partkey, \
               orders, customer, nation WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey \
               AND c_nationkey = n_nationkey AND n_name = 'CHINA'";
    let found = orders(sql);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with(" ⋈ part)"), "{found:?}");
    let (plan, _) = planned(sql, Use::On);
    let plan = text(&plan);
    let left = plan.lines().find(|line| line.contains("Join:"));
    assert!(
        left.is_some_and(|line| line.contains("Left Join:")),
        "{plan}"
    );
}

#[test]
fn conditions_are_tested_where_their_columns_are() {
    let sql = "SELECT l_orderkey, n_name FROM lineitem, orders, customer, supplier, nation \
               WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND l_suppkey = s_suppkey \
               AND s_nationkey = n_nationkey AND o_orderdate < l_shipdate AND n_name = 'CHINA'";
    let before = r#"
  Inner Join: supplier.s_nationkey = nation.n_nationkey
      Inner Join: lineitem.l_suppkey = supplier.s_suppkey
          Inner Join: orders.o_custkey = customer.c_custkey
              Inner Join: lineitem.l_orderkey = orders.o_orderkey Filter: orders.o_orderdate < lineitem.l_shipdate
                TableScan: lineitem projection=[l_orderkey, l_suppkey, l_shipdate]
                TableScan: orders projection=[o_orderkey, o_custkey, o_orderdate]
            TableScan: customer projection=[c_custkey]
        TableScan: supplier projection=[s_suppkey, s_nationkey]
    Filter: nation.n_name = Utf8("CHINA")
      TableScan: nation projection=[n_nationkey, n_name]
"#;
    let after = r#"
  Inner Join: orders.o_custkey = customer.c_custkey
      Inner Join: lineitem.l_orderkey = orders.o_orderkey Filter: orders.o_orderdate < lineitem.l_shipdate
          Inner Join: supplier.s_suppkey = lineitem.l_suppkey
              Inner Join: nation.n_nationkey = supplier.s_nationkey
                Filter: nation.n_name = Utf8("CHINA")
                  TableScan: nation projection=[n_nationkey, n_name]
                TableScan: supplier projection=[s_suppkey, s_nationkey]
            TableScan: lineitem projection=[l_orderkey, l_suppkey, l_shipdate]
        TableScan: orders projection=[o_orderkey, o_custkey, o_orderdate]
    TableScan: customer projection=[c_custkey]
"#;
    assert_eq!(text(&planned(sql, Use::Off).0), before);
    assert_eq!(text(&planned(sql, Use::On).0), after);
}

#[test]
fn outer_joins_whose_padded_rows_a_join_drops_are_inner() {
    let sql = "SELECT l_orderkey, n_name FROM lineitem LEFT JOIN orders ON l_orderkey = o_orderkey, customer, nation \
               WHERE o_custkey = c_custkey AND c_nationkey = n_nationkey AND n_name = 'CHINA'";
    assert_eq!(orders(sql), ["(((nation ⋈ customer) ⋈ orders) ⋈ lineitem)"]);
    // Below a filter and a projection, by a key that goes through them.
    let sql = "SELECT key, n_name FROM (SELECT l_orderkey AS key, o_custkey AS cust FROM lineitem \
               LEFT JOIN orders ON l_orderkey = o_orderkey WHERE o_orderstatus IS NULL OR o_orderstatus = 'F') AS t, \
               customer, nation WHERE cust = c_custkey AND c_nationkey = n_nationkey AND n_name = 'CHINA'";
    assert!(
        !text(&planned(sql, Use::Off).0).contains("Left Join"),
        "{sql}"
    );
    for kept in [
        // The other side's key.
        "SELECT count(*) FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey, customer \
         WHERE o_custkey = c_custkey",
        // An expression that gives a value for NULL.
        "SELECT o_orderkey, l_partkey FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey, part \
         WHERE coalesce(l_partkey, 7) = p_partkey",
        // Rows without a partner are what an anti join keeps.
        "SELECT o_orderkey, l_suppkey FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey \
         WHERE NOT EXISTS (SELECT * FROM part WHERE p_partkey = l_partkey)",
    ] {
        assert!(
            text(&planned(kept, Use::Off).0).contains("Left Join"),
            "{kept}"
        );
    }
}

#[test]
fn rows_without_a_partner_come_from_an_anti_join() {
    let sql = "SELECT l_extendedprice, ps_supplycost FROM lineitem \
               LEFT JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey \
               JOIN orders ON l_orderkey = o_orderkey \
               WHERE ps_partkey IS NULL AND o_orderdate < date '1992-02-01'";
    let plan = text(&planned(sql, Use::On).0);
    assert!(plan.contains("LeftAnti Join: lineitem.l_partkey"), "{plan}");
    assert!(!plan.contains("Left Join"), "{plan}");
    // It may be NULL in rows that have a partner.
    let sql = sql.replace("ps_partkey IS", "ps_supplycost IS");
    assert!(text(&planned(&sql, Use::On).0).contains("Left Join"));
}

#[test]
fn another_value_of_a_repeated_key_is_asked_of_its_extremes() {
    let sql = "SELECT l1.l_orderkey FROM lineitem l1 WHERE EXISTS (SELECT * FROM lineitem l2 \
               WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)";
    let plan = text(&planned(sql, Use::On).0);
    for part in [
        "LeftSemi Join: l1.l_orderkey = __correlated_sq_1.l_orderkey",
        "Filter: l1.l_suppkey != min(__correlated_sq_1.l_suppkey) OR l1.l_suppkey != max(__correlated_sq_1.l_suppkey)",
        "Aggregate: groupBy=[[__correlated_sq_1.l_orderkey]]",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let compares_rows = |sql: &str| !text(&planned(sql, Use::On).0).contains("Aggregate");
    // Few rows ask.
    let few = format!("{sql} AND l1.l_suppkey = 7");
    assert!(compares_rows(&few));
    // A row for each key.
    assert!(compares_rows(&sql.replace(
        "lineitem l2",
        "(SELECT o_orderkey AS l_orderkey, o_custkey AS l_suppkey FROM orders) l2"
    )));
    // Not another value, but a greater one.
    assert!(compares_rows(&sql.replace("<>", ">")));
}
