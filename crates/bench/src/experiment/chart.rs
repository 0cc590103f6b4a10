//! Draws an experiment as SVG.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::RGBColor;

use super::ExperimentError;
use super::policies::SettingRun;

/// Colours that stay apart for most eyes (Okabe and Ito's set), in the order of the lines.
const COLORS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

const WIDTH: u32 = 960;
const HEIGHT: u32 = 560;
const FONT: &str = "sans-serif";

/// Draws how much time has passed after each query, one line per setting, into the SVG file `path`.
///
/// # Errors
/// [`ExperimentError::Chart`] if the file cannot be written or there is nothing to draw.
pub fn cumulative_time(
    runs: &[SettingRun],
    title: &str,
    subtitle: &str,
    path: &Path,
) -> Result<(), ExperimentError> {
    let svg = draw(runs, title, subtitle).map_err(|what| ExperimentError::Chart {
        path: path.to_owned(),
        what,
    })?;
    std::fs::write(path, svg).map_err(|error| ExperimentError::Chart {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// The chart as SVG text.
fn draw(runs: &[SettingRun], title: &str, subtitle: &str) -> Result<String, String> {
    let query_count = runs
        .iter()
        .map(|run| run.passes.iter().map(Vec::len).sum::<usize>())
        .max()
        .unwrap_or(0);
    let seconds_max = runs.iter().map(SettingRun::seconds).fold(0.0, f64::max);
    if query_count == 0 || seconds_max <= 0.0 {
        return Err("there is nothing to draw".to_owned());
    }
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        lines(&area, runs, title, subtitle, (query_count, seconds_max))
            .map_err(|error| error.to_string())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn lines(
    area: &Area<'_>,
    runs: &[SettingRun],
    title: &str,
    subtitle: &str,
    (query_count, seconds_max): (usize, f64),
) -> DrawResult {
    area.fill(&WHITE)?;
    let area = area.titled(title, (FONT, 24))?;
    let area = area.titled(subtitle, (FONT, 15).into_font().color(&BLACK.mix(0.7)))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(28)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..query_count as f64, 0.0..seconds_max * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("queries executed (a vertical line ends each pass over them)")
        .y_desc("time passed (seconds)")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format_seconds(*value, seconds_max))
        .label_style((FONT, 15))
        .axis_desc_style((FONT, 16))
        .draw()?;
    pass_ends(&mut chart, runs, seconds_max)?;
    for (idx, run) in runs.iter().enumerate() {
        let color = COLORS[idx % COLORS.len()];
        let style = color.stroke_width(3);
        let seconds = std::iter::once(0.0).chain(run.cumulative_seconds());
        let points = seconds.enumerate().map(|(count, sum)| (count as f64, sum));
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(format!("{}: {:.1} s", run.setting.label, run.seconds()))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 24, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(14)
        .legend_area_size(34)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 16))
        .draw()?;
    area.present()?;
    Ok(())
}

/// A thin line where each pass but the last ends.
fn pass_ends<'a, C>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, C>,
    runs: &[SettingRun],
    seconds_max: f64,
) -> DrawResult
where
    C: CoordTranslate<From = (f64, f64)>,
{
    let Some(run) = runs.first() else {
        return Ok(());
    };
    let mut query_count = 0;
    for pass in &run.passes[..run.passes.len().saturating_sub(1)] {
        query_count += pass.len();
        let x = query_count as f64;
        let ends = [(x, 0.0), (x, seconds_max * 1.05)];
        chart.draw_series(LineSeries::new(ends, BLACK.mix(0.35).stroke_width(1)))?;
    }
    Ok(())
}

fn format_seconds(seconds: f64, seconds_max: f64) -> String {
    if seconds_max < 5.0 {
        format!("{seconds:.1}")
    } else {
        format!("{seconds:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Measurement;
    use crate::experiment::policies::Setting;
    use hotshelf::PolicyKind;

    fn run(policy: PolicyKind, seconds: f64) -> SettingRun {
        let measurement = Measurement {
            seconds,
            ..Measurement::default()
        };
        SettingRun {
            setting: Setting {
                label: policy.to_string(),
                policy,
                budget_bytes: 1,
            },
            passes: vec![vec![measurement; 3]; 2],
        }
    }

    #[test]
    fn the_chart_names_axes_with_units_and_every_line() {
        let runs = [run(PolicyKind::None, 1.0), run(PolicyKind::Lru, 0.5)];
        let svg = draw(&runs, "A title", "and more").unwrap();
        for text in [
            "A title",
            "and more",
            "queries executed",
            "time passed (seconds)",
            "none: 6.0 s",
            "lru: 3.0 s",
        ] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        assert!(draw(&[], "t", "s").is_err());
        assert!(draw(&[run(PolicyKind::All, 0.0)], "t", "s").is_err());
    }
}
