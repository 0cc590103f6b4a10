//! Breaking a correct trace the way a programmer would, to see whether the enumerator notices.

use crate::persist::{Event, Note, TraceLog};

/// What was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MutantKind {
    /// A flush is missing.
    NoFlush,
    /// A fence is missing.
    NoFence,
    /// What two neighbouring fences end is done in the other order: a root before its data.
    EpochsSwapped,
    /// A word is published before the store it publishes.
    PublishedEarly,
    /// Success is reported before the last fence.
    AckedEarly,
}

/// A broken trace.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// What was broken.
    pub kind: MutantKind,
    /// The broken trace.
    pub log: TraceLog,
}

/// Every single mutation of a trace.
pub fn mutants(log: &TraceLog) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for (event_idx, event) in log.events.iter().enumerate() {
        let broken = match event {
            Event::Flush { .. } => without(log, event_idx).map(|log| (MutantKind::NoFlush, log)),
            Event::Fence { .. } => {
                let swapped = epochs_swapped(log, event_idx);
                mutants.extend(swapped.map(|log| Mutant {
                    kind: MutantKind::EpochsSwapped,
                    log,
                }));
                without(log, event_idx).map(|log| (MutantKind::NoFence, log))
            }
            Event::Publish { .. } => {
                exchanged(log, event_idx).map(|log| (MutantKind::PublishedEarly, log))
            }
            Event::Note(Note::Acked(_)) if ends_with_fence(&log.events[..event_idx]) => {
                exchanged(log, event_idx).map(|log| (MutantKind::AckedEarly, log))
            }
            _ => None,
        };
        mutants.extend(broken.map(|(kind, log)| Mutant { kind, log }));
    }
    mutants
}

fn ends_with_fence(events: &[Event]) -> bool {
    matches!(events.last(), Some(Event::Fence { .. }))
}

fn with_events(log: &TraceLog, events: Vec<Event>) -> Option<TraceLog> {
    Some(TraceLog {
        events,
        ..log.clone()
    })
}

fn without(log: &TraceLog, event_idx: usize) -> Option<TraceLog> {
    let mut events = log.events.clone();
    events.remove(event_idx);
    with_events(log, events)
}

/// The event changes places with the one before it.
fn exchanged(log: &TraceLog, event_idx: usize) -> Option<TraceLog> {
    let mut events = log.events.clone();
    events.swap(event_idx.checked_sub(1)?, event_idx);
    with_events(log, events)
}

/// Exchanges what the fence at `event_idx` ends with what the next fence ends, if no note lies between.
fn epochs_swapped(log: &TraceLog, event_idx: usize) -> Option<TraceLog> {
    let is_end = |event: &Event| matches!(event, Event::Fence { .. } | Event::Note(_));
    let events = &log.events;
    let start = events[..event_idx]
        .iter()
        .rposition(is_end)
        .map_or(0, |at| at + 1);
    let next_len = events[event_idx + 1..].iter().position(is_end)?;
    let next_end = event_idx + 1 + next_len;
    if !matches!(events[next_end], Event::Fence { .. }) {
        return None;
    }
    let mut swapped = events[..start].to_vec();
    swapped.extend_from_slice(&events[event_idx + 1..=next_end]);
    swapped.extend_from_slice(&events[start..=event_idx]);
    swapped.extend_from_slice(&events[next_end + 1..]);
    with_events(log, swapped)
}
