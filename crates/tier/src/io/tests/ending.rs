//! Every read is answered once: cancelled, dropped with its engine, or with callbacks that misbehave.

use super::*;

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
        assert!(start.elapsed() < AT_ONCE, "50 pages would take 25 s");
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

#[test]
fn nothing_is_lost_or_answered_twice_when_everything_happens_at_once() {
    let pages = 64;
    let (file, expected) = (file_of(pages * PAGE), content(pages * PAGE));
    let options = IoOptions {
        depth: 4,
        in_flight_bytes_max: 16 * PAGE,
        merge_bytes_max: 8 * PAGE,
        pool_bytes_max: 0,
        ..IoOptions::default()
    };
    for engine in engines(&options) {
        let opened = engine.open(file.path()).unwrap();
        let (sender, receiver) = channel();
        let submit_some = |seed: usize| {
            let mut kept = Vec::new();
            for step in 0..150usize {
                let tag = seed * 1000 + step;
                let offset = (tag * 7919) % (pages * PAGE - 20_000);
                let len = tag % 20_000;
                let done = sending(&sender, (tag, offset, len));
                kept.push(engine.submit(&opened, offset as u64, len, done));
                match step % 5 {
                    0 => drop(kept.swap_remove(tag % kept.len())),
                    1 => kept.swap_remove(tag % kept.len()).detach(),
                    2 if step % 25 == 2 => {
                        let cap = (step % 2 == 0).then_some(200_000_000);
                        engine.set_bandwidth_max(cap).unwrap();
                    }
                    _ => {}
                }
            }
            kept.into_iter().for_each(ReadTicket::detach);
        };
        thread::scope(|scope| {
            for seed in 0..3 {
                let submit_some = &submit_some;
                scope.spawn(move || submit_some(seed));
            }
        });
        drop(sender);
        drop(engine);
        let mut tags = Vec::new();
        for ((tag, offset, len), answer) in receiver.iter() {
            tags.push(tag);
            match answer {
                Ok(bytes) => assert!(bytes[..] == expected[offset..offset + len]),
                Err(TierError::Cancelled { .. } | TierError::EngineStopped { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        let answers_count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!((answers_count, tags.len()), (450, 450));
    }
}
