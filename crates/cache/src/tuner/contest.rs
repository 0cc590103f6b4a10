//! Which way of looking back serves best, decided by what each would have cost.
//!
//! Nicholson et al. leave the smoothing factor to the user (§4.4). Here several compete: each entrant keeps a window of
//! its own and a *shadow*, the part of each column that a cache would hold which followed the entrant's placements.
//! When a pipeline ends, every entrant is charged the time that the model predicts for it over the entrant's shadow.
//! Charges fade, and the entrant with the lowest charge decides what the real cache keeps.

use super::situation::Situation;
use crate::key::ColumnId;
use crate::model::{Choice, LookBackWindow, Observation, Problem, Smoothing, WindowOptions};
use crate::placement::Placement;
use crate::tune::{Solution, into_range};
use std::collections::BTreeMap;

/// The part of a charge that remains after a further pipeline.
const CHARGE_FADE: f64 = 0.97;

/// A challenger must be charged less than the leader by this part: changes cost reads.
const LEAD_MIN: f64 = 0.02;

/// A step judges no more than the latest runs.
const RUNS_MAX: usize = 64;

/// Larger problems (columns times pipelines) are solved for the leader alone; with more than two shelves they take
/// longer.
const WORK_MAX: usize = 50_000;
const WORK_MAX_ON_SHELVES: usize = 5_000;

/// Halvings until what exceeds proportions is known well enough.
const EXCESS_STEPS: u32 = 16;

#[derive(Debug, Clone)]
pub(super) struct Contest {
    /// The first is the configured one.
    entrants: Vec<Entrant>,
    leader_idx: usize,
}

#[derive(Debug, Clone)]
struct Entrant {
    window: LookBackWindow,
    /// Bytes of each column that its caches would hold, by shelf.
    held: Vec<BTreeMap<ColumnId, f64>>,
    placed: Option<Placed>,
    charge_s: f64,
}

/// What an entrant decided last.
#[derive(Debug, Clone)]
struct Placed {
    problem: Problem,
    solution: Solution,
    /// By shelf.
    placements: Vec<Placement>,
}

impl Contest {
    pub(super) fn new(options: &WindowOptions, rivals: &[Smoothing]) -> Self {
        let smoothings = [options.smoothing]
            .into_iter()
            .chain(rivals.iter().copied());
        let entrants = smoothings.map(|smoothing| {
            Entrant::new(LookBackWindow::new(WindowOptions {
                smoothing,
                ..options.clone()
            }))
        });
        Self {
            entrants: entrants.collect(),
            leader_idx: 0,
        }
    }

    /// The window that decides.
    pub(super) fn window(&self) -> &LookBackWindow {
        &self.entrants[self.leader_idx].window
    }

    /// Time goes by.
    pub(super) fn pass(&mut self, seconds: f64) {
        for entrant in &mut self.entrants {
            entrant.window.pass(seconds);
        }
    }

    pub(super) fn observe(&mut self, observation: &Observation) {
        for entrant in &mut self.entrants {
            entrant.window.observe(observation);
        }
    }

    /// Charges the runs that have ended and lets the entrants decide anew.
    pub(super) fn judge(&mut self, observations: &[Observation], situation: &Situation<'_>) {
        let ended = observations.iter().rev().filter(|run| run.finished);
        let ended: Vec<&Observation> = ended.take(RUNS_MAX).collect();
        if self.entrants.len() < 2 || ended.is_empty() {
            return;
        }
        for entrant in &mut self.entrants {
            for run in ended.iter().rev() {
                entrant.charge(run, situation);
            }
            entrant.place(situation);
            for run in ended.iter().rev() {
                entrant.read(run, situation);
            }
        }
        let charge_s = |idx: &usize| self.entrants[*idx].charge_s;
        let best = (0..self.entrants.len()).min_by(|a, b| charge_s(a).total_cmp(&charge_s(b)));
        if let Some(best) = best
            && charge_s(&best) < (1.0 - LEAD_MIN) * charge_s(&self.leader_idx)
        {
            self.leader_idx = best;
        }
    }
}

impl Entrant {
    fn new(window: LookBackWindow) -> Self {
        Self {
            window,
            held: Vec::new(),
            placed: None,
            charge_s: 0.0,
        }
    }

    fn charge(&mut self, run: &Observation, situation: &Situation<'_>) {
        let Some(term) = self.window.term(run.template, run.pipeline) else {
            return;
        };
        let problem = situation.problem(&[term]);
        let share = |choice: &Choice| {
            let item = &problem.items[choice.item_idx];
            let column = item.id.as_column();
            let held = column.and_then(|column| self.held.get(choice.shelf)?.get(&column));
            (held.copied().unwrap_or(0.0) / item.bytes).min(1.0)
        };
        let mut x: Vec<f64> = problem.choices.iter().map(share).collect();
        if !situation.between.is_empty() {
            into_range(&problem, &mut x);
        }
        let run_s = problem.terms.iter().map(|term| problem.term_s(term, &x));
        let cost_s = run.weight() * run_s.sum::<f64>();
        self.charge_s = CHARGE_FADE * self.charge_s + cost_s;
    }

    fn place(&mut self, situation: &Situation<'_>) {
        let problem = situation.problem(&self.window.terms());
        let last = self.placed.as_ref();
        let work_max = match situation.between.is_empty() {
            true => WORK_MAX,
            false => WORK_MAX_ON_SHELVES,
        };
        let is_large = problem.items.len() * problem.terms.len() > work_max;
        if is_large || last.is_some_and(|last| !situation.has_moved(&problem, &last.problem)) {
            return;
        }
        let in_memory = last.and_then(|last| last.placements.first());
        let held = |column| {
            let held = self.held.first().and_then(|held| held.get(&column));
            held.copied().unwrap_or(0.0)
        };
        let solution = match problem.is_two_shelves() {
            true => situation.solve(&problem, in_memory, held),
            false => {
                situation.solve_again(&problem, last.map(|last| (&last.problem, &last.solution)))
            }
        };
        if let Ok(solution) = solution {
            let shelves = 0..problem.shelves.len() - 1;
            let placements = shelves.map(|shelf| solution.placement_on(&problem, shelf));
            self.placed = Some(Placed {
                placements: placements.collect(),
                problem,
                solution,
            });
        }
    }

    /// The columns pass by whole; slower shelves are offered what faster ones do not hold.
    fn read(&mut self, run: &Observation, situation: &Situation<'_>) {
        let Some(placed) = &self.placed else {
            return;
        };
        self.held.resize(placed.placements.len(), BTreeMap::new());
        let mut offered: BTreeMap<ColumnId, f64> = run
            .columns
            .iter()
            .map(|(column, _)| (*column, situation.size(*column)))
            .collect();
        let shelves = self.held.iter_mut().zip(&placed.placements);
        for ((held, placement), capacity_bytes) in shelves.zip(situation.capacities()) {
            for (column, bytes) in &offered {
                let there = held.entry(*column).or_default();
                *there = there.min(situation.size(*column)).max(*bytes);
            }
            held.retain(|column, _| situation.sizes.contains_key(column));
            crowd_out(held, placement, situation, capacity_bytes);
            for (column, bytes) in &mut offered {
                *bytes -= held.get(column).copied().unwrap_or(0.0).min(*bytes);
            }
        }
    }
}

/// What does not fit leaves in the order of the policy: what exceeds its column's proportion most goes first.
fn crowd_out(
    held: &mut BTreeMap<ColumnId, f64>,
    placement: &Placement,
    situation: &Situation<'_>,
    capacity_bytes: f64,
) {
    let kept = |column: &ColumnId, held: f64, excess: f64| {
        let pinned = (placement.proportion(*column) + excess).max(0.0) * situation.size(*column);
        held.min(pinned)
    };
    let fits = |excess: f64| {
        let held = held.iter();
        let kept_bytes: f64 = held.map(|(column, held)| kept(column, *held, excess)).sum();
        kept_bytes <= capacity_bytes
    };
    let (mut low, mut high) = (-1.0, 1.0);
    if fits(high) {
        return;
    }
    for _ in 0..EXCESS_STEPS {
        let middle = (low + high) / 2.0;
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    for (column, held) in held {
        *held = kept(column, *held, low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tiers;
    use crate::placement::ColumnShare;
    use crate::tune::{TuneOptions, solve};

    const GB: u64 = 1_000_000_000;

    fn situation(sizes: &BTreeMap<ColumnId, u64>) -> Situation<'_> {
        Situation {
            sizes,
            capacity_bytes: 2 * GB,
            tiers: Tiers {
                storage_bandwidth: 1e9,
                memory_bandwidth: 20e9,
            },
            overlap_loss: 0.1,
            options: TuneOptions::default(),
            skip_below: 0.02,
            stay_below: 0.01,
            between: &[],
        }
    }

    /// A run of the template that reads columns `2 t` and `2 t + 1`, of 1 GB each.
    fn run(query: u64, template: u64) -> Observation {
        Observation {
            query,
            pipeline: 0,
            template,
            columns: [0, 1]
                .map(|n| (ColumnId(2 * template as u32 + n), GB))
                .to_vec(),
            processed_bytes: 2 * GB,
            storage_bytes: 0,
            busy_ns: 200_000_000,
            wait_ns: 0,
            worker_count: 1,
            priority: 1.0,
            finished: true,
        }
    }

    fn leader(templates: impl IntoIterator<Item = u64>) -> Smoothing {
        let sizes = (0..8).map(|column| (ColumnId(column), GB)).collect();
        let rivals = [1.0, 16.0].map(Smoothing::half_life);
        let mut contest = Contest::new(&WindowOptions::default(), &rivals);
        for (query, template) in (0..).zip(templates) {
            let runs = [run(query, template)];
            contest.observe(&runs[0]);
            contest.judge(&runs, &situation(&sizes));
        }
        contest.window().options().smoothing
    }

    #[test]
    fn long_runs_of_one_template_are_won_by_a_short_memory() {
        let runs = (0..12u64).flat_map(|run| [run % 2; 4]);
        assert_eq!(leader(runs), Smoothing::half_life(1.0));
    }

    #[test]
    fn a_favourite_among_templates_that_come_and_go_is_won_by_a_long_memory() {
        let favourite = (0..60u64).map(|query| [0, 1, 0, 2, 0, 3, 3][query as usize % 7]);
        assert_ne!(leader(favourite), Smoothing::half_life(1.0));
    }

    #[test]
    fn what_a_scan_brings_pushes_out_what_exceeds_its_proportion_most() {
        let sizes = (0..3).map(|column| (ColumnId(column), GB)).collect();
        let mut entrant = Entrant::new(LookBackWindow::new(WindowOptions::default()));
        let share = |(column, proportion)| ColumnShare {
            column: ColumnId(column),
            bytes: GB,
            proportion,
            from: 0.0,
        };
        let placement = Placement::new([(0, 0.8), (1, 0.5), (2, 0.1)].map(share));
        let problem = situation(&sizes).problem(&[]);
        entrant.placed = Some(Placed {
            solution: solve(&problem, &TuneOptions::default()).expect("there is nothing to solve"),
            problem,
            placements: vec![placement],
        });
        entrant.held = vec![[(ColumnId(2), GB as f64)].into_iter().collect()];
        entrant.read(&run(0, 0), &situation(&sizes));
        let held = [0, 1, 2].map(|column| entrant.held[0][&ColumnId(column)] / GB as f64);
        // 0.6 GB beyond the proportions' 1.4 fit: 0.2 to the first, which is full, 0.2 to each other.
        for (held, expected) in held.into_iter().zip([1.0, 0.7, 0.3]) {
            assert!((held - expected).abs() < 1e-3, "{held} {expected}");
        }
    }
}
