//! A static cache of lists: copies in one array, made once.
//!
//! Two ways lead to a copy: the table of places that the papers use, and *swizzled* links, which say in the copies
//! themselves that a child is a copy as well. With those nothing is looked up.

use super::super::baseline::linear::{LAST, LinearElf, Link, Offset, Wide};
use super::list_cache::{Places, places_bytes};

/// Set in a swizzled link: it leads to a copy.
const COPY: usize = 1 << 60;

/// Words of a list's entry.
pub const ENTRY_WORDS: usize = 3;

/// Which lists a static cache has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// All of the first levels.
    Levels(usize),
    /// Those with most rows below them, as long as they fit into this many bytes.
    Probability(u64),
    /// Those with most rows below them for each of their bytes.
    ProbabilityPerByte(u64),
}

/// A list or a node, as a choice sees it.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its first word.
    pub at: usize,
    /// Its level, the first being 0.
    pub level: usize,
    /// How many words it has.
    pub words: u32,
    /// Rows below it.
    pub rows: u32,
}

/// Those of `all` that a static cache has, level by level.
pub fn choose(all: &[Found], choice: Choice) -> Vec<Found> {
    let mut chosen = all.to_vec();
    let bytes_max = match choice {
        Choice::Levels(levels) => {
            chosen.retain(|one| one.level < levels);
            u64::MAX
        }
        Choice::Probability(bytes) => {
            chosen.sort_by_key(|one| (std::cmp::Reverse(one.rows), one.at));
            bytes
        }
        Choice::ProbabilityPerByte(bytes) => {
            let density = |one: &Found| f64::from(one.rows) / f64::from(one.words);
            chosen.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.at.cmp(&b.at)));
            bytes
        }
    };
    let mut room = bytes_max;
    chosen.retain(|one| {
        let bytes = u64::from(one.words) * 4;
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    });
    chosen.sort_by_key(|one| (one.level, one.at));
    chosen
}

/// For every list of an Elf the number of rows below it: the papers' access probability times all rows. On the shelf
/// this is a word in front of the list, read along with it; here it is an array beside the Elf.
#[derive(Debug)]
pub struct Weights {
    rows: Vec<u32>,
    /// Lists by level; the first level's is not among them.
    lists: Vec<Found>,
}

impl Weights {
    /// Walks through an Elf.
    pub fn new(elf: &LinearElf<Wide>) -> Self {
        let mut weights = Self {
            rows: vec![0; elf.words().len() / ENTRY_WORDS + 1],
            lists: Vec::new(),
        };
        for code in 0..elf.root_count() {
            let link = Wide::read(&elf.words()[code * Wide::WORDS..]);
            weights.add(elf, link, 1);
        }
        weights
    }

    fn add(&mut self, elf: &LinearElf<Wide>, link: Link, level: usize) -> u32 {
        let words = elf.words();
        match link {
            Link::Absent => 0,
            Link::Mono(at) => {
                let tids = &words[at + elf.dimension_count() - level..];
                let before_last = tids.iter().take_while(|&&tid| tid & LAST == 0);
                before_last.count() as u32 + 1
            }
            Link::List(at) => {
                let (mut rows, mut entry_count) = (0, 0);
                for entry in words[at..].chunks_exact(ENTRY_WORDS) {
                    rows += self.add(elf, Wide::read(&entry[1..]), level + 1);
                    entry_count += 1;
                    if entry[0] & LAST != 0 {
                        break;
                    }
                }
                self.rows[at / ENTRY_WORDS] = rows;
                self.lists.push(Found {
                    at,
                    level,
                    words: entry_count * ENTRY_WORDS as u32,
                    rows,
                });
                rows
            }
        }
    }

    /// Rows below the list at a word.
    #[inline]
    pub fn of(&self, at: usize) -> u32 {
        self.rows[at / ENTRY_WORDS]
    }

    /// DimensionLists below the first level.
    pub fn list_count(&self) -> usize {
        self.lists.len()
    }
}

/// Copies of some lists.
#[derive(Debug)]
pub struct Static {
    words: Vec<u32>,
    /// Empty with swizzled links.
    places: Places,
    /// The first level's links: swizzled, or as they are.
    root: Vec<u32>,
    is_swizzled: bool,
    /// No list of a deeper level has a copy.
    level_end: usize,
}

impl Static {
    /// Copies of the lists that were chosen.
    pub fn new(elf: &LinearElf<Wide>, weights: &Weights, choice: Choice, swizzled: bool) -> Self {
        let lists = choose(&weights.lists, choice);
        let (mut words, mut places) = (Vec::new(), Places::default());
        for list in &lists {
            places.insert(list.at as u64, words.len() as u32);
            words.extend_from_slice(&elf.words()[list.at..list.at + list.words as usize]);
        }
        words.shrink_to_fit();
        let mut root = elf.words()[..elf.root_count() * Wide::WORDS].to_vec();
        if swizzled {
            let swizzle = |link: &mut [u32]| {
                if let Link::List(at) = Wide::read(link)
                    && let Some(&copy) = places.get(&(at as u64))
                {
                    Wide::write(Link::List(copy as usize | COPY), link);
                }
            };
            root.chunks_exact_mut(Wide::WORDS).for_each(swizzle);
            let entries = words.chunks_exact_mut(ENTRY_WORDS);
            entries.for_each(|entry| swizzle(&mut entry[1..]));
            places = Places::default();
        }
        Self {
            words,
            places,
            root,
            is_swizzled: swizzled,
            level_end: lists.last().map_or(0, |list| list.level + 1),
        }
    }

    /// The copy of a list, if there is one.
    #[inline]
    pub fn get(&self, at: usize, level: usize) -> Option<&[u32]> {
        if self.is_swizzled {
            return (at & COPY != 0).then(|| &self.words[at & !COPY..]);
        }
        if level >= self.level_end {
            return None;
        }
        let copy = *self.places.get(&(at as u64))?;
        Some(&self.words[copy as usize..])
    }

    /// The first level.
    #[inline]
    pub fn root(&self) -> &[u32] {
        &self.root
    }

    /// Bytes in memory: copies and the table of places.
    pub fn size_bytes(&self) -> u64 {
        let table = if self.places.is_empty() {
            0
        } else {
            places_bytes(&self.places)
        };
        (self.words.len() + self.root.len()) as u64 * 4 + table
    }
}
