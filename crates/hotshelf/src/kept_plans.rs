//! Optimized plans of queries, kept for the next time that the same is asked, also with other values.
//!
//! A plan is made of the query's text, the session's settings, what operators may hold, and the database's tables,
//! views and schemas. The first three are what it is found by; when one of the others changes, the plans that may have
//! to do with it are dropped, and none is kept that was begun before. The last rules run anew each time, as they depend
//! on what is in memory; what comes before them is kept from the second time on. What is kept is beside the budget, and
//! has a limit that follows from it. A small query also leaves the plan of its template, which serves for other values
//! once a second query has proved it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::DataType;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use parking_lot::Mutex;

use crate::settings::JoinSides;

/// Plans take at most one part in this many of the budget, and no more than [`BYTES_MAX`].
const BUDGET_PARTS: u64 = 32;
const BYTES_MAX: u64 = 64 << 20;
/// A plan takes at most one part in this many of what all may take.
const PLAN_PARTS: usize = 4;

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
    /// Of the values in the place of its placeholders, if it is a template.
    types: Vec<DataType>,
    settings: SettingsVersion,
    operator_bytes: u64,
}

impl Asked {
    /// Whether it is still what a query is found by.
    pub fn is_now(&self, settings: SettingsVersion, operator_bytes: u64) -> bool {
        (self.settings, self.operator_bytes) == (settings, operator_bytes)
    }

    /// Bytes of the query's text.
    pub fn text_bytes(&self) -> usize {
        self.query.to_string().len()
    }

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
                    types: Vec::new(),
                    settings,
                    operator_bytes,
                })
            }
            _ => None,
        }
    }

    /// What the plan of the query's template is found by, for values of these types.
    pub fn with_template(&self, query: Box<SqlStatement>, types: Vec<DataType>) -> Self {
        Self {
            query,
            types,
            ..*self
        }
    }

    /// Of the session that asked.
    pub fn settings(&self) -> SettingsVersion {
        self.settings
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
    pub proof: Proof,
    /// Its physical plan as far as it is the same each time, if there is one, once the query was asked again.
    pub outline: OnceLock<Option<Outline>>,
}

/// A physical plan that early rules have made, which never runs itself.
#[derive(Debug)]
pub(crate) struct Outline(pub Arc<dyn ExecutionPlan>);

/// Whether a plan serves for whatever is found by the same: one of a template does once another query's own plan was
/// the same as the one with its values put in.
#[derive(Debug)]
pub(crate) struct Proof(AtomicU8);

impl Proof {
    const OPEN: u8 = 0;
    const HOLDS: u8 = 1;
    const FAILS: u8 = 2;

    /// A plan that was made for what was asked.
    pub fn given() -> Self {
        Self(AtomicU8::new(Self::HOLDS))
    }

    /// A template's plan, after one query.
    pub fn open() -> Self {
        Self(AtomicU8::new(Self::OPEN))
    }

    /// What another query has shown.
    pub fn settle(&self, holds: bool) {
        let result = if holds { Self::HOLDS } else { Self::FAILS };
        self.0.store(result, Ordering::Relaxed);
    }

    pub fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::HOLDS
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::OPEN
    }
}

/// The plans of a database.
#[derive(Debug)]
pub(crate) struct KeptPlans {
    bytes_max: usize,
    plans: Mutex<Plans>,
}

#[derive(Debug, Default)]
struct Plans {
    by_query: HashMap<Asked, Entry>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
    /// Counts changes of what plans are made of.
    now: Moment,
    /// When names last meant something else.
    names_changed: Moment,
    /// When tables last changed that have changed since the database was opened.
    tables_changed: HashMap<i64, Moment>,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<KeptPlan>,
    /// The tables that it reads.
    tables: Vec<i64>,
    bytes: usize,
    used: u64,
    uses: u64,
}

/// What a plan consists of.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    /// The tables that it reads.
    pub tables: Vec<i64>,
    /// About what it takes in memory.
    pub bytes: usize,
}

/// A plan in a list.
#[derive(Debug, Clone)]
pub(crate) struct KeptPlanRow {
    pub query: String,
    /// How often it was asked again.
    pub uses: u64,
    pub bytes: usize,
    pub has_outline: bool,
}

/// When something was, by the changes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(u64);

/// Plans that are not kept any more, to be dropped when nothing is locked.
#[must_use]
pub(crate) struct Forgotten(#[expect(dead_code, reason = "it is dropped")] Vec<Arc<KeptPlan>>);

impl KeptPlans {
    /// None yet, for a database with this budget.
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            bytes_max: (budget_bytes / BUDGET_PARTS).min(BYTES_MAX) as usize,
            plans: Mutex::default(),
        }
    }

    /// The plan; it counts as used if it serves.
    pub fn get(&self, asked: &Asked) -> Option<Arc<KeptPlan>> {
        let mut plans = self.plans.lock();
        plans.clock += 1;
        let now = plans.clock;
        let entry = plans.by_query.get_mut(asked)?;
        entry.used = now;
        entry.uses += u64::from(entry.plan.proof.holds());
        Some(entry.plan.clone())
    }

    /// To be asked before a plan is begun that is to be kept.
    pub fn now(&self) -> Moment {
        self.plans.lock().now
    }

    /// Keeps a plan that was begun at a moment, if nothing has changed since that it is made of.
    pub fn keep(&self, asked: Asked, plan: Arc<KeptPlan>, parts: Parts, begun: Moment) {
        if parts.bytes > self.bytes_max / PLAN_PARTS {
            return;
        }
        let mut plans = self.plans.lock();
        let changed = |table| {
            plans
                .tables_changed
                .get(table)
                .is_some_and(|at| *at > begun)
        };
        if plans.names_changed > begun || parts.tables.iter().any(changed) {
            return;
        }
        plans.clock += 1;
        plans.bytes += parts.bytes;
        let entry = Entry {
            plan,
            tables: parts.tables,
            bytes: parts.bytes,
            used: plans.clock,
            uses: 0,
        };
        let before = plans.by_query.insert(asked, entry);
        plans.bytes -= before.as_ref().map_or(0, |before| before.bytes);
        let mut gone = Vec::new();
        while plans.bytes > self.bytes_max {
            let oldest = plans.by_query.values().map(|entry| entry.used).min();
            gone.push(plans.forget(|_, entry| Some(entry.used) == oldest));
        }
        drop(plans);
    }

    /// What is kept and serves, the most used first.
    pub fn list(&self) -> Vec<KeptPlanRow> {
        let plans = self.plans.lock();
        let row = |(asked, entry): (&Asked, &Entry)| KeptPlanRow {
            query: asked.query.to_string(),
            uses: entry.uses,
            bytes: entry.bytes,
            has_outline: matches!(entry.plan.outline.get(), Some(Some(_))),
        };
        let serving = plans.by_query.iter();
        let serving = serving.filter(|(_, entry)| entry.plan.proof.holds());
        let mut rows: Vec<_> = serving.map(row).collect();
        drop(plans);
        rows.sort_by(|a, b| b.uses.cmp(&a.uses).then_with(|| a.query.cmp(&b.query)));
        rows
    }

    /// A table has changed, or is gone.
    pub fn forget_table(&self, table: i64) -> Forgotten {
        let mut plans = self.plans.lock();
        let now = plans.change();
        plans.tables_changed.insert(table, now);
        plans.forget(|_, entry| entry.tables.contains(&table))
    }

    /// Names mean something else.
    pub fn forget_all(&self) -> Forgotten {
        let mut plans = self.plans.lock();
        plans.names_changed = plans.change();
        plans.forget(|_, _| true)
    }

    /// What was expected of the joins of a template was wrong.
    pub fn forget_template(&self, template: u64) -> Forgotten {
        let mut plans = self.plans.lock();
        plans.forget(|_, entry| entry.plan.template == template)
    }

    /// A session has other settings now, which no other had.
    pub fn forget_settings(&self, before: SettingsVersion) -> Forgotten {
        let is_shared = before == SettingsVersion::default();
        self.plans
            .lock()
            .forget(|asked, _| !is_shared && asked.settings == before)
    }
}

impl Plans {
    fn change(&mut self) -> Moment {
        self.now.0 += 1;
        self.now
    }

    fn forget(&mut self, which: impl Fn(&Asked, &Entry) -> bool) -> Forgotten {
        let gone = self.by_query.extract_if(|asked, entry| which(asked, entry));
        let gone: Vec<Entry> = gone.map(|(_, entry)| entry).collect();
        self.bytes -= gone.iter().map(|entry| entry.bytes).sum::<usize>();
        Forgotten(gone.into_iter().map(|entry| entry.plan).collect())
    }
}
