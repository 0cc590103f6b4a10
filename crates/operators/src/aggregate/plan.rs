//! Where an aggregation's columns are.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use super::encoder::{GroupEncoder, GroupShape};
use super::spec::{Accumulate, AggregateSpec};
use crate::Result;
use crate::batches::{column_bytes, needed_bytes};
use crate::keys::Keys;
use crate::keys::fixed::fixed_bits;

/// What an aggregation is to do, worked out.
#[derive(Debug)]
pub struct Plan {
    pub spec: AggregateSpec,
    pub encoder: GroupEncoder,
    /// The schema of groups with their states: the encoded keys, then the states of each aggregate.
    groups: SchemaRef,
    key_columns: usize,
    /// Columns of the input whose values a group may keep.
    kept: Vec<usize>,
    /// What a group takes besides.
    group_bytes: u64,
}

/// What a group takes besides its key and its states.
const GROUP_BYTES: u64 = 32;

impl Plan {
    pub fn try_new(spec: AggregateSpec) -> Result<Self> {
        spec.check()?;
        let keys = spec.keys.iter().map(|&key| {
            let field = spec.input.field(key);
            (field.data_type().clone(), field.is_nullable())
        });
        let encoder = GroupEncoder::try_new(&keys.collect::<Vec<_>>())?;
        let mut fields = encoder.fields();
        let key_columns = fields.len();
        let states = spec
            .aggregates
            .iter()
            .flat_map(|aggregate| &aggregate.states);
        fields.extend(states.enumerate().map(|(number, field)| {
            Field::new(format!("state {number}"), field.data_type().clone(), true)
        }));
        let mut kept = spec.keys.clone();
        let mut group_bytes = GROUP_BYTES;
        if let GroupShape::Mixed { words, texts } = encoder.shape() {
            // Besides the texts.
            group_bytes += 8 * (words + texts) as u64;
        }
        for aggregate in &spec.aggregates {
            let widths = aggregate.states.iter();
            let widths = widths.map(|state| fixed_bits(state.data_type()));
            match widths.sum::<Option<u32>>() {
                Some(bits) => group_bytes += u64::from(bits).div_ceil(8),
                None => kept.extend(&aggregate.columns),
            }
        }
        Ok(Self {
            kept,
            group_bytes,
            spec,
            encoder,
            groups: Arc::new(Schema::new(fields)),
            key_columns,
        })
    }

    /// The schema of groups with their states.
    pub fn groups(&self) -> &SchemaRef {
        &self.groups
    }

    pub fn accumulators(&self) -> Result<Vec<Box<dyn Accumulate>>> {
        let aggregates = self.spec.aggregates.iter();
        aggregates
            .map(|aggregate| aggregate.function.accumulator())
            .collect()
    }

    /// Replaces `keys` by those of the input's rows.
    pub fn keys(&self, input: &RecordBatch, keys: &mut Keys) -> Result<()> {
        let columns = self.spec.keys.iter().map(|&key| input.column(key).clone());
        let columns: Vec<ArrayRef> = columns.collect();
        self.encoder.encode(&columns, input.num_rows(), keys)
    }

    /// The memory that groups may take if each row of the input makes one.
    pub fn bytes_of_input(&self, input: &RecordBatch) -> u64 {
        let columns = self.kept.iter().map(|&idx| column_bytes(input.column(idx)));
        columns.sum::<u64>() + input.num_rows() as u64 * self.group_bytes
    }

    /// The memory that groups with their states may take in a table.
    pub fn bytes_of_groups(&self, groups: &RecordBatch) -> u64 {
        needed_bytes(groups) + groups.num_rows() as u64 * GROUP_BYTES
    }

    /// The encoded keys of groups with their states.
    pub fn group_keys<'a>(&self, groups: &'a RecordBatch) -> &'a [ArrayRef] {
        &groups.columns()[..self.key_columns]
    }

    /// Groups with their states as one batch.
    pub fn groups_of(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        Ok(RecordBatch::try_new(Arc::clone(&self.groups), columns)?)
    }

    /// Output as one batch of this many rows.
    pub fn output_of(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = Arc::clone(&self.spec.schema);
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }

    /// Adds the input's rows to groups.
    pub fn add_input(
        &self,
        accumulators: &mut [Box<dyn Accumulate>],
        input: &RecordBatch,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        for (accumulator, aggregate) in accumulators.iter_mut().zip(&self.spec.aggregates) {
            let columns = aggregate
                .columns
                .iter()
                .map(|&idx| input.column(idx).clone());
            let columns: Vec<ArrayRef> = columns.collect();
            if self.spec.phase.reads_states() {
                accumulator.merge(&columns, groups, group_count)?;
            } else {
                let filter = aggregate.filter.map(|idx| input.column(idx).as_boolean());
                accumulator.update(&columns, filter, groups, group_count)?;
            }
        }
        Ok(())
    }

    /// Adds groups with their states to groups.
    pub fn add_groups(
        &self,
        accumulators: &mut [Box<dyn Accumulate>],
        added: &RecordBatch,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        for (accumulator, columns) in accumulators.iter_mut().zip(self.state_columns()) {
            accumulator.merge(&added.columns()[columns], groups, group_count)?;
        }
        Ok(())
    }

    fn state_columns(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = self.key_columns;
        self.spec.aggregates.iter().map(move |aggregate| {
            let columns = start..start + aggregate.states.len();
            start = columns.end;
            columns
        })
    }
}
