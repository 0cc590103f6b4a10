//! `hotshelf-lab plain-vortex`: statements from standard input through plain `vortex-datafusion` over a database's own
//! files, with Vortex's Moka segment cache; how long each took goes to standard error. For `benchmarks/rivals.py`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use hotshelf::{Database, Options};
use vortex::VortexSessionDefault;
use vortex::error::VortexResult;
use vortex::file::OpenOptionsSessionExt;
use vortex::io::session::RuntimeSessionExt;
use vortex::layout::LayoutReaderRef;
use vortex::layout::scan::multi::{LayoutReaderFactory, MultiLayoutDataSource};
use vortex::layout::segments::{MokaSegmentCache, SegmentEviction};
use vortex::session::VortexSession;
use vortex_datafusion::v2::VortexTable;

type Failure = Box<dyn std::error::Error>;

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab plain-vortex mydb lru 400000000 < statements.sql";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// Which segments its cache drops
    eviction: Eviction,
    /// Size of its cache
    cache_bytes: u64,
    /// Threads
    #[arg(default_value_t = 2)]
    threads: usize,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Eviction {
    Lru,
    Tinylfu,
    /// No cache
    None,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    let eviction = match flags.eviction {
        Eviction::Lru => Some(SegmentEviction::Lru),
        Eviction::Tinylfu => Some(SegmentEviction::TinyLfu),
        Eviction::None => None,
    };
    let cache = eviction.map(|eviction| MokaSegmentCache::new(flags.cache_bytes, eviction));
    let (folder, threads) = (flags.database.as_path(), flags.threads);
    let schemas = schemas(folder)?;
    let mut statements = String::new();
    std::io::stdin().read_to_string(&mut statements)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()?
        .block_on(answer(folder, schemas, cache, threads, &statements))
}

async fn answer(
    folder: &Path,
    schemas: Vec<(String, arrow::datatypes::SchemaRef)>,
    cache: Option<MokaSegmentCache>,
    threads: usize,
    statements: &str,
) -> Result<(), Failure> {
    let config = SessionConfig::new().with_target_partitions(threads);
    let context = SessionContext::new_with_config(config);
    let session = VortexSession::default().with_tokio();
    for (name, schema) in schemas {
        let source = open(&session, &files(folder, &name)?, cache.as_ref()).await?;
        let table = VortexTable::new(Arc::new(source), session.clone(), schema);
        context.register_table(name.as_str(), Arc::new(table))?;
    }
    for statement in statements.split(';').filter(|text| !text.trim().is_empty()) {
        let start = Instant::now();
        let batches = context.sql(statement).await?.collect().await?;
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{rows} rows, {seconds:.6} s");
    }
    Ok(())
}

/// Tables and their columns, from the catalog.
fn schemas(folder: &Path) -> Result<Vec<(String, arrow::datatypes::SchemaRef)>, Failure> {
    let database = Database::open(folder, Options::default())?;
    let tables = database.tables().into_iter();
    Ok(tables.map(|table| (table.name, table.schema)).collect())
}

/// The data files of a table, in order.
fn files(folder: &Path, table: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder.join("data"))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.rsplit_once('-').is_some_and(|(of, _)| of == table) {
            for file in std::fs::read_dir(&path)? {
                let file = file?.path();
                files.extend(
                    file.extension()
                        .is_some_and(|end| end == "vortex")
                        .then_some(file),
                );
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A file that is open already.
struct Opened(LayoutReaderRef);

#[async_trait]
impl LayoutReaderFactory for Opened {
    async fn open(&self) -> VortexResult<Option<LayoutReaderRef>> {
        Ok(Some(self.0.clone()))
    }
}

async fn open(
    session: &VortexSession,
    paths: &[PathBuf],
    cache: Option<&MokaSegmentCache>,
) -> Result<MultiLayoutDataSource, Failure> {
    let (mut readers, mut sizes) = (Vec::new(), Vec::new());
    for path in paths {
        let mut options = session.open_options();
        if let Some(cache) = cache {
            let of_file = cache.for_file(path.to_string_lossy().into_owned());
            options = options.with_segment_cache(Arc::new(of_file));
        }
        readers.push(options.open_path(path).await?.layout_reader()?);
        sizes.push(Some(std::fs::metadata(path)?.len()));
    }
    let mut readers = readers.into_iter();
    let first = readers
        .next()
        .ok_or_else(|| DataFusionError::Plan("a table without files".into()))?;
    let others = readers.map(|reader| Arc::new(Opened(reader)) as Arc<dyn LayoutReaderFactory>);
    Ok(MultiLayoutDataSource::new_with_first(
        first,
        others.collect(),
        sizes,
        session,
    ))
}
