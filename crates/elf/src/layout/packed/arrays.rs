//! The arrays of a head as they are in a file, or parts of them.

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};

use super::head::{Bottom, Child, Node, NodeKind};

/// Bytes of a node in a file.
pub(super) const NODE_BYTES: usize = 36;

pub(super) fn write_nodes(nodes: &[Node], out: &mut Writer) {
    for node in nodes {
        let kind = match node.kind {
            NodeKind::Dense => 0,
            NodeKind::Bitmap => 1,
            NodeKind::Sorted => 2,
        };
        let bottom = match node.bottom {
            Bottom::Mixed => 0,
            Bottom::Below => 1,
            Bottom::Here => 2,
        };
        out.u32s(&[kind, bottom, node.first_code, node.last_offset]);
        out.u32s(&[node.child_count, node.child_at, node.codes_at]);
        out.u32s(&[node.row, node.slot]);
    }
}

pub(super) fn write_children(children: &[Child], out: &mut Writer) {
    let mut write = |child: &Child| out.u32s(&[child.row, child.link]);
    children.iter().for_each(&mut write);
}

pub(super) fn read_kind(input: &mut Reader<'_>) -> Result<NodeKind, Corruption> {
    match input.u32("node kind")? {
        0 => Ok(NodeKind::Dense),
        1 => Ok(NodeKind::Bitmap),
        2 => Ok(NodeKind::Sorted),
        other => Err(input.corrupt("node kind", "0 to 2", other)),
    }
}

pub(super) fn read_nodes(input: &mut Reader<'_>) -> Result<Vec<Node>, Corruption> {
    let mut nodes = Vec::with_capacity(input.remaining() / NODE_BYTES);
    while input.remaining() > 0 {
        nodes.push(Node {
            kind: read_kind(input)?,
            bottom: match input.u32("kind of children")? {
                0 => Bottom::Mixed,
                1 => Bottom::Below,
                2 => Bottom::Here,
                other => return Err(input.corrupt("kind of children", "0 to 2", other)),
            },
            first_code: input.u32("first code")?,
            last_offset: input.u32("last offset")?,
            child_count: input.u32("children")?,
            child_at: input.u32("first child")?,
            codes_at: input.u32("first code position")?,
            row: input.u32("first row")?,
            slot: input.u32("first slot")?,
        });
    }
    Ok(nodes)
}

pub(super) fn pairs(
    input: &mut Reader<'_>,
    what: &'static str,
) -> Result<Vec<(u32, u32)>, Corruption> {
    let words = input.u32s(input.remaining() / 4, what)?;
    let (pairs, rest) = words.as_chunks::<2>();
    if rest.is_empty() && input.remaining() == 0 {
        Ok(pairs.iter().map(|&[a, b]| (a, b)).collect())
    } else {
        Err(input.corrupt(what, "whole pairs", "a remainder"))
    }
}

pub(super) fn read_children(input: &mut Reader<'_>) -> Result<Vec<Child>, Corruption> {
    let children = pairs(input, "children")?.into_iter();
    Ok(children.map(|(row, link)| Child { row, link }).collect())
}
