//! The run: databases, changes between queries, queries, checks, and what to do with findings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::answers::changes::{self, Change, Effect};
use crate::answers::check::{Bench, Case, Check, FuzzError, Verdict};
use crate::answers::data::{self, Sizes, pick};
use crate::answers::known;
use crate::answers::oracle::{Oracle, Pipe};
use crate::answers::query::{Generator, Query, Taste};
use crate::answers::reduce::reduce;
use crate::answers::render;
use crate::answers::report::{self, Summary};
use crate::answers::rows::Rows;
use crate::answers::schema::{Column, Dialect, Table, Type, World};
use crate::answers::settings::{PLAIN, Settings};

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub schemas: u64,
    pub queries: u64,
    pub time: Option<Duration>,
    pub checks: Vec<Check>,
    /// Command of the oracle.
    pub oracle: Option<String>,
    /// Folder for scripts; none are written without.
    pub out: Option<PathBuf>,
    /// One query of the database of a seed.
    pub replay: Option<(u64, u64)>,
    pub timeout: Duration,
    pub reduce: Duration,
    pub findings_max: usize,
    pub sizes: Sizes,
    pub taste: Taste,
    pub is_verbose: bool,
}

/// One query in this many is preceded by a change of a table.
const CHANGE_EVERY: u64 = 12;
/// With an oracle, one query in this many is checked in another way.
const OTHER_CHECK_EVERY: usize = 5;

/// Numbers of changes between the two runs of a check begin here.
const THEN_NUMBER: u64 = 1_000_000;

/// File with the query that runs.
const RUNNING: &str = "running.sql";

/// Runs a plan.
pub fn run(plan: &Plan) -> Result<Summary, FuzzError> {
    let oracle: Option<Box<dyn Oracle>> = match &plan.oracle {
        Some(command) => Some(Box::new(Pipe::start(command)?)),
        None => None,
    };
    run_with(plan, oracle)
}

/// Runs a plan with any oracle.
pub fn run_with(plan: &Plan, oracle: Option<Box<dyn Oracle>>) -> Result<Summary, FuzzError> {
    let mut run = Run {
        plan,
        bench: Bench::new(oracle, plan.timeout)?,
        world: Arc::default(),
        summary: Summary::default(),
        start: Instant::now(),
    };
    match plan.replay {
        Some((seed, number)) => run.database(seed, Some(number))?,
        None => {
            for seed in plan.seed..plan.seed.saturating_add(plan.schemas) {
                if run.is_over() {
                    break;
                }
                run.database(seed, None)?;
            }
        }
    }
    if let Some(out) = &plan.out {
        // Left behind only by a process that was aborted.
        let _ = std::fs::remove_file(out.join(RUNNING));
    }
    run.summary.seconds = run.start.elapsed().as_secs_f64();
    Ok(run.summary)
}

struct Run<'a> {
    plan: &'a Plan,
    bench: Bench,
    world: Arc<World>,
    summary: Summary,
    start: Instant,
}

impl Run<'_> {
    fn is_over(&self) -> bool {
        let is_late = self
            .plan
            .time
            .is_some_and(|time| self.start.elapsed() >= time);
        is_late || self.summary.wrong.len() >= self.plan.findings_max
    }

    /// The queries of one database, or only the one with this number.
    fn database(&mut self, seed: u64, only: Option<u64>) -> Result<(), FuzzError> {
        let features = &self.plan.taste.features;
        let mut rng = Rng::with_seed(seed);
        self.world = Arc::new(data::world(&mut rng, self.plan.sizes, features));
        self.bench.load(&self.world)?;
        self.summary.schemas += 1;
        for number in 0..self.plan.queries {
            if self.is_over() || only.is_some_and(|only| number > only) {
                break;
            }
            let mut rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number);
            if number % CHANGE_EVERY == CHANGE_EVERY - 1 {
                self.change(&mut rng, seed, number)?;
            }
            if only.is_some_and(|only| number != only) {
                continue;
            }
            if let Some(case) = self.case(&mut rng, number) {
                self.query(&case, seed, number)?;
            }
        }
        self.progress(seed);
        Ok(())
    }

    fn progress(&self, seed: u64) {
        if self.plan.is_verbose {
            let summary = &self.summary;
            eprintln!(
                "seed {seed}: {} queries, {:.0} % with rows, {} wrong, {:.0} s",
                summary.queries,
                summary.percent_with_rows(),
                summary.wrong.len(),
                self.start.elapsed().as_secs_f64()
            );
        }
    }

    /// A random case over the present tables.
    fn case(&mut self, rng: &mut Rng, number: u64) -> Option<Case> {
        let check = self.pick_check(rng);
        let settings = Settings::random(rng);
        let other = if rng.bool() {
            PLAIN
        } else {
            Settings::random(rng)
        };
        let then = match check {
            Check::Settings if rng.u8(0..3) == 0 => {
                // Names differ from those of indexes that stay.
                changes::layout(rng, &self.world, number + THEN_NUMBER)
            }
            _ => None,
        };
        let mut generator = Generator::new(rng, &self.world, self.plan.taste)?;
        let (query, predicate) = match check {
            Check::Duckdb | Check::Settings => (generator.query(), None),
            Check::Norec => {
                let counted = generator.predicated_count();
                (counted.query, Some(counted.predicate))
            }
            Check::Tlp => {
                let divided = generator.predicated();
                (divided.query, Some(divided.predicate))
            }
        };
        Some(Case {
            world: self.world.clone(),
            query,
            predicate,
            check,
            settings,
            other,
            then: then.map(|change| change.statements).unwrap_or_default(),
        })
    }

    fn pick_check(&self, rng: &mut Rng) -> Check {
        let others: Vec<Check> = self
            .plan
            .checks
            .iter()
            .copied()
            .filter(|check| *check != Check::Duckdb)
            .collect();
        let has_oracle = self.plan.checks.contains(&Check::Duckdb);
        if others.is_empty() || (has_oracle && rng.usize(0..OTHER_CHECK_EVERY) > 0) {
            return Check::Duckdb;
        }
        *pick(rng, &others)
    }

    fn query(&mut self, case: &Case, seed: u64, number: u64) -> Result<(), FuzzError> {
        self.note_running(case, seed, number);
        let before = self.bench.spilled_bytes();
        let verdict = self.bench.check(case)?;
        let spilled = self.bench.spilled_bytes() > before;
        self.summary.spilled += u64::from(spilled && before.is_some());
        if self.plan.replay.is_some() {
            eprint!(
                "{}",
                report::script(&format!("{seed}:{number}"), case, &verdict)
            );
            eprintln!("-- {}", report::outcome(&verdict));
        }
        self.judge(case, &verdict, seed, number)
    }

    /// What runs now, for the case that the process itself is aborted.
    fn note_running(&self, case: &Case, seed: u64, number: u64) {
        if let Some(out) = &self.plan.out {
            let text = format!("-- {seed}:{number}\n{}", report::statements_of(case));
            // A note only: the run goes on without it.
            let _ =
                std::fs::create_dir_all(out).and_then(|()| std::fs::write(out.join(RUNNING), text));
        }
    }

    fn judge(
        &mut self,
        case: &Case,
        verdict: &Verdict,
        seed: u64,
        number: u64,
    ) -> Result<(), FuzzError> {
        self.summary
            .count(case.check, verdict, &format!("{seed}:{number}"));
        if let Verdict::Wrong { found, expected } = verdict
            && let Some(known) = known::explain(case, found, expected)
        {
            *self.summary.known.entry(known.name).or_default() += 1;
            return Ok(());
        }
        if verdict.is_finding() {
            self.finding(case, verdict, seed, number)?;
        }
        Ok(())
    }

    fn finding(
        &mut self,
        case: &Case,
        verdict: &Verdict,
        seed: u64,
        number: u64,
    ) -> Result<(), FuzzError> {
        let name = format!("{seed}-{number}");
        let reduced = self.reduced(case, verdict);
        let verdict = match self.bench.check(&reduced) {
            Ok(again) if again.is_like(verdict) => again,
            _ => verdict.clone(),
        };
        let script = report::script(&name, &reduced, &verdict);
        if self.plan.is_verbose {
            eprintln!(
                "\n{}: {}\n{}",
                name,
                report::outcome(&verdict),
                report::statements_of(&reduced)
            );
        }
        let statement = render::query(&reduced.query, Dialect::Hotshelf);
        self.summary
            .wrong
            .push(format!("{name} ({}): {statement}", case.check));
        if let Some(out) = &self.plan.out {
            let path = out.join(format!("{name}.sql"));
            let written = std::fs::create_dir_all(out).and_then(|()| std::fs::write(&path, script));
            written.map_err(|source| FuzzError::Io {
                what: "write",
                path,
                source,
            })?;
        }
        self.bench.load(&self.world)
    }

    fn reduced(&mut self, case: &Case, verdict: &Verdict) -> Case {
        let bench = &mut self.bench;
        let mut fails = |candidate: &Case| {
            let again = bench.check(candidate);
            again.is_ok_and(|again| again.is_like(verdict) && !is_known(candidate, &again))
        };
        // What fails only after this history of changes stays as it is.
        let fresh = Case {
            world: Arc::new(World::clone(&case.world)),
            ..case.clone()
        };
        if !fails(&fresh) {
            return case.clone();
        }
        reduce(fresh, self.plan.reduce, &mut fails)
    }

    /// Changes a table in both engines and reads what it is then.
    fn change(&mut self, rng: &mut Rng, seed: u64, number: u64) -> Result<(), FuzzError> {
        let Some(change) = changes::any(rng, &self.world, number) else {
            return Ok(());
        };
        for statement in &change.statements {
            if let Err(failure) = self.bench.run(statement, &PLAIN) {
                let kind = format!("{statement:.14}: {}", failure.summary());
                report::note(
                    &mut self.summary.only_we_refuse,
                    kind,
                    &format!("{seed}:{number}"),
                );
                return self.bench_again();
            }
        }
        for statement in &change.for_oracle {
            if let Some(Err(_)) = self.bench.run_oracle(statement)? {
                return self.bench_again();
            }
        }
        self.summary.changes += 1;
        self.follow(&change, seed, number)
    }

    /// Loads the tables as they were before a change that only one engine made.
    fn bench_again(&mut self) -> Result<(), FuzzError> {
        self.world = Arc::new(World::clone(&self.world));
        self.bench.load(&self.world)
    }

    fn follow(&mut self, change: &Change, seed: u64, number: u64) -> Result<(), FuzzError> {
        let mut world = World::clone(&self.world);
        let table = world
            .tables
            .iter_mut()
            .find(|table| table.name == change.table);
        match (&change.effect, table) {
            (Effect::Gone, _) => world.tables.retain(|table| table.name != change.table),
            (Effect::Indexed(index), Some(table)) => table.indexes.push(index.clone()),
            (Effect::Unindexed(name), Some(table)) => {
                table.indexes.retain(|index| index.name != *name)
            }
            (Effect::Merged, Some(table)) => table.files = vec![table.row_count()],
            (Effect::Grows, Some(table)) => {
                let columns = table
                    .columns
                    .iter()
                    .map(|column| (column.name.clone(), column.ty));
                let columns: Vec<(String, Type)> = columns.collect();
                let indexes = table.indexes.clone();
                let Some(made) = self.read_back(&change.table, &columns, seed, number)? else {
                    return self.bench_again();
                };
                *table = Table { indexes, ..made };
            }
            (Effect::Made(columns, index), _) => {
                let Some(made) = self.read_back(&change.table, columns, seed, number)? else {
                    return self.bench_again();
                };
                world.tables.retain(|table| table.name != change.table);
                let indexes = index.iter().cloned().collect();
                world.tables.push(Table { indexes, ..made });
            }
            (_, None) => {}
        }
        self.world = Arc::new(world);
        self.bench.adopt(&self.world);
        Ok(())
    }

    /// A table as it is after a change; `None` if it cannot be read. Rows that differ from the oracle's are a finding.
    fn read_back(
        &mut self,
        name: &str,
        columns: &[(String, Type)],
        seed: u64,
        number: u64,
    ) -> Result<Option<Table>, FuzzError> {
        let query = changes::contents(name, columns);
        let rows = match self
            .bench
            .run(&render::query(&query, Dialect::Hotshelf), &PLAIN)
        {
            Ok(rows) => rows,
            Err(_) => return Ok(None),
        };
        if let Some(Ok(expected)) = self
            .bench
            .run_oracle(&render::query(&query, Dialect::Duckdb))?
            && !crate::answers::rows::same_rows(&rows, &expected, false)
        {
            let verdict = Verdict::Wrong {
                found: rows,
                expected,
            };
            self.changed_wrongly(query, &verdict, seed, number)?;
            return Ok(None);
        }
        Ok(Some(table(name, columns, &rows)))
    }

    fn changed_wrongly(
        &mut self,
        query: Query,
        verdict: &Verdict,
        seed: u64,
        number: u64,
    ) -> Result<(), FuzzError> {
        let case = Case {
            world: self.world.clone(),
            query,
            predicate: None,
            check: Check::Duckdb,
            settings: PLAIN,
            other: PLAIN,
            then: Vec::new(),
        };
        self.finding(&case, verdict, seed, number)
    }
}

fn is_known(case: &Case, verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wrong { found, expected } if known::explain(case, found, expected).is_some())
}

fn table(name: &str, columns: &[(String, Type)], rows: &Rows) -> Table {
    let column = |(idx, (name, ty)): (usize, &(String, Type))| {
        let values = rows.iter().map(|row| row[idx].to_value(*ty));
        Column::new(name, *ty, values.collect())
    };
    Table {
        name: name.to_owned(),
        columns: columns.iter().enumerate().map(column).collect(),
        files: vec![rows.len()]
            .into_iter()
            .filter(|rows| *rows > 0)
            .collect(),
        indexes: Vec::new(),
    }
}
