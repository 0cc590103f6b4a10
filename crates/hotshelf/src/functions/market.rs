//! What memory is worth to whom.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, UInt64Array};
use hotshelf_cache::model::ItemClass;
use hotshelf_cache::{ColumnId, MarketRow};

use super::{Columns, count, text};
use crate::database::Inner;

/// One row per class of what is in memory, then one per item of the largest.
pub(super) fn memory_market(inner: &Inner) -> Columns {
    let rows = inner.cache.memory_market();
    let names = Names::of(inner);
    let items = rows.iter().map(|row| names.item(inner, row));
    let changes = || rows.iter().map(|row| row.last_change);
    vec![
        (
            "class",
            text(rows.iter().map(|row| row.class.name().to_owned())),
        ),
        ("item", Arc::new(StringArray::from_iter(items))),
        ("bytes", count(rows.iter().map(|row| row.bytes))),
        (
            "saved_s_per_gb_s",
            per_gb(rows.iter().map(|row| row.saved_s_per_byte_s)),
        ),
        (
            "next_s_per_gb_s",
            per_gb(rows.iter().map(|row| row.next_s_per_byte_s)),
        ),
        (
            "changed_bytes",
            Arc::new(Int64Array::from_iter(
                changes().map(|change| change.map(|change| change.bytes)),
            )),
        ),
        (
            "changed_s_ago",
            Arc::new(Float64Array::from_iter(
                changes().map(|change| change.map(|change| change.age_s)),
            )),
        ),
        (
            "why",
            Arc::new(StringArray::from_iter(
                changes().map(|change| change.map(|change| change.why.name())),
            )),
        ),
    ]
}

/// One row per shelf: what fits, what is there, and what one more byte would save.
pub(super) fn hotshelf_shelves(inner: &Inner) -> Columns {
    let rows = inner.cache.shelves();
    vec![
        ("shelf", count(rows.iter().map(|row| row.idx as u64))),
        ("name", text(rows.iter().map(|row| row.name.to_owned()))),
        (
            "capacity_bytes",
            Arc::new(UInt64Array::from_iter(
                rows.iter().map(|row| row.capacity_bytes),
            )),
        ),
        ("used_bytes", count(rows.iter().map(|row| row.used_bytes))),
        (
            "bandwidth",
            Arc::new(Float64Array::from_iter(
                rows.iter().map(|row| row.bandwidth),
            )),
        ),
        (
            "latency_s",
            super::real(rows.iter().map(|row| row.latency_s)),
        ),
        (
            "saved_s_per_gb_s",
            per_gb(rows.iter().map(|row| Some(row.saved_s_per_byte_s))),
        ),
        (
            "refill_s_per_gb",
            per_gb(rows.iter().map(|row| Some(row.refill_s_per_byte))),
        ),
        (
            "age_s",
            Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.age_s))),
        ),
        (
            "confidence",
            super::real(rows.iter().map(|row| row.confidence)),
        ),
    ]
}

fn per_gb(values: impl Iterator<Item = Option<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from_iter(
        values.map(|value| value.map(|value| value * 1e9)),
    ))
}

/// What the classes' numbers are called.
struct Names {
    indexes: HashMap<u64, String>,
}

impl Names {
    fn of(inner: &Inner) -> Self {
        let mut indexes = HashMap::new();
        for table in &inner.opened_tables() {
            for index in &table.indexes {
                let files = index.files.values().filter_map(|file| file.as_ref().ok());
                for stretch in files.flat_map(|file| &file.stretches) {
                    indexes.insert(stretch.key, index.definition.name.clone());
                }
            }
        }
        Self { indexes }
    }

    fn item(&self, inner: &Inner, row: &MarketRow) -> Option<String> {
        let number = row.number?;
        Some(match row.class {
            ItemClass::Column => {
                let (table, column) = inner.column_name(ColumnId(number as u32));
                format!("{table}.{column}")
            }
            ItemClass::IndexBlock => match self.indexes.get(&number) {
                Some(index) => index.clone(),
                None => format!("#{number}"),
            },
            _ => format!("#{number}"),
        })
    }
}
