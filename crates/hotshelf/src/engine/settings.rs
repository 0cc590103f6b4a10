//! The settings of the whole database. They change at once, for running queries too.

use hotshelf_cache::PolicyKind;
use hotshelf_cache::model::Smoothing;
use hotshelf_cache::tune::Goal;
use hotshelf_cache::tuner::TunerOptions;

use super::Engine;
use crate::error::{Error, Result};
use crate::machine::{ProfileLine, described};
use crate::options::{BUDGET_BYTES_MIN, parse_bandwidth, parse_size};
use crate::prices::JoinNs;
use crate::settings::{DatabaseSettings, PROFILE, parse_switch, refused};

impl DatabaseSettings for Engine {
    fn value(&self, key: &str) -> Option<String> {
        if key == PROFILE {
            return Some(self.machine.profile.origin.clone());
        }
        if let Some(name) = key.strip_prefix("profile.") {
            let mut lines = self.profile_lines().into_iter();
            let line = lines.find(|line| line.name == name)?;
            return Some(described(&line.value, &line.source));
        }
        Some(match key {
            "budget" => self.cache.budget().limit_bytes().to_string(),
            "policy" => self.cache.policy().to_string(),
            "storage_bandwidth" => {
                let rate = self.machine.io.bandwidth_max();
                rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string())
            }
            "merge_files" => self.merging.is_on().to_string(),
            _ => return self.tuner_setting(key),
        })
    }

    fn operator_bytes_max(&self) -> u64 {
        self.pool.limit_bytes()
    }

    fn join_ns(&self) -> JoinNs {
        self.scan_env.prices.now().join()
    }

    fn change(&self, key: &str, value: &str) -> Result<()> {
        match key {
            "budget" => {
                let budget_bytes = parse_size(value)?;
                if budget_bytes < BUDGET_BYTES_MIN {
                    return Err(Error::BudgetTooSmall {
                        budget_bytes,
                        needed_bytes: BUDGET_BYTES_MIN,
                    });
                }
                self.cache.set_budget_bytes(budget_bytes);
            }
            "policy" => {
                let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
                let policy: PolicyKind = value
                    .parse()
                    .map_err(|_| refused("policy", value, &names.join(", ")))?;
                self.cache.set_policy(policy);
            }
            "storage_bandwidth" => {
                let rate = parse_bandwidth(value)?;
                self.machine.io.set_bandwidth_max(rate)?;
            }
            "merge_files" => self.merging.set(parse_switch(value)?),
            _ => self.change_tuner(key, value)?,
        }
        Ok(())
    }
}

impl Engine {
    /// Every value of the machine profile, and every price that begins with one.
    pub fn profile_lines(&self) -> Vec<ProfileLine> {
        let mut lines = self.machine.profile.lines();
        lines.extend(self.scan_env.prices.lines());
        lines
    }

    fn change_tuner(&self, key: &str, value: &str) -> Result<()> {
        let Some(tuner) = &self.tuner else {
            return Ok(());
        };
        match key {
            "tuner" => tuner.set_paused(!parse_switch(value)?),
            "tuner_period_ms" => {
                let period_ms = parse_period(value)?;
                tuner.configure(|options| options.period_ms = period_ms);
            }
            "tuner_window" => {
                let smoothing = parse_window(value)?;
                tuner.configure(|options| *options = with_smoothing(options, smoothing));
            }
            "response_goal" => {
                let goal = parse_goal(value)?;
                tuner.configure(|options| options.goal = goal);
            }
            _ => {}
        }
        Ok(())
    }

    fn tuner_setting(&self, key: &str) -> Option<String> {
        let tuner = self.tuner.as_ref()?;
        let options = tuner.inspect(|tuner| tuner.options().clone());
        Some(match key {
            "tuner" => (!tuner.is_paused()).to_string(),
            "tuner_period_ms" => options.period_ms.to_string(),
            "tuner_window" if !options.rivals.is_empty() => "auto".to_owned(),
            "tuner_window" => options.window.smoothing.to_string(),
            "response_goal" => match options.goal {
                Goal::Total => "none".to_owned(),
                Goal::Threshold { threshold_s, .. } => format!("{}ms", round(threshold_s * 1e3)),
            },
            _ => return None,
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn parse_period(value: &str) -> Result<u64> {
    let parsed = value.trim().parse().ok();
    parsed
        .filter(|period_ms| (1..=3_600_000).contains(period_ms))
        .ok_or_else(|| refused("period", value, "milliseconds from 1 to 3600000"))
}

/// Without a smoothing several compete.
fn with_smoothing(options: &TunerOptions, smoothing: Option<Smoothing>) -> TunerOptions {
    let defaults = TunerOptions::default();
    match smoothing {
        Some(smoothing) => options.clone().with_smoothing(smoothing),
        None => TunerOptions {
            window: defaults.window,
            rivals: defaults.rivals,
            ..options.clone()
        },
    }
}

fn parse_window(value: &str) -> Result<Option<Smoothing>> {
    let lower = value.trim().to_ascii_lowercase();
    if lower == "auto" {
        return Ok(None);
    }
    if let Some(count) = lower.strip_prefix("last") {
        let parsed = count.trim().parse().ok();
        let count = parsed.filter(|count| (1..=100_000).contains(count));
        return count
            .map(|query_count| Some(Smoothing::Fixed { query_count }))
            .ok_or_else(|| refused("window", value, "'last N' with N from 1 to 100000"));
    }
    let number = lower.trim_end_matches("queries").trim_end_matches("query");
    let half_life: Option<f64> = number.trim().parse().ok();
    half_life
        .filter(|half_life| (0.01..=1e6).contains(half_life))
        .map(|half_life| Some(Smoothing::half_life(half_life)))
        .ok_or_else(|| {
            refused(
                "window",
                value,
                "a half-life such as '4 queries', 'last 15', or 'auto'",
            )
        })
}

/// The weight of the total time beside the slowest query's.
const GOAL_SCALE: f64 = 1e-3;

fn parse_goal(value: &str) -> Result<Goal> {
    let lower = value.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(Goal::Total);
    }
    let (number, unit_s) = match lower.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (lower.strip_suffix('s').unwrap_or(&lower), 1.0),
    };
    let number: Option<f64> = number.trim().parse().ok();
    number
        .map(|number| number * unit_s)
        .filter(|threshold_s| (1e-6..=1e6).contains(threshold_s))
        .map(|threshold_s| Goal::Threshold {
            threshold_s,
            scale: GOAL_SCALE,
        })
        .ok_or_else(|| refused("goal", value, "a time such as 500ms or 2s, or 'none'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_half_lives_numbers_of_queries_or_chosen_by_the_tuner() {
        let half_life = |queries| Some(Some(Smoothing::half_life(queries)));
        for (value, expected) in [
            ("4", half_life(4.0)),
            (" 0.5 Queries", half_life(0.5)),
            ("1 query", half_life(1.0)),
            ("last 15", Some(Some(Smoothing::Fixed { query_count: 15 }))),
            ("auto", Some(None)),
            ("4 sausages", None),
            ("last few", None),
            ("queries", None),
            ("nan", None),
        ] {
            assert_eq!(parse_window(value).ok(), expected, "{value}");
        }
    }
}
