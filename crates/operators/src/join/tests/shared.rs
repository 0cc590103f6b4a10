//! Pairs of spilled partitions that several threads join.

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

/// Probers of a join in which all rows of both sides have one key and are spilled.
fn probers_of_one_key<const N: usize>(test: &TestEnvironment, rows: usize) -> [Prober; N] {
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
    probers
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

fn rest(prober: &mut Prober) -> Result<usize> {
    let mut count = 0;
    while let Some(batch) = prober.next_batch()? {
        count += batch.num_rows();
    }
    Ok(count)
}

#[test]
fn threads_do_not_wait_for_one_that_is_gone() {
    let test = TestEnvironment::new(FixedPool::new(0));
    let [mut first, mut second] = probers_of_one_key(&test, 3000);
    assert!(first.next_batch().unwrap().is_some());
    let waiting = std::thread::spawn(move || rest(&mut second).unwrap());
    drop(first);
    assert!(waiting.join().unwrap() < 3000 * 3000);
    assert_eq!(test.environment.spill.stats().used_bytes, 0);
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
