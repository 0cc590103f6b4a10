//! `hotshelf verify`: are the bytes on disk still those that were written?

use std::path::Path;

use hotshelf::Options;

use crate::failure::{Failure, Result, note};
use crate::opened::Opened;
use crate::output::print_lines;
use crate::progress::{Progress, bytes};

pub fn run(folder: &Path) -> Result<()> {
    let options = Options {
        create: false,
        ..Options::default()
    };
    let database = Opened::open(Some(folder), options)?;
    let mut progress = Progress::start("verify", "files");
    let report = database.verify(|done, all| progress.show(done as u64, all as u64))?;
    progress.clear();
    let mut lines: Vec<String> = report
        .damage
        .iter()
        .map(|damage| format!("{}: {}", damage.what, damage.error))
        .collect();
    if report.catalog != "ok" {
        lines.push(format!("catalog: {}", report.catalog));
    }
    let damage_count = lines.len();
    let unread = report.unread.iter();
    lines.extend(unread.map(|file| format!("{}: not read: {}", file.what, file.error)));
    print_lines(&lines)?;
    if !lines.is_empty() {
        return Err(Failure::Damaged {
            path: folder.to_owned(),
            damage_count,
        });
    }
    note(&format!(
        "{} {}, {}: all checksums are right",
        report.file_count,
        if report.file_count == 1 {
            "file"
        } else {
            "files"
        },
        bytes(report.file_bytes)
    ));
    Ok(())
}
