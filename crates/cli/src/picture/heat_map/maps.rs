//! Which maps a report has, and what their cells are.

use hotshelf::probe::{
    Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point, ProbeReport, Row,
};

/// Bandwidths over two axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HeatMap {
    pub title: String,
    pub x_axis: &'static str,
    pub y_axis: &'static str,
    pub x: Vec<String>,
    pub y: Vec<String>,
    /// By `y`, then `x`; in bytes per second, `None` where nothing was measured.
    pub cells: Vec<Vec<Option<f64>>>,
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{}M", b >> 20),
        b if b >= 1 << 10 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// Which rows a map shows, and where.
pub(super) struct Axes {
    title: &'static str,
    x_axis: &'static str,
    y_axis: &'static str,
    pub wanted: fn(&Point) -> bool,
    /// Sorted by these numbers, labelled by the texts.
    x: fn(&Point) -> (u64, String),
    y: fn(&Point) -> (u64, String),
}

/// The maps that have something to compare.
pub(super) fn maps(report: &ProbeReport) -> Vec<HeatMap> {
    let maps = AXES.iter().map(|axes| map_of(axes, &report.rows));
    let drawn = |map: &HeatMap| map.x.len() > 2 || map.y.len() > 1;
    maps.filter(drawn).collect()
}

fn map_of(axes: &Axes, rows: &[Row]) -> HeatMap {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| (axes.wanted)(&row.point))
        .collect();
    let along = |axis: fn(&Point) -> (u64, String)| {
        let mut marks: Vec<(u64, String)> = rows.iter().map(|row| axis(&row.point)).collect();
        marks.sort();
        marks.dedup();
        marks
    };
    let (x, y) = (along(axes.x), along(axes.y));
    let cell = |x: &(u64, String), y: &(u64, String)| {
        let here = rows
            .iter()
            .filter(|row| (axes.x)(&row.point) == *x && (axes.y)(&row.point) == *y);
        here.map(|row| total(row)).max_by(f64::total_cmp)
    };
    let cells = y
        .iter()
        .map(|y| x.iter().map(|x| cell(x, y)).collect())
        .collect();
    let labels = |marks: Vec<(u64, String)>| marks.into_iter().map(|(_, label)| label).collect();
    HeatMap {
        title: axes.title.to_owned(),
        x_axis: axes.x_axis,
        y_axis: axes.y_axis,
        x: labels(x),
        y: labels(y),
        cells,
    }
}

/// Both operations together where two run; DRAM alone where it is what is measured.
fn total(row: &Row) -> f64 {
    let beside = row
        .beside_bandwidth_bytes_per_s
        .filter(|_| !row.point.on_dram);
    row.bandwidth_bytes_per_s + beside.unwrap_or(0.0)
}

fn bytes(point: &Point) -> (u64, String) {
    (point.access_bytes, size(point.access_bytes))
}

fn threads(point: &Point) -> (u64, String) {
    (u64::from(point.threads), format!("{}", point.threads))
}

fn beside(point: &Point) -> (u64, String) {
    (
        u64::from(point.beside_threads),
        point.beside_threads.to_string(),
    )
}

fn depth(point: &Point) -> (u64, String) {
    let depth = point.queue_depth.unwrap_or(0);
    (u64::from(depth), depth.to_string())
}

fn range(point: &Point) -> (u64, String) {
    let range = point.range_bytes.unwrap_or(0);
    (range, size(range))
}

fn pinning(point: &Point) -> (u64, String) {
    match point.pinning {
        Pinning::None => (0, "none".to_owned()),
        Pinning::Node => (1, "node".to_owned()),
        Pinning::Core => (2, "core".to_owned()),
    }
}

fn placement(point: &Point) -> (u64, String) {
    let (order, label) = match point.placement {
        Placement::Near => (0, "near"),
        Placement::FarFirst => (1, "far, first touch"),
        Placement::Far => (2, "far"),
        Placement::BothNear => (3, "both near"),
        Placement::BothFar => (4, "both far"),
        Placement::BothShared => (5, "both, one memory"),
    };
    (order, label.to_owned())
}

fn persist(point: &Point) -> (u64, String) {
    let (order, label) = match point.persist {
        Some(PersistInstruction::NonTemporal) => (0, "non-temporal"),
        Some(PersistInstruction::Flush) => (1, "flush"),
        Some(PersistInstruction::None) => (2, "not durable"),
        None => (3, "-"),
    };
    let pattern = match point.pattern {
        Pattern::Sequential => (0, "seq."),
        Pattern::Random | Pattern::Dependent => (10, "rand."),
    };
    (pattern.0 + order, format!("{label}, {}", pattern.1))
}

/// A point that differs from the plain one of its size and threads in what is named only.
fn plain(point: &Point) -> bool {
    point.beside_threads == 0
        && point.placement == Placement::Near
        && point.range_bytes.is_none()
        && !point.on_dram
        && point.pinning != Pinning::Core
}

fn is_memory(point: &Point, operation: Operation, pattern: Pattern, grouping: Grouping) -> bool {
    let durable = point.persist == Point::new(operation, 0, 0).persist;
    plain(point)
        && durable
        && point.queue_depth.is_none()
        && (point.operation, point.pattern, point.grouping) == (operation, pattern, grouping)
}

fn is_file_read(point: &Point, pattern: Pattern) -> bool {
    let one_ring = point.queue_depth.is_some() && point.threads == 1;
    plain(point) && one_ring && (point.operation, point.pattern) == (Operation::Read, pattern)
}

pub(super) const AXES: &[Axes] = &[
    Axes {
        title: "Sequential reads, ranges of their own",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| {
            is_memory(
                p,
                Operation::Read,
                Pattern::Sequential,
                Grouping::Individual,
            )
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential reads, taking turns",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Read, Pattern::Sequential, Grouping::Grouped),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential writes, ranges of their own",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| {
            is_memory(
                p,
                Operation::Write,
                Pattern::Sequential,
                Grouping::Individual,
            )
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Sequential writes, taking turns",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Write, Pattern::Sequential, Grouping::Grouped),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random reads",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Read, Pattern::Random, Grouping::Individual),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random writes",
        x_axis: "bytes of an access",
        y_axis: "threads",
        wanted: |p| is_memory(p, Operation::Write, Pattern::Random, Grouping::Individual),
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Random reads by range, all cores (64 B also with one thread)",
        x_axis: "bytes of the range",
        y_axis: "bytes of an access",
        wanted: |p| p.operation == Operation::Read && p.range_bytes.is_some(),
        x: range,
        y: |p| {
            (
                p.access_bytes * 1000 + u64::from(p.threads),
                format!("{} ({} thr.)", size(p.access_bytes), p.threads),
            )
        },
    },
    Axes {
        title: "Random writes by range, all cores",
        x_axis: "bytes of the range",
        y_axis: "bytes of an access",
        wanted: |p| p.operation == Operation::Write && p.range_bytes.is_some(),
        x: range,
        y: bytes,
    },
    Axes {
        title: "Persist instruction",
        x_axis: "bytes of an access",
        y_axis: "instruction",
        wanted: |p| {
            let size = [64, 256, 4096].contains(&p.access_bytes);
            let writes = p.operation == Operation::Write && p.queue_depth.is_none();
            plain(p) && size && writes && p.grouping == Grouping::Individual
        },
        x: bytes,
        y: persist,
    },
    Axes {
        title: "Pinning, reads of 4 KiB",
        x_axis: "threads",
        y_axis: "pinned to",
        wanted: |p| p.operation == Operation::Read && is_pinned_axis(p),
        x: threads,
        y: pinning,
    },
    Axes {
        title: "Pinning, writes of 4 KiB",
        x_axis: "threads",
        y_axis: "pinned to",
        wanted: |p| p.operation == Operation::Write && is_pinned_axis(p),
        x: threads,
        y: pinning,
    },
    Axes {
        title: "Sockets, reads of 4 KiB",
        x_axis: "threads",
        y_axis: "memory",
        wanted: |p| p.operation == Operation::Read && is_placement_axis(p),
        x: threads,
        y: placement,
    },
    Axes {
        title: "Sockets, writes of 4 KiB",
        x_axis: "threads",
        y_axis: "memory",
        wanted: |p| p.operation == Operation::Write && is_placement_axis(p),
        x: threads,
        y: placement,
    },
    Axes {
        title: "Readers beside writers, both together",
        x_axis: "writers",
        y_axis: "readers",
        wanted: |p| p.beside_threads > 0 && !p.on_dram && p.queue_depth.is_none(),
        x: beside,
        y: threads,
    },
    Axes {
        title: "DRAM while this tier is read",
        x_axis: "readers of this tier",
        y_axis: "readers of DRAM",
        wanted: |p| p.on_dram,
        x: beside,
        y: threads,
    },
    Axes {
        title: "Sequential reads of a file",
        x_axis: "in flight",
        y_axis: "bytes of a block",
        wanted: |p| is_file_read(p, Pattern::Sequential),
        x: depth,
        y: bytes,
    },
    Axes {
        title: "Random reads of a file",
        x_axis: "in flight",
        y_axis: "bytes of a block",
        wanted: |p| is_file_read(p, Pattern::Random),
        x: depth,
        y: bytes,
    },
    Axes {
        title: "Synced writes of files",
        x_axis: "bytes of a block",
        y_axis: "writers",
        wanted: |p| {
            // Memory that is flushed has smaller pieces, too.
            let synced = p.persist == Some(PersistInstruction::Flush);
            plain(p) && synced && p.access_bytes >= 64 << 10
        },
        x: bytes,
        y: threads,
    },
    Axes {
        title: "Reads of a file beside writers, both together",
        x_axis: "writers",
        y_axis: "in flight",
        wanted: |p| p.beside_threads > 0 && !p.on_dram && p.queue_depth.is_some(),
        x: beside,
        y: depth,
    },
];

fn is_pinned_axis(point: &Point) -> bool {
    let durable = point.persist == Point::new(point.operation, 0, 0).persist;
    let alone = point.beside_threads == 0 && !point.on_dram && point.queue_depth.is_none();
    alone
        && durable
        && point.access_bytes == 4096
        && point.placement == Placement::Near
        && (point.pattern, point.grouping) == (Pattern::Sequential, Grouping::Individual)
}

fn is_placement_axis(point: &Point) -> bool {
    is_pinned_axis(&Point {
        placement: Placement::Near,
        ..*point
    }) && point.pinning == Pinning::Node
}
