//! The engine as a whole, against plain file reads, over every back end and both kinds of file access.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::NamedTempFile;

use super::*;
use crate::TierError;

type Answer = Result<Bytes, TierError>;

const PAGE: usize = PAGE_BYTES;
/// No answer takes this long unless it is lost.
const LOST: Duration = Duration::from_secs(20);

fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(7)) as u8)
        .collect()
}

fn file_of(len: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&content(len)).unwrap();
    file
}

/// An engine of each back end the machine has, with direct and with buffered access.
fn engines(options: &IoOptions) -> Vec<Arc<IoEngine>> {
    let mut engines = Vec::new();
    for backend in [Backend::Uring, Backend::Pread] {
        for direct in [true, false] {
            let options = IoOptions {
                backend,
                direct,
                pread_threads: 3,
                ..options.clone()
            };
            match IoEngine::start(options) {
                Ok(engine) => engines.push(engine),
                Err(TierError::System { .. }) if backend == Backend::Uring => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    engines
}

fn each_engine(test: impl Fn(Arc<IoEngine>)) {
    engines(&IoOptions::default()).into_iter().for_each(test);
}

/// An engine so slow that reads wait for as long as a test needs.
fn slow() -> IoOptions {
    IoOptions {
        bandwidth_bytes_per_s_max: Some(20 * PAGE as u64),
        ..IoOptions::default()
    }
}

/// A callback that sends the answer with a tag.
fn sending<T: Send + 'static>(to: &Sender<(T, Answer)>, tag: T) -> Done {
    let to = to.clone();
    Box::new(move |answer| drop(to.send((tag, answer))))
}

/// Reads all ranges as one batch; answers in the order of the ranges.
fn read_batch(engine: &IoEngine, file: &Arc<IoFile>, ranges: &[(u64, usize)]) -> Vec<Answer> {
    let (sender, receiver) = channel();
    let request = |(idx, &(offset, len)): (usize, &(u64, usize))| ReadRequest {
        file: Arc::clone(file),
        offset,
        len,
        done: sending(&sender, idx),
    };
    let tickets = engine.submit_batch(ranges.iter().enumerate().map(request));
    let mut answers: Vec<_> = tickets
        .iter()
        .map(|_| receiver.recv_timeout(LOST).unwrap())
        .collect();
    answers.sort_by_key(|(idx, _)| *idx);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Waits for the answers and makes sure that no more than these come.
fn all_answers<T>(receiver: Receiver<(T, Answer)>, count: usize) -> Vec<(T, Answer)> {
    let answers: Vec<_> = (0..count)
        .map(|_| receiver.recv_timeout(LOST).unwrap())
        .collect();
    assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
    answers
}

fn is_cancelled(answer: &Answer) -> bool {
    matches!(answer, Err(TierError::Cancelled { .. }))
}

#[test]
fn random_batches_equal_plain_reads() {
    let len = 300_001;
    let (file, expected) = (file_of(len), content(len));
    let range = (0..len).prop_flat_map(move |start| (Just(start), 0..=(len - start).min(90_000)));
    let batch = proptest::collection::vec(range, 1..20);
    for small in [true, false] {
        let mut options = IoOptions::default();
        if small {
            options = IoOptions {
                merge_bytes_max: 4 * PAGE,
                depth: 3,
                threads: 2,
                ..options
            };
        }
        let engines: Vec<_> = engines(&options)
            .into_iter()
            .map(|engine| (engine.open(file.path()).unwrap(), engine))
            .collect();
        let config = ProptestConfig {
            cases: 24,
            failure_persistence: None,
            ..Default::default()
        };
        proptest!(config, |(batch in &batch)| {
            for (file, engine) in &engines {
                let ranges: Vec<_> = batch.iter().map(|&(at, len)| (at as u64, len)).collect();
                for (answer, &(at, len)) in read_batch(engine, file, &ranges).iter().zip(&batch) {
                    let bytes = answer.as_ref().unwrap();
                    prop_assert!(bytes[..] == expected[at..at + len], "{at} + {len}");
                    prop_assert!(len == 0 || bytes.as_ptr() as usize % PAGE == at % PAGE);
                }
            }
        });
    }
}

#[test]
fn neighbours_of_a_batch_are_read_by_one_device_operation() {
    let file = file_of(40 * PAGE);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        let ranges: Vec<_> = (0..10).rev().map(|idx| (idx * 5000, 5000)).collect();
        read_batch(&engine, &file, &ranges)
            .into_iter()
            .for_each(|answer| drop(answer.unwrap()));
        let stats = engine.stats();
        assert_eq!(
            (stats.reads, stats.device_operations, stats.merged),
            (10, 1, 9)
        );
        assert_eq!(
            (stats.requested_bytes, stats.device_bytes),
            (50_000, 13 * PAGE as u64)
        );
        assert_eq!((stats.errors, stats.cancelled, stats.in_flight), (0, 0, 0));
        assert!(stats.busy_ns > 0 && stats.device_ns > 0);
    });
}

#[test]
fn a_small_hole_is_read_along_and_a_large_one_is_not() {
    let file = file_of(40 * PAGE);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        let (near, far) = (5 * PAGE as u64, 30 * PAGE as u64);
        read_batch(&engine, &file, &[(0, PAGE), (near, PAGE), (far, PAGE)]);
        assert_eq!(engine.stats().device_operations, 2);
        assert_eq!(engine.stats().device_bytes, 7 * PAGE as u64);
    });
}

#[test]
fn a_large_read_is_split_into_operations_of_the_allowed_size() {
    let file = file_of(10 * PAGE + 1);
    let options = IoOptions {
        merge_bytes_max: 3 * PAGE,
        ..IoOptions::default()
    };
    for engine in engines(&options) {
        let file = engine.open(file.path()).unwrap();
        let bytes = engine.read(&file, 1, 10 * PAGE).wait().unwrap();
        assert!(bytes == content(10 * PAGE + 1)[1..]);
        assert_eq!(engine.stats().device_operations, 4);
    }
}

#[test]
fn the_end_of_a_file_can_be_read_and_what_is_beyond_is_a_typed_error() {
    let file = file_of(5000);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        assert_eq!(file.len_bytes(), 5000);
        assert_eq!(
            engine.read(&file, 4990, 10).wait().unwrap(),
            content(5000)[4990..]
        );
        assert_eq!(engine.read(&file, 5000, 0).wait().unwrap(), Bytes::new());
        for (offset, len) in [(4990, 11), (5000, 1), (u64::MAX, 2), (1, usize::MAX)] {
            match engine.read(&file, offset, len).wait() {
                Err(TierError::ShortRead {
                    path,
                    file_bytes: 5000,
                    ..
                }) => {
                    assert_eq!(path, file.path());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(engine.stats().errors, 4);
    });
}

#[test]
fn a_file_cut_short_while_open_fails_only_the_reads_beyond_its_new_end() {
    each_engine(|engine| {
        let on_disk = file_of(10 * PAGE);
        let file = engine.open(on_disk.path()).unwrap();
        on_disk.as_file().set_len(4 * PAGE as u64 + 100).unwrap();
        let end = 4 * PAGE as u64;
        let answers = read_batch(
            &engine,
            &file,
            &[(0, PAGE), (end, 100), (end, 101), (end * 2, 7)],
        );
        assert!(answers[0].is_ok());
        assert_eq!(
            answers[1].as_ref().unwrap(),
            &content(10 * PAGE)[4 * PAGE..][..100]
        );
        for answer in &answers[2..] {
            let cut = matches!(
                answer,
                Err(TierError::ShortRead {
                    file_bytes: 16_484,
                    ..
                })
            );
            assert!(cut, "{answer:?}");
        }
    });
}

#[test]
fn dropped_tickets_cancel_waiting_reads_at_once_and_others_go_on() {
    let file = file_of(100 * PAGE);
    for engine in engines(&slow()) {
        let file = engine.open(file.path()).unwrap();
        let (sender, receiver) = channel();
        let submit =
            |idx: u64| engine.submit(&file, idx * 2 * PAGE as u64, PAGE, sending(&sender, idx));
        let mut tickets: Vec<_> = (0..50).map(submit).collect();
        let kept = tickets.remove(0);
        let start = Instant::now();
        drop(tickets);
        let answers = all_answers(receiver, 50);
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "50 pages would take 2.5 s"
        );
        let cancelled = answers
            .iter()
            .filter(|(_, answer)| is_cancelled(answer))
            .count();
        assert!(cancelled >= 40, "{cancelled}");
        assert_eq!(engine.stats().cancelled, cancelled as u64);
        assert!(
            answers
                .iter()
                .any(|(idx, answer)| *idx == 0 && answer.is_ok())
        );
        assert!(kept.is_answered());
    }
}

#[test]
fn a_detached_read_runs_to_its_end() {
    let file = file_of(PAGE);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        let (sender, receiver) = channel();
        engine.submit(&file, 0, PAGE, sending(&sender, ())).detach();
        assert!(receiver.recv_timeout(LOST).unwrap().1.is_ok());
    });
}

#[test]
fn dropping_the_engine_answers_every_read_exactly_once() {
    let file = file_of(64 * PAGE);
    for options in [slow(), IoOptions::default()] {
        for engine in engines(&options) {
            let file = engine.open(file.path()).unwrap();
            let (sender, receiver) = channel();
            for idx in 0..64 {
                engine
                    .submit(&file, idx * PAGE as u64, PAGE, sending(&sender, idx))
                    .detach();
            }
            drop(engine);
            let mut answered = Vec::new();
            for (idx, answer) in all_answers(receiver, 64) {
                answered.push(idx);
                match answer {
                    Ok(bytes) => assert_eq!(bytes.len(), PAGE),
                    Err(error) => {
                        assert!(matches!(error, TierError::EngineStopped { .. }), "{error}")
                    }
                }
            }
            answered.sort_unstable();
            assert_eq!(answered, (0..64).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_callback_may_drop_the_engine() {
    let file = file_of(PAGE);
    for engine in engines(&slow()) {
        let file = engine.open(file.path()).unwrap();
        let (sender, receiver) = channel();
        let own = Arc::clone(&engine);
        let tell = sending(&sender, ());
        let done: Done = Box::new(move |answer| {
            drop(own);
            tell(answer);
        });
        engine.submit(&file, 0, PAGE, done).detach();
        drop(engine);
        assert!(all_answers(receiver, 1)[0].1.is_ok());
    }
}

#[test]
fn a_callback_that_panics_harms_nobody() {
    let file = file_of(PAGE);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        for _ in 0..5 {
            engine
                .submit(&file, 0, PAGE, Box::new(|_| panic!("on purpose")))
                .detach();
        }
        assert!(engine.read(&file, 0, PAGE).wait().is_ok());
    });
}

#[test]
fn a_callback_may_submit_the_next_read() {
    let file = file_of(PAGE);
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        let (sender, receiver) = channel();
        fn chain(engine: Arc<IoEngine>, file: Arc<IoFile>, left: usize, last: Done) {
            let (next, next_file) = (Arc::clone(&engine), Arc::clone(&file));
            let done: Done = match left {
                0 => last,
                _ => Box::new(move |_| chain(next, next_file, left - 1, last)),
            };
            engine.submit(&file, 0, PAGE, done).detach();
        }
        chain(Arc::clone(&engine), file, 100, sending(&sender, ()));
        assert!(receiver.recv_timeout(LOST).unwrap().1.is_ok());
        assert_eq!(engine.stats().reads, 101);
    });
}

#[test]
fn many_threads_share_an_engine() {
    let len = 200 * PAGE;
    let (file, expected) = (file_of(len), content(len));
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        thread::scope(|scope| {
            for seed in 0..4usize {
                let (engine, file, expected) = (&engine, &file, &expected);
                scope.spawn(move || {
                    for step in 0..40 {
                        let at = (seed * 7919 + step * 104_729) % (len - 30_000);
                        let bytes = engine
                            .read(file, at as u64, 1 + at % 30_000)
                            .wait()
                            .unwrap();
                        assert!(bytes == expected[at..][..bytes.len()]);
                    }
                });
            }
        });
        assert_eq!(engine.stats().reads, 160);
    });
}

#[test]
fn a_dropped_future_cancels_its_read() {
    let file = file_of(20 * PAGE);
    for engine in engines(&slow()) {
        let file = engine.open(file.path()).unwrap();
        let futures: Vec<_> = (0..20)
            .map(|at| engine.read(&file, at * PAGE as u64, PAGE))
            .collect();
        drop(futures);
        let start = Instant::now();
        while engine.stats().in_flight > 0 {
            assert!(start.elapsed() < LOST);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(engine.stats().cancelled > 10);
    }
}

/// Reads as fast as allowed; bytes per second by the wall clock, a full token bucket (10 ms) granted.
fn bandwidth(engine: &IoEngine, file: &Arc<IoFile>, bytes: u64) -> f64 {
    let start = Instant::now();
    let ranges: Vec<_> = (0..bytes / 65_536)
        .map(|idx| (idx * 65_536, 65_536))
        .collect();
    read_batch(engine, file, &ranges)
        .into_iter()
        .for_each(|answer| drop(answer.unwrap()));
    bytes as f64 / (start.elapsed().as_secs_f64() + 0.01)
}

/// A busy machine may read less than the cap allows; how much is allowed is tested with the throttle itself.
#[test]
fn a_bandwidth_cap_is_kept_and_used_and_can_change_while_running() {
    let file = file_of(16 << 20);
    let cap = 40_000_000;
    let options = IoOptions {
        bandwidth_bytes_per_s_max: Some(cap),
        ..IoOptions::default()
    };
    for engine in engines(&options) {
        let file = engine.open(file.path()).unwrap();
        let share = bandwidth(&engine, &file, 12 << 20) / cap as f64;
        assert!((0.5..=1.0).contains(&share), "{share} of the cap");
        assert!(engine.stats().throttled_ns > 100_000_000);
        engine.set_bandwidth_max(Some(2 * cap)).unwrap();
        let share = bandwidth(&engine, &file, 12 << 20) / cap as f64;
        assert!((1.01..=2.0).contains(&share), "{share} of the cap");
        engine.set_bandwidth_max(None).unwrap();
        assert_eq!(engine.bandwidth_max(), None);
        engine.set_bandwidth_max(Some(0)).unwrap_err();
    }
}

#[test]
fn lifting_the_cap_frees_reads_that_wait_for_it() {
    let file = file_of(60 * PAGE);
    for engine in engines(&slow()) {
        let file = engine.open(file.path()).unwrap();
        let whole = engine.read(&file, 0, 60 * PAGE);
        engine.set_bandwidth_max(None).unwrap();
        let start = Instant::now();
        whole.wait().unwrap();
        assert!(start.elapsed() < Duration::from_secs(2), "3 s with the cap");
    }
}

#[test]
fn files_in_memory_are_read_through_the_page_cache_and_that_is_said() {
    let Ok(mut file) = NamedTempFile::new_in("/dev/shm") else {
        return;
    };
    file.write_all(&content(9000)).unwrap();
    each_engine(|engine| {
        let opened = engine.open(file.path()).unwrap();
        assert!(!opened.is_direct());
        assert!(engine.read(&opened, 17, 8000).wait().unwrap() == content(9000)[17..8017]);
        assert!(
            engine.describe().contains(", buffered ("),
            "{}",
            engine.describe()
        );
    });
}

#[test]
fn an_engine_says_how_it_reads() {
    for engine in engines(&IoOptions {
        direct: false,
        ..IoOptions::default()
    }) {
        let text = engine.describe();
        let known = ["io_uring on 1 thread, depth 64, ", "pread on 3 threads, "];
        assert!(known.iter().any(|start| text.starts_with(start)), "{text}");
    }
}

#[test]
fn interruptions_and_short_transfers_are_resumed() {
    let len = 50 * PAGE + 123;
    let (file, expected) = (file_of(len), content(len));
    for (backend, direct) in [
        (Backend::Auto, true),
        (Backend::Auto, false),
        (Backend::Pread, true),
    ] {
        let often = FaultPlan::none()
            .with(1, 3, Fault::Errno(libc::EINTR))
            .with(5, 2, Fault::Errno(libc::EAGAIN))
            .with(8, 4, Fault::Short(1))
            .with(13, 1, Fault::Short(5 * PAGE + 1));
        let faults = Some(Arc::new(often));
        let merge_bytes_max = 8 * PAGE;
        let options = IoOptions {
            backend,
            direct,
            merge_bytes_max,
            faults,
            ..IoOptions::default()
        };
        let engine = IoEngine::start(options).unwrap();
        let file = engine.open(file.path()).unwrap();
        assert!(engine.read(&file, 77, len - 77).wait().unwrap() == expected[77..]);
        assert_eq!(engine.stats().errors, 0);
        assert!(engine.stats().device_operations >= 7 + 3 + 2 + 4);
    }
}

#[test]
fn a_device_that_never_gets_ready_is_an_error() {
    let file = file_of(PAGE);
    let faults = Some(Arc::new(FaultPlan::from_nth(1, Fault::Errno(libc::EAGAIN))));
    for backend in [Backend::Auto, Backend::Pread] {
        let faults = faults
            .as_ref()
            .map(|_| Arc::new(FaultPlan::from_nth(1, Fault::Errno(libc::EAGAIN))));
        let engine = IoEngine::start(IoOptions {
            backend,
            faults,
            ..IoOptions::default()
        })
        .unwrap();
        let file = engine.open(file.path()).unwrap();
        engine.read(&file, 0, PAGE).wait().unwrap_err();
    }
}

/// A fixed piece of work with single, merged and split reads: the answers, and the disk calls it took.
fn work(backend: Backend, path: &Path, faults: FaultPlan) -> Result<(Vec<Answer>, u64), TierError> {
    let faults = Arc::new(faults);
    let options = IoOptions {
        backend,
        merge_bytes_max: 4 * PAGE,
        faults: Some(Arc::clone(&faults)),
        pread_threads: 1,
        ..IoOptions::default()
    };
    let engine = IoEngine::start(options)?;
    let file = engine.open(path)?;
    let far = 20 * PAGE as u64;
    let mut answers = read_batch(&engine, &file, &[(0, 100), (100, 5000), (far, 10 * PAGE)]);
    answers.push(engine.read(&file, 3, 10).wait());
    Ok((answers, faults.calls()))
}

#[test]
fn whichever_disk_call_fails_every_read_gets_its_bytes_or_a_typed_error() {
    let file = file_of(64 * PAGE);
    let expected = content(64 * PAGE);
    for backend in [Backend::Auto, Backend::Pread] {
        let (_, calls) = work(backend, file.path(), FaultPlan::none()).unwrap();
        let mut failed_count = 0;
        for n in 0..calls {
            let plan = FaultPlan::nth(n, Fault::Errno(libc::EIO));
            let Ok((answers, _)) = work(backend, file.path(), plan) else {
                assert_eq!(n, 0, "only the first call opens");
                continue;
            };
            let starts = [0, 100, 20 * PAGE, 3];
            for (answer, start) in answers.iter().zip(starts) {
                match answer {
                    Ok(bytes) => assert!(*bytes == expected[start..][..bytes.len()]),
                    Err(TierError::Io {
                        path,
                        operation: "read",
                        offset,
                        ..
                    }) => {
                        assert_eq!((path.as_path(), *offset), (file.path(), Some(start as u64)));
                        failed_count += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert_eq!(
            failed_count,
            calls - 2,
            "all but the open and the merged operation show"
        );
    }
}

#[test]
fn one_bad_read_does_not_fail_its_neighbours() {
    let file = file_of(10 * PAGE);
    for backend in [Backend::Auto, Backend::Pread] {
        let faults = FaultPlan::nth(1, Fault::Errno(libc::EIO)).with(3, 1, Fault::Errno(libc::EIO));
        let faults = Some(Arc::new(faults));
        let options = IoOptions {
            backend,
            faults,
            pread_threads: 1,
            ..IoOptions::default()
        };
        let engine = IoEngine::start(options).unwrap();
        let file = engine.open(file.path()).unwrap();
        let ranges: Vec<_> = (0..5).map(|idx| (idx * 5000, 5000)).collect();
        let answers = read_batch(&engine, &file, &ranges);
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
        for (answer, (at, len)) in answers.iter().zip(ranges) {
            if let Ok(bytes) = answer {
                assert!(*bytes == content(10 * PAGE)[at as usize..][..len]);
            }
        }
    }
}

/// Has the kernel refuse `io_uring` to this thread and those it starts.
fn refuse_uring() {
    const IO_URING_SETUP: u32 = 425;
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            IO_URING_SETUP,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: Both calls concern this thread only; the filter is well-formed and read during the call.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    };
    assert!(refused, "{}", std::io::Error::last_os_error());
}

#[test]
fn where_io_uring_is_refused_pread_takes_over_and_that_is_said() {
    let file = file_of(9000);
    let path = file.path().to_path_buf();
    let without_uring = move || {
        refuse_uring();
        let engine = IoEngine::start(IoOptions::default()).unwrap();
        let text = engine.describe();
        let refused = "pread on 8 threads (io_uring refused: Operation not permitted";
        assert!(text.starts_with(refused), "{text}");
        let file = engine.open(&path).unwrap();
        assert!(engine.read(&file, 5, 8000).wait().unwrap() == content(9000)[5..8005]);
        let options = IoOptions {
            backend: Backend::Uring,
            ..IoOptions::default()
        };
        assert!(matches!(
            IoEngine::start(options),
            Err(TierError::System { .. })
        ));
    };
    thread::spawn(without_uring).join().unwrap();
}

#[test]
fn opening_what_cannot_be_read_is_an_error() {
    let engine = IoEngine::start(IoOptions::default()).unwrap();
    for path in ["/nowhere/at/all", "/dev", "/dev/null"] {
        assert!(
            matches!(engine.open(Path::new(path)), Err(TierError::Io { .. })),
            "{path}"
        );
    }
}
