//! Devices that interrupt, fall short and fail.

use super::*;

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
    let faults = Some(Arc::new(FaultPlan::none().with(
        1,
        u64::MAX,
        Fault::Errno(libc::EAGAIN),
    )));
    for backend in [Backend::Auto, Backend::Pread] {
        let faults = faults
            .as_ref()
            .map(|_| Arc::new(FaultPlan::none().with(1, u64::MAX, Fault::Errno(libc::EAGAIN))));
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
