//! Replays the HPCache paper's query sequence on its modelled server, and other mixes on a small machine:
//! `hotshelf-lab simulate [paper|parts|sweep|figure8|mixes|items|shelves]`. All times are simulated.

use super::*;
use hotshelf_cache::model::Smoothing;

/// What can be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Replay {
    /// The paper's sequence query by query, its claims, and how well its times are predicted
    Paper,
    /// What each part of `hpcache` adds to the paper's algorithm
    Parts,
    /// Cache sizes, and ways to look back
    Sweep,
    /// Figure 8: a change of templates
    Figure8,
    /// Six mixes on a small machine
    Mixes,
    /// Six mixes whose queries use index blocks, footers and look-ups, too
    Items,
    /// Three shelves
    Shelves,
}

/// What the help says below the arguments.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab simulate
  hotshelf-lab simulate sweep

All times are simulated.";

const GB: u64 = 1_000_000_000;

fn setup(policy: CachePolicy, budget_bytes: u64) -> Setup {
    Setup {
        policy,
        budget_bytes,
        ..Setup::default()
    }
}

/// Everything in memory from the start, or a policy by name.
fn named(name: &str, cache_gb: u64) -> Setup {
    match name {
        "memory" => Setup {
            is_warm: true,
            ..setup(CachePolicy::All, 1000 * GB)
        },
        _ => setup(name.parse().expect("a policy"), cache_gb * GB),
    }
}

fn per_query(drive_count: u32, cache_gb: u64) {
    let names = ["memory", "none", "lru", "hpcache-paper", "hpcache"];
    println!(
        "\nper query, {} GB/s, {cache_gb} GB cache (simulated seconds)",
        7 * drive_count
    );
    println!(
        "{:>5} {:>6} {}",
        "query",
        "",
        names.map(|name| format!("{name:>14}")).join("")
    );
    let trace = paper_sequence();
    let runs =
        names.map(|name| simulate(&paper_machine(drive_count), &trace, &named(name, cache_gb)));
    for (query_idx, query) in trace.queries.iter().enumerate() {
        let times = runs
            .each_ref()
            .map(|run| format!("{:>14.2}", run.queries[query_idx].time_s));
        println!("{:>5} {:>6} {}", query_idx + 1, query.name, times.join(""));
    }
    let totals = runs
        .each_ref()
        .map(|run| format!("{:>14.1}", run.total_s()));
    println!("{:>5} {:>6} {}", "total", "", totals.join(""));
}

fn claims() {
    println!(
        "\n{:<40} {:>6} {:>6} {:>8} {:>14} {:>8}",
        "claim", "GB/s", "cache", "paper", "hpcache-paper", "hpcache"
    );
    for claim in paper_claims() {
        let ratio = |hpcache: &str| {
            let total_s = |name: &str| {
                let name = if name == "hpcache" { hpcache } else { name };
                let setup = named(name, claim.cache_gb);
                simulate(&paper_machine(claim.drive_count), &paper_sequence(), &setup).total_s()
            };
            total_s(claim.slow) / total_s(claim.fast)
        };
        println!(
            "{:<40} {:>6} {:>6} {:>8.2} {:>14.2} {:>8.2}",
            claim.what,
            7 * claim.drive_count,
            claim.cache_gb,
            claim.ratio,
            ratio("hpcache-paper"),
            ratio("hpcache"),
        );
    }
}

/// What each part of `hpcache` adds to the paper's algorithm, and what LRU loses where workers keep no common order.
fn parts() {
    let alone = TunerOptions::default().with_smoothing(Smoothing::default());
    let compete = TunerOptions::default();
    let (paper, shared) = (SetupModel::Paper, SetupModel::Shared);
    let (random, stable) = (CachePolicy::HpCachePaper, CachePolicy::HpCache);
    let variants = [
        ("lru", CachePolicy::Lru, shared, &compete),
        ("the paper's: random pins, maximum", random, paper, &alone),
        ("its windows compete", random, paper, &compete),
        ("its model a sum", random, shared, &alone),
        ("its pins stable", stable, paper, &alone),
        ("pins stable, model a sum", stable, shared, &alone),
        ("all three: hpcache", stable, shared, &compete),
    ];
    for is_shuffled in [false, true] {
        let order = ["one order", "an order of its own in each query"][usize::from(is_shuffled)];
        println!("\nparts, row groups in {order}: simulated seconds and ratio to none, 28 GB/s");
        let sizes = [20, 80, 120];
        println!(
            "{:>34}{}",
            "GB",
            sizes.map(|gb| format!("{gb:>16}")).join("")
        );
        for (name, policy, model, tuner) in variants {
            print!("{name:>34}");
            for cache_gb in sizes {
                let total_s = |policy: CachePolicy| {
                    let setup = Setup {
                        tuner: tuner.clone(),
                        model,
                        is_shuffled,
                        ..setup(policy, cache_gb * GB)
                    };
                    simulate(&paper_machine(4), &paper_sequence(), &setup).total_s()
                };
                let (none_s, time_s) = (total_s(CachePolicy::None), total_s(policy));
                print!("{time_s:>9.1}{:>7.2}", none_s / time_s);
            }
            println!();
        }
    }
}

fn sweep() {
    println!(
        "\ntotal by cache size, 28 GB/s (simulated seconds; in memory: {:.1})",
        { simulate(&paper_machine(4), &paper_sequence(), &named("memory", 0)).total_s() }
    );
    print!("{:>14}", "GB");
    let sizes = [20, 40, 60, 80, 100, 120, 140, 160];
    sizes.iter().for_each(|gb| print!("{gb:>8}"));
    println!();
    for kind in CachePolicy::ALL {
        print!("{kind:>14}");
        for cache_gb in sizes {
            let setup = setup(*kind, cache_gb * GB);
            print!(
                "{:>8.1}",
                simulate(&paper_machine(4), &paper_sequence(), &setup).total_s()
            );
        }
        println!();
    }
}

/// The least cache with which the sequence takes at most 1.1 times as long as in memory.
fn needed() {
    let trace = paper_sequence();
    let total_s = |setup: &Setup| simulate(&paper_machine(4), &trace, setup).total_s();
    let in_memory_s = total_s(&named("memory", 0));
    println!("\nGB to be within 10 % of in memory, 28 GB/s (simulated, in steps of 2 GB)");
    for kind in CachePolicy::ALL {
        let is_near = |gb: &u64| total_s(&setup(*kind, gb * GB)) <= 1.1 * in_memory_s;
        match (2..=200).step_by(2).find(is_near) {
            Some(gb) => println!("{kind:>14}{gb:>6}"),
            None => println!("{kind:>14}  never"),
        }
    }
}

fn smoothing() {
    println!("\nhpcache by half-life of the smoothing, in queries (simulated seconds)");
    let half_lives = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0]; // 0: several compete
    let tuner = |half_life: f64| match half_life {
        0.0 => TunerOptions::default(),
        half_life => TunerOptions::default().with_smoothing(Smoothing::half_life(half_life)),
    };
    for half_life in half_lives {
        print!("{half_life:>6}");
        for cache_gb in [40, 80, 120] {
            let setup = Setup {
                tuner: tuner(half_life),
                ..setup(CachePolicy::HpCache, cache_gb * GB)
            };
            print!(
                "{:>8.1}",
                simulate(&paper_machine(4), &paper_sequence(), &setup).total_s()
            );
        }
        for kind in Mix::ALL {
            let setup = Setup {
                tuner: tuner(half_life),
                ..setup(CachePolicy::HpCache, 3 * GB)
            };
            print!(
                "{:>9.2}",
                simulate(&small_machine(), &small_mix(kind), &setup).total_s()
            );
        }
        println!();
    }
}

fn figure_8() {
    println!(
        "\nFigure 8: fixed window against smoothing, 28 GB/s, 80 GB cache (simulated seconds)"
    );
    let with = |smoothing| TunerOptions::default().with_smoothing(smoothing);
    let tuners = [
        (
            "last 15 queries",
            with(Smoothing::Fixed { query_count: 15 }),
        ),
        ("a = 1 - 2^-1", with(Smoothing::half_life(1.0))),
        ("a = 1 - 2^-1/2", with(Smoothing::half_life(2.0))),
        ("a = 1 - 2^-1/4", with(Smoothing::half_life(4.0))),
        ("a = 1 - 2^-1/16", with(Smoothing::half_life(16.0))),
        ("competing", TunerOptions::default()),
    ];
    for (name, tuner) in tuners {
        for policy in [CachePolicy::HpCachePaper, CachePolicy::HpCache] {
            let setup = Setup {
                tuner: tuner.clone(),
                ..setup(policy, 80 * GB)
            };
            let run = simulate(&paper_machine(4), &paper_alternation(), &setup);
            let times = run
                .queries
                .iter()
                .map(|query| format!("{:>4.1}", query.time_s));
            println!(
                "{name:>16} {policy:>14} {:>6.1}:{}",
                run.total_s(),
                times.collect::<String>()
            );
        }
    }
}

/// Predicted against simulated time of queries whose template the tuner knows.
fn predictions() {
    println!("\nprediction error of the time of known templates (simulated)");
    for (policy, cache_gb) in [(CachePolicy::HpCache, 80), (CachePolicy::HpCachePaper, 80)] {
        let run = simulate(
            &paper_machine(4),
            &paper_sequence(),
            &setup(policy, cache_gb * GB),
        );
        let warm = run.queries.iter().skip(2);
        let errors = warm.filter_map(|q| Some((q.predicted_s? / q.time_s - 1.0).abs()));
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        let at = |part: f64| 100.0 * errors[((errors.len() - 1) as f64 * part) as usize];
        let tuner = &run.tuner;
        println!(
            "{policy:>14}: median {:.1} %, 95th percentile {:.1} % of {}; {} steps, {} solved, {} skipped",
            at(0.5),
            at(0.95),
            errors.len(),
            tuner.step_count,
            tuner.solve_count,
            tuner.skip_count
        );
    }
}

fn small_machine() -> Machine {
    Machine {
        storage_bandwidth: 1.5e9,
        memory_bandwidth: 14.6e9,
        missing_byte_passes: 2.0,
        lookahead_bytes: 64_000_000,
        setup_s: 0.02,
    }
}

fn small_mix(kind: Mix) -> Trace {
    mix_trace(kind, GB, small_machine().storage_bandwidth)
}

fn mixes() {
    for budget_gb in [2, 3, 6] {
        println!(
            "\nmixes over 12 columns of 1 GB, 1.5 GB/s, {budget_gb} GB cache (simulated seconds)"
        );
        print!("{:>14}", "");
        Mix::ALL
            .iter()
            .for_each(|kind| print!("{:>12}", kind.name()));
        println!();
        for policy in CachePolicy::ALL {
            print!("{policy:>14}");
            for kind in Mix::ALL {
                let setup = setup(*policy, budget_gb * GB);
                print!(
                    "{:>12.1}",
                    simulate(&small_machine(), &small_mix(kind), &setup).total_s()
                );
            }
            println!();
        }
    }
}

/// The mixes with items other than columns, which the tuner knows or leaves what they have.
fn items() {
    for budget_gb in [2, 3, 6] {
        println!(
            "\nmixes with 120 index blocks of 10 MB, 200 footers of 1 MB and 8 look-ups of 80 MB, 1.5 GB/s, \
             {budget_gb} GB cache (simulated seconds)"
        );
        print!("{:>24}", "");
        let mixes = || Mix::ALL.iter();
        mixes().for_each(|kind| print!("{:>12}", kind.name()));
        println!();
        let row = |policy: CachePolicy, are_items_known| {
            let setup = Setup {
                are_items_known,
                ..setup(policy, budget_gb * GB)
            };
            let what = match policy.is_tuned() && are_items_known {
                true => format!("{policy}, items valued"),
                false => policy.to_string(),
            };
            print!("{what:>24}");
            for kind in mixes() {
                let bandwidth = small_machine().storage_bandwidth;
                let trace = with_items(small_mix(*kind), GB, bandwidth);
                print!(
                    "{:>12.1}",
                    simulate(&small_machine(), &trace, &setup).total_s()
                );
            }
            println!();
        };
        for policy in [CachePolicy::Lru, CachePolicy::S3Fifo, CachePolicy::WTinyLfu] {
            row(policy, false);
        }
        for known in [false, true] {
            row(CachePolicy::HpCache, known);
        }
    }
    items_on_shelves();
}

/// SSB and TPC-H with such items on three shelves.
fn items_on_shelves() {
    let policies = [
        CachePolicy::Lru,
        CachePolicy::S3Fifo,
        CachePolicy::WTinyLfu,
        CachePolicy::HpCache,
    ];
    println!(
        "\nthree shelves with such items of a fiftieth of their size, 100 MB memory, 400 MB disk (simulated seconds, \
         ratio to hpcache)"
    );
    println!(
        "{:>18}{}",
        "",
        policies.map(|policy| format!("{policy:>17}")).join("")
    );
    for benchmark in [Benchmark::Ssb, Benchmark::TpcH] {
        for order in Order::ALL {
            let mut trace = benchmark_trace(benchmark, order);
            trace.segment_bytes = 4_000_000;
            let machine = ShelfMachine::small(100e6);
            let trace = with_items(trace, GB / 50, machine.shelves[2].bandwidth);
            let times_s =
                policies.map(|policy| simulate_shelves(&machine, &trace, policy).total_s());
            let of = |time_s: f64| format!("{time_s:>10.1} {:>6.2}", time_s / times_s[3]);
            println!(
                "{:>18}{}",
                format!("{benchmark:?} {order:?}"),
                times_s.map(of).join("")
            );
        }
    }
}

/// Memory 1x, disk 4x, remote storage of 125 MB/s with 25 ms latency; each policy on both upper shelves.
fn shelves() {
    let policies = [
        CachePolicy::None,
        CachePolicy::Lru,
        CachePolicy::S3Fifo,
        CachePolicy::WTinyLfu,
        CachePolicy::HpCache,
    ];
    for (segment_mb, memory_mb) in [(4, 100.0), (4, 200.0), (1, 100.0), (1, 200.0)] {
        println!(
            "\nthree shelves: {memory_mb} MB memory, {} MB disk (1.5 GB/s), remote, segments of {segment_mb} MB \
             (simulated seconds, ratio to hpcache)",
            4.0 * memory_mb
        );
        println!(
            "{:>18}{}{:>17}{:>17}{:>17}",
            "",
            policies.map(|policy| format!("{policy:>17}")).join(""),
            "best fixed, cold",
            "in place",
            "none is below"
        );
        let mut reached = [0; 3];
        for benchmark in [Benchmark::Ssb, Benchmark::TpcH] {
            for order in Order::ALL {
                let mut trace = benchmark_trace(benchmark, order);
                trace.segment_bytes = segment_mb * 1_000_000;
                let machine = ShelfMachine::small(memory_mb * 1e6);
                let times_s =
                    policies.map(|policy| simulate_shelves(&machine, &trace, policy).total_s());
                let of = |time_s: f64| format!("{time_s:>10.1} {:>6.2}", time_s / times_s[4]);
                let cold_s =
                    simulate_best_fixed(&machine, &trace).map_or(f64::NAN, |run| run.total_s());
                let fixed_s = best_fixed_s(&machine, &trace).unwrap_or(f64::NAN);
                println!(
                    "{:>18}{}{}{}{}",
                    format!("{benchmark:?} {order:?}"),
                    times_s.map(of).join(""),
                    of(cold_s),
                    of(fixed_s),
                    of(least_s(&machine, &trace))
                );
                let others_s = [times_s[4], cold_s, least_s(&machine, &trace)];
                for (count, time_s) in reached.iter_mut().zip(others_s) {
                    *count += i32::from(1.2 * time_s <= times_s[3]);
                }
            }
        }
        println!(
            "at least 1.2 times as fast as wtinylfu, of 10: hpcache {}, the best fixed placement from the first \
             query on {}, with the future known {}",
            reached[0], reached[1], reached[2]
        );
    }
}

/// Prints what was asked for, or everything.
pub fn run(what: Option<Replay>) {
    let wants = |one| what.is_none_or(|what| what == one);
    if wants(Replay::Paper) {
        per_query(4, 80);
        per_query(4, 120);
        claims();
        predictions();
    }
    if wants(Replay::Parts) {
        parts();
    }
    if wants(Replay::Figure8) {
        figure_8();
    }
    if wants(Replay::Sweep) {
        sweep();
        needed();
        smoothing();
    }
    if wants(Replay::Mixes) {
        mixes();
    }
    if wants(Replay::Items) {
        items();
    }
    if wants(Replay::Shelves) {
        shelves();
    }
}
