//! Reads equal plain file reads, however they are merged and split, and end where the file ends.

use proptest::prelude::*;

use super::*;

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
fn engines_and_futures_can_be_shared_and_sent() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + Unpin + 'static>() {}
    shared::<IoEngine>();
    shared::<IoFile>();
    sent::<ReadFuture>();
    sent::<ReadTicket>();
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

#[test]
fn small_reads_on_the_asking_thread_equal_plain_reads() {
    let len = 300_001;
    let (file, expected) = (file_of(len), content(len));
    each_engine(|engine| {
        let file = engine.open(file.path()).unwrap();
        let ask_once = |offset: usize, len: usize| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let request = ReadRequest {
                file: file.clone(),
                offset: offset as u64,
                len,
                done: Box::new(move |read| drop(sender.send(read))),
            };
            engine
                .serve_here(request)
                .map(|()| receiver.try_recv().unwrap())
        };
        // On a busy machine reads are given back for a while.
        let ask = |offset, len| (0..200).find_map(|_| ask_once(offset, len).ok());
        for (offset, len) in [(0, 1), (4095, 2), (5000, 60_000), (299_990, 11), (7, 0)] {
            let answer = ask(offset, len).unwrap().unwrap();
            assert!(
                answer[..] == expected[offset..offset + len],
                "{offset} + {len}"
            );
        }
        assert!(ask(300_000, 2).unwrap().is_err(), "beyond the end");
        let stats = engine.stats();
        assert_eq!((stats.reads, stats.device_operations), (6, 4));
        assert!(ask(0, 70_000).is_none(), "too large");
        engine.set_bandwidth_max(Some(1 << 20)).unwrap();
        assert!(ask(0, 1).is_none(), "capped");
    });
}
