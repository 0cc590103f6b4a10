//! Optimized plans of queries, kept for the next time that the same is asked.
//!
//! A plan is made of the query's text, the session's settings, what operators may hold, and the database's tables,
//! views and schemas. The first three are what it is found by; when one of the others changes, the plans that may have
//! to do with it are dropped, and none is kept that was begun before. Operators are chosen anew each time, as they
//! depend on what is in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use parking_lot::Mutex;

use crate::settings::JoinSides;

/// Nodes and expressions of all plans that are kept, before they were optimized.
const PARTS_MAX: usize = 50_000;

/// A session's settings at one time: sessions that have changed nothing have the same, others have their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct SettingsVersion(u64);

impl SettingsVersion {
    /// After a change.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a plan is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    query: Box<SqlStatement>,
    settings: SettingsVersion,
    operator_bytes: u64,
}

impl Asked {
    /// None for statements that are not queries.
    pub fn of(
        statement: &ParsedStatement,
        settings: SettingsVersion,
        operator_bytes: u64,
    ) -> Option<Self> {
        match statement {
            ParsedStatement::Statement(own) if matches!(**own, SqlStatement::Query(_)) => {
                Some(Self {
                    query: own.clone(),
                    settings,
                    operator_bytes,
                })
            }
            _ => None,
        }
    }
}

/// A query's plan.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    /// Before it was optimized.
    pub plan: LogicalPlan,
    pub optimized: LogicalPlan,
    /// The query's fingerprint.
    pub template: u64,
    /// What was found out about its joins while it was optimized.
    pub join_sides: Vec<JoinSides>,
    /// Whether it may be made and run again where memory is short.
    pub may_run_again: bool,
}

/// The plans of a database.
#[derive(Debug, Default)]
pub(crate) struct KeptPlans(Mutex<Plans>);

#[derive(Debug, Default)]
struct Plans {
    by_query: HashMap<Asked, Entry>,
    part_count: usize,
    /// Counts uses.
    clock: u64,
    changes: Changes,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<KeptPlan>,
    /// The tables that it reads.
    tables: Vec<i64>,
    part_count: usize,
    used: u64,
    uses: u64,
}

/// What a plan consists of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The tables that it reads.
    pub tables: Vec<i64>,
    /// Nodes and expressions.
    pub count: usize,
}

/// A plan in a list.
#[derive(Debug, Clone)]
pub(crate) struct KeptPlanRow {
    pub query: String,
    /// How often it was asked again.
    pub uses: u64,
    pub parts: usize,
}

/// How often what plans are made of has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changes(u64);

/// Plans that are not kept any more, to be dropped when nothing is locked.
#[must_use]
pub(crate) struct Forgotten(#[expect(dead_code, reason = "it is dropped")] Vec<Arc<KeptPlan>>);

impl KeptPlans {
    pub fn get(&self, asked: &Asked) -> Option<Arc<KeptPlan>> {
        let mut plans = self.0.lock();
        plans.clock += 1;
        let now = plans.clock;
        let entry = plans.by_query.get_mut(asked)?;
        entry.used = now;
        entry.uses += 1;
        Some(entry.plan.clone())
    }

    /// To be asked before a plan is begun that is to be kept.
    pub fn changes(&self) -> Changes {
        self.0.lock().changes
    }

    /// Keeps a plan that was begun at `begun`, if nothing has changed since.
    pub fn keep(&self, asked: Asked, plan: Arc<KeptPlan>, parts: Parts, begun: Changes) {
        let mut plans = self.0.lock();
        if plans.changes != begun || parts.count > PARTS_MAX {
            return;
        }
        plans.clock += 1;
        let entry = Entry {
            plan,
            tables: parts.tables,
            part_count: parts.count,
            used: plans.clock,
            uses: 0,
        };
        plans.part_count += parts.count;
        let mut gone = Vec::from_iter(plans.by_query.insert(asked, entry));
        while plans.part_count - gone.iter().map(|entry| entry.part_count).sum::<usize>()
            > PARTS_MAX
        {
            let oldest = plans.by_query.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(asked, _)| asked.clone()) else {
                break;
            };
            gone.extend(plans.by_query.remove(&oldest));
        }
        plans.part_count -= gone.iter().map(|entry| entry.part_count).sum::<usize>();
        drop(plans);
    }

    /// What is kept, the most used first.
    pub fn list(&self) -> Vec<KeptPlanRow> {
        let plans = self.0.lock();
        let row = |(asked, entry): (&Asked, &Entry)| KeptPlanRow {
            query: asked.query.to_string(),
            uses: entry.uses,
            parts: entry.part_count,
        };
        let mut rows: Vec<_> = plans.by_query.iter().map(row).collect();
        drop(plans);
        rows.sort_by(|a, b| b.uses.cmp(&a.uses).then_with(|| a.query.cmp(&b.query)));
        rows
    }

    /// A table has changed, or is gone.
    pub fn forget_table(&self, table: i64) -> Forgotten {
        self.forget(|entry| entry.tables.contains(&table))
    }

    /// Names mean something else.
    pub fn forget_all(&self) -> Forgotten {
        self.forget(|_| true)
    }

    fn forget(&self, which: impl Fn(&Entry) -> bool) -> Forgotten {
        let mut plans = self.0.lock();
        plans.changes.0 += 1;
        let gone = plans.by_query.extract_if(|_, entry| which(entry));
        let gone: Vec<Entry> = gone.map(|(_, entry)| entry).collect();
        plans.part_count -= gone.iter().map(|entry| entry.part_count).sum::<usize>();
        Forgotten(gone.into_iter().map(|entry| entry.plan).collect())
    }
}
