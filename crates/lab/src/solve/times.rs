//! How long a solution and a whole step of the tuner take, and how good solutions are:
//! `hotshelf-lab solve`. Measured on the machine that runs it.

use hotshelf_cache::model::{ItemClass, ItemGroup, ItemId, ItemUse, Problem, Tiers};
use hotshelf_cache::tune::{
    InstanceSize, Solution, Start, greedy, greedy_from, random_instance, refine_prices,
};
use hotshelf_cache::{Ask, CacheManager, CacheOptions, ColumnId};
use std::time::Instant;

use super::exact;
use super::steps::Steps;

/// Median and largest of some times, in milliseconds, each the least of three: the machine may have other things to do.
fn times_ms(count: u64, mut run: impl FnMut(u64)) -> (f64, f64) {
    let mut time_ms = |seed| {
        let start = Instant::now();
        run(seed);
        start.elapsed().as_secs_f64() * 1e3
    };
    let mut times_ms: Vec<f64> = (0..count)
        .map(|seed| (0..3).map(|_| time_ms(seed)).fold(f64::INFINITY, f64::min))
        .collect();
    times_ms.sort_by(f64::total_cmp);
    (times_ms[times_ms.len() / 2], times_ms[times_ms.len() - 1])
}

/// The columns and terms of a random problem with memory and one storage.
fn on_two_shelves(seed: u64, column_count: usize, term_count: usize) -> Problem {
    let size = InstanceSize {
        column_count,
        representation_count: 1,
        other_count: 0,
        term_count,
    };
    let three = random_instance(seed, size);
    let all_bytes: f64 = three.items.iter().map(|item| item.bytes).sum();
    let tiers = Tiers {
        storage_bandwidth: three.shelves[1].bandwidth,
        memory_bandwidth: three.shelves[0].bandwidth,
    };
    let mut two = Problem::empty(tiers.shelves(0.3 * all_bytes));
    for (item, column) in three.items.iter().zip(0..) {
        two.add_column(ColumnId(column), item.bytes);
    }
    two.overlap_loss = three.overlap_loss;
    two.terms = three.terms;
    two
}

/// Index blocks whose use falls off as a power law.
fn blocks(count: u64) -> Vec<ItemUse> {
    let block = |number: u64| ItemUse {
        id: ItemId {
            class: ItemClass::IndexBlock,
            number,
        },
        bytes: 256 << (number % 5),
        held_bytes: 0,
        home: 1,
        uses_per_s: 1e4 / (1.0 + number as f64),
        use_s: [1.4e-7, 1.1e-4, 0.0, 0.0],
    };
    (0..count).map(block).collect()
}

fn print(what: &str, (median_ms, max_ms): (f64, f64)) {
    println!("{what:<64}{median_ms:>10.3}{max_ms:>10.3}");
}

/// What it takes to say whether a caller gets memory, in nanoseconds.
fn ask_ns() -> f64 {
    let cache = CacheManager::new(CacheOptions::default());
    let start = Instant::now();
    let count = 1_000_000;
    for bytes in 0..count {
        std::hint::black_box(cache.ask(&Ask::instead_of_spilling(bytes, 1e9, 2e9, 0.1)));
    }
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// Prints the times of the solvers.
pub fn run() {
    println!("an answer to a request for memory takes {:.0} ns", ask_ns());
    println!("{:<64}{:>10}{:>10}", "milliseconds", "median", "most");
    print_two_shelves();
    print_steps();
    print_three_shelves(1, 0);
    print_three_shelves(3, 100);
}

/// Memory and one storage, without and with index blocks.
fn print_two_shelves() {
    let two: Vec<Problem> = (0..50).map(|seed| on_two_shelves(seed, 100, 200)).collect();
    print(
        "2 shelves, 100 columns x 200 terms",
        times_ms(50, |seed| drop(greedy(&two[seed as usize]))),
    );
    let uses = blocks(10_000);
    let with_blocks = |seed: u64| {
        let mut problem = two[seed as usize].clone();
        for group in ItemGroup::all(&uses) {
            problem.add_group(&group);
        }
        problem
    };
    println!(
        "10000 index blocks are {} groups",
        ItemGroup::all(&uses).len()
    );
    print(
        "the same with 10000 index blocks, grouping included",
        times_ms(50, |seed| drop(greedy(&with_blocks(seed)))),
    );
}

/// Whole steps of the tuner on memory and one storage, without and with index blocks.
fn print_steps() {
    let problem = on_two_shelves(0, 100, 200);
    for uses in [Vec::new(), blocks(10_000)] {
        let what = match uses.len() {
            0 => "a whole step after a query".to_owned(),
            count => format!("a whole step after a query, with {count} index blocks"),
        };
        let mut steps = Steps::new(&problem, uses);
        print(&what, times_ms(50, |_| drop(steps.after_a_query())));
        let (term_count, item_count) = steps.size();
        print(
            &format!("  without news; {item_count} items x {term_count} terms"),
            times_ms(50, |_| drop(steps.without_news())),
        );
    }
}

/// Random problems of three shelves, solved in every way.
fn print_three_shelves(representation_count: usize, other_count: usize) {
    let size = InstanceSize {
        column_count: 100,
        representation_count,
        other_count,
        term_count: 200,
    };
    let problems: Vec<Problem> = (0..50).map(|seed| random_instance(seed, size)).collect();
    let solutions: Vec<_> = problems.iter().map(greedy).collect();
    let what = format!(
        "3 shelves x {representation_count} representations, 100 columns x 200 terms, {other_count} others"
    );
    print(
        &what,
        times_ms(50, |seed| drop(greedy(&problems[seed as usize]))),
    );
    print(
        "  begun at the last solution, weights changed by a tenth",
        times_ms(50, |seed| {
            let mut problem = problems[seed as usize].clone();
            for (number, term) in problem.terms.iter_mut().enumerate() {
                term.weight *= if number % 2 == 0 { 1.1 } else { 0.9 };
            }
            let last = &solutions[seed as usize];
            let start = Start {
                x: &last.x,
                prices: &last.prices,
            };
            drop(greedy_from(&problem, Some(start)));
        }),
    );
    print(
        "  its prices found again, in a step without news",
        times_ms(50, |seed| {
            let mut solution = solutions[seed as usize].clone();
            refine_prices(&problems[seed as usize], &mut solution);
        }),
    );
    print(
        "  exact (Clarabel)",
        times_ms(5, |seed| drop(exact(&problems[seed as usize]))),
    );
    print_quality(&problems, &solutions);
}

/// How near the greedy solutions are to the best ones.
fn print_quality(problems: &[Problem], solutions: &[Solution]) {
    let gaps = solutions.iter().map(Solution::gap);
    let ratio = |(problem, solution): (&Problem, &Solution)| {
        let exact = exact(problem).map_or(f64::NAN, |exact| exact.saved_s);
        solution.saved_s / exact
    };
    let ratios = problems.iter().zip(solutions).take(20).map(ratio);
    println!(
        "  greedy / exact of 20 at least {:.4}; largest gap left open by a certificate {:.4}",
        ratios.fold(1.0, f64::min),
        gaps.fold(0.0, f64::max)
    );
}
