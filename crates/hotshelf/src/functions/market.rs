//! Holders of memory, and what it is worth to each.

use std::collections::HashMap;

use hotshelf_cache::model::{ItemClass, ItemId};
use hotshelf_cache::{ColumnId, MarketRow};

use super::listing::{Columns, Listing};
use crate::engine::Engine;
use crate::storage::{ColumnName, Storage};

/// Operators with rows of their own, at most.
const OPERATOR_ROWS_MAX: usize = 20;

/// One row per class of what is in memory, each followed by the largest items of it; of operators by those of running
/// queries.
pub(super) fn memory_market(storage: &Storage, engine: &Engine) -> Columns {
    let names = Names::of(storage);
    let rows = storage.cache.memory_market().into_iter();
    let rows = rows.map(|row| (names.item(storage, &row), row));
    // Operators are the last class.
    Listing::of(rows.chain(operators(engine)).collect())
        .text("class", |(_, row)| row.class.name().to_owned())
        .text("item", |(item, _)| item.clone())
        .count("bytes", |(_, row)| row.bytes)
        .real("saved_s_per_gb_s", |(_, row)| {
            per_gb(row.saved_s_per_byte_s)
        })
        .real("next_s_per_gb_s", |(_, row)| per_gb(row.next_s_per_byte_s))
        .signed("changed_bytes", |(_, row)| {
            row.last_change.map(|change| change.bytes)
        })
        .real("changed_s_ago", |(_, row)| {
            row.last_change.map(|change| change.age_s)
        })
        .text("why", |(_, row)| {
            row.last_change.map(|change| change.why.name().to_owned())
        })
        .columns()
}

/// The operators of running queries, those that have most first.
fn operators(engine: &Engine) -> impl Iterator<Item = (Option<String>, MarketRow)> {
    let mut operators = engine.pool.operators();
    operators.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.query.cmp(&b.query)));
    operators.into_iter().take(OPERATOR_ROWS_MAX).map(|held| {
        let row = MarketRow {
            class: ItemClass::Operator,
            number: Some(held.query),
            bytes: held.bytes,
            saved_s_per_byte_s: held.saved_s_per_byte_s,
            next_s_per_byte_s: held.saved_s_per_byte_s,
            last_change: None,
        };
        (Some(format!("query {}: {}", held.query, held.name)), row)
    })
}

/// One row per shelf: what fits, what is there, and what one more byte would save.
pub(super) fn shelves(storage: &Storage) -> Columns {
    Listing::of(storage.cache.shelves())
        .count("shelf", |row| row.idx as u64)
        .text("name", |row| row.name.to_owned())
        .count("capacity_bytes", |row| row.capacity_bytes)
        .count("used_bytes", |row| row.used_bytes)
        .real("bandwidth", |row| row.bandwidth)
        .real("latency_s", |row| row.latency_s)
        .real("saved_s_per_gb_s", |row| row.saved_s_per_byte_s * 1e9)
        .real("refill_s_per_gb", |row| row.refill_s_per_byte * 1e9)
        .real("age_s", |row| row.age_s)
        .real("confidence", |row| row.confidence)
        .columns()
}

fn per_gb(per_byte: Option<f64>) -> Option<f64> {
    per_byte.map(|per_byte| per_byte * 1e9)
}

/// What the classes' numbers are called.
struct Names {
    indexes: HashMap<u64, String>,
}

impl Names {
    fn of(storage: &Storage) -> Self {
        let mut indexes = HashMap::new();
        for table in &storage.opened_tables() {
            for index in &table.indexes {
                let files = index.files.values().filter_map(|file| file.as_ref().ok());
                for stretch in files.flat_map(|file| &file.stretches) {
                    let name = &index.definition.name;
                    indexes.extend(stretch.items().map(|item| (item, name.clone())));
                }
            }
        }
        Self { indexes }
    }

    fn item(&self, storage: &Storage, row: &MarketRow) -> Option<String> {
        let number = row.number?;
        Some(match row.class {
            ItemClass::Column => {
                let ColumnName { table, column } =
                    storage.cache_names.column(ColumnId(number as u32));
                format!("{table}.{column}")
            }
            ItemClass::IndexBlock => match self.indexes.get(&number) {
                Some(index) => index.clone(),
                None => format!("#{number}"),
            },
            ItemClass::LookUp => {
                let name = storage.look_ups.name(number);
                name.unwrap_or_else(|| format!("#{number}"))
            }
            class => match (ItemId { class, number }).as_metadata_segment() {
                Some(segment) => format!("segment {segment}"),
                None => format!("#{number}"),
            },
        })
    }
}
