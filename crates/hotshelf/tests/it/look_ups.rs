//! Look-ups of star pipelines that later queries find.

use std::time::Duration;

use hotshelf::{Options, PolicyKind, internals};

use crate::{Fixture, lines};

const QUERY: &str = "SELECT d.name, count(*), sum(f.amount) FROM facts AS f JOIN shops AS d ON f.shop = d.id \
                     WHERE d.region < 3 GROUP BY d.name ORDER BY d.name";
const REUSED: &str = "look_ups_reused=1";

/// Facts that look up one of 50 shops.
fn market(options: Options) -> Fixture {
    let db = Fixture::with(options);
    let statements = [
        "CREATE TABLE shops AS SELECT value AS id, value % 5 AS region, concat('shop ', value) AS name \
         FROM generate_series(1, 50) AS g(value)",
        "CREATE TABLE facts AS SELECT value AS id, value * 7 % 60 AS shop, value % 13 AS amount \
         FROM generate_series(1, 200000) AS g(value)",
    ];
    statements.iter().for_each(|sql| drop(db.run(sql).unwrap()));
    db
}

fn explained(db: &Fixture, sql: &str) -> String {
    let text = db.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
    assert!(text.contains("look-ups=["), "{text}");
    assert_eq!(text.contains(REUSED), text.contains(" reused,"), "{text}");
    text
}

fn reuses(db: &Fixture, sql: &str) -> bool {
    explained(db, sql).contains(REUSED)
}

/// The answer of one session after a setting.
fn with(db: &Fixture, setting: &str, sql: &str) -> Vec<String> {
    with_all(db, &[setting], sql)
}

fn with_all(db: &Fixture, settings: &[&str], sql: &str) -> Vec<String> {
    let session = db.database().session();
    let batches = db.database().block_on(async {
        for setting in settings {
            session.sql(setting).await?.collect().await?;
        }
        session.sql(sql).await?.collect().await
    });
    lines(&batches.unwrap())
}

/// The answer without star pipelines.
fn plain(db: &Fixture, sql: &str) -> Vec<String> {
    with(db, "SET hotshelf.star_pipelines = off", sql)
}

fn held_bytes(db: &Fixture) -> u64 {
    let sql = "SELECT bytes FROM memory_market() WHERE class = 'look-up' AND item IS NULL";
    db.rows(sql)[0].parse().unwrap()
}

#[test]
fn a_query_finds_the_look_up_that_an_earlier_one_made() {
    let db = market(Options::default());
    let expected = plain(&db, QUERY);
    assert_eq!(held_bytes(&db), 0);
    assert_eq!(db.rows(QUERY), expected);
    assert!(reuses(&db, QUERY));
    assert_eq!(db.rows(QUERY), expected);
    let market = db.rows(
        "SELECT item, bytes > 0, saved_s_per_gb_s > 0 FROM memory_market() WHERE class = 'look-up'",
    );
    assert_eq!(market, ["|true|true", "shops by id|true|true"]);
}

#[test]
fn a_changed_table_is_seen_at_once_and_its_files_go() {
    let db = market(Options {
        merge_files: false,
        ..Options::default()
    });
    let check = |change: &str| {
        assert_eq!(db.rows(QUERY), plain(&db, QUERY));
        assert!(reuses(&db, QUERY), "before {change}");
        db.run(change).unwrap();
        assert_eq!(held_bytes(&db), 0, "{change}");
        let expected = plain(&db, QUERY);
        assert!(!reuses(&db, QUERY), "{change}");
        assert_eq!(db.rows(QUERY), expected, "{change}");
    };
    check("INSERT INTO shops VALUES (51, 1, 'shop 51'), (52, 4, 'shop 52')");
    assert!(db.rows(QUERY).iter().any(|row| row.starts_with("shop 51|")));
    check("OPTIMIZE TABLE shops");
    check("CREATE OR REPLACE TABLE shops AS SELECT 7 AS id, 0 AS region, 'the last' AS name");
    let last = db.rows(QUERY);
    assert!(
        last.len() == 1 && last[0].starts_with("the last|"),
        "{last:?}"
    );

    let files = || {
        let folders = std::fs::read_dir(db.path("db/data")).unwrap();
        let shops = folders.filter_map(|entry| Some(entry.ok()?.path()));
        let mut shops = shops.filter(|path| path.to_string_lossy().contains("shops"));
        shops.any(|folder| std::fs::read_dir(folder).unwrap().next().is_some())
    };
    assert!(reuses(&db, QUERY) && files());
    db.run("DROP TABLE shops").unwrap();
    assert_eq!((files(), held_bytes(&db)), (false, 0));
    db.run("CREATE TABLE shops AS SELECT 'text' AS name, 8 AS id, 1 AS region")
        .unwrap();
    assert_eq!(db.rows(QUERY), plain(&db, QUERY));
}

#[test]
fn another_filter_key_or_kind_of_join_is_another_look_up() {
    let db = market(Options::default());
    let queries = [
        QUERY.to_owned(),
        QUERY.replace("< 3", "< 4"),
        QUERY.replace("< 3", "IN (0, 3)"),
        QUERY.replace("< 3", "= 2 OR d.name LIKE '%7'"),
        QUERY.replace("= d.id", "= d.id + 1"),
        QUERY.replace("JOIN", "LEFT JOIN"),
        QUERY.replace("d.name", "d.region"),
        QUERY.replace("d.name", "concat(d.name, '!')"),
        "SELECT count(*) FROM facts WHERE shop IN (SELECT id FROM shops WHERE region < 3)"
            .to_owned(),
        "SELECT count(*) FROM facts WHERE shop NOT IN (SELECT id FROM shops WHERE region < 3)"
            .to_owned(),
    ];
    for _ in 0..2 {
        for sql in &queries {
            assert_eq!(db.rows(sql), plain(&db, sql), "{sql}");
        }
    }
}

#[test]
fn what_may_differ_from_run_to_run_is_not_kept() {
    let db = market(Options::default());
    let build =
        |rows: &str| format!("SELECT count(*) FROM facts AS f JOIN ({rows}) AS d ON f.shop = d.id");
    for rows in [
        "SELECT id FROM shops WHERE random() < 2",
        "SELECT id FROM shops LIMIT 20",
        "SELECT id FROM shops WHERE region < (SELECT max(amount) FROM facts)",
    ] {
        let sql = build(rows);
        (0..2).for_each(|_| drop(db.run(&sql).unwrap()));
        let plan = db.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
        assert!(!plan.contains(" reused,"), "{plan}");
    }
    let sql = build("SELECT id FROM shops WHERE region < 3");
    db.run(&sql).unwrap();
    assert!(reuses(&db, &sql), "the same without any of these");
}

#[test]
fn what_the_rest_of_the_query_narrows_is_not_kept() {
    let db = market(Options::default());
    // The join would have told the scan of the shops which of them the facts name, and does not run. The engine's
    // choice of sides makes such a plan.
    let swapped = "SELECT d.name, count(*) FROM facts AS f JOIN shops AS d ON f.shop = d.id \
                   WHERE f.id < 10 GROUP BY d.name ORDER BY d.name";
    let of_engine = |sql: &str| with(&db, "SET hotshelf.join_order = off", sql);
    assert_eq!(of_engine(swapped), plain(&db, swapped));
    let explained = of_engine(&format!("EXPLAIN ANALYZE {swapped}")).join("\n");
    assert!(explained.contains("prune="), "{explained}");
    assert!(explained.contains(REUSED), "{explained}");

    db.run("CREATE TABLE pairs AS SELECT * FROM (VALUES (90, 3), (91, 1)) AS p(id, region)")
        .unwrap();
    let narrowed = "SELECT count(*) FROM (SELECT d.id, d.region + 1 AS next, f.amount FROM facts AS f \
                    JOIN shops AS d ON f.shop = d.id WHERE d.region < 4) AS s \
                    JOIN pairs AS p ON s.id = p.id AND s.next = p.region";
    for _ in 0..2 {
        assert_eq!(db.rows(narrowed), ["0"]);
        // The look-up of the pairs, which nothing narrows, may be an earlier one; that of the shops may not.
        let explained = db.rows(&format!("EXPLAIN ANALYZE {narrowed}")).join("\n");
        let of_facts = explained
            .lines()
            .find(|line| line.contains("scan=[table=facts"));
        let of_facts = of_facts.unwrap_or_else(|| panic!("{explained}"));
        assert!(of_facts.contains("look_ups_reused=0"), "{explained}");
    }
    let whole = "SELECT count(*), min(d.id) FROM facts AS f JOIN shops AS d ON f.shop = d.id WHERE d.region < 4";
    assert_eq!(db.rows(whole), plain(&db, whole));
}

#[test]
fn look_ups_give_way_and_small_budgets_keep_none_that_is_large() {
    let db = market(Options {
        budget_bytes: 32 << 20,
        operator_bytes_min: 1 << 20,
        ..Options::default()
    });
    let expected = plain(&db, QUERY);
    db.rows(QUERY);
    assert!(held_bytes(&db) > 0);
    let budget = internals::cache(db.database()).budget();
    budget.reserve_operator(32 << 20);
    assert_eq!(held_bytes(&db), 0);
    budget.release_operator(32 << 20);
    assert_eq!(db.rows(QUERY), expected);

    let tiny = market(Options {
        budget_bytes: 2 << 20,
        ..Options::default()
    });
    let large = "SELECT count(*), sum(a.amount) FROM facts AS a JOIN facts AS b ON a.id = b.id WHERE b.amount < 7";
    for _ in 0..2 {
        assert_eq!(tiny.rows(QUERY), expected);
        assert_eq!(tiny.rows(large), plain(&tiny, large));
        assert!(held_bytes(&tiny) <= 256 << 10);
    }
}

#[test]
fn a_cold_cache_has_none_and_without_a_policy_there_are_none() {
    let db = market(Options::default());
    db.rows(QUERY);
    internals::cache(db.database()).clear();
    assert_eq!(held_bytes(&db), 0);
    assert!(!reuses(&db, QUERY));
    assert!(reuses(&db, QUERY));
    internals::cache(db.database()).set_policy(PolicyKind::None);
    assert!(!reuses(&db, QUERY));
    assert!(!reuses(&db, QUERY));
}

#[test]
fn a_session_that_must_not_populate_makes_none() {
    let db = market(Options::default());
    let silent = "SET hotshelf.populate = off";
    let explain = format!("EXPLAIN ANALYZE {QUERY}");
    with(&db, silent, QUERY);
    assert_eq!(held_bytes(&db), 0);
    db.rows(QUERY);
    let text = with(&db, silent, &explain).join("\n");
    assert!(text.contains(REUSED), "{text}");
}

#[test]
fn sessions_at_once_share_what_one_of_them_made() {
    let db = market(Options::default());
    let expected = plain(&db, QUERY);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(db.rows(QUERY), expected)));
        }
    });
    let rows = db.rows("SELECT item FROM memory_market() WHERE item = 'shops by id'");
    assert_eq!(rows, ["shops by id"]);
    assert!(reuses(&db, QUERY));
}

#[test]
fn a_cancelled_query_keeps_no_part_of_a_look_up() {
    let db = market(Options {
        storage_bandwidth_max: Some(200_000),
        ..Options::default()
    });
    db.run(
        "CREATE TABLE wide AS SELECT value AS id, value * 31 % 7 AS region \
         FROM generate_series(1, 300000) AS g(value)",
    )
    .unwrap();
    let sql = "SELECT count(*) FROM facts AS f JOIN wide AS d ON f.id = d.id WHERE d.region < 3";
    internals::cache(db.database()).clear();
    let session = db.database().session();
    let first = db.database().block_on(async {
        let mut answer = session.sql(sql).await.unwrap();
        tokio::time::timeout(Duration::from_millis(30), answer.next()).await
    });
    assert!(first.is_err(), "the build side takes longer");
    assert_eq!(held_bytes(&db), 0);
    db.run("SET hotshelf.storage_bandwidth = 'none'").unwrap();
    assert_eq!(db.rows(sql), plain(&db, sql));
}

#[test]
fn look_ups_and_groups_lie_on_a_shelf_and_answers_are_the_same() {
    let db = market(Options::default());
    let by_values = "SELECT f.amount, d.name, min(f.id) FROM facts AS f JOIN shops AS d ON f.shop = d.id \
                     WHERE d.region < 3 GROUP BY 1, 2 ORDER BY 1, 2";
    let rows = "SELECT f.id, d.name FROM facts AS f JOIN shops AS d ON f.shop = d.id WHERE f.id < 900 ORDER BY f.id";
    for shelf in ["node:0", "emulated:optane100-128", "dram"] {
        let setting = format!("SET hotshelf.look_up_shelf = '{shelf}'");
        for sql in [QUERY, by_values, rows] {
            assert_eq!(with(&db, &setting, sql), plain(&db, sql), "{shelf}: {sql}");
        }
        let explained = with(&db, &setting, &format!("EXPLAIN ANALYZE {QUERY}")).join("\n");
        assert_eq!(
            explained.contains(&format!("on {shelf}")),
            shelf != "dram",
            "{explained}"
        );
        // One that an earlier query made lies where that query had it.
        assert!(explained.contains(REUSED), "{explained}");
    }
    assert!(!explained(&db, QUERY).contains("on emulated"));
}

#[test]
fn tables_of_other_joins_and_groups_lie_on_the_shelf_too() {
    let db = market(Options::default());
    let sql = "SELECT f.shop, count(*), min(g.id) FROM facts AS f JOIN facts AS g ON f.id = g.id + 1 \
               GROUP BY 1 ORDER BY 1";
    let expected = plain(&db, sql);
    let off = "SET hotshelf.star_pipelines = off";
    for shelf in ["node:0", "emulated:optane100-128", "dram"] {
        let setting = format!("SET hotshelf.look_up_shelf = '{shelf}'");
        let settings = [off, setting.as_str()];
        assert_eq!(with_all(&db, &settings, sql), expected, "{shelf}");
        let explained = with_all(&db, &settings, &format!("EXPLAIN ANALYZE {sql}")).join("\n");
        for operator in ["Join", "Aggregate"] {
            let lines = explained.lines().filter(|line| line.contains(operator));
            let counts =
                lines.filter_map(|line| line.split_once("shelf_accesses=")?.1.chars().next());
            let asks = counts.filter(|digit| *digit != '0').count() > 0;
            assert_eq!(asks, shelf != "dram", "{operator}: {explained}");
        }
        let sorts = explained.lines().filter(|line| line.contains("Sort"));
        assert!(sorts.filter(|line| line.contains("shelf_accesses")).count() == 0);
    }
}

#[test]
fn look_ups_lie_in_memory_that_this_machine_has() {
    let db = market(Options::default());
    for shelf in [
        "file",
        "tape",
        "node:999",
        "node:x",
        "emulated:tape",
        "dax:/tmp",
        "",
    ] {
        let error = db.error(&format!("SET hotshelf.look_up_shelf = '{shelf}'"));
        let text = error.to_string();
        assert!(
            text.contains("look_up_shelf") && text.contains("node:N"),
            "{shelf}: {text}"
        );
    }
    assert_eq!(
        db.rows("SHOW hotshelf.look_up_shelf"),
        ["hotshelf.look_up_shelf|dram"]
    );
}
