//! A short run of every check that needs no oracle, and oracles that lie.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::answers::check::{Bench, Case, Check, Verdict};
use crate::answers::data::Sizes;
use crate::answers::engine::Engine;
use crate::answers::features::Features;
use crate::answers::fuzz::{Plan, run_with};
use crate::answers::oracle::{Oracle, OracleError};
use crate::answers::query::{Body, Expr, Form, Join, JoinKind, On, Query, Relation, Select, Taste};
use crate::answers::reduce::reduce;
use crate::answers::report;
use crate::answers::rows::{Cell, Rows};
use crate::answers::schema::{BIGINT, Column, Table, Type, Value, World};
use crate::answers::settings::PLAIN;

const TIMEOUT: Duration = Duration::from_secs(60);

fn plan(seed: u64, checks: &[Check]) -> Plan {
    Plan {
        seed,
        schemas: 3,
        queries: 40,
        time: None,
        checks: checks.to_vec(),
        oracle: None,
        out: None,
        replay: None,
        timeout: TIMEOUT,
        reduce: Duration::from_secs(5),
        findings_max: 1,
        sizes: Sizes {
            rows_max: 300,
            columns_max: 8,
        },
        taste: Taste {
            joined_rows_max: 3_000.0,
            features: Features::USUAL
                .set(SWITCHED_OFF.iter().copied(), false)
                .expect("known names"),
        },
        is_verbose: false,
    }
}

/// What DataFusion does not do as these checks expect: NaN in grouped minima, and sums that leave their range, which
/// fail or not depending on the parts that they are made of.
const SWITCHED_OFF: &[&str] = &["not-a-number", "wide-sums"];

#[test]
fn random_queries_agree_with_their_parts_and_with_other_settings() {
    let checks = [Check::Tlp, Check::Norec, Check::Settings];
    let summary = run_with(&plan(5, &checks), None).expect("it runs");
    assert!(summary.wrong.is_empty(), "{}", summary.table());
    assert!(summary.percent_with_rows() > 50.0, "{}", summary.table());
    assert!(
        summary.equal * 10 > summary.queries * 8,
        "{}",
        summary.table()
    );
}

/// Answers as our engine does, but not for rows with a certain number in column `x`.
struct Liar {
    engine: Engine,
    answers: VecDeque<Rows>,
}

const UNLOVED: i128 = 17;

impl Oracle for Liar {
    fn load(&mut self, world: &World) -> Result<(), OracleError> {
        let mut world = world.clone();
        for table in &mut world.tables {
            let position = table.columns.iter().position(|column| column.name == "x");
            if let Some(x) = position.map(|idx| table.columns[idx].values.clone()) {
                *table = table.with_rows(|row_idx| x[row_idx] != Value::Int(UNLOVED));
            }
        }
        self.engine.load(&Arc::new(world)).expect("tables load");
        Ok(())
    }

    fn send(&mut self, sql: &str) -> Result<(), OracleError> {
        self.answers.extend(self.engine.run(sql));
        Ok(())
    }

    fn answer(&mut self) -> Result<Result<Rows, String>, OracleError> {
        Ok(self.answers.pop_front().ok_or_else(|| "refused".to_owned()))
    }
}

fn numbers(name: &str, values: impl Iterator<Item = i128>) -> Column {
    Column::new(name, BIGINT, values.map(Value::Int).collect())
}

fn column(name: &str) -> Expr {
    let form = Form::Column {
        relation: Some("r1".into()),
        name: name.into(),
    };
    Expr::new(BIGINT, form, Vec::new())
}

/// `SELECT r1.y, sum(r1.x) FROM t0 AS r1 JOIN t1 AS r2 … WHERE … GROUP BY … ORDER BY …`, over 200 rows.
fn planted() -> Case {
    let table = |name: &str, x: i128| Table {
        name: name.into(),
        columns: vec![
            numbers("y", (0..100).map(|n| n % 7)),
            numbers("x", (0..100).map(|n| n + x)),
        ],
        files: vec![60, 40],
        indexes: Vec::new(),
    };
    let join = |name: &str, alias: &str, on| Join {
        kind: JoinKind::Inner,
        relation: Relation::Table(name.into()),
        alias: alias.into(),
        on,
    };
    let partner = Expr::new(
        BIGINT,
        Form::Column {
            relation: Some("r2".into()),
            name: "y".into(),
        },
        Vec::new(),
    );
    let select = Select {
        items: vec![
            column("y"),
            Expr::pattern(BIGINT, "sum({})", vec![column("x")]),
        ],
        from: vec![
            join("t0", "r1", On::Nothing),
            join(
                "t1",
                "r2",
                On::All(vec![Expr::test("{} = {}", vec![column("y"), partner])]),
            ),
        ],
        filter: vec![
            Expr::test("{} < {}", vec![column("x"), Expr::int(90)]),
            Expr::test("{} >= {}", vec![column("y"), Expr::int(0)]),
        ],
        group: crate::answers::query::Grouping::By(vec![column("y")]),
        ..Select::default()
    };
    Case {
        world: Arc::new(World {
            tables: vec![table("t0", 0), table("t1", 1_000)],
        }),
        query: Query::select(select),
        predicate: None,
        check: Check::Duckdb,
        settings: PLAIN,
        other: PLAIN,
        then: Vec::new(),
    }
}

#[test]
fn a_planted_error_is_found_and_reduced_to_one_row_of_one_table() {
    let engine = Engine::start(TIMEOUT).expect("an engine");
    let liar = Liar {
        engine,
        answers: VecDeque::new(),
    };
    let mut bench = Bench::new(Some(Box::new(liar)), TIMEOUT).expect("engines");
    let case = planted();
    let first = bench.check(&case).expect("it runs");
    assert!(first.is_finding(), "{first:?}");
    let mut fails = |case: &Case| {
        bench
            .check(case)
            .is_ok_and(|verdict| verdict.is_like(&first))
    };
    let reduced = reduce(case, Duration::from_secs(60), &mut fails);
    let script = report::script("planted", &reduced, &first);
    assert_eq!(reduced.world.row_count(), 1, "{script}");
    assert_eq!(reduced.world.tables.len(), 1, "{script}");
    let row: Vec<&Value> = reduced.world.tables[0]
        .columns
        .iter()
        .map(|column| &column.values[0])
        .collect();
    assert!(row.contains(&&Value::Int(UNLOVED)), "{script}");
    assert!(
        matches!(&reduced.query.body, Body::Select(select) if select.filter.is_empty()),
        "{script}"
    );
}

#[test]
fn a_script_of_a_finding_runs_by_itself() {
    let case = planted();
    let verdict = Verdict::BothRefuse;
    let script = report::script("planted", &case, &verdict);
    let mut engine = Engine::start(TIMEOUT).expect("an engine");
    let rows = engine.run(&script).expect(&script);
    assert_eq!(rows.len(), 7);
}

#[test]
fn loaded_tables_read_as_they_were_made() {
    let mut rng = fastrand::Rng::with_seed(11);
    let sizes = Sizes {
        rows_max: 200,
        columns_max: 12,
    };
    let mut engine = Engine::start(TIMEOUT).expect("an engine");
    for _ in 0..3 {
        let world = Arc::new(crate::answers::data::world(&mut rng, sizes, &Features::ALL));
        engine.load(&world).expect("tables load");
        for table in &world.tables {
            let rows = engine
                .run(&format!("SELECT * FROM {}", table.name))
                .expect("rows");
            let mut found: Vec<String> = rows
                .iter()
                .map(|row| format!("{:?}", values(row, table)))
                .collect();
            let mut expected: Vec<String> = (0..table.row_count())
                .map(|row_idx| {
                    let row = table
                        .columns
                        .iter()
                        .map(|column| column.values[row_idx].clone());
                    format!("{:?}", row.collect::<Vec<_>>())
                })
                .collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected);
        }
    }
}

fn values(row: &[Cell], table: &Table) -> Vec<Value> {
    let types = table.columns.iter().map(|column| column.ty);
    row.iter()
        .zip(types)
        .map(|(cell, ty): (&Cell, Type)| cell.to_value(ty))
        .collect()
}

#[test]
fn an_engine_that_does_not_answer_hangs() {
    let mut engine = Engine::start(Duration::from_nanos(1)).expect("an engine");
    let failure = engine.run("SELECT 1").unwrap_err();
    assert_eq!(failure.kind, crate::answers::engine::FailureKind::Hang);
}
