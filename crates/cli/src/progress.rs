//! How far a long job is: a bar on a terminal, a line every few seconds elsewhere. Always on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::note;

/// Time between two lines when there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(5);
/// Time between two looks at counters.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// The progress of one job that counts something.
pub struct Progress {
    what: String,
    unit: &'static str,
    started: Instant,
    lined: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// A job called `what` that counts `unit` ("rows", "files").
    pub fn start(what: impl Into<String>, unit: &'static str) -> Self {
        let what = what.into();
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(format!("{what}: "));
            bar
        });
        Self {
            what,
            unit,
            started: now,
            lined: now,
            bar,
        }
    }

    /// Shows that `done` of `expected` are done; `expected` 0 means unknown.
    pub fn show(&mut self, done: u64, expected: u64) {
        match &self.bar {
            Some(bar) => {
                let known = expected > 0;
                if bar.length() != known.then_some(expected.max(done)) {
                    bar.set_style(style(self.unit, known));
                    if known {
                        bar.set_length(expected.max(done));
                    }
                }
                bar.set_position(done);
            }
            None if self.lined.elapsed() >= LINE_PERIOD => {
                self.lined = Instant::now();
                note(&line(
                    &self.what,
                    self.unit,
                    done,
                    expected,
                    self.started.elapsed(),
                ));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Time since the job started.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style(unit: &str, known: bool) -> ProgressStyle {
    let template = if known {
        format!(
            "{{msg}}{{bar:30}} {{human_pos}} of {{human_len}} {unit}, {{per_sec}}, {{eta}} left"
        )
    } else {
        format!("{{msg}}{{spinner}} {{human_pos}} {unit}, {{per_sec}}")
    };
    ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// `import t: 1,200,000 rows (40 %), 600,000 rows/s, 3 s left`
fn line(what: &str, unit: &str, done: u64, expected: u64, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-9);
    let share = done as f64 / expected.max(1) as f64;
    let mut line = format!("{what}: {} {unit}", HumanCount(done));
    if expected > 0 {
        line += &format!(" ({:.0} %)", (100.0 * share).min(100.0));
    }
    line += &match rate {
        slow if slow < 10.0 => format!(", {slow:.1} {unit}/s"),
        fast => format!(", {} {unit}/s", HumanCount(fast as u64)),
    };
    if expected > done && done > 0 {
        line += &format!(", {:.0} s left", (expected - done) as f64 / rate);
    }
    line
}

/// Shows the counters of `work` while it runs.
pub(crate) async fn watch<T>(
    work: impl Future<Output = T>,
    look: impl Fn() -> (u64, u64),
    progress: &mut Progress,
) -> T {
    tokio::pin!(work);
    let mut ticks = tokio::time::interval(LOOK_PERIOD);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                let (done, expected) = look();
                progress.show(done, expected);
            }
        }
    }
}

/// `12.3 MB`: a number of bytes for humans, three digits, in powers of ten.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit_idx = 0;
    // What would be printed as 1000 belongs to the next unit.
    while value >= 999.5 && unit_idx + 1 < UNITS.len() {
        value /= 1000.0;
        unit_idx += 1;
    }
    let decimals = match value {
        small if small < 9.995 => 2,
        medium if medium < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit_idx])
}

/// `1,234,567`
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_rate_and_time_left_where_the_end_is_known() {
        let two_seconds = Duration::from_secs(2);
        assert_eq!(
            line("import t", "rows", 1_200_000, 3_000_000, two_seconds),
            "import t: 1,200,000 rows (40 %), 600,000 rows/s, 3 s left"
        );
        assert_eq!(
            line("import t", "rows", 10, 0, two_seconds),
            "import t: 10 rows, 5.0 rows/s"
        );
        assert_eq!(
            line("import t", "rows", 10, 8, two_seconds),
            "import t: 10 rows (100 %), 5.0 rows/s"
        );
    }

    #[test]
    fn bytes_have_three_digits() {
        for (count, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (300_000_000, "300 MB"),
            (12_345_678, "12.3 MB"),
            (999_600, "1.00 MB"),
            (9_996, "10.0 kB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
