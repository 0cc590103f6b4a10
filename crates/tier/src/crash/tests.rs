use std::path::Path;

use super::*;
use crate::persist::{Note, Trace, TraceLog, Writer, WriterOptions};
use crate::pool::{LayoutId, Pool, PoolOptions, recover, verify_segment};
use crate::replace_file::replace_file;

const LAYOUT: LayoutId = *b"crash test pool!";
const MEMORY_MODELS: [Model; 3] = [Model::FlushDomain, Model::CpuCache, Model::PageCache];

/// How a traced program writes: bypassing the cache where it pays, or always through it.
#[derive(Debug, Clone, Copy)]
struct Program {
    copy_nt_bytes_min: usize,
    segment_bytes: [usize; 4],
    pool_bytes: usize,
}

/// Segments of whole lines, of part lines, and of a few bytes.
const SMALL_SEGMENTS: Program = Program {
    copy_nt_bytes_min: 128,
    segment_bytes: [128, 200, 333, 150],
    pool_bytes: 20 << 10,
};

/// Segments that fill pages, as msync sees them.
const PAGED_SEGMENTS: Program = Program {
    copy_nt_bytes_min: usize::MAX,
    segment_bytes: [4200, 5000, 4600, 8200],
    pool_bytes: 56 << 10,
};

impl Program {
    fn content(self, segment_idx: usize) -> Vec<u8> {
        let len_bytes = self.segment_bytes[segment_idx % 4];
        (0..len_bytes)
            .map(|at| (at * 7 + segment_idx * 31 + 1) as u8 | 1)
            .collect()
    }

    fn options(self) -> PoolOptions {
        PoolOptions {
            layout: LAYOUT,
            pool_id: [3; 16],
            overwrite: false,
            writer: WriterOptions {
                copy_nt_bytes_min: self.copy_nt_bytes_min,
            },
        }
    }

    fn format(self, initial: Vec<u8>) -> Pool<Trace> {
        let options = self.options();
        let writer = Writer::with_options(Trace::new(initial), options.writer);
        Pool::format(writer, &options).unwrap()
    }

    /// A trace of publishing states 1, 2, … of one more segment each, beginning with an empty pool.
    fn publishes(self, count: u64) -> TraceLog {
        let mut pool = self.format(vec![0; self.pool_bytes]);
        pool.writer().ops().restart();
        self.publish_until(&mut pool, count);
        pool.writer().ops().log()
    }

    fn publish_until(self, pool: &mut Pool<Trace>, last: u64) {
        pool.writer().ops().note(Note::Started(pool.generation()));
        pool.writer().ops().note(Note::Acked(pool.generation()));
        for state in pool.generation() + 1..=last {
            pool.writer().ops().note(Note::Started(state));
            let content = self.content(pool.segments().len());
            // In parts if that gives separate lines; parts in one page would be synced by one call anyway.
            let front_bytes = match self.copy_nt_bytes_min {
                usize::MAX => 0,
                _ => content.len() / 3 / 64 * 64,
            };
            let (front, back) = content.split_at(front_bytes);
            pool.append(state, &[front, back]).unwrap();
            assert_eq!(pool.publish().unwrap(), state);
            pool.writer().ops().note(Note::Acked(state));
        }
    }

    /// State `n` is the first `n` segments, and nothing but a state between acknowledged and started is right.
    fn check(self, image: &[u8], promise: Promise) -> Result<(), String> {
        let recovered = recover(image, &LAYOUT, Path::new("image")).map_err(|e| e.to_string())?;
        let state = recovered.root.generation;
        if !(promise.acked..=promise.started).contains(&state) {
            return Err(format!("state {state} is outside {promise:?}"));
        }
        if recovered.segments.len() as u64 != state {
            return Err(format!(
                "state {state} has {} segments",
                recovered.segments.len()
            ));
        }
        for (segment_idx, entry) in recovered.segments.iter().enumerate() {
            let start = entry.offset as usize;
            let bytes = &image[start..start + entry.len_bytes as usize];
            verify_segment(bytes, entry, Path::new("image")).map_err(|e| e.to_string())?;
            if bytes != self.content(segment_idx) {
                return Err(format!("segment {segment_idx} has other bytes"));
            }
        }
        Ok(())
    }

    fn enumerate(self, log: &TraceLog, model: Model, options: &EnumerateOptions) -> Report {
        enumerate(log, model, options, |image, promise| {
            self.check(image, promise)
        })
    }
}

fn few_samples() -> EnumerateOptions {
    EnumerateOptions {
        exhaustive_states_max: 256,
        sample_count: 60,
        ..EnumerateOptions::default()
    }
}

fn assert_sound(report: &Report) {
    assert_eq!(report.violations, [], "after {} states", report.state_count);
}

#[test]
fn publishing_survives_a_power_cut_at_any_moment_on_every_kind_of_memory() {
    for model in MEMORY_MODELS {
        for program in [SMALL_SEGMENTS, PAGED_SEGMENTS] {
            let report = program.enumerate(&program.publishes(3), model, &few_samples());
            assert_sound(&report);
            assert!(
                report.state_count > 500,
                "only {} states",
                report.state_count
            );
        }
    }
}

#[test]
fn formatting_leaves_nothing_an_empty_pool_or_an_error_that_says_it_is_no_pool() {
    for model in MEMORY_MODELS {
        let pool = SMALL_SEGMENTS.format(vec![0; SMALL_SEGMENTS.pool_bytes]);
        let report = enumerate(
            &pool.writer().ops().log(),
            model,
            &few_samples(),
            |image, _| match recover(image, &LAYOUT, Path::new("image")) {
                Ok(recovered) if recovered.root.generation == 0 => Ok(()),
                Ok(recovered) => Err(format!("state {}", recovered.root.generation)),
                Err(crate::TierError::ForeignPool { what: "magic", .. }) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
        );
        assert_sound(&report);
    }
}

#[test]
fn a_pool_goes_on_after_a_power_cut_and_survives_the_next_one() {
    for model in MEMORY_MODELS {
        let report = cut_twice(SMALL_SEGMENTS, model, 29, &few_samples());
        assert_sound(&report);
        assert!(
            report.state_count > 1000,
            "only {} states",
            report.state_count
        );
    }
}

/// Opens every `stride`-th state a first power cut may leave, publishes two more, and cuts the power again.
fn cut_twice(program: Program, model: Model, stride: u64, options: &EnumerateOptions) -> Report {
    let mut images = Vec::new();
    let mut seen = 0;
    let first = program.publishes(2);
    let mut total = enumerate(&first, model, options, |image, promise| {
        if seen % stride == 0 {
            images.push(image.to_vec());
        }
        seen += 1;
        program.check(image, promise)
    });
    for image in images {
        let recovered = recover(&image, &LAYOUT, Path::new("image")).unwrap();
        let state = recovered.root.generation;
        let writer = Writer::with_options(Trace::new(image), program.options().writer);
        let mut pool = Pool::resume(writer, recovered).unwrap();
        program.publish_until(&mut pool, state + 2);
        let second = program.enumerate(&pool.writer().ops().log(), model, options);
        total.state_count += second.state_count;
        total.violations.extend(second.violations);
    }
    total
}

/// Which mutants of a program's trace survive in a model, and how many there were.
fn survivors(
    program: Program,
    model: Model,
    options: &EnumerateOptions,
) -> (Vec<MutantKind>, usize) {
    let mutants = mutants(&program.publishes(2));
    let count = mutants.len();
    let survives = |mutant: &Mutant| {
        program
            .enumerate(&mutant.log, model, options)
            .violations
            .is_empty()
    };
    (
        mutants
            .iter()
            .filter(|m| survives(m))
            .map(|m| m.kind)
            .collect(),
        count,
    )
}

#[test]
fn every_missing_flush_or_fence_and_every_wrong_order_is_caught() {
    let (survivors, count) = survivors(
        SMALL_SEGMENTS,
        Model::FlushDomain,
        &EnumerateOptions::default(),
    );
    assert_eq!(survivors, []);
    assert!(count >= 2 * 6, "only {count} mutants");
}

#[test]
fn with_saved_caches_only_flushes_can_be_left_out() {
    let (survivors, _) = survivors(
        SMALL_SEGMENTS,
        Model::CpuCache,
        &EnumerateOptions::default(),
    );
    assert!(!survivors.is_empty());
    assert!(
        survivors.iter().all(|kind| *kind == MutantKind::NoFlush),
        "{survivors:?}"
    );
}

#[test]
fn every_missing_sync_of_a_mapped_file_is_caught() {
    let (survivors, count) = survivors(PAGED_SEGMENTS, Model::PageCache, &few_samples());
    assert_eq!(survivors, []);
    assert!(count >= 2 * 6, "only {count} mutants");
}

#[test]
fn no_flush_and_no_fence_of_publishing_is_redundant() {
    // Every one of them is a mutant that was caught above; this pins how many there are per publish.
    let log = PAGED_SEGMENTS.publishes(3);
    let count = |kind: MutantKind| mutants(&log).iter().filter(|m| m.kind == kind).count();
    assert_eq!(
        (count(MutantKind::NoFence), count(MutantKind::NoFlush)),
        (3 * 2, 3 * 3)
    );
}

fn replaced_twice() -> Vec<FileEvent> {
    let mut trace = FileTrace::default();
    for state in 1..=3u8 {
        trace
            .events
            .push(FileEvent::Note(Note::Started(u64::from(state))));
        replace_file(
            &mut trace,
            "profile.json",
            &vec![state; 1500 + usize::from(state)],
        )
        .unwrap();
        trace
            .events
            .push(FileEvent::Note(Note::Acked(u64::from(state))));
    }
    trace.events
}

fn check_file(content: Option<&[u8]>, promise: Promise) -> Result<(), String> {
    let state = match content {
        None => 0,
        Some(bytes) => {
            let state = bytes.first().copied().unwrap_or(0);
            if bytes.len() != 1500 + usize::from(state) || bytes.iter().any(|byte| *byte != state) {
                return Err("a mixture".to_owned());
            }
            u64::from(state)
        }
    };
    match (promise.acked..=promise.started).contains(&state) {
        true => Ok(()),
        false => Err(format!("state {state} is outside {promise:?}")),
    }
}

#[test]
fn replacing_a_file_leaves_the_old_or_the_new_content() {
    let report = enumerate_files(&replaced_twice(), "profile.json", check_file);
    assert_sound(&report);
    assert!(report.state_count >= report.moment_count && report.moment_count == 18);
}

#[test]
fn every_step_of_replacing_a_file_and_their_order_are_needed() {
    let events = replaced_twice();
    let is_step =
        |event: &FileEvent| !matches!(event, FileEvent::Note(_) | FileEvent::Write { .. });
    for at in (0..events.len()).filter(|at| is_step(&events[*at])) {
        let mut missing = events.clone();
        missing.remove(at);
        let mut early = events.clone();
        early.swap(at - 1, at);
        for mutant in [missing, early] {
            let report = enumerate_files(&mutant, "profile.json", check_file);
            assert_ne!(report.violations, [], "{:?} at {at}", events[at]);
        }
    }
}

/// The thorough run: `cargo test --release -p hotshelf-tier -- --ignored --nocapture crash`.
#[test]
#[ignore = "tries hundreds of thousands of states; run it optimised"]
fn thorough_enumeration() {
    let mut total = 0;
    let thorough = EnumerateOptions {
        exhaustive_states_max: 100_000,
        sample_count: 40_000,
        ..EnumerateOptions::default()
    };
    for model in MEMORY_MODELS {
        for (name, program) in [("small", SMALL_SEGMENTS), ("paged", PAGED_SEGMENTS)] {
            let report = program.enumerate(&program.publishes(4), model, &thorough);
            assert_sound(&report);
            let (moments, all) = (report.moment_count, report.exhaustive_moment_count);
            println!(
                "{model:?}, {name} segments: {} states of {moments} moments, {all} of them completely",
                report.state_count
            );
            total += report.state_count;
        }
        let report = cut_twice(SMALL_SEGMENTS, model, 60, &EnumerateOptions::default());
        assert_sound(&report);
        println!("{model:?}, cut twice: {} states", report.state_count);
        total += report.state_count;
        let caught = mutants(&SMALL_SEGMENTS.publishes(2)).len();
        let (survived, _) = survivors(SMALL_SEGMENTS, model, &thorough);
        println!(
            "{model:?}, mutants: {} of {caught} survive: {survived:?}",
            survived.len()
        );
    }
    println!("{total} states, no violation");
    assert!(total >= 100_000);
}
