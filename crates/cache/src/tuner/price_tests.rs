//! What the tuner says memory is worth.

use super::tests::{GB, run, sizes, step, tuner};
use super::*;

/// Steps of 200 ms in which a query comes each time.
fn prices_after(query_count: u64, uses: &[crate::model::ItemUse]) -> (Tuner, crate::Prices) {
    let mut tuner = self::tuner(0.1);
    let sizes = sizes(8);
    for query in 0..query_count {
        let observations = [run(query, 0, 10e9)];
        let input = TunerInput {
            observations: &observations,
            storage: StorageProgress::default(),
            sizes: &sizes,
            resident: &BTreeMap::new(),
            capacity_bytes: 2 * GB,
            policy: PolicyKind::HpCache,
            between: &[],
            uses,
            use_s: query as f64 * 0.2,
        };
        let _ = tuner.step(query * 200_000_000, &input);
    }
    let prices = tuner.prices();
    (tuner, prices)
}

#[test]
fn the_price_of_memory_is_what_it_saves_per_second() {
    let (_, prices) = prices_after(100, &[]);
    // Five queries a second, each of which saves a second per GB that need not be read at 1 GB/s.
    let price = prices.shelves[0].saved_s_per_byte_s * 1e9;
    assert!((price / 5.0 - 1.0).abs() < 0.05, "{price}");
    let refill = prices.shelves[0].refill_s_per_byte * 1e9;
    assert!((refill - 1.0).abs() < 0.05, "{refill}");
    // The runs took a fifth of what was predicted.
    assert!((0.15..0.25).contains(&prices.confidence), "{prices:?}");
    assert_eq!(Tuner::new(TunerOptions::default()).prices().confidence, 0.0);
}

#[test]
fn idle_time_makes_memory_cheaper() {
    let (mut tuner, busy) = prices_after(100, &[]);
    let _ = tuner.step(
        100 * 200_000_000 + 20_000_000_000,
        &TunerInput {
            observations: &[],
            storage: StorageProgress::default(),
            sizes: &sizes(8),
            resident: &BTreeMap::new(),
            capacity_bytes: 2 * GB,
            policy: PolicyKind::HpCache,
            between: &[],
            uses: &[],
            use_s: 40.0,
        },
    );
    let idle = tuner.prices();
    assert!(idle.shelves[0].saved_s_per_byte_s < 0.2 * busy.shelves[0].saved_s_per_byte_s);
}

#[test]
fn index_blocks_take_memory_from_columns_as_far_as_they_save_more() {
    let block = |uses_per_s| crate::model::ItemUse {
        id: crate::model::ItemId {
            class: crate::model::ItemClass::IndexBlock,
            number: 1,
        },
        bytes: GB,
        held_bytes: 0,
        home: 1,
        uses_per_s,
        use_s: [0.0, 1e-4, 0.0, 0.0],
    };
    let columns = |tuner: &Tuner| tuner.placement_on(0).kept_bytes();
    let (without, _) = prices_after(100, &[]);
    // Columns save 5 s per second and GB. Below that the block gets nothing, above it all it needs.
    let (rare, _) = prices_after(100, &[block(4e4)]);
    let (often, _) = prices_after(100, &[block(6e4)]);
    assert!((columns(&without) - 2e9).abs() < 1e7);
    assert!((columns(&rare) - 2e9).abs() < 1e7);
    assert!((columns(&often) - 1e9).abs() < 1e7);
}

#[test]
fn the_curve_of_advice_is_the_integral_of_the_price() {
    let mut tuner = tuner(0.1);
    let observations: Vec<Observation> = (0..6)
        .map(|query| run(query, query % 3, (2.0 + query as f64) * 1e9))
        .collect();
    let _ = step(&mut tuner, &observations, 4 * GB);
    let rows = tuner.advice(60);
    let slices = rows.windows(2).map(|pair| {
        let bytes = (pair[1].budget_bytes - pair[0].budget_bytes) as f64;
        0.5 * bytes * (pair[0].saved_s_per_byte + pair[1].saved_s_per_byte)
    });
    let integral_s: f64 = slices.sum();
    let saved_s = rows[0].total_s - rows[60].total_s;
    assert!(
        (integral_s / saved_s - 1.0).abs() < 0.05,
        "{integral_s} {saved_s}"
    );
}

#[test]
fn prices_on_three_shelves_are_found_again_in_a_step_without_news() {
    let mut tuner = tuner(0.1);
    let disk = Shelf {
        budget_bytes: 8e9,
        ..Shelf::unbounded(4e9)
    };
    let mut at_ns = 0;
    let mut step = |observations: &[Observation]| {
        let input = TunerInput {
            observations,
            storage: StorageProgress::default(),
            sizes: &sizes(40),
            resident: &BTreeMap::new(),
            capacity_bytes: 3 * GB,
            policy: PolicyKind::HpCache,
            between: &[disk],
            uses: &[],
            use_s: at_ns as f64 * 1e-9,
        };
        at_ns += 1_000_000;
        let placed = matches!(tuner.step(at_ns, &input), TunerStep::Placed(_));
        let solved = tuner.solved.as_ref().expect("the bandwidth is known");
        let has_refined = solved.has_refined_prices;
        (placed, has_refined, solved.solution.prices[0])
    };
    for query in 0..6 {
        let (placed, has_refined, _) = step(&[run(query, query % 4, 3e9)]);
        assert!(placed && !has_refined, "query {query}");
    }
    let (placed, has_refined, price) = step(&[]);
    assert!(!placed && has_refined && price > 0.0);
    let (placed, _, again) = step(&[]);
    assert!(!placed && again == price, "once is enough");
}
