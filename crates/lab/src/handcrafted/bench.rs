//! The data of one scale and tier, and one query run over them.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hotshelf_datagen::ssb::SsbGenerator;
use hotshelf_tier::TierError;
use hotshelf_tier::emulated::{DeviceModel, EmulatedTier, Reach};
use hotshelf_tier::probe::{Operation, Pattern};
use hotshelf_tier::topology::Topology;

use super::bandwidth::Sequential;
use super::crew::{self, Crew, Step, Worker};
use super::dash::DashError;
use super::dimension::Dimensions;
use super::disk::DiskRows;
use super::fact::{Fact, Layout};
use super::lookup::Kind;
use super::pace::Pace;
use super::plan::{Plan, Sums};
use super::queries::{Answer, StarQuery};
use super::{columns, rows, unaware};

/// Bytes that a region of an emulated device needs: the data lie in ordinary memory.
const DEVICE_BYTES: usize = 1 << 20;

/// What runs a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// The product
    Engine,
    /// Handcrafted, over columns
    Columns,
    /// Handcrafted, over the paper's rows of 128 bytes
    Rows,
    /// An operator after the other, as if the tier were ordinary memory
    Unaware,
}

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Columns => "columns",
            Self::Rows => "rows",
            Self::Unaware => "unaware",
        }
    }
}

impl Contender {
    /// Files hold rows, and the product has files of its own.
    pub fn runs_on(self, tier: &Tier) -> bool {
        let reads_rows = matches!(self, Self::Engine | Self::Rows);
        reads_rows || !matches!(tier, Tier::File(_))
    }
}

/// Where the data lie.
#[derive(Debug, Clone, PartialEq)]
pub enum Tier {
    Dram,
    /// The fact table as rows in files, look-ups in memory.
    File(std::path::PathBuf),
    Emulated(Box<DeviceModel>),
}

impl Tier {
    pub fn name(&self) -> String {
        match self {
            Self::Dram => "dram".to_owned(),
            Self::File(folder) => format!("file:{}", folder.display()),
            Self::Emulated(model) => format!("emulated:{}", model.name),
        }
    }
}

/// How queries are run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub look_ups: Kind,
    pub step: Step,
    pub threads: usize,
    /// On emulated tiers: divide the CPUs among two emulated sockets.
    pub emulated_sockets: bool,
    /// On emulated tiers: bytes of look-ups that the processor's cache keeps.
    pub cpu_cache_bytes: usize,
}

/// The tables in memory.
#[derive(Debug)]
pub struct Tables {
    fact: Fact,
    /// One copy for each socket.
    dimensions: Vec<Dimensions>,
    nodes: Vec<Option<u32>>,
}

impl Tables {
    /// Generates them for these sockets, in the formats that the contenders and tiers need.
    ///
    /// # Errors
    /// That there is no memory for them.
    pub fn generate(
        generator: &SsbGenerator,
        crew: &Crew,
        contenders: &[Contender],
        tiers: &[Tier],
    ) -> Result<Self, TierError> {
        let nodes = crew.nodes();
        let needs = |wanted: &[Contender]| contenders.iter().any(|one| wanted.contains(one));
        let on_disk = tiers.iter().any(|tier| matches!(tier, Tier::File(_)));
        let layout = Layout {
            nodes: &nodes,
            columns: needs(&[Contender::Columns, Contender::Unaware]),
            rows: needs(&[Contender::Rows]) || on_disk,
        };
        let fact = Fact::generate(generator, &layout)?;
        let dimensions = Dimensions::generate(generator);
        let replicas = crew::run(&crew.one_per_socket(), |_| dimensions.clone());
        Ok(Self {
            fact,
            dimensions: replicas,
            nodes,
        })
    }

    /// Whether they are striped as a crew wants them.
    pub fn suit(&self, crew: &Crew) -> bool {
        self.nodes == crew.nodes()
    }
}

/// The sockets and threads for a tier.
pub fn crew_for(tier: &Tier, settings: &Settings) -> Crew {
    let topology = Topology::read();
    let new_crew = match tier {
        Tier::Emulated(_) if settings.emulated_sockets => Crew::emulated_sockets,
        _ => Crew::new,
    };
    new_crew(&topology, settings.step, settings.threads)
}

/// The tables on a tier, ready to be asked.
pub struct Bench<'a> {
    tables: &'a Tables,
    disk: Option<DiskRows>,
    devices: Vec<Arc<EmulatedTier>>,
    limit: Limit,
    pub crew: Crew,
    settings: Settings,
}

/// How fast consecutive reads are.
enum Limit {
    Memory(Sequential),
    Known(f64),
}

/// One run of one query.
#[derive(Debug)]
pub struct Run {
    pub seconds: f64,
    /// Of these, for choosing rows of dimensions and building look-ups.
    pub build_s: f64,
    pub bytes: u64,
    pub answer: Answer,
}

impl<'a> Bench<'a> {
    /// Puts the tables, which suit the crew, on a tier.
    ///
    /// # Errors
    /// That there is no such device, or no room for files.
    pub fn new(
        tables: &'a Tables,
        crew: Crew,
        tier: &Tier,
        settings: &Settings,
    ) -> Result<Self, TierError> {
        let disk = match tier {
            Tier::File(folder) => Some(DiskRows::write(&tables.fact, folder)?),
            _ => None,
        };
        let device = |model: &DeviceModel| EmulatedTier::new(model.clone(), DEVICE_BYTES);
        let devices = match tier {
            Tier::Emulated(model) => tables
                .nodes
                .iter()
                .map(|_| device(model).map(Arc::new))
                .collect::<Result<_, _>>()?,
            _ => Vec::new(),
        };
        Ok(Self {
            limit: Self::limit(tier, &crew, disk.as_ref(), devices.len())?,
            tables,
            disk,
            devices,
            crew,
            settings: settings.clone(),
        })
    }

    /// Bytes per second that consecutive reads reach: of memory as it is now, of files as it was in the beginning, and
    /// the emulated device's.
    pub fn bandwidth(&self) -> f64 {
        match &self.limit {
            Limit::Memory(memory) => memory.measure(&self.crew),
            Limit::Known(bytes_per_s) => *bytes_per_s,
        }
    }

    fn limit(
        tier: &Tier,
        crew: &Crew,
        disk: Option<&DiskRows>,
        devices: usize,
    ) -> Result<Limit, TierError> {
        Ok(match (tier, disk) {
            (Tier::Dram, _) => Limit::Memory(Sequential::new(crew)?),
            (Tier::Emulated(model), _) => {
                let threads = (crew.thread_count() / devices.max(1)) as u32;
                let read = model.direction(Operation::Read);
                let each = read.bandwidth(Pattern::Sequential, 4096, threads);
                Limit::Known(each * devices as f64)
            }
            (Tier::File(_), Some(disk)) => Limit::Known(disk_bandwidth(disk, crew)?),
            (Tier::File(_), None) => Limit::Known(f64::NAN),
        })
    }

    /// Runs a query.
    ///
    /// # Errors
    /// Those of look-ups and files.
    pub fn run(&self, query: &'static StarQuery, contender: Contender) -> Result<Run, DashError> {
        let kind = match contender {
            Contender::Unaware => Kind::Hash,
            _ => self.settings.look_ups,
        };
        let start = Instant::now();
        let build = |worker: &Worker| {
            let plan = Plan::new(query, &self.tables.dimensions[worker.socket], kind)?;
            self.wait_for_build(worker, &plan);
            Ok(plan)
        };
        // Each socket has look-ups of its own. A single one needs no thread for that.
        let plans = match self.crew.one_per_socket().as_slice() {
            [only] => vec![build(only)],
            sockets => crew::run(sockets, build),
        };
        let plans: Vec<Plan> = plans.into_iter().collect::<Result<_, DashError>>()?;
        let build_s = start.elapsed().as_secs_f64();
        let stripe_rows: Vec<usize> = self
            .tables
            .fact
            .stripes
            .iter()
            .map(|stripe| stripe.rows)
            .collect();
        let workers = self.crew.workers(&stripe_rows);
        let results = crew::run(&workers, |worker| {
            self.work(worker, &plans[worker.socket], contender)
        });
        let mut bytes = 0;
        let mut sums: Option<Sums> = None;
        for result in results {
            let (own, own_bytes) = result?;
            bytes += own_bytes;
            sums = Some(match sums {
                Some(sums) => sums.merge(&own),
                None => own,
            });
        }
        let answer = sums.map(|sums| plans[0].answer(&sums)).unwrap_or_default();
        Ok(Run {
            seconds: start.elapsed().as_secs_f64(),
            build_s,
            bytes,
            answer,
        })
    }

    fn work(
        &self,
        worker: &Worker,
        plan: &Plan,
        contender: Contender,
    ) -> Result<(Sums, u64), TierError> {
        let mut sums = Sums::new(plan.group_count);
        let mut bytes = 0;
        for (stripe_idx, part) in &worker.parts {
            let mut pace = self.pace(worker, plan, *stripe_idx, contender);
            let stripe = &self.tables.fact.stripes[*stripe_idx];
            let own = match (&self.disk, contender) {
                (Some(disk), _) => disk.run(plan, *stripe_idx, part.clone(), &mut pace)?,
                (None, Contender::Rows) => rows::run(plan, stripe, part.clone(), &mut pace),
                (None, Contender::Unaware) => unaware::run(plan, stripe, part.clone(), &mut pace),
                (None, _) => columns::run(plan, stripe, part.clone(), &mut pace),
            };
            sums = sums.merge(&own);
            bytes += pace.bytes;
        }
        Ok((sums, bytes))
    }

    /// How a worker waits for a stripe's memory.
    fn pace(&self, worker: &Worker, plan: &Plan, stripe: usize, contender: Contender) -> Pace {
        let is_unaware = contender == Contender::Unaware;
        let reach = match (is_unaware, worker.is_near || stripe == worker.socket) {
            (true, _) => Reach::Unpinned,
            (false, true) => Reach::Near,
            (false, false) => Reach::BothFar,
        };
        let look_up_bytes: usize = plan.joins.iter().map(|join| join.look_up.bytes()).sum();
        let kept = self.settings.cpu_cache_bytes as f64 / look_up_bytes.max(1) as f64;
        let missing = match plan.joins.iter().any(|join| join.look_up.is_on_tier()) {
            true => (1.0 - kept).max(0.0),
            false => 0.0,
        };
        Pace::new(self.devices.get(stripe).cloned(), reach, missing)
    }

    /// Building a hash table on the device writes every record's bucket there.
    fn wait_for_build(&self, worker: &Worker, plan: &Plan) {
        let Some(device) = self.devices.get(worker.socket) else {
            return;
        };
        let pace = Pace::new(Some(Arc::clone(device)), Reach::Near, 1.0);
        for join in &plan.joins {
            let len_bytes = columns::look_up_bytes(&join.look_up);
            if join.look_up.is_on_tier() {
                pace.wait(
                    Operation::Write,
                    Pattern::Random,
                    join.records as u32,
                    len_bytes,
                );
            }
        }
    }
}

/// Bytes per second that all threads read of a file.
fn disk_bandwidth(disk: &DiskRows, crew: &Crew) -> Result<f64, TierError> {
    let workers = crew.workers(&disk.stripe_rows());
    let start = Instant::now();
    let read = crew::run(&workers, |worker| {
        let mut pace = Pace::new(None, Reach::Near, 0.0);
        for (stripe, part) in &worker.parts {
            disk.read(*stripe, part.clone(), &mut pace, |_, _| ())?;
        }
        Ok(pace.bytes)
    });
    let bytes: u64 = read.into_iter().sum::<Result<u64, TierError>>()?;
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// Makes a folder for files of a tier.
///
/// # Errors
/// That it cannot be made.
pub fn make_folder(folder: &Path) -> Result<(), TierError> {
    std::fs::create_dir_all(folder).map_err(|source| TierError::io(folder, "create", source))
}
