//! Who has the memory, what it saves each holder, and what one more byte would save: rows for table functions.
//!
//! The classes are segments of columns, the lenders' index blocks, metadata and look-ups, and operators. What segments
//! are worth follows from the tuner's last solution and what is in memory now, what lenders' items and metadata are
//! worth from their [`Ledger`](crate::Ledger)s, what operators are worth from what they asked for.

#[cfg(test)]
mod tests;

use super::CacheManager;
use crate::budget::BudgetSnapshot;
use crate::key::{ColumnId, Map};
use crate::market::{Holder, MarketRow, Moment, ShelfRow};
use crate::model::{ItemClass, ItemId, ItemUse, Shelf};
use crate::price::{Answer, Ask};
use crate::tuner::{Appraisal, Value};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// Items with rows of their own, at most.
const ITEM_ROWS_MAX: usize = 20;

/// A change of less than one part in this many of the budget is ignored.
const CHANGE_SHARE_MIN: u64 = 256;

/// Prices older than this, in seconds, say nothing: every request is granted.
const PRICE_AGE_MAX_S: f64 = 30.0;

/// What somebody's bytes save, and what one more would, in seconds per byte and second.
type Worth = (Option<f64>, Option<f64>);

impl CacheManager {
    /// Whether a borrower gets memory: yes if it saves more time with it than the holders that it would displace. Takes
    /// no lock, and free memory displaces nothing. The answer reserves nothing; a borrower that was granted calls
    /// [`Budget::try_reserve_operator`](crate::Budget::try_reserve_operator).
    pub fn ask(&self, ask: &Ask) -> Answer {
        let displaced_bytes = ask.bytes.saturating_sub(self.budget().free_bytes());
        let board = self.price_board();
        let prices = board.read();
        let answer = match board.age_s(&prices) > PRICE_AGE_MAX_S {
            true => Answer::Grant,
            false => prices.worth_displacing(ask, displaced_bytes),
        };
        self.market().asks.note(ask, answer);
        answer
    }

    /// How much a second of a query counts: its priority, and more if the goal is a response time that queries of its
    /// template exceed. What it uses and what its operators ask for is multiplied by this, as its columns are.
    pub fn query_weight(&self, template: u64, priority: f64) -> f64 {
        let appraisal = self.market().appraisal();
        priority * appraisal.map_or(1.0, |appraisal| appraisal.urgency(template))
    }

    /// What lenders keep, or lately kept, and metadata, with its uses.
    pub(crate) fn uses(&self) -> Vec<ItemUse> {
        let lenders = self.ladder.lenders();
        let mut uses = self.metadata.uses();
        uses.extend(lenders.iter().flat_map(|lender| lender.uses()));
        uses
    }

    /// Compares what everybody has with what they had, so that changes have a time and a reason. At each step of the
    /// tuner.
    pub(crate) fn note_holdings(&self, resident: &BTreeMap<ColumnId, u64>, uses: &[ItemUse]) {
        let market = self.market();
        let snapshot = self.budget().snapshot();
        let appraisal = market.appraisal();
        let moment = Moment {
            now_s: market.now_s(),
            taken_bytes: std::array::from_fn(|idx| market.taken_bytes[idx].load(Relaxed)),
            limit_bytes: snapshot.limit_bytes,
            change_min: snapshot.limit_bytes / CHANGE_SHARE_MIN,
            appraisal: appraisal.as_ref(),
        };
        let classes = class_bytes(&snapshot, uses);
        let classes = classes.map(|(class, bytes)| ((class, None), bytes));
        let items = item_bytes(resident, uses, moment.change_min);
        let held: Map<Holder, u64> = classes.into_iter().chain(items).collect();
        market.holdings.lock().note(&held, &moment);
    }

    /// A row for each class, and one for each of the largest items: classes in order, each followed by its items.
    pub fn memory_market(&self) -> Vec<MarketRow> {
        let (resident, uses) = (self.resident_bytes(), self.uses());
        let classes = class_bytes(&self.budget().snapshot(), &uses);
        let appraisal = self.market().appraisal();
        let columns = appraisal.map(|appraisal| appraisal.columns(&resident));
        let of_class = |class: ItemClass, bytes: u64| match class {
            ItemClass::Column => worth_of_column(columns.as_ref().map(|(all, _)| *all), bytes),
            ItemClass::Operator => self.market().asks.densities(),
            _ => worth_of(uses.iter().filter(|item| item.id.class == class)),
        };
        let mut rows: Vec<MarketRow> = classes
            .into_iter()
            .map(|(class, bytes)| self.market_row((class, None), bytes, of_class(class, bytes)))
            .collect();
        let mut items: Vec<(Holder, u64)> = item_bytes(&resident, &uses, 1).collect();
        items.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        items.truncate(ITEM_ROWS_MAX);
        let by_id: BTreeMap<ItemId, &ItemUse> = uses.iter().map(|item| (item.id, item)).collect();
        let of_item = |(class, number): Holder, bytes: u64| {
            let number = number.unwrap_or(0);
            let column = |columns: &BTreeMap<ColumnId, Value>| {
                let value = columns.get(&ColumnId(number as u32));
                value.copied().unwrap_or_default()
            };
            match class {
                ItemClass::Column => {
                    worth_of_column(columns.as_ref().map(|(_, each)| column(each)), bytes)
                }
                class => worth_of(by_id.get(&ItemId { class, number }).copied()),
            }
        };
        rows.extend(
            items
                .into_iter()
                .map(|(holder, bytes)| self.market_row(holder, bytes, of_item(holder, bytes))),
        );
        rows.sort_by_key(|row| (row.class, row.number.is_some()));
        rows
    }

    fn market_row(&self, holder: Holder, bytes: u64, (saved, next): Worth) -> MarketRow {
        let holdings = self.market().holdings.lock();
        MarketRow {
            class: holder.0,
            number: holder.1,
            bytes,
            saved_s_per_byte_s: saved,
            next_s_per_byte_s: next,
            last_change: holdings.last_change(holder, self.market().now_s()),
        }
    }

    /// Memory and the storage. Before the tuner knows the machine, memory alone.
    pub fn shelves(&self) -> Vec<ShelfRow> {
        let appraisal = self.market().appraisal();
        let known = appraisal.as_ref().map_or(&[][..], Appraisal::shelves);
        let board = self.price_board();
        let prices = board.read();
        let age_s = (prices.confidence > 0.0).then(|| board.age_s(&prices));
        let row = |idx: usize, shelf: Option<&Shelf>| ShelfRow {
            idx,
            name: "memory",
            capacity_bytes: None,
            used_bytes: 0,
            bandwidth: shelf.map(|shelf| shelf.bandwidth),
            latency_s: shelf.map_or(0.0, |shelf| shelf.latency_s),
            saved_s_per_byte_s: prices.shelves[idx].saved_s_per_byte_s,
            refill_s_per_byte: prices.shelves[idx].refill_s_per_byte,
            age_s,
            confidence: prices.confidence,
        };
        let budget = self.budget().snapshot();
        let memory = ShelfRow {
            capacity_bytes: Some(budget.limit_bytes),
            used_bytes: budget.used_bytes,
            ..row(0, known.first())
        };
        let storage = known.get(1).map(|shelf| ShelfRow {
            name: "storage",
            used_bytes: self.column_sizes().values().sum(),
            ..row(1, Some(shelf))
        });
        [memory].into_iter().chain(storage).collect()
    }
}

fn worth_of_column(value: Option<Value>, bytes: u64) -> Worth {
    (
        value.map(|value| value.saved_s_per_s / bytes.max(1) as f64),
        value.map(|value| value.next_s_per_byte_s),
    )
}

/// Of items with uses of their own.
fn worth_of<'a>(items: impl IntoIterator<Item = &'a ItemUse>) -> Worth {
    let (mut held_bytes, mut saved_s_per_s) = (0, 0.0);
    let mut next = None;
    for item in items {
        let density = item.density();
        held_bytes += item.held_bytes;
        saved_s_per_s += density * item.held_bytes as f64;
        let more = if item.held_bytes < item.bytes {
            density
        } else {
            0.0
        };
        next = Some(next.map_or(more, |next: f64| next.max(more)));
    }
    (next.map(|_| saved_s_per_s / held_bytes.max(1) as f64), next)
}

/// What lenders keep.
pub(crate) fn lent(uses: &[ItemUse]) -> impl Iterator<Item = &ItemUse> {
    let is_segment = |item: &&ItemUse| item.id.as_metadata_segment().is_some();
    uses.iter().filter(move |item| !is_segment(item))
}

/// Bytes by class: of lenders what they say they hold, of operators the rest of what is charged as theirs.
fn class_bytes(budget: &BudgetSnapshot, uses: &[ItemUse]) -> [(ItemClass, u64); ItemClass::COUNT] {
    let mut bytes = [0; ItemClass::COUNT];
    for item in lent(uses) {
        bytes[item.id.class as usize] += item.held_bytes;
    }
    let lent_bytes: u64 = bytes.iter().sum();
    let data_bytes = budget.cached_bytes.saturating_sub(budget.metadata_bytes);
    bytes[ItemClass::Column as usize] += data_bytes;
    bytes[ItemClass::Metadata as usize] += budget.metadata_bytes;
    bytes[ItemClass::Operator as usize] += budget.operator_bytes.saturating_sub(lent_bytes);
    ItemClass::ALL.map(|class| (class, bytes[class as usize]))
}

/// Bytes by item, of those that have at least `bytes_min`.
fn item_bytes<'a>(
    resident: &'a BTreeMap<ColumnId, u64>,
    uses: &'a [ItemUse],
    bytes_min: u64,
) -> impl Iterator<Item = (Holder, u64)> + 'a {
    let columns = resident
        .iter()
        .map(|(column, bytes)| (ItemId::column(*column), *bytes));
    let others = uses.iter().map(|item| (item.id, item.held_bytes));
    let all = columns.chain(others);
    all.filter(move |(_, bytes)| *bytes >= bytes_min.max(1))
        .map(|(id, bytes)| ((id.class, Some(id.number)), bytes))
}
