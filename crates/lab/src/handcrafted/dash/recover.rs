//! Making a table, and opening one that a power cut may have left.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use super::growth::Free;
use super::image::Image;
use super::layout::{
    CAPACITY_WORD, DEPTH_MAX_WORD, DEPTH_WORD, Entry, GROWTH_WORD, Growth, MAGIC, MAGIC_WORD,
    SEGMENT_WORDS, Shape,
};
use super::store::Store;
use super::{Dash, DashError};

impl<S: Store> Dash<S> {
    /// Makes an empty table of this many segments. The words must be zero.
    ///
    /// # Errors
    /// [`DashError::Full`] if the words are too few, and what the operating system says where it is involved.
    pub fn create(store: S, segments: u32) -> Result<Self, DashError> {
        let shape = Shape::new(segments);
        if store.words().len() < shape.word_count() {
            return Err(DashError::Full { segments: 0 });
        }
        let first = Entry {
            segment: 0,
            depth: 0,
        };
        store.store(Shape::entry(0, 0), first.word());
        store.store(CAPACITY_WORD, u64::from(shape.capacity));
        store.store(DEPTH_MAX_WORD, u64::from(shape.depth_max));
        store.persist(0..Shape::entry(1, 0));
        store.store(MAGIC_WORD, MAGIC);
        store.persist(MAGIC_WORD..MAGIC_WORD + 1);
        store.check()?;
        let growth = Mutex::new(Free {
            segments: (1..shape.capacity).collect(),
        });
        Ok(Self {
            store,
            shape,
            growth,
        })
    }

    /// Opens a table: undoes a split that was interrupted, ends moves, removes locks, makes the stash's marks anew.
    ///
    /// # Errors
    /// [`DashError::NotATable`], and what the operating system says where it is involved.
    pub fn open(store: S) -> Result<Self, DashError> {
        let shape = shape_of(&store)?;
        let table = Self {
            store,
            shape,
            growth: Mutex::default(),
        };
        table.undo_growth()?;
        let used: BTreeSet<u32> = table.used_segments()?;
        for segment in &used {
            table.repair(*segment);
        }
        table.store.fence();
        table.store.check()?;
        let free = (0..shape.capacity).filter(|segment| !used.contains(segment));
        table.growth.lock().segments = free.collect();
        Ok(table)
    }

    fn undo_growth(&self) -> Result<(), DashError> {
        let Some(growth) = Growth::from_word(self.store.load(GROWTH_WORD)) else {
            return Ok(());
        };
        let depth = self.store.load(DEPTH_WORD) as u32;
        let is_sound = growth.old.depth < depth
            && growth.old.segment < self.shape.capacity
            && growth.prefix >> growth.old.depth == 0;
        if !is_sound {
            return Err(DashError::NotATable {
                what: "an unfinished split of no segment",
            });
        }
        for idx in growth.entries(depth) {
            self.store
                .store(Shape::entry(depth, idx), growth.old.word());
        }
        let entries = growth.entries(depth);
        let words = Shape::entry(depth, entries.start)..Shape::entry(depth, entries.end);
        self.store.persist(words);
        self.set_growth(0);
        Ok(())
    }

    fn used_segments(&self) -> Result<BTreeSet<u32>, DashError> {
        let depth = self.store.load(DEPTH_WORD) as u32;
        let mut used = BTreeSet::new();
        for at in Shape::entries(depth) {
            let entry = Entry::from_word(self.store.load(at));
            if entry.segment >= self.shape.capacity || entry.depth > depth {
                return Err(DashError::NotATable {
                    what: "the directory leads to no segment",
                });
            }
            used.insert(entry.segment);
        }
        Ok(used)
    }

    fn repair(&self, segment: u32) {
        let before = self.image(segment);
        let mut after = before.clone();
        after.repair();
        let start = self.shape.segment(segment);
        for (at, (old, new)) in before.words.iter().zip(&after.words).enumerate() {
            if old != new {
                self.store.store(start + at, *new);
            }
        }
        self.store.flush(start..start + SEGMENT_WORDS);
    }

    /// The segments in use, and what they hold.
    pub(super) fn images(&self) -> impl Iterator<Item = (u32, Image)> + '_ {
        let used = self.used_segments().unwrap_or_default();
        used.into_iter()
            .map(move |segment| (segment, self.image(segment)))
    }
}

fn shape_of(store: &impl Store) -> Result<Shape, DashError> {
    let not_a_table = |what| Err(DashError::NotATable { what });
    if store.words().len() < Shape::new(1).word_count() || store.load(MAGIC_WORD) != MAGIC {
        return not_a_table("they begin with something else");
    }
    let capacity = u32::try_from(store.load(CAPACITY_WORD)).unwrap_or(0);
    let shape = Shape::new(capacity);
    let is_known = u64::from(shape.capacity) == store.load(CAPACITY_WORD)
        && u64::from(shape.depth_max) == store.load(DEPTH_MAX_WORD);
    if !is_known || store.words().len() < shape.word_count() {
        return not_a_table("they are too few for the segments that they name");
    }
    match store.load(DEPTH_WORD) <= u64::from(shape.depth_max) {
        true => Ok(shape),
        false => not_a_table("the directory is too deep"),
    }
}
