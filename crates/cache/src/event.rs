//! What the cache did, as a bounded log of events.

use crate::key::{ColumnId, SegmentKey};
use std::collections::VecDeque;
use std::fmt;

/// What happened to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A request was answered from memory.
    Hit,
    /// A request found nothing; a read was registered.
    Miss,
    /// A request joined a read under way.
    Shared,
    /// A read must wait for memory.
    Wait,
    /// A read was admitted beyond the budget, because nothing else could advance.
    Overcommit,
    /// An arrived segment was kept.
    Insert,
    /// An arrived segment was handed out and not kept.
    Reject,
    /// A segment was evicted and its memory freed.
    Evict,
    /// A segment was dropped from the cache while its bytes are still in use.
    Detach,
    /// A read was cancelled: all its requests were dropped.
    Cancel,
    /// A read failed.
    Fail,
}

impl EventKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = Self::Fail as usize + 1;
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Shared => "shared",
            Self::Wait => "wait",
            Self::Overcommit => "overcommit",
            Self::Insert => "insert",
            Self::Reject => "reject",
            Self::Evict => "evict",
            Self::Detach => "detach",
            Self::Cancel => "cancel",
            Self::Fail => "fail",
        })
    }
}

/// One line of the event log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Position in the order of events, from 0; gaps show what the log has forgotten.
    pub sequence: u64,
    /// What happened.
    pub kind: EventKind,
    /// To which segment.
    pub key: SegmentKey,
    /// The segment's column.
    pub column: ColumnId,
    /// The segment's charged bytes.
    pub bytes: u64,
    /// The query that caused it, if one did.
    pub query: Option<u64>,
}

/// A ring of the latest events of one shard.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    capacity: usize,
    events: VecDeque<Event>,
}

impl EventRing {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            events: VecDeque::new(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    pub(crate) fn push(&mut self, event: Event) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}
