//! Where survivors find the slots of their keys in look-ups.

use super::chunk::Decodable;
use super::condition::fits;
use super::lookup::{Lookup, MISS};
use super::matching::Matching;
use super::prepare::Ready;
use super::validity::Valid;

/// Where the slots of a look-up's keys are found.
pub(super) struct KeySlots<'a> {
    pub join: usize,
    /// Of the tested columns, the one with the keys.
    pub column: usize,
    pub slots: Slots<'a>,
}

/// How the slot of a key is found for a row that passed.
pub(super) enum Slots<'a> {
    Offset(u32),
    WideOffset(u64),
    ByCode(Vec<u32>),
    /// Found already when the row was tested.
    Hashed,
    Find(&'a Lookup),
}

/// Which column each look-up's slots are found in and how, for those whose build rows are needed.
pub(super) fn slots<'a>(ready: &'a Ready, tested: Decodable<'_>) -> Vec<KeySlots<'a>> {
    let joins = ready.star.joins.iter().enumerate();
    let attached = joins.filter(|(idx, _)| ready.star.attaches(*idx));
    attached
        .filter_map(|(idx, join)| {
            let table_column = ready.star.scan.columns[join.probe_key];
            let place = tested.place(table_column)?;
            let (lookup, column) = (ready.lookup(idx), &tested.columns[place]);
            let has_null = !matches!(column.valid, Valid::All);
            let slots = match &column.dictionary {
                Some(values) if !has_null || join.matching != Matching::Outer => Slots::ByCode(
                    values
                        .iter()
                        .map(|word| lookup.find(*word).unwrap_or(MISS))
                        .collect(),
                ),
                _ if join.matching == Matching::Outer => Slots::Find(lookup),
                _ => match (lookup.dense(), column.is_wide()) {
                    (Some((min, _)), true) => Slots::WideOffset(min),
                    (Some((min, bits)), false) if fits(min, bits, column) => {
                        Slots::Offset(min as u32)
                    }
                    _ => Slots::Hashed,
                },
            };
            Some(KeySlots {
                join: idx,
                column: place,
                slots,
            })
        })
        .collect()
}
