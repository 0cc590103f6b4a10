//! `hotshelf-lab scan-compare`: the same columns of the same files through Hotshelf's segment cache and through plain
//! `vortex-datafusion`, in alternating runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use hotshelf::{Database, Options, PolicyKind};
use vortex::VortexSessionDefault;
use vortex::io::session::RuntimeSessionExt;
use vortex::session::VortexSession;
use vortex_datafusion::VortexFormatFactory;

use super::{Result, median};

/// What the help says below the flags.
pub const EXAMPLES: &str = "\
Examples:
  hotshelf-lab scan-compare mydb lineorder lo_revenue,lo_discount";

#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Folder of the database
    #[arg(value_name = "DB")]
    database: PathBuf,
    /// The table
    table: String,
    /// Columns to sum
    #[arg(value_delimiter = ',')]
    columns: Vec<String>,
    /// Measured runs; medians are shown
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Runs the command.
pub fn run(flags: &Flags) -> Result<()> {
    let table = flags.table.as_str();
    let options = Options {
        budget_bytes: 16 << 30,
        policy: PolicyKind::All,
        ..Options::default()
    };
    let database = Database::open(&flags.database, options.clone())?;
    let ours = database.session();
    let sums: Vec<String> = flags
        .columns
        .iter()
        .map(|column| format!("sum({column})"))
        .collect();
    let sql = |from: &str| format!("SELECT {} FROM {from}", sums.join(", "));
    let (mut ours_s, mut plain_s) = (Vec::new(), Vec::new());
    database.block_on(async {
        let plain = plain_context(&flags.database, table, options.threads).await?;
        for run in 0..=flags.runs {
            let start = Instant::now();
            let answer = ours.sql(&sql(table)).await?.collect().await?;
            let ours_run = start.elapsed().as_secs_f64();
            let start = Instant::now();
            let other = plain.sql(&sql("plain")).await?.collect().await?;
            let plain_run = start.elapsed().as_secs_f64();
            assert_eq!(
                format!("{:?}", answer[0].columns()),
                format!("{:?}", other[0].columns()),
                "answers differ"
            );
            // The first run warms both caches.
            if run > 0 {
                ours_s.push(ours_run);
                plain_s.push(plain_run);
            }
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let (ours_s, plain_s) = (median(ours_s), median(plain_s));
    println!(
        "hotshelf {ours_s:.3} s, vortex-datafusion {plain_s:.3} s, speed ratio {:.2}",
        plain_s / ours_s
    );
    Ok(())
}

/// DataFusion with the published Vortex table source over the table's own files.
async fn plain_context(folder: &Path, table: &str, threads: usize) -> Result<SessionContext> {
    let session = VortexSession::default().with_tokio();
    let factory = Arc::new(VortexFormatFactory::new_with_session(session));
    let mut builder = SessionStateBuilder::new()
        .with_config(SessionConfig::new().with_target_partitions(threads))
        .with_default_features()
        .with_table_factory(
            "VORTEX".into(),
            Arc::new(datafusion::datasource::provider::DefaultTableFactory::new()),
        );
    if let Some(formats) = builder.file_formats() {
        formats.push(factory);
    }
    let context = SessionContext::new_with_state(builder.build());
    let data = folder.join("data");
    let location = std::fs::read_dir(&data)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(table))
        })
        .unwrap_or(data);
    let create = format!(
        "CREATE EXTERNAL TABLE plain STORED AS VORTEX LOCATION '{}/'",
        location.display()
    );
    context.sql(&create).await?;
    Ok(context)
}
