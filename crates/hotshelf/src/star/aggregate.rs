//! Aggregates the survivors, by what they are grouped by: nothing, build rows (numbered beforehand, see `groups`), or
//! any values (numbered as they come, see `number`).

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::TaskContext;

use super::accumulate::{Aggregates, GroupAccumulators, Keys, OneGroup, arrays};
use super::groups::{GroupCodes, GroupTable};
use super::number::Numbering;
use super::rows::Rows;

/// The groups one worker has seen.
pub(super) enum Groups {
    One(OneGroup),
    Codes(GroupTable),
    Values(ValueGroups),
}

impl Groups {
    pub fn new(
        codes: Option<&Arc<GroupCodes>>,
        aggregates: &Arc<Aggregates>,
        schema: &SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let (aggregates, schema) = (aggregates.clone(), schema.clone());
        Ok(match (&aggregates.keys, codes) {
            (Keys::Builds(_), Some(codes)) => {
                Self::Codes(GroupTable::new(codes.clone(), aggregates, schema)?)
            }
            (Keys::Values(_), _) => Self::Values(ValueGroups::new(aggregates, schema, context)?),
            _ => Self::One(OneGroup::new(aggregates, schema)?),
        })
    }

    /// Adds rows. What is not worth grouping here comes back as states.
    pub fn add(&mut self, rows: &mut Rows<'_>) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(one) => one.add(rows).map(|()| None),
            Self::Codes(table) => table.add(rows).map(|()| None),
            Self::Values(values) => values.add(rows),
        }
    }

    /// The rows that come are of another row group.
    pub fn begin_row_group(&mut self) {
        if let Self::Values(values) = self {
            values.begin_row_group();
        }
    }

    /// Memory in bytes.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::One(one) => one.size_bytes(),
            Self::Codes(table) => table.size_bytes(),
            Self::Values(values) => values.size_bytes(),
        }
    }

    /// Takes the groups out early, to be merged with others above. `None` if that frees nothing.
    pub fn take_early(&mut self) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(_) => Ok(None),
            Self::Codes(table) => table.take().map(Some),
            Self::Values(values) => values.take_early().map(Some),
        }
    }

    /// Takes all groups out when there are no more rows.
    pub fn finish(&mut self) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::One(one) => one.take().map(Some),
            Self::Codes(table) if table.group_count() > 0 => table.take().map(Some),
            Self::Values(values) if !values.is_empty() => values.take().map(Some),
            _ => Ok(None),
        }
    }
}

/// A table of fewer groups is kept even if the latest rows hardly met theirs: later ones may.
const TRIAL_GROUPS: usize = 1 << 20;

/// Whether grouping the latest rows has paid.
struct Trial {
    /// Rows since it was last looked at.
    row_count: usize,
    /// New groups since then.
    new_count: usize,
    /// Groups when rows were last added.
    group_count: usize,
    /// It is looked at after this many rows,
    rows_min: usize,
    /// and has not paid if more than this share of them are new groups.
    share_max: f64,
    /// Whether it had not paid when it was last looked at.
    finds_few: bool,
}

impl Trial {
    fn note(&mut self, rows: usize, groups: usize) {
        self.row_count += rows;
        self.new_count += groups.saturating_sub(self.group_count);
        self.group_count = groups;
        if self.row_count >= self.rows_min {
            self.finds_few = self.new_count as f64 > self.share_max * self.row_count as f64;
            (self.row_count, self.new_count) = (0, 0);
        }
    }
}

/// Aggregation by values that are found as the rows come.
pub(super) struct ValueGroups {
    aggregates: Arc<Aggregates>,
    numbering: Numbering,
    accumulators: GroupAccumulators,
    trial: Trial,
    /// Whether rows are handed on as they are because nearly each is a group of its own.
    passing: bool,
}

impl ValueGroups {
    fn new(
        aggregates: Arc<Aggregates>,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let execution = &context.session_config().options().execution;
        Ok(Self {
            numbering: Numbering::new(&aggregates.keys, &schema)?,
            accumulators: GroupAccumulators::new(aggregates.clone(), schema)?,
            aggregates,
            trial: Trial {
                row_count: 0,
                new_count: 0,
                group_count: 0,
                rows_min: execution.skip_partial_aggregation_probe_rows_threshold,
                share_max: execution.skip_partial_aggregation_probe_ratio_threshold,
                finds_few: false,
            },
            passing: false,
        })
    }

    fn begin_row_group(&mut self) {
        self.numbering.begin_row_group();
    }

    fn add(&mut self, rows: &mut Rows<'_>) -> QueryResult<Option<RecordBatch>> {
        let Keys::Values(keys) = &self.aggregates.keys else {
            return Ok(None);
        };
        if self.passing {
            let keys = arrays(keys, rows)?;
            return self.accumulators.pass(keys, rows).map(Some);
        }
        self.numbering.number(keys, rows)?;
        let groups = self.numbering.group_count();
        self.accumulators
            .update(rows, &self.numbering.group_of_row, groups)?;
        self.trial.note(rows.count(), groups);
        if self.trial.finds_few && groups >= TRIAL_GROUPS && !self.aggregates.finish {
            return self.take_early().map(Some);
        }
        Ok(None)
    }

    /// Gives the groups away. Where the latest rows hardly met theirs, the next ones are not grouped here.
    fn take_early(&mut self) -> QueryResult<RecordBatch> {
        self.passing = self.trial.finds_few;
        self.trial.group_count = 0;
        self.take()
    }

    fn is_empty(&self) -> bool {
        self.numbering.group_count() == 0
    }

    fn size_bytes(&self) -> usize {
        self.numbering.size_bytes() + self.accumulators.size_bytes()
    }

    fn take(&mut self) -> QueryResult<RecordBatch> {
        let group_count = self.numbering.group_count();
        let keys = self.numbering.take()?;
        self.accumulators.take(keys, group_count)
    }
}
