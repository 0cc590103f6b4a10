//! Columns that groups carry: all rows of a group have the same value, which comes with the group's first row. Keys
//! that depend on others need not be hashed and compared.

use std::sync::Arc;

use arrow_array::builder::BinaryViewBuilder;
use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat;
use arrow_select::take::take;

use super::spec::{Accumulate, Aggregate, AggregateFunction};
use crate::Result;
use crate::keys::bytes::{is_string, values};
use crate::keys::fixed::fixed_bits;

impl Aggregate {
    /// The value that a column of this type has in all rows of a group. It comes out as that type, or as views of bytes
    /// in place of texts that are not views, which the output's schema turns into what it says. `None`: a type that
    /// groups do not carry.
    pub fn carrying(column: usize, data_type: &DataType) -> Option<Self> {
        let is_carried = is_string(data_type) || fixed_bits(data_type).is_some();
        is_carried.then(|| Self {
            function: Arc::new(Carrying(data_type.clone())),
            columns: vec![column],
            filter: None,
            states: vec![Arc::new(Field::new("carried", held_as(data_type), true))],
        })
    }
}

/// The type that values of a type are held as.
fn held_as(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8View,
        text if is_string(text) => DataType::BinaryView,
        fixed => fixed.clone(),
    }
}

struct Carrying(DataType);

impl AggregateFunction for Carrying {
    fn accumulator(&self) -> Result<Box<dyn Accumulate>> {
        Ok(Box::new(Carried {
            values: match is_string(&self.0) {
                true => Values::Texts(BinaryViewBuilder::new()),
                false => Values::Fixed(Vec::new()),
            },
            held_as: held_as(&self.0),
            groups: 0,
        }))
    }
}

/// The values of groups.
struct Carried {
    values: Values,
    held_as: DataType,
    groups: usize,
}

enum Values {
    Texts(BinaryViewBuilder),
    /// In pieces, each less than half as long as the one before.
    Fixed(Vec<ArrayRef>),
}

impl Carried {
    /// Takes the values of groups that are new from their first rows. Rows of others are not looked at.
    fn add(&mut self, column: &ArrayRef, groups: &[usize], group_count: usize) -> Result<()> {
        let known = self.groups;
        if group_count <= known {
            return Ok(());
        }
        let mut firsts: Vec<Option<u32>> = vec![None; group_count - known];
        for (row, group) in (0..).zip(groups) {
            let new = group.checked_sub(known);
            if let Some(first) = new.and_then(|new| firsts.get_mut(new)) {
                first.get_or_insert(row);
            }
        }
        self.groups = group_count;
        self.values
            .push(take(column, &UInt32Array::from(firsts), None)?)
    }

    fn take_all(&mut self) -> Result<ArrayRef> {
        self.groups = 0;
        Ok(match &mut self.values {
            Values::Texts(texts) => {
                let texts = std::mem::take(texts).finish();
                match self.held_as {
                    DataType::Utf8View => Arc::new(texts.to_string_view()?),
                    _ => Arc::new(texts),
                }
            }
            Values::Fixed(pieces) => joined(&std::mem::take(pieces))?,
        })
    }
}

impl Values {
    fn push(&mut self, new: ArrayRef) -> Result<()> {
        match self {
            Self::Texts(texts) => {
                for text in values(&new)? {
                    match text {
                        Some(text) => texts.try_append_value(text)?,
                        None => texts.append_null(),
                    }
                }
            }
            Self::Fixed(pieces) => {
                let mut last = new;
                while let Some(before) = pieces.pop_if(|before| before.len() < 2 * last.len()) {
                    last = joined(&[before, last])?;
                }
                pieces.push(last);
            }
        }
        Ok(())
    }
}

fn joined(pieces: &[ArrayRef]) -> Result<ArrayRef> {
    let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| &**piece).collect();
    Ok(concat(&pieces)?)
}

impl Accumulate for Carried {
    fn update(
        &mut self,
        arguments: &[ArrayRef],
        _filter: Option<&BooleanArray>,
        groups: &[usize],
        group_count: usize,
    ) -> Result<()> {
        self.add(&arguments[0], groups, group_count)
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.add(&states[0], groups, group_count)
    }

    fn state(&mut self) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take_all()?])
    }

    fn evaluate(&mut self) -> Result<ArrayRef> {
        self.take_all()
    }

    fn bytes(&self) -> u64 {
        let bytes = match &self.values {
            Values::Texts(texts) => texts.allocated_size(),
            Values::Fixed(pieces) => pieces
                .iter()
                .map(|piece| piece.get_array_memory_size())
                .sum(),
        };
        bytes as u64
    }
}
