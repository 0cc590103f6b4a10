//! `hotshelf probe`: measures a tier, says how it wants to be used, and leaves that with a database.

mod measure;
mod output;

use std::fs;
use std::path::{Path, PathBuf};

use hotshelf::{Database, Options};
use hotshelf_tier::probe::ProbeReport;
use hotshelf_tier::profile::{Derivation, Fingerprint, MachineProfile, ProfileOrigin};
use hotshelf_tier::topology::Topology;

use crate::failure::{Failure, Result, note};
use crate::flags::{Probe, ProbeSource};
use crate::output::Target;

pub fn run(probe: &Probe) -> Result<()> {
    check_places(probe)?;
    // Nobody else changes its profile meanwhile.
    let _database = probe.db.as_deref().map(hold).transpose()?;
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
        output::tell(&report, &derivation, probe.explain, rows_on_stdout)?;
    }
    match &probe.db {
        Some(folder) => store(folder, derivation, &report, probe, &topology),
        None => Ok(()),
    }
}

/// Finds out what cannot work before minutes of measuring.
fn check_places(probe: &Probe) -> Result<()> {
    if let Some(folder) = &probe.db
        && !folder.join("catalog.sqlite").exists()
    {
        let missing = hotshelf::StoreError::NotADatabase {
            path: folder.clone(),
            what: "it has no catalog.sqlite".to_owned(),
        };
        return Err(Failure::Engine(missing.into()));
    }
    let folder = probe.out.as_deref().and_then(Path::parent);
    match folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => Err(Failure::usage(
            format!("{} is no folder", folder.display()),
            "make it first, or write the measurements elsewhere",
        )),
        None => Ok(()),
    }
}

/// Opens a database to keep others out of it.
fn hold(folder: &Path) -> Result<Database> {
    let options = Options {
        machine_profile: false,
        ..Options::default()
    };
    Ok(Database::open(folder, options)?)
}

/// The measurements of an earlier probe.
fn read(path: &Path) -> Result<ProbeReport> {
    let text = fs::read(path).map_err(Failure::io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| Failure::NoProbe {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// Adds a tier to the profile of a database.
fn store(
    folder: &Path,
    derivation: Derivation,
    report: &ProbeReport,
    probe: &Probe,
    topology: &Topology,
) -> Result<()> {
    let differences = report.fingerprint.differences(&Fingerprint::of(topology));
    if !differences.is_empty() {
        return Err(Failure::OtherMachine {
            path: match &probe.source {
                ProbeSource::File(path) => path.clone(),
                ProbeSource::Measure(_) => PathBuf::from(&report.tier),
            },
            differences: differences.join("; "),
        });
    }
    derivation.check()?;
    let profile = derivation.profile;
    let (mut machine, origin) = MachineProfile::load(folder, topology)?;
    if !matches!(origin, ProfileOrigin::Measured | ProfileOrigin::Missing) {
        note(&format!("the profile that was there is replaced: {origin}"));
    }
    machine.tiers.insert(profile.tier.clone(), profile);
    machine.save(folder)?;
    note(&format!(
        "the profile of {} is kept in {}",
        report.tier,
        folder.display()
    ));
    Ok(())
}
