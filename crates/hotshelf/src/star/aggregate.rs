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
use crate::look_ups::LookUpShelf;

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

    /// The rows that come are of another row group. Groups that they are not expected to meet come back.
    pub fn begin_row_group(&mut self) -> QueryResult<Option<RecordBatch>> {
        match self {
            Self::Values(values) => values.begin_row_group(),
            Self::One(_) | Self::Codes(_) => Ok(None),
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

    /// Has the tables on a shelf.
    pub fn place_on(&self, shelf: &LookUpShelf) {
        match self {
            Self::One(_) => {}
            Self::Codes(table) => table.place_on(shelf),
            Self::Values(values) => {
                values.numbering.place_on(shelf);
                values.accumulators.place_on(shelf);
            }
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
/// The same where nearly as many groups as rows are expected.
const FEW_TRIAL_GROUPS: usize = 1 << 15;

/// As many rows are handed on as they are once grouping has not paid,
const PASSED_ROWS: usize = 1 << 21;
/// and this many times as many each time that it has not paid again.
const PASSED_TIMES: usize = 4;

/// Rows that are handed on as they are, because nearly each is a group of its own. What the first rows are says little
/// of the others, so that grouping is tried again, each time after more rows.
struct Passing {
    rows_left: usize,
    rows_next: usize,
}

impl Passing {
    fn begin(&mut self) {
        self.rows_left = self.rows_next;
        self.rows_next = self.rows_next.saturating_mul(PASSED_TIMES);
    }

    /// Whether these rows are handed on as they are.
    fn takes(&mut self, rows: usize) -> bool {
        let passes = self.rows_left > 0;
        self.rows_left = self.rows_left.saturating_sub(rows);
        passes
    }
}

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

/// A table of as many groups fills the core's second cache.
const CACHED_GROUPS: usize = 1 << 16;
/// Rows meet hardly any earlier group if at most one in this many does,
const EARLIER_PARTS: usize = 50;
/// and many of their own row group if at least one in this many does.
const OWN_PARTS: usize = 2;

/// Which groups the rows of a row group meet. Where keys lie together, as in a table that is stored in their order,
/// those of earlier row groups are only in the way.
#[derive(Default)]
struct Meetings {
    row_count: usize,
    /// Rows that met a group of an earlier row group.
    earlier_count: usize,
    /// Groups before this row group.
    earlier_groups: usize,
}

impl Meetings {
    fn note(&mut self, group_of_row: &[u32]) {
        let end = u32::try_from(self.earlier_groups).unwrap_or(u32::MAX);
        let earlier = group_of_row.iter().filter(|group| **group < end);
        self.earlier_count += earlier.count();
        self.row_count += group_of_row.len();
    }

    /// Whether rows meet each other, but hardly any group of an earlier row group.
    fn are_of_one_row_group(&self, groups: usize) -> bool {
        let new = groups.saturating_sub(self.earlier_groups);
        let own = self.row_count.saturating_sub(self.earlier_count + new);
        self.earlier_groups > 0
            && self.earlier_count * EARLIER_PARTS <= self.row_count
            && own * OWN_PARTS >= self.row_count
    }
}

/// Aggregation by values that are found as the rows come.
pub(super) struct ValueGroups {
    aggregates: Arc<Aggregates>,
    numbering: Numbering,
    accumulators: GroupAccumulators,
    trial: Trial,
    /// A table of fewer groups is kept.
    trial_groups: usize,
    meetings: Meetings,
    passing: Passing,
}

impl ValueGroups {
    fn new(
        aggregates: Arc<Aggregates>,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> QueryResult<Self> {
        let execution = &context.session_config().options().execution;
        let trial_groups = match aggregates.hardly_groups {
            true => FEW_TRIAL_GROUPS,
            false => TRIAL_GROUPS,
        };
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
            trial_groups,
            meetings: Meetings::default(),
            passing: Passing {
                rows_left: 0,
                rows_next: PASSED_ROWS,
            },
        })
    }

    fn begin_row_group(&mut self) -> QueryResult<Option<RecordBatch>> {
        self.numbering.begin_row_group();
        let groups = self.numbering.group_count();
        let gives_up = groups >= CACHED_GROUPS
            && self.meetings.are_of_one_row_group(groups)
            && !self.aggregates.finish;
        let early = match gives_up {
            true => {
                self.trial.group_count = 0;
                Some(self.take()?)
            }
            false => None,
        };
        self.meetings = Meetings {
            earlier_groups: self.numbering.group_count(),
            ..Meetings::default()
        };
        Ok(early)
    }

    fn add(&mut self, rows: &mut Rows<'_>) -> QueryResult<Option<RecordBatch>> {
        let Keys::Values(keys) = &self.aggregates.keys else {
            return Ok(None);
        };
        if self.passing.takes(rows.count()) {
            let keys = arrays(keys, rows)?;
            return self.accumulators.pass(keys, rows).map(Some);
        }
        self.numbering.number(keys, rows)?;
        let groups = self.numbering.group_count();
        self.meetings.note(&self.numbering.group_of_row);
        self.accumulators
            .update(rows, &self.numbering.group_of_row, groups)?;
        self.trial.note(rows.count(), groups);
        if self.trial.finds_few && groups >= self.trial_groups && !self.aggregates.finish {
            return self.take_early().map(Some);
        }
        Ok(None)
    }

    /// Gives the groups away. Where the latest rows hardly met theirs, the next ones are not grouped here.
    fn take_early(&mut self) -> QueryResult<RecordBatch> {
        if std::mem::take(&mut self.trial.finds_few) {
            self.passing.begin();
            // What was expected has had its turn.
            self.trial_groups = TRIAL_GROUPS;
        }
        self.trial.group_count = 0;
        self.meetings = Meetings::default();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether groups of earlier row groups are in the way after the second of two row groups with these keys.
    fn are_in_the_way(key: impl Fn(u32) -> u32) -> bool {
        let mut numbers = std::collections::HashMap::new();
        let mut meetings = Meetings::default();
        for row_group in 0..2 {
            meetings = Meetings {
                earlier_groups: numbers.len(),
                ..Meetings::default()
            };
            let rows = (row_group * 1000..(row_group + 1) * 1000).map(|row| {
                let next = numbers.len() as u32;
                *numbers.entry(key(row)).or_insert(next)
            });
            meetings.note(&rows.collect::<Vec<_>>());
        }
        meetings.are_of_one_row_group(numbers.len())
    }

    #[test]
    fn grouping_is_tried_again_after_more_rows_each_time() {
        let mut passing = Passing {
            rows_left: 0,
            rows_next: 100,
        };
        assert!(!passing.takes(8));
        for passed in [104, 400, 1600] {
            passing.begin();
            let rows = (0..passed).step_by(8).filter(|_| passing.takes(8));
            assert_eq!(8 * rows.count(), passed);
            assert!(!passing.takes(8));
        }
    }

    #[test]
    fn earlier_groups_are_in_the_way_where_keys_lie_together() {
        assert!(are_in_the_way(|row| row / 4), "in order");
        assert!(
            are_in_the_way(|row| row / 250 * 250 + row * 7 % 100),
            "nearly"
        );
        assert!(!are_in_the_way(|row| row % 500), "all meet earlier ones");
        assert!(!are_in_the_way(|row| row), "each row is a group");
        assert!(!are_in_the_way(|row| row * 7919 % 1500), "spread");
    }
}
