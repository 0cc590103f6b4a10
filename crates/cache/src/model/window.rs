//! The look-back window (HPCache §4.3, §4.4): which pipelines count, and how much.
//!
//! Runs of one template are merged as they come in: their weights add up, their bytes and throughputs are
//! averaged. A window therefore grows with the number of distinct templates, not of queries.

use super::observation::Observation;
use crate::key::{ColumnId, Map};
use std::collections::VecDeque;
use std::fmt;

/// How past queries fade.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Smoothing {
    /// Equation 4: a query `i` queries ago weighs `(1 - a)^i`, with `a` from 0 (nothing fades) to 1 (only the
    /// current query counts).
    Exponential {
        /// The smoothing factor.
        a: f64,
    },
    /// The first form of Nicholson et al. (§4.3): the last queries, this many, weigh 1, all others nothing.
    Fixed {
        /// How many queries count.
        query_count: usize,
    },
}

impl fmt::Display for Smoothing {
    /// The half-life, or the number of queries that count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential { a } => {
                let half_life = (1.0 - a).log2().recip().abs();
                write!(f, "{} queries", (half_life * 1e6).round() / 1e6)
            }
            Self::Fixed { query_count } => write!(f, "last {query_count}"),
        }
    }
}

impl Default for Smoothing {
    fn default() -> Self {
        Self::half_life(4.0)
    }
}

impl Smoothing {
    /// A query this many queries ago weighs half.
    pub fn half_life(queries: f64) -> Self {
        Self::Exponential {
            a: 1.0 - 0.5f64.powf(1.0 / queries),
        }
    }
}

/// How a window looks back.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowOptions {
    /// How past queries fade.
    pub smoothing: Smoothing,
    /// Templates whose weight is below this part of the whole are omitted from the model (§4.4).
    pub prune_share: f64,
    /// At most this many templates are remembered; the lightest are forgotten first.
    pub template_count_max: usize,
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self {
            smoothing: Smoothing::default(),
            prune_share: 1e-3,
            template_count_max: 512,
        }
    }
}

/// One template's pipeline with all its runs merged.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateTerm {
    /// Fingerprint of the plan without literals.
    pub template: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
    /// Sum of `priority * fade` over the runs.
    pub weight: f64,
    /// Charged bytes read of each column, averaged over the runs.
    pub columns: Vec<(ColumnId, f64)>,
    /// Throughput in bytes per second, infinite while unknown.
    pub processing_bandwidth: f64,
    /// Time of the latest finished run, in seconds.
    pub run_s: Option<f64>,
}

#[derive(Debug, Clone)]
struct TemplateEntry {
    term: TemplateTerm,
    /// The query count at which `term.weight` was right.
    at: u64,
    /// From finished runs, else from runs under way.
    is_bandwidth_final: bool,
    run_count: u64,
}

/// A query's contribution to an entry, for windows of fixed length and to count each run once.
#[derive(Debug, Clone, Copy)]
struct PipelineRun {
    at: u64,
    entry: (u64, u32),
    priority: f64,
}

/// The weighted memory of past pipelines.
#[derive(Debug, Clone)]
pub struct LookBackWindow {
    options: WindowOptions,
    entries: Map<(u64, u32), TemplateEntry>,
    /// Queries seen so far.
    query_count: u64,
    /// When each of the latest queries came.
    arrivals: VecDeque<(u64, u64)>,
    /// Runs already counted: by (query, pipeline).
    counted: Map<(u64, u32), u64>,
    runs: VecDeque<PipelineRun>,
    /// The time between the queries, faded as they are, and the time since the latest, in seconds.
    span_s: f64,
    since_latest_s: f64,
}

/// How many queries are remembered by number, to recognise their later observations.
const ARRIVALS_MAX: usize = 1024;

/// Rates over less time mean nothing.
const SPAN_S_MIN: f64 = 1e-3;

impl LookBackWindow {
    /// An empty window. A smoothing factor outside 0 to 1 is brought into that range.
    pub fn new(options: WindowOptions) -> Self {
        let smoothing = match options.smoothing {
            Smoothing::Exponential { a } if a.is_nan() => Smoothing::Exponential { a: 0.0 },
            Smoothing::Exponential { a } => Smoothing::Exponential {
                a: a.clamp(0.0, 1.0),
            },
            fixed => fixed,
        };
        Self {
            options: WindowOptions {
                smoothing,
                ..options
            },
            entries: Map::default(),
            query_count: 0,
            arrivals: VecDeque::new(),
            counted: Map::default(),
            runs: VecDeque::new(),
            span_s: 0.0,
            since_latest_s: 0.0,
        }
    }

    /// Time in which the cache was in use goes by between observations.
    pub fn pass(&mut self, seconds: f64) {
        self.since_latest_s += seconds.max(0.0);
    }

    /// The seconds in which the weights of the terms came together, so that weight / span is a rate.
    pub fn span_s(&self) -> f64 {
        (self.span_s + self.since_latest_s).max(SPAN_S_MIN)
    }

    /// The options in force.
    pub fn options(&self) -> &WindowOptions {
        &self.options
    }

    /// Takes in an observation. A run counts once, however often it is reported.
    pub fn observe(&mut self, observation: &Observation) {
        if observation.columns.is_empty() {
            return;
        }
        let at = self.arrival(observation.query);
        let key = (observation.template, observation.pipeline);
        let run_key = (observation.query, observation.pipeline);
        let is_new_run = self.counted.insert(run_key, at).is_none();
        let fade = self.fade(at);
        let entry = self.entries.entry(key).or_insert_with(|| TemplateEntry {
            term: TemplateTerm {
                template: observation.template,
                pipeline: observation.pipeline,
                weight: 0.0,
                columns: Vec::new(),
                processing_bandwidth: f64::INFINITY,
                run_s: None,
            },
            at,
            is_bandwidth_final: false,
            run_count: 0,
        });
        if is_new_run {
            let priority = observation.weight();
            if let Smoothing::Exponential { a } = self.options.smoothing {
                entry.term.weight *= decay(a, self.query_count.saturating_sub(entry.at));
                entry.term.weight += priority * fade;
            }
            entry.at = self.query_count;
            entry.run_count += 1;
            if let Smoothing::Fixed { .. } = self.options.smoothing {
                self.runs.push_back(PipelineRun {
                    at,
                    entry: key,
                    priority,
                });
            }
        }
        entry.learn(observation);
        self.forget_old();
    }

    /// The templates that count, heaviest first, without those that are negligible.
    pub fn terms(&self) -> Vec<TemplateTerm> {
        let mut terms: Vec<TemplateTerm> = self.entries.values().map(|e| self.aged(e)).collect();
        terms.sort_by(|a, b| {
            let by_weight = b.weight.total_cmp(&a.weight);
            by_weight.then((a.template, a.pipeline).cmp(&(b.template, b.pipeline)))
        });
        let total: f64 = terms.iter().map(|term| term.weight).sum();
        let least = self.options.prune_share * total;
        terms.retain(|term| term.weight > 0.0 && term.weight >= least);
        terms
    }

    /// What was learned of a template's pipeline.
    pub fn term(&self, template: u64, pipeline: u32) -> Option<TemplateTerm> {
        let entry = self.entries.get(&(template, pipeline))?;
        Some(self.aged(entry))
    }

    /// What all templates weigh together now.
    pub fn weight(&self) -> f64 {
        self.entries.values().map(|e| self.aged_weight(e)).sum()
    }

    fn aged(&self, entry: &TemplateEntry) -> TemplateTerm {
        TemplateTerm {
            weight: self.aged_weight(entry),
            ..entry.term.clone()
        }
    }

    fn aged_weight(&self, entry: &TemplateEntry) -> f64 {
        let term = &entry.term;
        match self.options.smoothing {
            Smoothing::Exponential { a } => {
                term.weight * decay(a, self.query_count.saturating_sub(entry.at))
            }
            Smoothing::Fixed { query_count } => {
                let oldest = self.query_count.saturating_sub(query_count as u64);
                let key = (term.template, term.pipeline);
                let runs = self.runs.iter().filter(|run| run.entry == key);
                let counting = runs.filter(|run| run.at > oldest);
                counting.map(|run| run.priority).sum()
            }
        }
    }

    /// At which query count a query came; new queries make all others older.
    fn arrival(&mut self, query: u64) -> u64 {
        let known = self
            .arrivals
            .iter()
            .rev()
            .find(|(known, _)| *known == query);
        if let Some((_, at)) = known {
            return *at;
        }
        self.query_count += 1;
        let a = match self.options.smoothing {
            Smoothing::Exponential { a } => a,
            Smoothing::Fixed { query_count } => 1.0 / query_count.max(1) as f64,
        };
        self.span_s = (1.0 - a) * self.span_s + self.since_latest_s;
        self.since_latest_s = 0.0;
        self.arrivals.push_back((query, self.query_count));
        self.query_count
    }

    fn fade(&self, at: u64) -> f64 {
        match self.options.smoothing {
            Smoothing::Exponential { a } => decay(a, self.query_count - at),
            Smoothing::Fixed { .. } => 1.0,
        }
    }

    fn forget_old(&mut self) {
        if self.arrivals.len() > ARRIVALS_MAX {
            self.arrivals.pop_front();
            let oldest = self.arrivals.front().map_or(0, |(_, at)| *at);
            if self.counted.len() > 4 * ARRIVALS_MAX {
                self.counted.retain(|_, at| *at >= oldest);
            }
        }
        if let Smoothing::Fixed { query_count } = self.options.smoothing {
            let oldest = self.query_count.saturating_sub(query_count as u64);
            while self.runs.front().is_some_and(|run| run.at <= oldest) {
                self.runs.pop_front();
            }
        }
        let count_max = self.options.template_count_max.max(1);
        if self.entries.len() > count_max + count_max / 4 {
            let mut weights: Vec<(f64, u64, (u64, u32))> = Vec::new();
            for (key, entry) in &self.entries {
                weights.push((self.aged(entry).weight, entry.at, *key));
            }
            weights.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
            for (_, _, key) in weights.drain(count_max..) {
                self.entries.remove(&key);
            }
        }
    }
}

impl TemplateEntry {
    /// How much a further run changes what is known.
    const LEARNING: f64 = 0.5;

    fn learn(&mut self, observation: &Observation) {
        self.learn_bytes(observation);
        if observation.finished {
            self.term.run_s = observation.run_s();
        }
        let Some(bandwidth) = observation.processing_bandwidth() else {
            return;
        };
        let known = self.term.processing_bandwidth;
        // Early estimates of a run are pessimistic (§7.1): what finished runs taught counts for more.
        if observation.finished && self.is_bandwidth_final {
            let mean_s = (1.0 - Self::LEARNING) / known + Self::LEARNING / bandwidth;
            self.term.processing_bandwidth = 1.0 / mean_s;
        } else if observation.finished || !self.is_bandwidth_final {
            self.term.processing_bandwidth = bandwidth;
        }
        self.is_bandwidth_final |= observation.finished;
    }

    fn learn_bytes(&mut self, observation: &Observation) {
        let known = &self.term.columns;
        let same_columns = known.len() == observation.columns.len()
            && known
                .iter()
                .zip(&observation.columns)
                .all(|(known, seen)| known.0 == seen.0);
        if !same_columns || self.run_count <= 1 {
            let seen = observation.columns.iter();
            self.term.columns = seen
                .map(|(column, bytes)| (*column, *bytes as f64))
                .collect();
        } else if observation.finished {
            for (known, seen) in self.term.columns.iter_mut().zip(&observation.columns) {
                known.1 += Self::LEARNING * (seen.1 as f64 - known.1);
            }
        }
    }
}

fn decay(a: f64, queries: u64) -> f64 {
    (1.0 - a).powf(queries as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(query: u64, template: u64) -> Observation {
        Observation {
            query,
            pipeline: 0,
            template,
            columns: vec![(ColumnId(template as u32), 1000)],
            processed_bytes: 1000,
            storage_bytes: 0,
            busy_ns: 1_000_000,
            wait_ns: 0,
            worker_count: 2,
            priority: 1.0,
            finished: true,
        }
    }

    fn window(smoothing: Smoothing) -> LookBackWindow {
        LookBackWindow::new(WindowOptions {
            smoothing,
            prune_share: 0.0,
            ..WindowOptions::default()
        })
    }

    fn weights(window: &LookBackWindow) -> Vec<(u64, f64)> {
        let terms = window.terms();
        terms
            .iter()
            .map(|term| (term.template, term.weight))
            .collect()
    }

    #[test]
    fn weights_by_their_span_are_rates() {
        let mut window = window(Smoothing::Exponential { a: 0.1 });
        for query in 0..200 {
            window.pass(0.5);
            window.observe(&run(query, 7));
        }
        let rate = weights(&window)[0].1 / window.span_s();
        assert!((rate - 2.0).abs() < 0.01, "{rate}");
    }

    #[test]
    fn equal_templates_are_merged_with_the_weights_of_equation_4() {
        let mut window = window(Smoothing::Exponential { a: 0.5 });
        for (query, template) in [(0, 7), (1, 8), (2, 7), (3, 9)] {
            window.observe(&run(query, template));
        }
        assert_eq!(weights(&window), [(9, 1.0), (7, 0.5 + 0.125), (8, 0.25)]);
    }

    #[test]
    fn a_run_counts_once_however_often_it_is_reported_and_in_any_order() {
        let mut window = window(Smoothing::Exponential { a: 0.5 });
        window.observe(&run(0, 7));
        window.observe(&run(1, 8));
        window.observe(&run(0, 7));
        window.observe(&Observation {
            pipeline: 1,
            ..run(0, 7)
        });
        assert_eq!(weights(&window), [(8, 1.0), (7, 0.5), (7, 0.5)]);
    }

    #[test]
    fn a_fixed_window_forgets_all_at_once() {
        let mut window = window(Smoothing::Fixed { query_count: 2 });
        window.observe(&run(0, 7));
        window.observe(&run(1, 8));
        assert_eq!(weights(&window), [(7, 1.0), (8, 1.0)]);
        window.observe(&run(2, 8));
        assert_eq!(weights(&window), [(8, 2.0)]);
    }

    #[test]
    fn a_factor_of_one_leaves_the_current_query_alone_and_zero_forgets_nothing() {
        let mut latest = window(Smoothing::Exponential { a: 1.0 });
        let mut all = window(Smoothing::Exponential { a: 0.0 });
        for query in 0..5 {
            latest.observe(&run(query, query));
            all.observe(&run(query, query));
        }
        assert_eq!(weights(&latest), [(4, 1.0)]);
        assert_eq!(all.terms().len(), 5);
        assert!(all.terms().iter().all(|term| term.weight == 1.0));
    }

    #[test]
    fn smoothings_are_shown_by_what_they_remember() {
        let shown = [
            Smoothing::default(),
            Smoothing::half_life(0.5),
            Smoothing::Exponential { a: 0.0 },
            Smoothing::Fixed { query_count: 15 },
        ];
        let shown = shown.map(|smoothing| smoothing.to_string());
        assert_eq!(
            shown,
            ["4 queries", "0.5 queries", "inf queries", "last 15"]
        );
    }

    #[test]
    fn negligible_templates_are_pruned() {
        let mut window = LookBackWindow::new(WindowOptions {
            smoothing: Smoothing::Exponential { a: 0.5 },
            prune_share: 0.1,
            ..WindowOptions::default()
        });
        (0..10).for_each(|query| window.observe(&run(query, query)));
        let templates: Vec<u64> = window.terms().iter().map(|term| term.template).collect();
        assert_eq!(templates, [9, 8, 7]);
    }

    #[test]
    fn finished_runs_outweigh_runs_under_way() {
        let mut window = window(Smoothing::Exponential { a: 0.5 });
        let early = |query| Observation {
            processed_bytes: 10,
            busy_ns: 1_000_000,
            finished: false,
            ..run(query, 7)
        };
        let learned = |window: &LookBackWindow| {
            let term = window.term(7, 0).expect("the template was observed");
            (term.processing_bandwidth, term.run_s)
        };
        window.observe(&early(0));
        assert_eq!(learned(&window), (2e4, None));
        window.observe(&run(0, 7));
        assert_eq!(learned(&window), (2e6, Some(5e-4)));
        window.observe(&early(1));
        assert_eq!(learned(&window), (2e6, Some(5e-4)));
    }

    #[test]
    fn ten_thousand_templates_stay_bounded_and_nonsense_is_survived() {
        let mut window = LookBackWindow::new(WindowOptions::default());
        for query in 0..10_000 {
            window.observe(&Observation {
                priority: if query % 3 == 0 { f64::NAN } else { -1.0 },
                busy_ns: 0,
                worker_count: 0,
                ..run(query, query)
            });
        }
        let known = window.entries.len();
        assert!(known <= 640, "{known}");
        assert!(window.counted.len() <= 4 * ARRIVALS_MAX + 2);
        assert!(window.terms().iter().all(|term| term.weight.is_finite()));
        assert!(!window.terms().is_empty());
    }
}
