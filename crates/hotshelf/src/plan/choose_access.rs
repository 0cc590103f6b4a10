//! Chooses how each scan finds its rows: by asking the Elfs of an index, by taking them from one that covers the
//! scan, or by looking at every row group.
//!
//! The rule runs once per plan, after DataFusion's own rules, when filters are pushed and workers are counted, and
//! before star pipelines are made, which leave a scan that an index covers to DataFusion. It stores its choice in the
//! scan; EXPLAIN prints it and the execution uses it. A star pipeline with look-ups chooses again for its scan when it
//! is made. Where the build sides of joins say something about keys in indexed columns, the execution chooses once
//! more: EXPLAIN ANALYZE prints that choice.
//!
//! Scans below sorts with limits are given the order of their row groups, too (`read_first`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::read_first::read_first;
use crate::scan::{TableScan, Taker};
use crate::settings::Use;

/// Stores in each scan how it finds its rows.
#[derive(Debug)]
pub(super) struct ChooseAccess;

impl PhysicalOptimizerRule for ChooseAccess {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let chosen = plan.transform_up(|node| {
            let chosen = TableScan::of(&node).and_then(|scan| scan.with_access(Taker::Operators));
            Ok(match chosen {
                Some(scan) => Transformed::yes(DataSourceExec::from_data_source(scan)),
                None => Transformed::no(node),
            })
        });
        read_first(chosen.data()?)
    }

    fn name(&self) -> &str {
        "choose_access"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Why a scan of a table with indexes finds its rows as it does, for EXPLAIN VERBOSE. `None`: there is nothing to
/// choose from.
pub(super) fn why_so(scan: &TableScan, elf: Use) -> Option<String> {
    let table = &scan.table;
    if table.indexes.is_empty() {
        return None;
    }
    let parts = scan.planned();
    let chosen = parts.iter().find_map(|part| part.strip_prefix("access="));
    let why = match chosen {
        Some(way) if elf == Use::Always => format!("{way}, as hotshelf.elf is always"),
        Some(way) => format!("{way}, which is expected to take less time"),
        None if elf == Use::Off => "scan, as hotshelf.elf is off".to_owned(),
        None if scan.has_limit() => "scan, as it ends after its first rows".to_owned(),
        None => "scan, as no index can test a filter of it or has all of its columns".to_owned(),
    };
    Some(format!("access to {}: {why}", table.name))
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;

    use super::super::before_after::before_after;
    use crate::prices::Unit;
    use crate::{Database, Options};

    struct Bench {
        database: Database,
        session: crate::Session,
    }

    impl Bench {
        fn run(&self, sql: &str) -> String {
            let batches = self
                .database
                .block_on(async { self.session.sql(sql).await?.collect().await });
            pretty_format_batches(&batches.unwrap())
                .unwrap()
                .to_string()
        }

        /// Lets runs show that some work takes as long as the book thinks possible.
        fn teach(&self, units: &[Unit], took_ns: f64) {
            let prices = &self.database.parts().engine.scan_env.prices;
            for unit in units {
                (0..40).for_each(|_| prices.learn(&[(*unit, 1e9)], took_ns));
            }
        }

        fn accesses(&self, queries: &[&str]) -> Vec<&'static str> {
            let plans = queries
                .iter()
                .map(|query| self.run(&format!("EXPLAIN {query}")));
            plans
                .map(|plan| match plan.contains("access=elf i") {
                    true => "elf",
                    false if plan.contains("access=scan") => "scan",
                    false => "neither",
                })
                .collect()
        }
    }

    #[test]
    fn scans_and_stars_choose_by_what_runs_show() {
        let database = Database::temporary(Options::default()).unwrap();
        let session = database.session();
        let bench = Bench { database, session };
        bench.run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 1000 AS a, value % 50 AS k \
             FROM generate_series(1, 300000) AS g(value)",
        );
        bench.run(
            "CREATE TABLE d AS SELECT value AS k, value % 5 AS g FROM generate_series(0, 49) AS g(value)",
        );
        bench.run("CREATE INDEX i ON t USING elf (a)");
        let queries = [
            "SELECT id FROM t WHERE a = 5",
            "SELECT g, sum(id) FROM t JOIN d ON t.k = d.k WHERE a = 5 GROUP BY g",
        ];
        // The columns and the Elf are in memory, so that work decides.
        for elf in ["off", "always", "on"] {
            bench.run(&format!("SET hotshelf.elf = '{elf}'"));
            queries.iter().for_each(|query| drop(bench.run(query)));
        }
        assert!(
            bench
                .run(&format!("EXPLAIN {}", queries[1]))
                .contains("Star")
        );
        assert_eq!(bench.accesses(&queries), ["elf", "elf"]);
        bench.teach(&[Unit::Elf], 1e18);
        bench.teach(&[Unit::Test, Unit::LookUp], 1.0);
        assert_eq!(bench.accesses(&queries), ["scan", "scan"]);
        bench.teach(&[Unit::Test, Unit::LookUp], 1e18);
        assert_eq!(bench.accesses(&queries), ["elf", "elf"]);
    }

    #[test]
    fn verbose_says_why_rows_are_found_so() {
        let database = Database::temporary(Options::default()).unwrap();
        let session = database.session();
        let bench = Bench { database, session };
        bench.run("CREATE TABLE t AS SELECT value AS id, value % 1000 AS a FROM range(50000)");
        let said = |setting: &str, query: &str| {
            bench.run(&format!("SET hotshelf.elf = '{setting}'"));
            bench.run(&format!("EXPLAIN VERBOSE {query}"))
        };
        let by_value = "SELECT id FROM t WHERE a = 5";
        assert!(!said("on", by_value).contains("access to t"));
        bench.run("CREATE INDEX i ON t USING elf (a)");
        for (setting, query, reason) in [
            ("always", by_value, "as hotshelf.elf is always"),
            ("on", by_value, "which is expected to take less time"),
            ("off", by_value, "access to t: scan, as hotshelf.elf is off"),
            (
                "on",
                "SELECT id FROM t WHERE id = 5",
                "access to t: scan, as no index",
            ),
        ] {
            let said = said(setting, query);
            assert_eq!(said.matches("access to t: ").count(), 1, "{said}");
            assert!(said.contains(reason), "{setting}: {said}");
        }
    }

    #[test]
    fn an_elf_is_asked_for_rows() {
        let statements = [
            "CREATE INDEX i ON t USING elf (v)",
            "SET hotshelf.elf = 'always'",
            "SELECT n FROM t WHERE v = 3",
        ];
        before_after("choose_access", &statements).is(
            "
            CooperativeExec
              DataSourceExec: HotshelfScan: table=t, columns=[n], filter=v@1 = 3
            ",
            "
            CooperativeExec
              DataSourceExec: HotshelfScan: table=t, columns=[n], filter=v@1 = 3, access=elf i
            ",
        );
    }
}
