//! Budgets: what fits, what does not, and that nothing hangs.

use hotshelf::{Options, PolicyKind, internals};
use hotshelf_cache::Prices;

use crate::Fixture;

fn filled(options: Options) -> Fixture {
    let db = Fixture::with(options);
    db.run(
        "CREATE TABLE t AS SELECT value AS a, value * 7 % 1000003 AS b, value % 1000 AS c \
         FROM generate_series(1, 600000) AS g(value)",
    )
    .unwrap();
    db
}

#[test]
fn the_smallest_budget_still_answers() {
    for policy in [PolicyKind::None, PolicyKind::Lru, PolicyKind::All] {
        let db = filled(Options {
            budget_bytes: 1 << 20,
            policy,
            ..Options::default()
        });
        for _ in 0..3 {
            assert_eq!(
                db.rows("SELECT count(*), sum(a), min(b), max(c) FROM t WHERE c < 500"),
                ["300000|89925450000|5|499"]
            );
        }
    }
}

#[test]
fn a_warm_cache_reads_nothing_from_storage_and_no_cache_reads_everything() {
    let db = filled(Options::default());
    let device_bytes = || {
        db.rows("SELECT device_bytes FROM io_stats()")[0]
            .parse::<u64>()
            .unwrap()
    };
    db.run("SELECT sum(a), sum(b) FROM t").unwrap();
    let warm = device_bytes();
    db.run("SELECT sum(a), sum(b) FROM t").unwrap();
    assert_eq!(device_bytes(), warm);
    db.run("SET hotshelf.policy = 'none'").unwrap();
    internals::cache(db.database()).clear();
    db.run("SELECT sum(a), sum(b) FROM t").unwrap();
    let cold = device_bytes();
    db.run("SELECT sum(a), sum(b) FROM t").unwrap();
    assert!(
        device_bytes() - cold > 500_000,
        "{} bytes",
        device_bytes() - cold
    );
}

#[test]
fn cached_bytes_stay_within_the_budget() {
    let db = filled(Options {
        budget_bytes: 2 << 20,
        ..Options::default()
    });
    db.run("SELECT sum(a), sum(b), sum(c) FROM t").unwrap();
    let snapshot = internals::cache(db.database()).budget().snapshot();
    assert!(snapshot.cached_bytes <= 2 << 20, "{snapshot:?}");
    assert_eq!(
        snapshot.detached_bytes + snapshot.in_flight_bytes,
        0,
        "{snapshot:?}"
    );
}

#[test]
fn a_cancelled_query_gives_its_memory_back() {
    let db = filled(Options::default());
    let session = db.database().session();
    db.database().block_on(async {
        let mut answer = session.sql("SELECT a, b, c FROM t").await.unwrap();
        answer.next().await.unwrap().unwrap();
    });
    for _ in 0..200 {
        let snapshot = internals::cache(db.database()).budget().snapshot();
        // Footers stay.
        let operator_bytes = snapshot.operator_bytes.saturating_sub(64 << 10);
        if snapshot.detached_bytes + snapshot.in_flight_bytes + operator_bytes == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{:?}", internals::cache(db.database()).budget().snapshot());
}

#[test]
fn a_capped_device_delivers_no_more_than_the_cap() {
    let db = filled(Options {
        storage_bandwidth_max: Some(4_000_000),
        ..Options::default()
    });
    let before = std::time::Instant::now();
    db.run("SELECT sum(a), sum(b), sum(c) FROM t").unwrap();
    let bytes: f64 = db.rows("SELECT device_bytes FROM io_stats()")[0]
        .parse()
        .unwrap();
    let least = bytes / 4_000_000.0 * 0.8;
    assert!(
        before.elapsed().as_secs_f64() > least,
        "{bytes} bytes in {:?}",
        before.elapsed()
    );
}

#[test]
fn operators_get_the_memory_of_idle_elfs() {
    let db = filled(Options {
        budget_bytes: 32 << 20,
        operator_bytes_min: 1 << 20,
        ..Options::default()
    });
    db.run("CREATE INDEX i ON t USING elf (c)").unwrap();
    let held = || {
        db.rows("SELECT count(*) FILTER (WHERE head_resident), sum(held_bytes) FROM elf_stats()")
    };
    let expected = db.rows("SELECT min(a), max(b) FROM t WHERE c + 0 = 77");
    let look_up = "SET hotshelf.elf = 'always'; SELECT min(a), max(b) FROM t WHERE c = 77";
    assert_eq!(db.rows(look_up), expected);
    let before = held();
    assert!(
        !before[0].starts_with("0|") && !before[0].ends_with("|0"),
        "{before:?}"
    );
    let budget = internals::cache(db.database()).budget();
    let (mut taken, step) = (0, 1 << 10);
    while budget.try_reserve_operator(step).is_ok() {
        taken += step;
    }
    assert_ne!(held(), before);
    budget.release_operator(taken);
    assert_eq!(db.rows(look_up), expected);
    assert_eq!(held(), before);
}

#[test]
fn explain_analyze_says_what_a_query_got_of_the_memory_and_what_it_took() {
    let fixture = filled(Options::default());
    let explained = |sql: &str| {
        let printed = fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
        let (_, memory) = printed.split_once("memory|").expect("a row about memory");
        memory.to_owned()
    };
    let first = explained("SELECT sum(a) FROM t");
    assert!(first.contains("got: 0.0 MB from memory"), "{first}");
    let again = explained("SELECT sum(a) FROM t");
    assert!(again.contains("0.0 MB from storage"), "{again}");
    assert!(!again.contains("got: 0.0 MB from memory"), "{again}");
    let sort = explained("SELECT a FROM t ORDER BY b, a");
    assert!(sort.contains("paid: operators held"), "{sort}");
    assert!(!sort.contains("held 0.0 MB"), "{sort}");
    let plain = fixture.rows("EXPLAIN SELECT sum(a) FROM t");
    assert!(plain.iter().all(|row| !row.starts_with("memory|")));
}

#[test]
fn joins_aggregations_and_sorts_spill_where_others_make_more_of_the_memory() {
    let db = filled(Options {
        budget_bytes: 128 << 20,
        threads: 1,
        ..Options::default()
    });
    db.run("SET hotshelf.tuner = off").unwrap();
    let queries = [
        (
            "aggregations",
            "SELECT count(*), sum(n), sum(s), sum(l), sum(m) FROM \
             (SELECT a, count(*) AS n, sum(b) AS s, min(c) AS l, max(b) AS m, min(b) AS o FROM t GROUP BY a)",
            100 << 20,
        ),
        (
            "joins",
            "SELECT count(*), sum(l.b), sum(l.c), sum(r.c) FROM t AS l JOIN t AS r ON l.a = r.a",
            108 << 20,
        ),
        (
            "sorts",
            "SELECT sum(r), sum(c) FROM (SELECT c, a, b, row_number() OVER (ORDER BY b, a) AS r FROM t)",
            108 << 20,
        ),
    ];
    let own = "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off";
    let cache = internals::cache(db.database());
    let expected = queries.map(|(_, sql, _)| db.rows(&format!("{own}; {sql}")));
    let mut prices = Prices {
        confidence: 1.0,
        ..Prices::default()
    };
    prices.tiers.storage_bandwidth = 1e9;
    prices.shelves[0].refill_s_per_byte = 1.0;
    for ((kind, sql, taken), expected) in queries.into_iter().zip(expected) {
        cache.budget().reserve_operator(taken);
        cache.price_board().publish(&prices);
        assert_eq!(db.rows(&format!("{own}; {sql}")), expected, "{kind}");
        cache.price_board().publish(&prices);
        let explained = db.rows(&format!("{own}; EXPLAIN ANALYZE {sql}")).join("\n");
        let (_, memory) = explained.split_once("memory|").expect("a row about memory");
        assert!(memory.contains(&format!("{kind} ")), "{memory}");
        assert!(
            memory.contains("because others save more with it"),
            "{memory}"
        );
        cache.budget().release_operator(taken);
    }
}
