//! `hotshelf probe`: measures a tier, says how it wants to be used, and leaves that with a database.

mod measure;
mod output;

use std::fs;
use std::path::{Path, PathBuf};

use hotshelf::probe::{
    Derivation, Fingerprint, HeldDatabase, ProbeReport, ProfileOrigin, Topology,
};

use crate::failure::{Failure, Result, note};
use crate::flags::{Probe, ProbeSource};
use crate::output::Target;

pub fn run(probe: &Probe) -> Result<()> {
    // No other program changes its profile meanwhile.
    let held = probe.db.as_deref().map(HeldDatabase::hold).transpose()?;
    check_folder(probe.out.as_deref())?;
    let topology = Topology::read();
    let report = match &probe.source {
        ProbeSource::File(path) => read(path)?,
        ProbeSource::Measure(measure) => {
            let journal = measure::journal_path(measure, probe.out.as_deref())?;
            match measure::run(measure, &topology, journal)? {
                Some(report) => report,
                None => return Ok(()),
            }
        }
    };
    let derivation = Derivation::of(&report);
    let profile = &derivation.profile;
    if let Some(format) = probe.format {
        let target = probe.out.clone().map_or(Target::Stdout, Target::File);
        output::write_rows(&report, profile, format, target)?;
    }
    if let Some(out) = &probe.out {
        output::draw(&report, &out.with_extension("svg"))?;
    }
    // Standard output carries either the measurements or the profile.
    let rows_on_stdout = probe.format.is_some() && probe.out.is_none();
    if !rows_on_stdout || probe.explain {
        output::print_profile(&report, &derivation, probe.explain, rows_on_stdout)?;
    }
    match (&held, &probe.db) {
        (Some(held), Some(folder)) => {
            check_machine(&report, probe, &topology)?;
            keep(held, folder, derivation, &report, &topology)
        }
        _ => Ok(()),
    }
}

/// Finds out what cannot be written before minutes of measuring.
fn check_folder(out: Option<&Path>) -> Result<()> {
    let folder = out.and_then(Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(Failure::usage(
            format!("{} is not a folder", folder.display()),
            "make it first, or write the measurements elsewhere",
        )),
        None => Ok(()),
    }
}

/// The measurements of an earlier probe.
fn read(path: &Path) -> Result<ProbeReport> {
    let text = fs::read(path).map_err(Failure::io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| Failure::NotAProbe {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// Refuses measurements of another machine.
fn check_machine(report: &ProbeReport, probe: &Probe, topology: &Topology) -> Result<()> {
    let differences = report.fingerprint.differences(&Fingerprint::of(topology));
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::OtherMachine {
        path: match &probe.source {
            ProbeSource::File(path) => path.clone(),
            ProbeSource::Measure(_) => PathBuf::from(&report.tier),
        },
        differences: differences.join("; "),
    })
}

/// Adds a tier to the profile of a database.
fn keep(
    held: &HeldDatabase,
    folder: &Path,
    derivation: Derivation,
    report: &ProbeReport,
    topology: &Topology,
) -> Result<()> {
    let origin = held.keep(derivation, topology)?;
    if !matches!(origin, ProfileOrigin::Measured | ProfileOrigin::Missing) {
        note(&format!("the profile that was there is replaced: {origin}"));
    }
    note(&format!(
        "the profile of {} is kept in {}",
        report.tier,
        folder.display()
    ));
    Ok(())
}
