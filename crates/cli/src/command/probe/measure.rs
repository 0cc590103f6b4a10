//! Measuring: plan first, then points with progress, Ctrl-C between two of them.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hotshelf::probe::{
    Plan, PlanOptions, ProbeOptions, ProbeReport, ProbeTarget, TierError, Topology, probe,
    resumable_count,
};

use crate::failure::{Failure, Result, note};
use crate::flags::Measure;
use crate::interrupt;
use crate::progress::Progress;

/// Measures, unless only the plan was asked for. An interrupted probe is a failure.
pub(super) fn run(
    measure: &Measure,
    topology: &Topology,
    journal: Option<PathBuf>,
) -> Result<Option<ProbeReport>> {
    let target = absolute(&measure.target)?;
    let plan_options = PlanOptions {
        quick: measure.quick,
    };
    let mut plan = Plan::new(&target, topology, &plan_options);
    keep_only(&mut plan, &measure.only)?;
    let options = ProbeOptions {
        quick: measure.quick,
        journal,
        working_set_bytes: measure.working_set_bytes,
        plan: Some(plan.clone()),
        overwrite_device: measure.overwrite_device,
        keep_file: measure.keep_file,
    };
    tell_plan(&target, &plan);
    if measure.dry_run {
        return Ok(None);
    }
    let done_before = match measure.fresh {
        true => forget(options.journal.as_deref()).map(|()| 0)?,
        false => resumable_count(&target, topology, &options)?,
    };
    if done_before > 0 {
        note(&format!(
            "going on: {done_before} of {} measurements were made before (--fresh begins anew)",
            plan.step_count()
        ));
    }
    let stop = interrupt::flag();
    let started = Instant::now();
    let mut progress = Progress::start(format!("probe {target}"), "measurements");
    let mut done_count = done_before;
    let report = probe(&target, topology, &options, &mut |now| {
        done_count = now.done_count;
        let (done, total) = (now.done_count - done_before, now.total_count - done_before);
        progress.show(done as u64, total as u64);
        match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    progress.clear();
    if report.complete {
        note(&format!("measured in {}", duration(started.elapsed())));
        return Ok(Some(report));
    }
    let journal = options.journal.as_deref().map(Path::display);
    note(&format!(
        "{done_count} of {} measurements are made{}; the same call continues from there",
        plan.step_count(),
        journal.map_or(String::new(), |path| format!(" and noted in {path}")),
    ));
    Err(Failure::Interrupted)
}

/// Drops the points that were not asked for.
fn keep_only(plan: &mut Plan, only: &[String]) -> Result<()> {
    let example = plan.points.first().map(ToString::to_string);
    plan.points.retain(|point| {
        let point = point.to_string();
        only.is_empty() || only.iter().any(|text| point.contains(text.as_str()))
    });
    match (plan.points.is_empty(), example) {
        (true, Some(example)) => Err(Failure::usage(
            format!("no point of the plan is described by {only:?}"),
            format!("a part of a description is enough, for example of {example:?}"),
        )),
        _ => Ok(()),
    }
}

/// Folders by their full names, so that a profile means the same wherever it is read.
fn absolute(target: &ProbeTarget) -> Result<ProbeTarget> {
    let full =
        |path: &Path| fs::canonicalize(path).map_err(|error| TierError::io(path, "open", error));
    match target {
        ProbeTarget::File(path) => {
            let folder = full(path)?;
            match folder.is_dir() {
                true => Ok(ProbeTarget::File(folder)),
                false => Err(Failure::usage(
                    format!("{} is not a folder", path.display()),
                    "name the folder to measure in: a file of its own is made there, and removed",
                )),
            }
        }
        ProbeTarget::Dax(path) => Ok(ProbeTarget::Dax(full(path)?)),
        other => Ok(other.clone()),
    }
}

fn tell_plan(target: &ProbeTarget, plan: &Plan) {
    let emulated = match target {
        ProbeTarget::Emulated(_) => " (emulated: the numbers come from a model, in simulated time)",
        _ => "",
    };
    note(&format!(
        "probe {target}: {} points{}, about {}{emulated}",
        plan.points.len(),
        match plan.round_count {
            0 | 1 => String::new(),
            rounds => format!(" in {rounds} rounds"),
        },
        duration(plan.duration())
    ));
    for (axis, count) in plan.outline() {
        note(&format!("  {count:4} {axis}"));
    }
}

/// Where to note what is done. Emulated tiers are done at once.
pub(super) fn journal_path(measure: &Measure, out: Option<&Path>) -> Result<Option<PathBuf>> {
    // A whole probe cannot continue a part of one.
    if measure.journal.is_some() || measure.dry_run || !measure.only.is_empty() {
        return Ok(measure.journal.clone());
    }
    if matches!(measure.target, ProbeTarget::Emulated(_)) {
        return Ok(None);
    }
    if let Some(out) = out {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".journal");
        return Ok(Some(out.with_file_name(name)));
    }
    let folder = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let Some(folder) = cache.map(|cache| cache.join("hotshelf")) else {
        return Ok(None);
    };
    fs::create_dir_all(&folder).map_err(Failure::io("create", &folder))?;
    let tier: String = measure
        .target
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let kind = if measure.quick { "quick" } else { "full" };
    Ok(Some(folder.join(format!("probe-{tier}-{kind}.journal"))))
}

fn forget(journal: Option<&Path>) -> Result<()> {
    let Some(path) = journal else {
        return Ok(());
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// `2 min 13 s`
fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_seconds_or_minutes() {
        for (millis, text) in [(7, "7 ms"), (59_900, "59 s"), (133_000, "2 min 13 s")] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }
}
