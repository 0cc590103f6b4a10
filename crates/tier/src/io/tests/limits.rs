//! What the machine or the user does not allow: bandwidth, `io_uring`, `O_DIRECT`.

use super::*;

/// Reads as fast as allowed; bytes per second by the wall clock, a full token bucket (45 ms) granted.
fn bandwidth(engine: &IoEngine, file: &Arc<IoFile>, bytes: u64) -> f64 {
    let start = Instant::now();
    let ranges: Vec<_> = (0..bytes / 65_536)
        .map(|idx| (idx * 65_536, 65_536))
        .collect();
    read_batch(engine, file, &ranges)
        .into_iter()
        .for_each(|answer| drop(answer.unwrap()));
    bytes as f64 / (start.elapsed().as_secs_f64() + 0.045)
}

#[test]
fn a_bandwidth_cap_is_kept_and_used_and_can_change_while_running() {
    let file = file_of(4 << 20);
    let cap = 40_000_000;
    let options = IoOptions {
        bandwidth_bytes_per_s_max: Some(cap),
        ..IoOptions::default()
    };
    for engine in engines(&options) {
        let file = engine.open(file.path()).unwrap();
        for cap in [cap, 2 * cap] {
            engine.set_bandwidth_max(Some(cap)).unwrap();
            assert_eq!(engine.bandwidth_max(), Some(cap));
            // A busy machine may read less than the cap allows, but not every time.
            let shares = (0..30).map(|_| bandwidth(&engine, &file, 4 << 20) / cap as f64);
            let mut kept = shares.inspect(|share| assert!(*share <= 1.0, "{share} of the cap"));
            assert!(kept.any(|share| share > 0.25));
        }
        assert!(engine.stats().throttled_ns > 0);
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
        assert!(start.elapsed() < AT_ONCE, "30 s with the cap");
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
    // SAFETY: The call takes integers only and concerns this thread alone.
    let is_fixed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    assert!(is_fixed, "{}", std::io::Error::last_os_error());
    // SAFETY: The call concerns this thread alone; the filter is well-formed and read during the call.
    let is_refused =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) } == 0;
    assert!(is_refused, "{}", std::io::Error::last_os_error());
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
fn writes_are_counted_and_under_the_same_cap() {
    let bytes = [7; 64 * PAGE];
    for engine in engines(&IoOptions::default()) {
        let file = NamedTempFile::new().unwrap();
        engine
            .write_pages(file.as_file(), &bytes, PAGE as u64)
            .unwrap();
        let stats = engine.stats();
        assert_eq!((stats.writes, stats.written_bytes), (1, bytes.len() as u64));
        let written = std::fs::read(file.path()).unwrap();
        assert!(written[..PAGE].iter().all(|byte| *byte == 0) && written[PAGE..] == bytes);
        let cap = 10 * bytes.len() as u64;
        engine.set_bandwidth_max(Some(cap)).unwrap();
        let start = Instant::now();
        engine.write_pages(file.as_file(), &bytes, 0).unwrap();
        engine.write_pages(file.as_file(), &bytes, 0).unwrap();
        let needed = 2.0 * bytes.len() as f64 / cap as f64 - 0.045;
        assert!(start.elapsed().as_secs_f64() >= needed);
        assert!(engine.stats().throttled_ns > 0);
    }
}
