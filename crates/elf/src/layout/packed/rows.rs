//! Reading all rows back, in key order: what checking and merging do.

use super::PackedElf;
use super::blocks::BlockSource;
use super::head::Link;
use super::leaf::{Pieces, Run};

/// A place in a node that is being read: its number and the next child.
#[derive(Debug, Clone, Copy)]
struct RowFrame {
    node: usize,
    child: u32,
}

/// Reads rows one after the other.
pub(crate) struct RowReader<'a, S> {
    elf: &'a PackedElf<S>,
    stack: Vec<RowFrame>,
    /// The rest of the current group: its pieces, and the position in the first of them.
    pieces: Option<Pieces<'a, S>>,
    piece: Option<(super::leaf::Piece<'a>, usize)>,
    /// Level of the current group's region.
    level: usize,
    codes: Vec<u32>,
}

impl<'a, S: BlockSource> RowReader<'a, S> {
    pub(crate) fn new(elf: &'a PackedElf<S>) -> Self {
        let mut reader = Self {
            elf,
            stack: Vec::new(),
            pieces: None,
            piece: None,
            level: 0,
            codes: vec![0; elf.dimension_count()],
        };
        match elf.root {
            Link::Node(node) => reader.stack.push(RowFrame { node, child: 0 }),
            _ => reader.open(&Run {
                level: 0,
                slots: 0..elf.row_count,
                row: 0,
            }),
        }
        reader
    }

    fn open(&mut self, run: &Run) {
        self.level = run.level;
        self.pieces = Some(self.elf.leaf_view().pieces(run));
    }

    /// The codes and the TID of the next row.
    pub(crate) fn next_row(&mut self) -> Option<(&[u32], u32)> {
        loop {
            if let Some((piece, at)) = &mut self.piece
                && *at < piece.len
            {
                let (level, idx) = (self.level, *at);
                *at += 1;
                for (column, code) in self.codes[level..].iter_mut().enumerate() {
                    *code = piece.code(idx, column);
                }
                let tid = piece.tid(idx);
                return Some((&self.codes, tid));
            }
            match self.pieces.as_mut().and_then(Iterator::next) {
                Some(piece) => self.piece = Some((piece, 0)),
                None => {
                    self.piece = None;
                    self.next_group()?;
                }
            }
        }
    }

    /// Opens the next group, or says that there is none.
    fn next_group(&mut self) -> Option<()> {
        self.pieces = None;
        let head = &self.elf.head;
        loop {
            let level = self.stack.len().checked_sub(1)?;
            let frame = &mut self.stack[level];
            let node = &head.nodes[frame.node];
            if frame.child == node.child_count {
                self.stack.pop();
                continue;
            }
            let child = (node.child_at + frame.child) as usize;
            let code = head.code_at(node, frame.child);
            frame.child += 1;
            let rows = head.rows_of(node, child);
            if rows.is_empty() {
                continue;
            }
            self.codes[level] = code;
            let (level, slot) = match head.link_of(node, child) {
                Link::Node(node) => {
                    self.stack.push(RowFrame { node, child: 0 });
                    continue;
                }
                Link::Below(slot) => (level + 1, slot),
                Link::Here(slot) => (level, slot),
            };
            self.open(&Run {
                level,
                slots: slot..slot + rows.len(),
                row: rows.start,
            });
            return Some(());
        }
    }
}
