//! Figures of several panels with lines or bars, as rows and as SVG.

use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::RGBColor;

use crate::failure::{Failure, Result};

/// A figure: panels side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What a reader must know: machine, budget, whether simulated.
    pub subtitle: String,
    /// At least one.
    pub panels: Vec<Panel>,
}

/// A part of a figure with axes of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x_label: String,
    /// The vertical axis, with its unit.
    pub y_label: String,
    /// Names of the positions 0, 1, … on the horizontal axis; bars instead of lines if there are any.
    pub groups: Vec<String>,
    /// Thin vertical lines at these places of the horizontal axis.
    pub marks: Vec<f64>,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// A line, or a set of bars of one colour.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Panel {
    /// A panel of lines without any yet.
    pub fn new(title: &str, x_label: &str, y_label: &str) -> Self {
        Self {
            title: title.to_owned(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            groups: Vec::new(),
            marks: Vec::new(),
            series: Vec::new(),
        }
    }

    fn highest(&self, of: fn(&(f64, f64)) -> f64) -> f64 {
        let points = self.series.iter().flat_map(|series| &series.points);
        points.map(of).filter(|v| v.is_finite()).fold(0.0, f64::max)
    }

    /// The upper corner with more room for a legend: where the highest point lies lower.
    fn free_corner(&self, x_max: f64) -> SeriesLabelPosition {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let highest = |is_right: bool| {
            let of_side = points().filter(|(x, _)| (*x > x_max / 2.0) == is_right);
            of_side.map(|(_, y)| *y).fold(0.0, f64::max)
        };
        match highest(false) < highest(true) {
            true => SeriesLabelPosition::UpperLeft,
            false => SeriesLabelPosition::UpperRight,
        }
    }
}

impl Series {
    /// A series without points yet.
    pub fn empty(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            points: Vec::new(),
        }
    }

    /// A series of values at 1, 2, …
    pub fn numbered(label: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().enumerate();
        Self {
            label: label.into(),
            points: values.map(|(idx, y)| ((idx + 1) as f64, y)).collect(),
        }
    }
}

/// Colours that stay apart for most eyes (Okabe and Ito's set).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

const PANEL_WIDTH: u32 = 640;
const LONE_PANEL_WIDTH: u32 = 800;
const PANEL_HEIGHT: u32 = 400;
const FONT: &str = "sans-serif";
/// A line with more points than this has no dots.
const DOTS_MAX: usize = 40;
/// How much of a group's width its bars take.
const GROUP_WIDTH: f64 = 0.8;

type DrawResult = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Figure {
    /// Draws the figure into the SVG file `path`.
    ///
    /// # Errors
    /// [`Failure::Chart`] if there is nothing to draw or the file cannot be written.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let failed = |what| Failure::Chart {
            path: path.to_owned(),
            what,
        };
        let svg = self.svg().map_err(failed)?;
        std::fs::write(path, svg).map_err(|error| failed(error.to_string()))
    }

    fn svg(&self) -> Result<String, String> {
        let is_empty = |panel: &Panel| panel.series.iter().all(|s| s.points.is_empty());
        if self.panels.iter().all(is_empty) {
            return Err("there is nothing to draw".to_owned());
        }
        let columns = self.panels.len().min(2);
        let rows = self.panels.len().div_ceil(columns);
        let width = match columns {
            1 => LONE_PANEL_WIDTH,
            _ => PANEL_WIDTH * columns as u32,
        };
        let size = (width, 60 + PANEL_HEIGHT * rows as u32);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            self.draw_on(&area, (rows, columns))
                .map_err(|error| error.to_string())?;
        }
        Ok(svg)
    }

    fn draw_on(&self, area: &Area<'_>, grid: (usize, usize)) -> DrawResult {
        area.fill(&WHITE)?;
        let area = area.titled(&self.title, (FONT, 22))?;
        let note = (FONT, 14).into_font().color(&BLACK.mix(0.7));
        let area = area.titled(&self.subtitle, note)?;
        for (panel, part) in self.panels.iter().zip(area.split_evenly(grid)) {
            panel.draw_on(&part)?;
        }
        area.present()?;
        Ok(())
    }
}

impl Panel {
    fn draw_on(&self, area: &Area<'_>) -> DrawResult {
        let has_groups = !self.groups.is_empty();
        let y_max = (self.highest(|point| point.1) * 1.15).max(f64::MIN_POSITIVE);
        let (x_min, x_max) = match has_groups {
            true => (-0.5, self.groups.len() as f64 - 0.5),
            false => (0.0, self.highest(|point| point.0).max(1e-9)),
        };
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64);
        if !self.title.is_empty() {
            builder.caption(&self.title, (FONT, 16));
        }
        let mut chart = builder.build_cartesian_2d(x_min..x_max, 0.0..y_max)?;
        let group_name = |x: &f64| {
            let is_group = (x - x.round()).abs() < 1e-6 && *x > -0.1;
            let name = self.groups.get(x.round().max(0.0) as usize);
            name.filter(|_| is_group).cloned().unwrap_or_default()
        };
        let number = |x: &f64| short(*x);
        let x_label: &dyn Fn(&f64) -> String = if has_groups { &group_name } else { &number };
        let mut mesh = chart.configure_mesh();
        if has_groups {
            mesh.disable_x_mesh().x_labels(2 * self.groups.len() + 1);
        }
        mesh.light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(x_label)
            .y_label_formatter(&|y| short(*y))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        for x in &self.marks {
            let ends = [(*x, 0.0), (*x, y_max)];
            chart.draw_series(LineSeries::new(ends, BLACK.mix(0.35).stroke_width(1)))?;
        }
        self.draw_series(&mut chart)?;
        chart
            .configure_series_labels()
            .position(self.free_corner(x_max))
            .margin(8)
            .legend_area_size(28)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .draw()?;
        Ok(())
    }

    /// Bars where the panel has groups, lines otherwise.
    fn draw_series(&self, chart: &mut Chart<'_, '_>) -> DrawResult {
        let has_groups = !self.groups.is_empty();
        for (idx, series) in self.series.iter().enumerate() {
            let color = COLORS[idx % COLORS.len()];
            let style = color.stroke_width(2);
            let drawn = if has_groups {
                let width = GROUP_WIDTH / self.series.len() as f64;
                let left = idx as f64 * width - GROUP_WIDTH / 2.0;
                let bar = |(x, y): &(f64, f64)| {
                    let corners = [(x + left, 0.0), (x + left + 0.9 * width, *y)];
                    Rectangle::new(corners, color.filled())
                };
                chart.draw_series(series.points.iter().map(bar))?
            } else {
                if series.points.len() <= DOTS_MAX {
                    let dot = |point: &(f64, f64)| Circle::new(*point, 3, color.filled());
                    chart.draw_series(series.points.iter().map(dot))?;
                }
                chart.draw_series(LineSeries::new(series.points.iter().copied(), style))?
            };
            drawn
                .label(&series.label)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
        }
        Ok(())
    }
}

/// As many decimals as the size asks for.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 10.0 || size == 0.0 => 0,
        size if size >= 1.0 => 1,
        size if size >= 0.1 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(groups: &[&str]) -> Figure {
        let panel = Panel {
            marks: vec![1.0],
            groups: groups.iter().map(|name| (*name).to_owned()).collect(),
            series: vec![
                Series::numbered("one", [1.0, 2.5]),
                Series::numbered("two", [3.0, 0.5]),
            ],
            ..Panel::new("left", "size (GB)", "time (s)")
        };
        Figure {
            title: "A title".to_owned(),
            subtitle: "simulated".to_owned(),
            panels: vec![panel.clone(), panel],
        }
    }

    #[test]
    fn lines_and_bars_have_axes_with_units_and_a_legend() {
        for groups in [&[][..], &["Q1", "Q2", "Q3"]] {
            let svg = figure(groups).svg().unwrap();
            let words = [
                "A title",
                "simulated",
                "size (GB)",
                "time (s)",
                "one",
                "two",
            ];
            for text in words.iter().chain(groups) {
                assert!(svg.contains(text), "{text}");
            }
            assert!(svg.trim_end().ends_with("</svg>"));
        }
    }

    #[test]
    fn nothing_to_draw_is_an_error() {
        let mut figure = figure(&[]);
        figure
            .panels
            .iter_mut()
            .for_each(|panel| panel.series.clear());
        assert!(figure.svg().is_err());
    }

    #[test]
    fn numbers_are_as_long_as_needed() {
        let shown = [0.0, 0.05, 0.25, 1.5, 2.0, 10.0, 1234.4].map(short);
        assert_eq!(shown, ["0", "0.05", "0.25", "1.5", "2", "10", "1234"]);
    }
}
