//! What an aggregation is to do.

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::{ArrowError, FieldRef, SchemaRef};

use crate::Result;

/// What comes in, and what goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Rows come in, results go out.
    Single,
    /// Rows come in, states go out: one for each group.
    Partial,
    /// States come in, states go out.
    Reduce,
    /// States come in, results go out.
    Final,
}

impl Phase {
    /// Whether states come in.
    pub fn reads_states(self) -> bool {
        matches!(self, Self::Reduce | Self::Final)
    }

    /// Whether states go out: others merge them, and can be given them at any time.
    pub fn writes_states(self) -> bool {
        matches!(self, Self::Partial | Self::Reduce)
    }
}

/// What one aggregate function knows about each of several groups, which are numbered from 0.
///
/// `groups` has the group of each row, and `group_count` is never less than in the call before.
pub trait Accumulate: Send {
    /// Adds rows: the arguments of the function. Rows for which `filter` is not true do not count.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn update(
        &mut self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()>;

    /// Adds states that [`Self::state`] made.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn merge(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()>;

    /// The states of all groups, in their order; there is one at least. There are no groups afterwards.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn state(&mut self) -> Result<Vec<ArrayRef>>;

    /// The results of all groups, in their order; there is one at least. There are no groups afterwards.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn evaluate(&mut self) -> Result<ArrayRef>;

    /// The memory that it holds, in bytes.
    fn bytes(&self) -> u64;
}

/// An aggregate function.
pub trait AggregateFunction: Send + Sync {
    /// What has no groups yet.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn accumulator(&self) -> Result<Box<dyn Accumulate>>;
}

/// A function over columns.
#[derive(Clone)]
pub struct Aggregate {
    /// The function.
    pub function: Arc<dyn AggregateFunction>,
    /// The columns of the input that the function gets: its arguments, or its states.
    pub columns: Vec<usize>,
    /// A column of booleans: rows without true do not count. States have none.
    pub filter: Option<usize>,
    /// The columns of a state.
    pub states: Vec<FieldRef>,
}

impl fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aggregate")
            .field("columns", &self.columns)
            .field("filter", &self.filter)
            .field("states", &self.states)
            .finish_non_exhaustive()
    }
}

/// What an aggregation is to do.
#[derive(Debug, Clone)]
pub struct AggregateSpec {
    /// The schema of what comes in.
    pub input: SchemaRef,
    /// The columns whose values make a group. NULL is a value. Without any, all rows are one group; without rows there
    /// is no group.
    pub keys: Vec<usize>,
    /// What is computed for each group.
    pub aggregates: Vec<Aggregate>,
    /// What comes in, and what goes out.
    pub phase: Phase,
    /// The schema of the output: the keys, then the result or the states of each aggregate.
    pub schema: SchemaRef,
}

impl AggregateSpec {
    /// # Errors
    /// Columns that do not fit together.
    pub(super) fn check(&self) -> Result<()> {
        let is_state = self.phase.writes_states();
        let counts = self
            .aggregates
            .iter()
            .map(|aggregate| if is_state { aggregate.states.len() } else { 1 });
        let expected = self.keys.len() + counts.sum::<usize>();
        let found = self.schema.fields().len();
        if found != expected {
            let message = format!("an aggregation has {expected} columns, its schema {found}");
            return Err(ArrowError::SchemaError(message).into());
        }
        let reads_states = self.phase.reads_states();
        for Aggregate {
            columns, states, ..
        } in &self.aggregates
        {
            if reads_states && columns.len() != states.len() {
                let [expected, found] = [states.len(), columns.len()];
                let message = format!("a state has {expected} columns, {found} are given");
                return Err(ArrowError::SchemaError(message).into());
            }
        }
        Ok(())
    }
}
