//! Groups of one thread's rows that are handed on with their states, for others to merge.
//!
//! The table grows while its groups meet rows. It is handed on when there is no memory for more, and where rows meet
//! only groups that came a moment ago, as in rows that are nearly in the order of their keys: a small table finds
//! those, too. Where nearly each row is a group of its own, the next rows are handed on as groups without being
//! looked up.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::BLIND_FACTOR;
use super::job::Limits;
use super::output::Output;
use super::plan::Plan;
use super::spec::AggregateSpec;
use super::table::{Table, Work};
use crate::batches::{pieces, with_schema};
use crate::memory::{Charge, Grant};
use crate::{Environment, Result, Stop};

/// Hardly any row meets an older group if fewer than one in this many do.
const MEETING_PARTS: usize = 1 << 10;
/// Most rows are new groups if at most one in this many is not.
const OLD_PARTS: u64 = 5;
/// A table that there is no memory for says by as many groups whether most rows are new groups.
const BLIND_GROUPS_MIN: usize = 1 << 12;

/// When a table is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// After this many rows.
    pub window_rows: usize,
    /// A table of fewer groups is kept: the core's cache has room for it. One of more is handed on if rows meet only
    /// groups that came a moment ago.
    pub small_groups: usize,
    /// One of more is handed on if most rows are new groups, too.
    pub large_groups: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            window_rows: 1 << 16,
            small_groups: 1 << 16,
            large_groups: 1 << 20,
        }
    }
}

/// An aggregation of one thread's rows.
pub struct PartialAggregate {
    sizes: Sizes,
    plan: Arc<Plan>,
    stop: Stop,
    table: Table,
    work: Work,
    work_charge: Charge,
    window: Window,
    /// Rows that will not be looked up.
    blind_rows: u64,
    blind_count: u64,
    outputs: VecDeque<Output>,
}

/// The latest rows that were looked up.
#[derive(Default)]
struct Window {
    rows: usize,
    /// Rows that met a group from before the window.
    met: usize,
    /// The groups at its beginning.
    groups: usize,
}

impl PartialAggregate {
    /// An aggregation in the phase [`Partial`](super::Phase::Partial) or [`Reduce`](super::Phase::Reduce).
    ///
    /// # Errors
    /// Columns that do not fit together, and if Arrow has no row format for a key's type.
    pub fn try_new(spec: AggregateSpec, environment: &Environment) -> Result<Self> {
        Self::with_sizes(spec, environment, Sizes::default())
    }

    pub(super) fn with_sizes(
        spec: AggregateSpec,
        environment: &Environment,
        sizes: Sizes,
    ) -> Result<Self> {
        let minimum_bytes = Limits::default().minimum_bytes;
        let grant = Grant::open(&*environment.broker, "partial aggregation", minimum_bytes);
        let (plan, grant) = (Arc::new(Plan::try_new(spec)?), Arc::new(grant));
        Ok(Self {
            sizes,
            table: Table::new(&plan, &grant, environment.table_shelf.as_ref())?,
            plan,
            stop: environment.stop.clone(),
            work: Work::default(),
            work_charge: Charge::adopt(&grant, 0),
            window: Window::default(),
            blind_rows: 0,
            blind_count: 0,
            outputs: VecDeque::new(),
        })
    }

    /// Adds rows. What is handed on then comes from [`Self::next_batch`].
    ///
    /// # Errors
    /// Those of the functions, columns that are not those of the schema, if Arrow cannot encode a key, and
    /// [`Stopped`](crate::OperatorError::Stopped).
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = with_schema(batch, &self.plan.spec.input)?;
        pieces(&batch).try_for_each(|piece| self.add(&piece))
    }

    fn add(&mut self, piece: &RecordBatch) -> Result<()> {
        self.stop.check()?;
        let (rows, bytes) = (piece.num_rows(), self.plan.bytes_of_input(piece));
        if !self.table.has_room(rows, bytes) {
            // With as many groups, that says what a larger table would.
            if self.table.len() >= BLIND_GROUPS_MIN && self.are_new(self.table.rows(), 0) {
                self.blind_rows = BLIND_FACTOR * self.table.rows();
            }
            self.hand_on()?;
            self.table.make_room(rows, bytes);
        }
        let is_blind = self.blind_rows > 0;
        self.table.add_input(piece, !is_blind, &mut self.work)?;
        let more = self.work.bytes().saturating_sub(self.work_charge.bytes());
        self.work_charge.grow(more);
        if is_blind {
            self.blind_rows = self.blind_rows.saturating_sub(rows as u64);
            self.blind_count += rows as u64;
            return self.hand_on();
        }
        self.window.rows += rows;
        self.window.met += self.work.rows_before(self.window.groups);
        match self.window.rows < self.sizes.window_rows {
            true => Ok(()),
            false => self.look_back(),
        }
    }

    /// Decides by the latest rows whether the table is worth keeping.
    fn look_back(&mut self) -> Result<()> {
        let groups = self.table.len();
        let Window { rows, met, .. } = self.window;
        let has_met_few = met < rows / MEETING_PARTS;
        let are_new = self.are_new(rows as u64, self.window.groups);
        let Sizes {
            small_groups,
            large_groups,
            ..
        } = self.sizes;
        let is_clustered = has_met_few && !are_new;
        let is_over = groups >= small_groups && is_clustered || groups >= large_groups && are_new;
        self.window = Window {
            groups,
            ..Window::default()
        };
        if is_over {
            if are_new {
                self.blind_rows = BLIND_FACTOR * self.table.rows();
            }
            self.hand_on()?;
        }
        Ok(())
    }

    /// Whether nearly all of the latest rows became groups, after these.
    fn are_new(&self, rows: u64, groups: usize) -> bool {
        rows - (self.table.len() - groups) as u64 <= rows / OLD_PARTS
    }

    /// Whether what comes next may take long.
    pub fn is_large(&self) -> bool {
        self.table.len() >= self.sizes.small_groups
    }

    fn hand_on(&mut self) -> Result<()> {
        self.window = Window::default();
        if self.table.len() > 0 {
            self.outputs.push_back(self.table.take_output()?);
        }
        Ok(())
    }

    /// Notes that there are no more rows.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn finish(&mut self) -> Result<()> {
        self.hand_on()
    }

    /// The next groups that are handed on. `None`: none now.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(output) = self.outputs.front_mut() {
            if let Some(batch) = output.next_batch()? {
                return Ok(Some(batch));
            }
            self.outputs.pop_front();
        }
        Ok(None)
    }

    /// Rows that were handed on as groups without being looked up.
    pub fn blind_count(&self) -> u64 {
        self.blind_count
    }
}
