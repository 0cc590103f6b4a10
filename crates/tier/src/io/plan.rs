//! Pure: turns the reads that have arrived into device operations.
//!
//! Reads are sorted by file and offset. Neighbours become one vectored operation in which each read fills a
//! buffer of its own, so that dropping one read's bytes frees exactly those. A page that two neighbours share is
//! read once, into the first one's buffer, and copied. A small hole between them is read into scratch memory. A
//! read larger than an operation is split. Operations come out in the order of their earliest read.

use super::{PAGE_BYTES, buffer_bytes, page_start};

/// One read that wants a place in an operation. Its number is its position in arrival order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    /// Reads of different files never share an operation.
    pub file: u64,
    pub offset: u64,
    /// Not zero.
    pub len: usize,
}

impl Ask {
    fn start(&self) -> u64 {
        page_start(self.offset)
    }

    fn end(&self) -> u64 {
        self.start() + buffer_bytes(self.offset, self.len) as u64
    }
}

/// Sizes an operation may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Whole pages, at least one.
    pub operation_bytes_max: usize,
    /// Largest hole between neighbours that is read along.
    pub gap_bytes_max: usize,
    /// The kernel takes at most this many vectors.
    pub parts_max: usize,
}

/// A stretch of an operation's range and where its bytes go. Whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Into the buffer of a read (its position in `asks`), from `at` on.
    Buffer { ask: usize, at: usize, bytes: usize },
    /// Into scratch memory: no read asked for it.
    Gap { bytes: usize },
}

impl Part {
    pub(super) fn bytes(&self) -> usize {
        match *self {
            Part::Buffer { bytes, .. } | Part::Gap { bytes } => bytes,
        }
    }
}

/// A shared page: copied, once read, from the buffer of one read to the start of another's. Reads are given by
/// their position in `asks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub from_ask: usize,
    pub from_at: usize,
    pub to_ask: usize,
}

/// One device operation over `[offset, offset + bytes)` of one file. Whole pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OperationPlan {
    pub file: u64,
    pub offset: u64,
    pub bytes: usize,
    pub parts: Vec<Part>,
    /// To be done in this order.
    pub copies: Vec<PageCopy>,
    /// The reads it serves, in whole or in part: positions in arrival order, sorted by offset.
    pub asks: Vec<usize>,
}

impl OperationPlan {
    fn new(file: u64, offset: u64) -> Self {
        Self {
            file,
            offset,
            bytes: 0,
            parts: Vec::new(),
            copies: Vec::new(),
            asks: Vec::new(),
        }
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }

    fn push(&mut self, part: Part) {
        self.bytes += part.bytes();
        self.parts.push(part);
    }

    /// Whether `ask` can be read by this operation too.
    fn has_room_for(&self, ask: &Ask, limits: &Limits) -> bool {
        let same_file = ask.file == self.file;
        let reaches = ask.start() + PAGE_BYTES as u64 >= self.end();
        let near = ask.start() <= self.end() + limits.gap_bytes_max as u64;
        let fits = ask.end().saturating_sub(self.offset) <= limits.operation_bytes_max as u64;
        same_file && reaches && near && fits && self.parts.len() + 2 <= limits.parts_max
    }

    /// Adds a whole read at the end; see [`Self::has_room_for`].
    fn append(&mut self, idx: usize, ask: &Ask) {
        let (mut at, to_ask) = (0, self.asks.len());
        if ask.start() < self.end() {
            let (from_ask, from_at) = self.last_page();
            self.copies.push(PageCopy {
                from_ask,
                from_at,
                to_ask,
            });
            at = PAGE_BYTES;
        } else if ask.start() > self.end() {
            self.push(Part::Gap {
                bytes: (ask.start() - self.end()) as usize,
            });
        }
        let bytes = buffer_bytes(ask.offset, ask.len) - at;
        if bytes > 0 {
            self.push(Part::Buffer {
                ask: to_ask,
                at,
                bytes,
            });
        }
        self.asks.push(idx);
    }

    /// The read whose buffer receives the last page, and where in the buffer.
    fn last_page(&self) -> (usize, usize) {
        match self.parts.last() {
            Some(&Part::Buffer { ask, at, bytes }) => (ask, at + bytes - PAGE_BYTES),
            other => {
                unreachable!("an operation ends with bytes that were asked for, not {other:?}")
            }
        }
    }
}

/// The operations that serve all of `asks`.
pub(super) fn plan(asks: &[Ask], limits: &Limits) -> Vec<OperationPlan> {
    debug_assert!(limits.operation_bytes_max >= PAGE_BYTES);
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by_key(|&idx| (asks[idx].file, asks[idx].offset, idx));
    let mut operations: Vec<OperationPlan> = Vec::new();
    for idx in order {
        let ask = &asks[idx];
        match operations.last_mut() {
            Some(last) if last.has_room_for(ask, limits) => last.append(idx, ask),
            _ => split(idx, ask, limits.operation_bytes_max, &mut operations),
        }
    }
    operations.sort_by_key(|operation| operation.asks.iter().min().copied());
    operations
}

/// Operations for one read alone; the last may take in neighbours.
fn split(idx: usize, ask: &Ask, bytes_max: usize, operations: &mut Vec<OperationPlan>) {
    let total = buffer_bytes(ask.offset, ask.len);
    for at in (0..total).step_by(bytes_max) {
        let mut operation = OperationPlan::new(ask.file, ask.start() + at as u64);
        operation.push(Part::Buffer {
            ask: 0,
            at,
            bytes: bytes_max.min(total - at),
        });
        operation.asks.push(idx);
        operations.push(operation);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = PAGE_BYTES;

    fn limits(operation_pages: usize, gap_pages: usize) -> Limits {
        Limits {
            operation_bytes_max: operation_pages * PAGE,
            gap_bytes_max: gap_pages * PAGE,
            parts_max: 64,
        }
    }

    fn ask(offset: usize, len: usize) -> Ask {
        Ask {
            file: 1,
            offset: offset as u64,
            len,
        }
    }

    /// Offset and size in pages of each operation.
    fn shapes(asks: &[Ask], limits: &Limits) -> Vec<(u64, usize)> {
        let page = PAGE as u64;
        plan(asks, limits)
            .iter()
            .map(|op| (op.offset / page, op.bytes / PAGE))
            .collect()
    }

    #[test]
    fn neighbours_become_one_operation_whatever_their_order() {
        let asks = [ask(2 * PAGE, PAGE), ask(0, PAGE), ask(PAGE, PAGE)];
        assert_eq!(shapes(&asks, &limits(8, 0)), [(0, 3)]);
    }

    #[test]
    fn a_shared_page_is_read_once_and_copied() {
        let asks = [ask(0, PAGE + 10), ask(PAGE + 10, PAGE)];
        let planned = plan(&asks, &limits(8, 0));
        assert_eq!(planned.len(), 1);
        assert_eq!(planned[0].bytes, 3 * PAGE);
        assert_eq!(
            planned[0].copies,
            [PageCopy {
                from_ask: 0,
                from_at: PAGE,
                to_ask: 1
            }]
        );
    }

    #[test]
    fn small_reads_of_one_page_share_it() {
        let asks = [ask(10, 10), ask(20, 10), ask(4000, 200)];
        assert_eq!(shapes(&asks, &limits(8, 0)), [(0, 2)]);
    }

    #[test]
    fn holes_are_read_along_only_up_to_the_limit() {
        let asks = [ask(0, PAGE), ask(3 * PAGE, PAGE)];
        assert_eq!(shapes(&asks, &limits(8, 2)), [(0, 4)]);
        assert_eq!(shapes(&asks, &limits(8, 1)), [(0, 1), (3, 1)]);
    }

    #[test]
    fn a_large_read_is_split_and_its_last_operation_takes_the_neighbour() {
        let asks = [ask(0, 5 * PAGE), ask(5 * PAGE, PAGE)];
        assert_eq!(shapes(&asks, &limits(2, 0)), [(0, 2), (2, 2), (4, 2)]);
    }

    #[test]
    fn the_earliest_read_goes_first() {
        let asks = [ask(90 * PAGE, PAGE), ask(0, PAGE), ask(91 * PAGE, PAGE)];
        assert_eq!(shapes(&asks, &limits(8, 0)), [(90, 2), (0, 1)]);
    }

    #[test]
    fn files_are_never_mixed() {
        let asks = [
            ask(0, PAGE),
            Ask {
                file: 2,
                ..ask(PAGE, PAGE)
            },
        ];
        assert_eq!(plan(&asks, &limits(8, 8)).len(), 2);
    }

    /// Executes the plan on a file whose byte at `offset` of file `f` is known, page by page.
    fn execute(asks: &[Ask], limits: &Limits) -> Vec<Vec<Option<(u64, u64)>>> {
        let pages = |ask: &Ask| buffer_bytes(ask.offset, ask.len) / PAGE;
        let mut buffers: Vec<_> = asks.iter().map(|ask| vec![None; pages(ask)]).collect();
        for op in plan(asks, limits) {
            assert!(op.bytes <= limits.operation_bytes_max && op.parts.len() <= limits.parts_max);
            let mut page_idx = op.offset / PAGE as u64;
            for part in &op.parts {
                if let Part::Buffer { ask, at, bytes } = *part {
                    for page in 0..bytes / PAGE {
                        let slot = &mut buffers[op.asks[ask]][at / PAGE + page];
                        assert_eq!(slot.replace((op.file, page_idx + page as u64)), None);
                    }
                }
                page_idx += (part.bytes() / PAGE) as u64;
            }
            for copy in &op.copies {
                let page = buffers[op.asks[copy.from_ask]][copy.from_at / PAGE];
                assert_eq!(
                    buffers[op.asks[copy.to_ask]][0].replace(page.unwrap()),
                    None
                );
            }
        }
        buffers
    }

    fn some_asks() -> impl Strategy<Value = Vec<Ask>> {
        let one = (0u64..3, 0u64..200_000, 1usize..40_000);
        let one = one.prop_map(|(file, offset, len)| Ask { file, offset, len });
        proptest::collection::vec(one, 0..24)
    }

    proptest! {
        #[test]
        fn every_page_of_every_read_arrives_exactly_once(
            asks in some_asks(), operation_pages in 1usize..12, gap_pages in 0usize..4,
        ) {
            let filled = execute(&asks, &limits(operation_pages, gap_pages));
            for (ask, pages) in asks.iter().zip(filled) {
                let first = ask.offset / PAGE as u64;
                for (page_idx, page) in pages.into_iter().enumerate() {
                    prop_assert_eq!(page, Some((ask.file, first + page_idx as u64)));
                }
            }
        }

        #[test]
        fn operations_come_in_the_order_of_their_earliest_read(asks in some_asks()) {
            let planned = plan(&asks, &limits(8, 1));
            let firsts: Vec<_> = planned.iter().map(|op| op.asks.iter().min()).collect();
            prop_assert!(firsts.is_sorted());
        }

        #[test]
        fn the_asks_of_an_operation_are_those_of_its_parts_and_copies(asks in some_asks()) {
            for op in plan(&asks, &limits(8, 1)) {
                let mut served: BTreeSet<usize> = op.copies.iter().map(|copy| copy.to_ask).collect();
                served.extend(op.parts.iter().filter_map(|part| match part {
                    Part::Buffer { ask, .. } => Some(*ask),
                    Part::Gap { .. } => None,
                }));
                prop_assert_eq!(served, (0..op.asks.len()).collect::<BTreeSet<_>>());
            }
        }
    }
}
