//! What competes for the shelves: columns, index blocks, metadata, look-up structures, from one byte to gigabytes.

use super::shelf::SHELF_COUNT_MAX;
use crate::key::{ColumnId, Map, SegmentKey};
use std::fmt;
use std::ops::Range;

/// The kinds of things that share a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemClass {
    /// Segments of a column of a table.
    Column,
    /// Heads and leaf blocks of an index.
    IndexBlock,
    /// Footers, zone maps, dictionaries.
    Metadata,
    /// Look-up structures of joins, kept for the next query.
    LookUp,
    /// Memory of operators, theirs while they run.
    Operator,
}

impl ItemClass {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All classes.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Column,
        Self::IndexBlock,
        Self::Metadata,
        Self::LookUp,
        Self::Operator,
    ];

    /// The name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Column => "column",
            Self::IndexBlock => "index block",
            Self::Metadata => "metadata",
            Self::LookUp => "look-up",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for ItemClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The bit that segments of metadata have and what lenders keep does not.
const SEGMENT: u64 = 1 << 63;

/// Names an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// What it is.
    pub class: ItemClass,
    /// Which one; the owner of the class assigns the numbers.
    pub number: u64,
}

impl ItemId {
    /// A column.
    pub fn column(column: ColumnId) -> Self {
        Self {
            class: ItemClass::Column,
            number: u64::from(column.0),
        }
    }

    /// Metadata that the cache keeps as a segment. Lenders of metadata give smaller numbers.
    pub(crate) fn metadata_segment(key: SegmentKey) -> Self {
        Self {
            class: ItemClass::Metadata,
            number: SEGMENT | key.packed(),
        }
    }

    /// The segment of metadata, if it is one.
    pub fn as_metadata_segment(self) -> Option<SegmentKey> {
        let is_segment = self.class == ItemClass::Metadata && self.number & SEGMENT != 0;
        is_segment.then(|| SegmentKey::unpacked(self.number & !SEGMENT))
    }

    /// The column, if it is one.
    pub fn as_column(self) -> Option<ColumnId> {
        let number = u32::try_from(self.number).ok()?;
        (self.class == ItemClass::Column).then_some(ColumnId(number))
    }
}

/// How an item's bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Representation {
    /// As they are stored.
    #[default]
    Stored,
    /// Encoded anew, so that they are cheaper to decode.
    Transcoded,
    /// As operators use them.
    Decoded,
}

/// Something that may be kept on a faster shelf than the one it is stored on.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Which one.
    pub id: ItemId,
    /// Its size as stored, in bytes: what a term's bytes are a part of.
    pub bytes: f64,
    /// The shelf where it is anyway.
    pub home: usize,
    /// Bytes that a request for it brings.
    pub request_bytes: f64,
    /// Its choices in [`Problem::choices`](super::Problem::choices).
    pub choices: Range<usize>,
}

/// One way to keep an item: on which shelf, written how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Whose choice it is: its index in [`Problem::items`](super::Problem::items).
    pub item_idx: usize,
    /// Where.
    pub shelf: usize,
    /// How.
    pub representation: Representation,
    /// Bytes that the whole item occupies there.
    pub bytes: f64,
    /// Processing time that this representation saves per stored byte, in seconds.
    pub processing_saved_s: f64,
    /// Weighted time that uses outside of any term save if the whole item is kept so, in seconds.
    pub saved_s: f64,
}

impl Choice {
    /// The stored bytes of an item on a shelf. [`Problem::add`](super::Problem::add) gives it its item.
    pub fn stored(shelf: usize, bytes: f64) -> Self {
        Self {
            item_idx: 0,
            shelf,
            representation: Representation::Stored,
            bytes,
            processing_saved_s: 0.0,
            saved_s: 0.0,
        }
    }
}

/// How often an item other than a column is used, and what a use costs: what index, metadata and look-ups count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemUse {
    /// Which item.
    pub id: ItemId,
    /// Its size in bytes.
    pub bytes: u64,
    /// The part of it that is in memory now, in bytes.
    pub held_bytes: u64,
    /// The shelf where it is anyway.
    pub home: usize,
    /// Uses per second, each counted as its query's weight says: [`query_weight`](crate::CacheManager::query_weight).
    pub uses_per_s: f64,
    /// Seconds of one use by the shelf on which the item is; 0 for shelves that there are not.
    pub use_s: [f64; SHELF_COUNT_MAX],
}

impl ItemUse {
    /// Seconds saved per second if the item is on another shelf than at home; 0 if that saves nothing.
    pub fn saved_s_per_s(&self, shelf: usize) -> f64 {
        let saved_s = self.use_s[self.home] - self.use_s[shelf];
        let per_s = self.uses_per_s * saved_s;
        if per_s.is_finite() {
            per_s.max(0.0)
        } else {
            0.0
        }
    }

    /// Seconds saved per second and byte in memory.
    pub fn density(&self) -> f64 {
        self.density_on(0)
    }

    /// Seconds saved per second and byte on a shelf.
    fn density_on(&self, shelf: usize) -> f64 {
        self.saved_s_per_s(shelf) / self.bytes.max(1) as f64
    }
}

/// Items that save about as much per byte, which the solver treats as one. Members are in order of their density.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemGroup {
    /// Who belongs to it, densest first.
    pub members: Vec<ItemUse>,
}

/// Densities in one group differ by at most this factor.
const GROUP_FACTOR: f64 = 1.1;

/// The place of a density in steps of [`GROUP_FACTOR`].
fn density_step(density: f64) -> i32 {
    match density > 0.0 {
        true => (density.ln() / GROUP_FACTOR.ln()).floor() as i32,
        false => i32::MIN,
    }
}

impl ItemGroup {
    /// Puts items of one class and home that save nearly the same per byte on each shelf together. Items that save
    /// nothing belong to none.
    pub fn all(uses: &[ItemUse]) -> Vec<Self> {
        let mut places: Map<(ItemClass, usize, [i32; SHELF_COUNT_MAX]), usize> = Map::default();
        let mut groups: Vec<Self> = Vec::new();
        for item in uses.iter().filter(|item| item.density() > 0.0) {
            let step = |shelf| match shelf < item.home {
                true => density_step(item.density_on(shelf)),
                false => 0,
            };
            let key = (item.id.class, item.home, std::array::from_fn(step));
            let group_idx = *places.entry(key).or_insert_with(|| {
                groups.push(Self {
                    members: Vec::new(),
                });
                groups.len() - 1
            });
            groups[group_idx].members.push(*item);
        }
        for group in &mut groups {
            let by_density = |a: &ItemUse, b: &ItemUse| b.density().total_cmp(&a.density());
            group
                .members
                .sort_by(|a, b| by_density(a, b).then(a.id.cmp(&b.id)));
        }
        groups
    }

    /// Bytes of all members.
    pub fn bytes(&self) -> f64 {
        self.members.iter().map(|item| item.bytes as f64).sum()
    }

    /// Seconds saved per second if all members are on a shelf.
    pub fn saved_s_per_s(&self, shelf: usize) -> f64 {
        self.members
            .iter()
            .map(|item| item.saved_s_per_s(shelf))
            .sum()
    }

    /// The members that fit into a part of the group's bytes, densest first.
    pub fn kept(&self, proportion: f64) -> &[ItemUse] {
        let mut room_bytes = proportion * self.bytes() * (1.0 + 1e-9);
        let fits = |item: &&ItemUse| {
            room_bytes -= item.bytes as f64;
            room_bytes >= 0.0
        };
        let count = self.members.iter().take_while(fits).count();
        &self.members[..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(number: u64, bytes: u64, uses_per_s: f64) -> ItemUse {
        ItemUse {
            id: ItemId {
                class: ItemClass::IndexBlock,
                number,
            },
            bytes,
            held_bytes: 0,
            home: 1,
            uses_per_s,
            use_s: [1e-7, 1e-4, 0.0, 0.0],
        }
    }

    #[test]
    fn unused_items_and_items_that_memory_does_not_help_belong_to_no_group() {
        let slower_in_memory = ItemUse {
            use_s: [1.0, 0.5, 0.0, 0.0],
            ..block(1, 10, 5.0)
        };
        let nonsense = ItemUse {
            uses_per_s: f64::NAN,
            ..block(2, 10, 5.0)
        };
        assert!(ItemGroup::all(&[block(0, 10, 0.0), slower_in_memory, nonsense]).is_empty());
    }

    #[test]
    fn a_part_of_a_group_is_its_densest_members() {
        let groups = ItemGroup::all(&[
            block(1, 100, 10.0),
            block(2, 100, 10.1),
            block(3, 100, 99.0),
        ]);
        assert_eq!(groups.len(), 2);
        let kept: Vec<u64> = groups[0]
            .kept(0.5)
            .iter()
            .map(|item| item.id.number)
            .collect();
        assert_eq!(kept, [2]);
    }

    #[test]
    fn items_whose_uses_cost_differently_share_a_group_if_they_save_the_same() {
        let slower_but_rarer = ItemUse {
            use_s: [0.0, 2e-4, 0.0, 0.0],
            ..block(1, 100, 5.0)
        };
        let other = ItemUse {
            use_s: [0.0, 1e-4, 0.0, 0.0],
            ..block(2, 100, 10.0)
        };
        assert_eq!(ItemGroup::all(&[slower_but_rarer, other]).len(), 1);
    }

    proptest! {
        #[test]
        fn groups_hold_each_useful_item_once_and_are_nearly_uniform(
            uses in prop::collection::vec((1u64..1_000_000_000, 0.0f64..1e6), 0..200),
        ) {
            let uses: Vec<ItemUse> = uses.iter().zip(0..)
                .map(|((bytes, rate), number)| block(number, *bytes, *rate)).collect();
            let groups = ItemGroup::all(&uses);
            let count: usize = groups.iter().map(|group| group.members.len()).sum();
            prop_assert_eq!(count, uses.iter().filter(|item| item.density() > 0.0).count());
            for group in &groups {
                let (first, last) = (group.members[0], group.members[group.members.len() - 1]);
                prop_assert!(first.density() <= last.density() * GROUP_FACTOR * (1.0 + 1e-9));
                prop_assert_eq!(group.kept(1.0).len(), group.members.len());
            }
        }
    }
}
