//! What a probe found, as rows, as heat maps and in words.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use hotshelf::probe::{Derivation, ProbeReport, Row, TierProfile};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Result, note};
use crate::output::{Format, Output, Target, print_lines, write_lines};
use crate::picture::heat_map;

/// Points without a number that are named; further ones are only counted.
const REFUSED_SHOWN_MAX: usize = 5;

/// A probe's JSON: the report, and what follows from it.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a ProbeReport,
    profile: &'a TierProfile,
}

/// Writes the measurements: as one JSON document with all there is to know, or as rows of any other format.
pub(super) fn write_rows(
    report: &ProbeReport,
    profile: &TierProfile,
    format: Format,
    target: Target,
) -> Result<()> {
    if format == Format::Json {
        let document = Document { report, profile };
        let text = serde_json::to_string_pretty(&document);
        let text = text.map_err(|error| Failure::Format {
            format: "json",
            what: error.to_string(),
        })?;
        return write_lines(target, &[text]);
    }
    let mut output = Output::open(target, format)?;
    output.print(&batch(&report.rows)?)?;
    output.close()
}

/// One row per measurement, with the fields of its JSON as columns.
fn batch(rows: &[Row]) -> Result<RecordBatch> {
    let failure = |what: String| Failure::Format {
        format: "rows",
        what,
    };
    let values = rows.iter().map(serde_json::to_value);
    let values: Vec<Value> = values
        .collect::<Result<_, _>>()
        .map_err(|error| failure(error.to_string()))?;
    let text = |name: &'static str| {
        let texts = values.iter().map(|value| value[name].as_str());
        (name, Arc::new(texts.collect::<StringArray>()) as ArrayRef)
    };
    let whole = |name: &'static str| {
        let numbers = values.iter().map(|value| value[name].as_u64());
        (name, Arc::new(numbers.collect::<UInt64Array>()) as ArrayRef)
    };
    let real = |name: &'static str| {
        let numbers = values.iter().map(|value| value[name].as_f64());
        (
            name,
            Arc::new(numbers.collect::<Float64Array>()) as ArrayRef,
        )
    };
    let switch = |name: &'static str| {
        let switches = values
            .iter()
            .map(|value| Some(value[name].as_bool().unwrap_or(false)));
        (
            name,
            Arc::new(switches.collect::<BooleanArray>()) as ArrayRef,
        )
    };
    RecordBatch::try_from_iter([
        text("tier"),
        switch("emulated"),
        text("operation"),
        text("pattern"),
        whole("access_bytes"),
        whole("threads"),
        text("grouping"),
        text("pinning"),
        text("placement"),
        text("persist"),
        whole("queue_depth"),
        whole("range_bytes"),
        switch("on_dram"),
        whole("beside_threads"),
        real("bandwidth_bytes_per_s"),
        real("latency_ns"),
        real("beside_bandwidth_bytes_per_s"),
        real("spread"),
    ])
    .map_err(|error| failure(error.to_string()))
}

/// Draws heat maps of all axes into one SVG file.
pub(super) fn draw(report: &ProbeReport, path: &Path) -> Result<()> {
    match heat_map::draw(report) {
        Ok(svg) => {
            write_lines(Target::File(path.to_owned()), &[svg])?;
            note(&format!("heat maps: {}", path.display()));
        }
        Err(what) => note(&format!("no heat maps: {what}")),
    }
    Ok(())
}

/// Prints the profile, with reasons if asked for.
pub(super) fn print_profile(
    report: &ProbeReport,
    derivation: &Derivation,
    explain: bool,
    on_stderr: bool,
) -> Result<()> {
    let mut lines = head(report, derivation);
    let profile = &derivation.profile;
    for line in profile.lines() {
        let reason = match (explain, line.measured) {
            (true, _) => line.reason.as_str(),
            (false, true) => "measured",
            (false, false) if derivation.uncertain.contains(&line.name) => "default, uncertain",
            (false, false) => "default",
        };
        lines.push(format!("{:27} {:13} {reason}", line.name, line.value));
    }
    if on_stderr {
        lines.iter().for_each(|line| note(line));
        return Ok(());
    }
    print_lines(&lines)
}

fn head(report: &ProbeReport, derivation: &Derivation) -> Vec<String> {
    let emulated = if report.emulated { ", emulated" } else { "" };
    let head = format!(
        "{}{emulated}: {} measurements, {:.0} % of them steady, {} points without a number; {} of {} values certain",
        report.tier,
        report.rows.len(),
        report.steady_part() * 100.0,
        report.refused.len(),
        derivation.certain_count,
        derivation.certain_count + derivation.uncertain.len()
    );
    let mut lines = vec![head];
    for (point, refusal) in report.refused.iter().take(REFUSED_SHOWN_MAX) {
        lines.push(format!("  {point}: {refusal}"));
    }
    if report.refused.len() > REFUSED_SHOWN_MAX {
        lines.push(format!(
            "  and {} more",
            report.refused.len() - REFUSED_SHOWN_MAX
        ));
    }
    lines.push(String::new());
    lines
}
