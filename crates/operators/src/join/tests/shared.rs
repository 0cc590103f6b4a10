//! Pairs of spilled partitions that several threads join.

use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::task::Wake;
use std::time::{Duration, Instant};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn threads_that_share_few_keys_return_what_nested_loops_return(
        kind in 0..KINDS.len(),
        [equal_nulls, tests, swaps, nulls]: [bool; 4],
        lens in (40_usize..150, 300_usize..700),
        values in 1_u32..4,
        (memory_bytes, minimum, threads) in (0_u64..60_000, 0_u64..20_000, 2_usize..=4),
        seed: u64,
    ) {
        let spread = |rows| Spread { rows, values, nulls, skewed: true };
        let lens = if swaps { (lens.1, lens.0) } else { lens };
        let left = rows(spread(lens.0), 300, seed);
        let right = rows(spread(lens.1), 300, seed ^ 1);
        let equal = if equal_nulls { Nulls::Equal } else { Nulls::Distinct };
        let spec = spec(left.schema_ref(), KINDS[kind], &[0], equal, tests);
        let pool = FixedPool::new(memory_bytes);
        let test = TestEnvironment::new(Arc::clone(&pool) as Arc<dyn Broker>);
        let join = HashJoin::with_minimum(spec.clone(), &test.environment, threads, minimum).unwrap();
        let found = sorted(&run(&join, [&left, &right], threads).unwrap());
        prop_assert!(found == sorted(&[oracle(&spec, &left, &right)]), "{:?}", spec);
        drop(join);
        prop_assert_eq!(pool.lent_bytes(), 0);
        prop_assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }
}

/// A join in which all rows of both sides have one key and are spilled, and its probers.
fn join_of_one_key<const N: usize>(
    test: &TestEnvironment,
    rows: usize,
) -> (Arc<HashJoin>, [Prober; N]) {
    let side = numbers(std::iter::repeat_n(7, rows));
    let spec = count_spec(side.schema_ref());
    let join = HashJoin::with_minimum(spec, &test.environment, N, 0).unwrap();
    join.builder().insert(side.clone()).unwrap();
    join.finish_build(1).unwrap();
    let mut probers: [Prober; N] = std::array::from_fn(|_| join.prober().unwrap());
    probers[0].push(side).unwrap();
    while probers[0].next_batch().unwrap().is_some() {}
    probers
        .iter_mut()
        .for_each(|prober| prober.finish().unwrap());
    (join, probers)
}

fn probers_of_one_key<const N: usize>(test: &TestEnvironment, rows: usize) -> [Prober; N] {
    join_of_one_key(test, rows).1
}

#[test]
fn a_pair_of_one_key_has_work_for_all_threads() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let mut probers: [Prober; 3] = probers_of_one_key(&test, 20_000);
    for prober in &mut probers {
        assert!(prober.next_batch().unwrap().is_some());
    }
}

#[test]
fn threads_wait_for_the_last_of_a_stage_and_then_go_on() {
    let test = TestEnvironment::new(FixedPool::new(0));
    // A block of rows that probe, and one or two tables.
    let [mut first, mut second] = probers_of_one_key(&test, 3000);
    let mut count = first.next_batch().unwrap().expect("pairs").num_rows();
    let second = std::thread::spawn(move || rest(&mut second).unwrap());
    count += rest(&mut first).unwrap();
    assert_eq!(count + second.join().unwrap(), 3000 * 3000);
}

/// Whether a task is to be run.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn tasks_on_one_thread_wake_each_other() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let probers: [Prober; 2] = probers_of_one_key(&test, 3000);
    let mut tasks = probers.map(|prober| (prober, Arc::new(Woken(true.into()))));
    let (mut row_count, mut later_count, mut end_count) = (0, 0, 0);
    while end_count < tasks.len() {
        let mut has_run = false;
        for (prober, woken) in &mut tasks {
            if !woken.0.swap(false, Relaxed) {
                continue;
            }
            has_run = true;
            match prober.next_step().unwrap() {
                Step::Batch(batch) => {
                    row_count += batch.num_rows();
                    woken.0.store(true, Relaxed);
                }
                Step::Pause => woken.0.store(true, Relaxed),
                Step::Later => {
                    later_count += 1;
                    let waker = Waker::from(Arc::clone(woken));
                    let later = pin!(prober.later());
                    assert!(later.poll(&mut Context::from_waker(&waker)).is_pending());
                }
                Step::End => end_count += 1,
            }
        }
        assert!(has_run, "no task is woken");
    }
    assert_eq!(row_count, 3000 * 3000);
    assert!(later_count > 0);
}

fn rest(prober: &mut Prober) -> Result<usize> {
    let mut count = 0;
    while let Some(batch) = prober.next_batch()? {
        count += batch.num_rows();
    }
    Ok(count)
}

#[test]
fn one_that_is_gone_stops_the_threads_that_wait_for_it() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let [mut first, mut second] = probers_of_one_key(&test, 3000);
    assert!(first.next_batch().unwrap().is_some());
    let waiting = std::thread::spawn(move || rest(&mut second));
    drop(first);
    assert!(matches!(
        waiting.join().unwrap(),
        Err(OperatorError::Stopped)
    ));
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
}

#[test]
fn one_that_fails_stops_the_others() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let (join, [mut first, mut second]) = join_of_one_key(&test, 3000);
    join.build.file().unwrap().damage(0);
    assert!(matches!(rest(&mut first), Err(OperatorError::Damaged(_))));
    assert!(matches!(rest(&mut second), Err(OperatorError::Stopped)));
}

/// A join whose rows without a partner are those of `left`, and its probers.
fn join_of_lonely_rows(test: &TestEnvironment, left: &RecordBatch) -> (Arc<HashJoin>, [Prober; 2]) {
    let mut spec = count_spec(left.schema_ref());
    spec.kind = JoinKind::LeftAnti;
    let join = HashJoin::with_minimum(spec, &test.environment, 2, 0).unwrap();
    join.builder().insert(left.clone()).unwrap();
    join.finish_build(1).unwrap();
    let probers = std::array::from_fn(|_| join.prober().unwrap());
    (join, probers)
}

#[test]
fn rows_of_the_table_that_are_not_returned_stop_the_others() {
    let test = TestEnvironment::new(FixedPool::new(1 << 30));
    let (_, [mut first, mut second]) = join_of_lonely_rows(&test, &numbers(0..50_000));
    first.finish().unwrap();
    second.finish().unwrap();
    assert!(first.next_batch().unwrap().is_some());
    drop(first);
    assert!(matches!(rest(&mut second), Err(OperatorError::Stopped)));
}

#[test]
fn right_rows_that_cannot_be_written_in_the_end_stop_the_others() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let (_, [mut first, mut second]) = join_of_lonely_rows(&test, &numbers(0..50_000));
    second.push(numbers(0..100)).unwrap();
    assert!(second.next_batch().unwrap().is_none());
    first.finish().unwrap();
    test.environment.spill.set_limit_bytes(1);
    let ended = second.finish();
    assert!(matches!(ended, Err(OperatorError::SpillLimit { .. })));
    assert!(!second.is_last());
    assert!(matches!(rest(&mut first), Err(OperatorError::Stopped)));
}

#[test]
fn a_raised_flag_ends_threads_that_wait_for_others() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let [mut first, mut second] = probers_of_one_key(&test, 3000);
    assert!(first.next_batch().unwrap().is_some());
    let waiting = std::thread::spawn(move || {
        let ended = rest(&mut second);
        (ended, Instant::now())
    });
    std::thread::sleep(Duration::from_millis(30));
    let raised = Instant::now();
    test.environment.stop.raise();
    let (ended, at) = waiting.join().unwrap();
    assert!(matches!(ended, Err(OperatorError::Stopped)));
    assert!(at - raised < Duration::from_secs(1), "{:?}", at - raised);
    assert!(matches!(rest(&mut first), Err(OperatorError::Stopped)));
}
