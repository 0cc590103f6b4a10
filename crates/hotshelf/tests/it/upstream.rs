//! The faults of the layers below that Hotshelf works around (`docs/upstream/`), run against plain DataFusion. A test
//! that fails here is good news: the workaround it names can go.

use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};

/// The rows of the last statement as plain DataFusion gives them, sorted; or its error.
fn plain(config: SessionConfig, statements: &[&str]) -> Result<Vec<String>, String> {
    let context = SessionContext::new_with_config(config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rows = Vec::new();
        for statement in statements {
            let frame = context.sql(statement).await;
            let batches = frame.map_err(|error| error.to_string())?.collect().await;
            let batches = batches.map_err(|error| error.to_string())?;
            let text = pretty_format_batches(&batches).unwrap().to_string();
            rows = crate::table_lines(&text);
            rows.sort();
        }
        Ok(rows)
    })
}

fn rows(sql: &str) -> Vec<String> {
    plain(SessionConfig::new(), &[sql]).unwrap()
}

#[test]
fn filter_pushdown_picks_columns_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let mut config = SessionConfig::new().with_target_partitions(1);
    config.options_mut().execution.parquet.pushdown_filters = true;
    let copy = |name: &str, values: &str| {
        let target = path(name);
        format!("COPY (SELECT * FROM (VALUES {values}) v(k, x, y)) TO '{target}' STORED AS PARQUET")
    };
    let table = |name: &str, file: &str| {
        format!(
            "CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'",
            path(file)
        )
    };
    let statements = [
        copy("l.parquet", "(1,10,1),(2,-10,1)"),
        copy("r.parquet", "(1,-10,1),(3,-10,1),(4,10,-1)"),
        table("l", "l.parquet"),
        table("r", "r.parquet"),
        "SELECT r.k, r.x, l.x AS lx FROM l RIGHT JOIN r ON l.k = r.k WHERE l.x IS NULL".into(),
    ];
    let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
    let found = plain(config, &statements).unwrap();
    assert_ne!(found, ["3|-10|", "4|10|"], "plan/push_filters.rs");
}

#[test]
fn decimals_are_compared_with_literals_as_doubles() {
    let plan = rows(
        "EXPLAIN SELECT d = 0.1 FROM (SELECT CAST('0.1' AS DECIMAL(12, 2)) AS d FROM generate_series(1, 2))",
    );
    let text = plan.join("\n");
    assert!(text.contains("Float64"), "plan/literals.rs: {text}");
}

#[test]
fn negative_zero_is_not_found_in_lists_with_zero() {
    let found = rows("SELECT column1 IN (-0.0, 7.0, 8.0, 9.0) FROM (VALUES (0.0)) v");
    assert_eq!(found, ["false"], "plan/literals.rs");
}

#[test]
fn lists_are_merged_without_regard_to_null() {
    let found =
        rows("SELECT a FROM (VALUES (1),(2),(3),(NULL)) t(a) WHERE a NOT IN (1) OR a NOT IN (2)");
    assert_ne!(found, ["1", "2", "3"], "plan/in_lists.rs");
}

#[test]
fn not_in_a_subquery_is_false_where_it_is_unknown() {
    let found = rows(
        "SELECT a FROM (VALUES (1),(2),(NULL)) t(a)
         WHERE a < 0 OR a NOT IN (SELECT b FROM (VALUES (1),(NULL)) s(b))",
    );
    assert!(!found.is_empty(), "plan/subqueries.rs");
}

#[test]
fn tests_of_subqueries_have_no_plan_in_a_select_list() {
    for test in ["1 IN (SELECT 2)", "exists(SELECT 1)", "1 = ANY (SELECT 2)"] {
        let found = plain(SessionConfig::new(), &[&format!("SELECT {test}")]);
        assert!(found.is_err(), "plan/subqueries.rs: {test}");
    }
}

#[test]
fn subqueries_in_values_have_not_run() {
    let found = plain(SessionConfig::new(), &["VALUES ((SELECT 1))"]);
    assert!(found.is_err(), "plan/queries_in_values.rs");
}

#[test]
fn correlated_subqueries_lose_the_row_of_no_rows() {
    let found = rows(
        "SELECT x FROM (VALUES (1), (2)) a(x)
         WHERE EXISTS (SELECT count(*) FROM (VALUES (1)) b(y) WHERE y = x)",
    );
    assert_ne!(found, ["1", "2"], "plan/correlated.rs");
}

#[test]
fn equalities_become_keys_whose_nulls_are_equal() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 1), (NULL, NULL)) v(a, b)",
            "SELECT t.a FROM t JOIN t s ON t.a IS NOT DISTINCT FROM s.a WHERE t.b = s.b",
        ],
    );
    assert_ne!(found.unwrap(), ["1"], "plan/null_keys.rs");
}

#[test]
fn correlated_subqueries_inside_aggregates_are_not_planned() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS SELECT * FROM (VALUES (1),(2)) v(a)",
            "SELECT sum((SELECT max(x.a) FROM t x WHERE x.a = t.a)) FROM t",
        ],
    );
    assert!(found.is_err(), "plan/aggregated_subqueries.rs: {found:?}");
}

#[test]
fn sums_wrap_around() {
    let found =
        rows("SELECT sum(x) FROM (VALUES (9223372036854775807),(9223372036854775807)) v(x)");
    assert_eq!(found, ["-2"], "functions/sum.rs");
}

#[test]
fn is_distinct_from_reaches_over_and() {
    let found = rows("SELECT CAST(NULL AS BOOLEAN) IS DISTINCT FROM true AND false");
    assert_eq!(found, ["true"], "session/syntax.rs");
}

#[test]
fn clauses_are_ignored() {
    let table = "(VALUES (1),(2),(3)) t(a)";
    let sampled = plain(
        SessionConfig::new(),
        &[
            &format!("CREATE TABLE t AS SELECT * FROM {table}"),
            "SELECT count(*) FROM t TABLESAMPLE BERNOULLI (0)",
        ],
    );
    assert_eq!(sampled.unwrap(), ["3"], "session/syntax.rs");
    assert_eq!(rows("SELECT 1_000"), ["1"], "session/syntax.rs");
}

#[test]
fn the_merged_column_of_using_is_the_left_sides() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE a AS SELECT * FROM (VALUES (1, 1), (2, 2)) v(k, x)",
            "CREATE TABLE b AS SELECT * FROM (VALUES (2, 2), (3, 3)) v(k, y)",
            "SELECT k FROM a RIGHT JOIN b USING (k)",
        ],
    );
    assert_ne!(found.unwrap(), ["2", "3"], "session/using.rs");
}

#[test]
fn set_operations_with_all_ignore_how_often_a_row_occurs() {
    let found =
        rows("SELECT * FROM (VALUES (1),(1)) a(x) EXCEPT ALL SELECT * FROM (VALUES (1)) b(x)");
    assert_ne!(found, ["1"], "session/syntax.rs");
    let found =
        rows("SELECT * FROM (VALUES (1),(1)) a(x) INTERSECT ALL SELECT * FROM (VALUES (1)) b(x)");
    assert_ne!(found, ["1"], "session/syntax.rs");
}

#[test]
fn order_over_grouping_sets_of_one_row_is_dropped() {
    let plan = rows(
        "EXPLAIN SELECT c, count(*) FROM (SELECT count(*) AS c FROM generate_series(1, 4))
         GROUP BY GROUPING SETS ((c), (c), ()) ORDER BY 1 NULLS LAST",
    );
    let text = plan.join("\n");
    assert!(!text.contains("SortExec"), "plan/padded_rows.rs: {text}");
}

#[test]
fn keys_that_repeat_another_key_are_dropped_with_an_error() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS SELECT CAST('2020-02-03' AS DATE) AS d",
            "SELECT count(*) FROM t GROUP BY CAST(d AS DATE), d",
        ],
    );
    assert!(found.is_err(), "plan/literal_keys.rs: {found:?}");
}

#[test]
fn a_limit_above_windows_is_lost() {
    let config = SessionConfig::new()
        .with_target_partitions(4)
        .with_batch_size(77);
    let found = plain(
        config,
        &[
            "CREATE TABLE t AS SELECT value % 7 AS a, value AS k FROM generate_series(1, 101) AS s(value)",
            "SELECT count(a) OVER (ORDER BY a NULLS LAST) AS c,
                 dense_rank() OVER (PARTITION BY a ORDER BY k DESC NULLS LAST) AS d, a
             FROM t ORDER BY 1 NULLS LAST, 3 NULLS LAST, 2 NULLS FIRST LIMIT 100",
        ],
    );
    assert_ne!(found.unwrap().len(), 100, "plan/keep_limits.rs");
}

#[test]
fn a_false_predicate_is_pushed_below_an_aggregation_without_keys() {
    let found =
        rows("SELECT n FROM (SELECT count(*) AS n FROM (VALUES (1)) v(a)) s WHERE n = 1 AND n = 2");
    assert!(!found.is_empty(), "plan/keep_filters.rs");
}

#[test]
fn order_by_an_output_column_sorts_by_a_cast_key_of_that_name() {
    let plan = rows(
        "EXPLAIN SELECT CAST(a AS DOUBLE) AS x, max(b) AS a FROM (VALUES (1, 3), (2, 2)) v(a, b)
         GROUP BY CAST(a AS DOUBLE) ORDER BY 2",
    );
    let text = plan.join("\n");
    assert!(text.contains("Sort: x"), "session/order_by.rs: {text}");
}

#[test]
fn a_cast_key_and_its_column_are_taken_for_one() {
    let plan = rows(
        "EXPLAIN SELECT x, y FROM (SELECT CAST(a AS INT) AS x, a AS y FROM (VALUES (1.2, 1), (1.7, 2)) v(a, b)
         GROUP BY CAST(a AS INT), a) ORDER BY x, y DESC",
    );
    let text = plan.join("\n");
    // One rule loses the second sort key, another refuses the projection of both.
    let lost = "after eliminate_duplicated_expr|Sort: x ASC NULLS LAST\n";
    assert!(text.contains(lost), "plan/cast_keys.rs: {text}");
}

#[test]
fn a_sort_above_a_sort_with_a_limit_is_dropped() {
    let plan = rows(
        "EXPLAIN SELECT n, x FROM (SELECT b, count(*) AS n, max(a) AS x
         FROM (VALUES (1.5, 30), (2.5, 10), (3.5, 20)) v(b, a)
         GROUP BY b ORDER BY n, b LIMIT 5) ORDER BY n, x",
    );
    let text = plan.join("\n");
    assert_eq!(
        text.matches("SortExec").count(),
        1,
        "plan/padded_rows.rs: {text}"
    );
}

#[test]
fn a_key_of_one_side_of_a_join_is_taken_for_a_key_of_the_groups() {
    let grouped = "SELECT DISTINCT r.n, s.k FROM (VALUES (1), (2)) r(n)
                   JOIN (SELECT DISTINCT k FROM (VALUES (5)) v(k)) s ON true";
    let found = rows(&format!(
        "SELECT k, count(*) FROM ({grouped}) x GROUP BY k, n"
    ));
    assert_eq!(found, ["5|2"], "plan/sound_keys.rs");
    let plan = rows(&format!("EXPLAIN {grouped} ORDER BY k, n")).join("\n");
    let lost = "Sort: s.k ASC NULLS LAST\n";
    assert!(plan.contains(lost), "plan/sound_keys.rs: {plan}");
}

#[test]
fn of_two_bounds_with_one_value_the_wider_one_is_kept() {
    let day = "DATE '2000-01-02'";
    let found = rows(&format!(
        "SELECT count(*) FROM (VALUES (DATE '2000-01-01'), ({day})) v(x) WHERE NOT (x > {day} OR {day} <= x)"
    ));
    assert_eq!(found, ["2"], "plan/keep_filters.rs");
}

#[test]
fn years_that_no_timestamp_has_wrap_around() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS SELECT TIMESTAMP '2000-01-01 08:00:04' AS s",
            "SELECT count(*) FROM t WHERE EXTRACT(year FROM s) > 12",
        ],
    );
    assert_ne!(found.unwrap(), ["1"], "functions/bounded.rs");
}

#[test]
fn running_extremes_are_taken_for_sorted_with_nulls_last() {
    let plan = rows(
        "EXPLAIN SELECT max(x) OVER (PARTITION BY d ORDER BY x NULLS FIRST) AS m, d
         FROM (VALUES (83, 148), (NULL, 148)) v(x, d)
         ORDER BY 2 NULLS LAST, 1 NULLS LAST",
    );
    let text = plan.join("\n");
    let sorts = text.matches("SortExec").count();
    assert_eq!(sorts, 1, "plan/padded_rows.rs: {text}");
}

#[test]
fn each_nan_is_one_of_the_first_groups() {
    let found = plain(
        SessionConfig::new().with_target_partitions(1),
        &[
            "CREATE TABLE t AS SELECT CAST(v AS DOUBLE) AS x FROM (VALUES ('NaN'), ('NaN')) v(v)",
            "SELECT DISTINCT x FROM t ORDER BY x LIMIT 10",
        ],
    );
    assert_eq!(found.unwrap().len(), 2, "session.rs");
}

#[test]
fn grouped_extremes_of_floats_depend_on_the_order_of_rows() {
    let found = |function: &str, values: &str| {
        rows(&format!(
            "SELECT {function}(x) FROM (SELECT g, CAST(v AS DOUBLE) AS x FROM (VALUES {values}) v(g, v)) t GROUP BY g"
        ))
    };
    let (before, after) = ("(1, 'NaN'), (1, '1')", "(1, '1'), (1, 'NaN')");
    for function in ["min", "max"] {
        let (before, after) = (found(function, before), found(function, after));
        assert_ne!(before, after, "functions/extremes.rs: {function}");
    }
    let infinite = found("max", "(1, '-inf')");
    assert_ne!(infinite, ["-inf"], "functions/extremes.rs");
}

#[test]
fn distinct_values_are_counted_where_there_are_no_rows() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS VALUES (56, 56), (72, 72)",
            "SELECT count(DISTINCT column1), count(DISTINCT column2) FROM t WHERE column1 = 61 AND column2 = 61",
        ],
    );
    assert_ne!(found.unwrap(), ["0|0"], "plan/sound_counts.rs");
}

#[test]
fn sums_of_frames_that_move_keep_something_of_what_has_left() {
    let found = rows(
        "SELECT sum(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
         FROM (VALUES (1, 1e20), (2, 1.0), (3, 1.0)) v(id, x) ORDER BY id",
    );
    assert_ne!(found.last().unwrap(), "2.0", "functions/sliding.rs");
}

#[test]
fn columns_that_a_merging_join_compares_are_taken_for_equal() {
    let statements = [
        "CREATE TABLE a AS SELECT * FROM (VALUES (11), (22), (33), (44)) v(x)",
        "CREATE TABLE b AS SELECT * FROM (VALUES (11), (55)) v(y)",
        "EXPLAIN SELECT x, y FROM b JOIN a ON y < x ORDER BY x",
    ];
    let mut config = SessionConfig::new();
    config.options_mut().optimizer.enable_piecewise_merge_join = true;
    let plan = plain(config, &statements).unwrap().join("\n");
    assert!(plan.contains("PiecewiseMergeJoin"), "{plan}");
    assert!(
        !plan.contains("SortExec: expr=[x"),
        "plan/padded_rows.rs: {plan}"
    );
}

#[test]
fn values_that_are_never_null_are_refused_below_aggregates() {
    let refused = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE g (k BIGINT NOT NULL, n BIGINT)",
            "INSERT INTO g VALUES (1, 2), (4, NULL), (5, 6)",
            "SELECT max(n) FROM (SELECT CASE WHEN n > k THEN n ELSE k END AS n FROM g) z",
        ],
    );
    let error = refused.unwrap_err();
    assert!(error.contains("nullability"), "{error}");
}

#[test]
fn the_places_of_round_do_not_settle_the_type_of_a_case() {
    let found = plain(
        SessionConfig::new(),
        &[
            "CREATE TABLE t AS SELECT column1::DECIMAL(38, 10) AS d FROM (VALUES (1.234), (2.5))",
            "SELECT CASE WHEN d = 0 THEN d ELSE round(d, 2) END FROM t",
        ],
    );
    assert!(found.is_err(), "plan/rounded.rs: {found:?}");
}
