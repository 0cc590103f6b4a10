//! An index that is cached, and its variants.

use std::sync::Arc;

use super::super::contender::{BoxedContender, OneByOne, Search, Shelf};
use super::super::list_cache::ListCache;
use super::super::policy::Policy;
use super::super::shelf::{Dram, Lane};
use super::super::statics::{Choice, Found};
use super::super::variant::{DynamicChoice, StaticChoice, Variant, WithPolicy};
use super::nodes::{Copies, Dual, DynamicNodes, Nodes, Place, Shelved, StaticNodes};

/// An index that is made of nodes in one array of words.
pub trait Subject: Sync {
    /// What a search reads at once, as a shift of bytes.
    const PIECE_SHIFT: u32;

    /// All of it.
    fn words(&self) -> &[u32];

    /// Where the root is.
    fn root(&self) -> Place;

    /// Nodes that a static cache can have.
    fn nodes(&self) -> &[Found];

    /// Whether one of them holds TIDs.
    fn is_leaf(&self, node: &Found) -> bool;

    /// Words of a node.
    fn node_words(&self, place: Place) -> usize;

    /// Rows below a node: the papers' access probability times all rows. As with the lists of `linear`, this would be
    /// a word in front of a node on the shelf, and is an array beside the index here.
    fn rows_below(&self, place: Place) -> u32;

    /// Changes the links of a node's copy: those to a place that has a copy lead there afterwards. Says whether links
    /// can do so.
    fn relink(&self, copy: &mut [u32], copy_of: &dyn Fn(usize) -> Option<usize>) -> bool;

    /// Searches, from a root on, in nodes from somewhere.
    fn search<'a>(&'a self, root: Place, nodes: impl Nodes + 'a) -> impl Search + 'a;

    /// Bytes of all nodes.
    fn size_bytes(&self) -> u64 {
        self.words().len() as u64 * 4
    }
}

struct WithDynamic<'a, S, L> {
    subject: &'a S,
    shelf: Shelved<&'a [u32], L>,
    choice: DynamicChoice,
    /// What is looked up first, nothing but in a split cache.
    first: Arc<Copies>,
}

fn boxed<'a, S: Subject>(
    subject: &'a S,
    root: Place,
    nodes: impl Nodes + 'a,
) -> BoxedContender<'a> {
    Box::new(OneByOne::new(subject.search(root, nodes)))
}

impl<'a, S: Subject, L: Lane + 'a> WithPolicy for WithDynamic<'a, S, L> {
    type Out = BoxedContender<'a>;

    fn call<P: Policy + 'static>(self) -> BoxedContender<'a> {
        let subject = self.subject;
        let cache = ListCache::<P>::new(self.choice.capacity);
        let dynamic = DynamicNodes::new(subject, self.shelf, cache, self.choice.monos);
        let first = self.first;
        boxed(subject, first.root, StaticNodes::new(first, dynamic))
    }
}

/// A variant of a subject on a shelf. In DRAM there is nothing to be cached: all variants are `volatile` there.
pub fn contender<'a, S: Subject>(
    subject: &'a S,
    variant: Variant,
    shelf: Shelf<'a>,
) -> BoxedContender<'a> {
    let (root, bytes) = (subject.root(), subject.size_bytes());
    let piece_shift = S::PIECE_SHIFT - 2;
    match (variant, shelf) {
        (Variant::Hybrid, _) => {
            let copy = subject.words().to_vec();
            boxed(subject, root, Shelved::new(copy, Dram, piece_shift, bytes))
        }
        (Variant::Volatile, _) | (_, Shelf::Dram) => {
            let own = Shelved::new(subject.words(), Dram, piece_shift, bytes);
            boxed(subject, root, own)
        }
        (_, Shelf::Emulated(device)) => on(subject, variant, device.lane(S::PIECE_SHIFT)),
        (_, Shelf::Device(device)) => on(subject, variant, device.lane(S::PIECE_SHIFT)),
    }
}

fn on<'a, S: Subject, L: Lane + 'a>(
    subject: &'a S,
    variant: Variant,
    lane: L,
) -> BoxedContender<'a> {
    let shelf = Shelved::new(subject.words(), lane, S::PIECE_SHIFT - 2, 0);
    let copies =
        |choice: StaticChoice| Arc::new(Copies::new(subject, choice.choice, choice.swizzled));
    let with = |choice: DynamicChoice, first, shelf| {
        choice.policy.with(WithDynamic {
            subject,
            shelf,
            choice,
            first,
        })
    };
    match variant {
        Variant::Volatile | Variant::Pure | Variant::Hybrid => {
            boxed(subject, subject.root(), shelf)
        }
        Variant::Dual => boxed(subject, subject.root(), Dual(shelf)),
        Variant::Static(choice) => {
            let first = copies(choice);
            boxed(subject, first.root, StaticNodes::new(first, shelf))
        }
        Variant::Dynamic(choice) => {
            let none = StaticChoice {
                choice: Choice::Levels(0),
                swizzled: false,
            };
            with(choice, copies(none), shelf)
        }
        Variant::Split(first, choice) => with(choice, copies(first), shelf),
    }
}
