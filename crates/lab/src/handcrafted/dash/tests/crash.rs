//! Every step of a table, cut short at every moment.

use hotshelf_tier::crash::{
    EnumerateOptions, Model, MutantKind, Promise, Report, enumerate, mutants,
};
use hotshelf_tier::persist::{Note, TraceLog};

use super::*;

const MODELS: [Model; 3] = [Model::FlushDomain, Model::CpuCache, Model::PageCache];

/// What a step does: sets a key's value, or takes the key out.
type Change = (u64, Option<u64>);

/// A table with these keys, and the trace of changes to it.
struct Scenario {
    before: HashMap<u64, u64>,
    changes: Vec<Change>,
    log: TraceLog,
}

impl Scenario {
    fn new(segments: u32, before: &[u64], changes: &[Change]) -> Self {
        let words = vec![0; Dash::<TracedStore>::word_count(segments)];
        let table = Dash::create(TracedStore::new(&words), segments).unwrap();
        for key in before {
            table.insert(*key, key + 1).unwrap();
        }
        table.store.restart();
        for (n, (key, value)) in (1u64..).zip(changes) {
            table.store.note(Note::Started(n));
            match value {
                Some(value) => table.insert(*key, *value).unwrap(),
                None => table.remove(*key).unwrap(),
            };
            table.store.note(Note::Acked(n));
        }
        Self {
            before: before.iter().map(|key| (*key, key + 1)).collect(),
            changes: changes.to_vec(),
            log: table.store.log(),
        }
    }

    fn enumerate(&self, log: &TraceLog, model: Model, samples: usize) -> Report {
        let options = EnumerateOptions {
            exhaustive_states_max: samples,
            sample_count: samples,
            ..EnumerateOptions::default()
        };
        enumerate(log, model, &options, |image, promise| {
            self.check(image, promise)
        })
    }

    /// After the acknowledged changes, or those and the next one.
    fn check(&self, image: &[u8], promise: Promise) -> Result<(), String> {
        let table = Dash::open(TracedStore::of_bytes(image)).map_err(|e| e.to_string())?;
        let mut right = Err("no state was tried".to_owned());
        for state in promise.acked..=promise.started {
            right = self.is_state(&table, state);
            if right.is_ok() {
                break;
            }
        }
        right
    }

    fn is_state(&self, table: &Dash<TracedStore>, state: u64) -> Result<(), String> {
        let mut expected = self.before.clone();
        for (key, value) in &self.changes[..state as usize] {
            match value {
                Some(value) => expected.insert(*key, *value),
                None => expected.remove(key),
            };
        }
        let found = table.record_count();
        if found != expected.len() {
            return Err(format!(
                "{found} records instead of {} in state {state}",
                expected.len()
            ));
        }
        for (key, value) in expected {
            let found = table.get(key);
            if found != Some(value) {
                return Err(format!(
                    "{key}: {found:?} instead of {value} in state {state}"
                ));
            }
        }
        Ok(())
    }

    fn assert_holds(&self, samples: usize) -> u64 {
        let mut states = 0;
        for model in MODELS {
            let report = self.enumerate(&self.log, model, samples);
            assert!(
                report.violations.is_empty(),
                "{model:?}: {:?}",
                report.violations
            );
            states += report.state_count;
        }
        states
    }
}

/// Keys of one home bucket.
fn keys_of(bucket: usize) -> impl Iterator<Item = u64> {
    (0..).filter(move |key| layout::Hash::of(*key).bucket() == bucket)
}

#[test]
fn plain_changes_survive_every_cut() {
    let changes = [
        (1, Some(7)),
        (2, Some(8)),
        (1, Some(9)),
        (50, Some(1)),
        (2, None),
        (3, None),
    ];
    let scenario = Scenario::new(1, &[3, 4, 5], &changes);
    assert!(scenario.assert_holds(256) > 100);
}

#[test]
fn displaced_and_stashed_records_survive_every_cut() {
    // Home and neighbour full, with records that can move to either side; then the stash, and back.
    let mut before: Vec<u64> = keys_of(10).take(20).collect();
    before.extend(keys_of(11).take(8));
    let new: Vec<u64> = keys_of(10).skip(20).take(14).collect();
    let mut changes: Vec<Change> = new.iter().map(|key| (*key, Some(5))).collect();
    changes.extend(new.iter().rev().take(4).map(|key| (*key, None)));
    let scenario = Scenario::new(1, &before, &changes);
    assert!(scenario.assert_holds(64) > 300);
}

#[test]
fn a_split_survives_every_cut() {
    // Almost full, so that one of the last inserts splits the segment and doubles the directory.
    let full: Vec<u64> = {
        let table = table(1);
        (0..)
            .take_while(|key| table.insert(*key, 0).is_ok())
            .collect()
    };
    let next = full.len() as u64;
    let changes = [(next, Some(1)), (next + 1, Some(2)), (0, None)];
    let scenario = Scenario::new(3, &full, &changes);
    assert!(scenario.assert_holds(12) > 300);
}

#[test]
fn every_missing_flush_or_fence_is_noticed() {
    // Slots behind the first line of a bucket, so that no record is flushed along with its head.
    let keys: Vec<u64> = keys_of(10).take(12).collect();
    let changes = [(keys[8], Some(7)), (keys[8], Some(8)), (keys[9], Some(9))];
    let scenario = Scenario::new(1, &keys[..8], &changes);
    let mut noticed = HashMap::new();
    for mutant in mutants(&scenario.log) {
        let report = scenario.enumerate(&mutant.log, Model::FlushDomain, 256);
        let counts = noticed.entry(mutant.kind).or_insert((0, 0));
        counts.0 += usize::from(!report.violations.is_empty());
        counts.1 += 1;
    }
    for kind in [
        MutantKind::NoFlush,
        MutantKind::NoFence,
        MutantKind::EpochsSwapped,
    ] {
        let (found, all) = noticed[&kind];
        assert!(found == all && all > 0, "{kind:?}: {noticed:?}");
    }
}
