//! What the footer of a data file says about its rows.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use arrow::array::ArrayRef as ArrowRef;
use arrow::datatypes::SchemaRef;
use hotshelf_tier::Corruption;
use vortex::array::arrays::ConstantArray;
use vortex::array::{IntoArray, VortexSessionExecute};
use vortex::buffer::{Alignment, ByteBuffer};
use vortex::expr::stats::{Precision, Stat};
use vortex::file::{DeserializeStep, Footer};
use vortex::scalar::Scalar;
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use super::paths::FilePaths;
use super::segments::SegmentMap;
use super::sums::{Sums, check_length, verify};
use crate::error::{Result, StoreError};
use crate::statistics::{ColumnStats, DistinctSketch, FileStats, bounds_batch};

/// Reads the footer by itself, after comparing it with its checksum.
pub(crate) fn read(paths: &FilePaths, sums: &Sums, session: &VortexSession) -> Result<Footer> {
    let path = paths.data();
    let file = paths.root().open_file(&path)?;
    let found = file
        .metadata()
        .map_err(StoreError::io("measure", &path))?
        .len();
    check_length(&path, found, sums, sums.file_bytes)?;
    read_open(paths, &file, sums, session)
}

/// Reads the footer of the open file, whose length is right.
pub(super) fn read_open(
    paths: &FilePaths,
    file: &File,
    sums: &Sums,
    session: &VortexSession,
) -> Result<Footer> {
    let path = paths.data();
    let mut bytes = vec![0; (sums.file_bytes - sums.footer_offset) as usize];
    file.read_exact_at(&mut bytes, sums.footer_offset)
        .map_err(StoreError::io("read", &path))?;
    parse(&path, sums, &bytes, session)
}

/// Reads a footer from the end of a file's bytes, after comparing it with its checksum.
pub(crate) fn parse(
    path: &Path,
    sums: &Sums,
    bytes: &[u8],
    session: &VortexSession,
) -> Result<Footer> {
    verify(path, sums.footer_offset, "footer", bytes, sums.footer)?;
    let buffer = ByteBuffer::copy_from_aligned(bytes, Alignment::new(64));
    let mut deserializer = Footer::deserializer(buffer, session.clone()).with_size(sums.file_bytes);
    match deserializer.deserialize()? {
        DeserializeStep::Done(footer) => Ok(footer),
        _ => Err(StoreError::Corruption(Corruption {
            file: path.to_owned(),
            offset: sums.footer_offset,
            what: "footer".into(),
            expected: "a whole footer".into(),
            found: "parts of it outside".into(),
        })),
    }
}

/// The statistics of a file's rows. Sketches of distinct values are not in the file: `distinct` has them, or is empty.
pub(crate) fn statistics(
    footer: &Footer,
    map: &SegmentMap,
    schema: &SchemaRef,
    session: &VortexSession,
    distinct: Vec<DistinctSketch>,
) -> Result<FileStats> {
    let mut distinct = distinct.into_iter();
    let mut columns = Vec::with_capacity(schema.fields().len());
    let mut bounds = Vec::with_capacity(schema.fields().len());
    for idx in 0..schema.fields().len() {
        let known = column_bounds(footer, idx, session);
        columns.push(ColumnStats {
            null_count: known.null_count,
            encoded_bytes: map.column_bytes(idx),
            bounds_exact: known.exact,
            distinct: distinct.next().unwrap_or_default(),
        });
        bounds.push((known.min, known.max));
    }
    let bounds = match columns.is_empty() {
        true => None,
        false => Some(bounds_batch(schema, bounds)?),
    };
    Ok(FileStats {
        row_count: footer.row_count(),
        columns,
        bounds,
    })
}

/// Compares what answers depend on: the first difference, between the file and the catalog, if there is one.
pub(crate) fn difference(in_file: &FileStats, in_catalog: &FileStats) -> Option<Corruption> {
    let differs = |what: String, in_file: String, in_catalog: String| {
        Some(Corruption {
            file: crate::root::CATALOG.into(),
            offset: 0,
            what: what.into(),
            expected: format!("{in_file} as in the file"),
            found: in_catalog,
        })
    };
    let (rows, known) = (in_file.row_count, in_catalog.row_count);
    if rows != known {
        return differs("row count".into(), rows.to_string(), known.to_string());
    }
    let columns = in_file.columns.iter().zip(&in_catalog.columns).enumerate();
    for (idx, (column, known)) in columns {
        if column.null_count != known.null_count {
            let show =
                |count: Option<u64>| count.map_or("unknown".into(), |count| count.to_string());
            let what = format!("NULLs of column {idx}");
            return differs(what, show(column.null_count), show(known.null_count));
        }
    }
    let (Some(bounds), Some(known)) = (&in_file.bounds, &in_catalog.bounds) else {
        return None;
    };
    let mut pairs = bounds.columns().iter().zip(known.columns()).enumerate();
    let idx = pairs
        .find(|(_, (bounds, known))| bounds.data_type() == known.data_type() && bounds != known);
    idx.and_then(|(idx, (bounds, known))| {
        differs(
            format!("bounds of column {idx}"),
            format!("{bounds:?}"),
            format!("{known:?}"),
        )
    })
}

#[derive(Default)]
struct ColumnBounds {
    null_count: Option<u64>,
    /// An array of one row.
    min: Option<ArrowRef>,
    /// An array of one row.
    max: Option<ArrowRef>,
    exact: bool,
}

/// The file's own statistics of a column. Floats that may hold NaN have no usable bounds.
fn column_bounds(footer: &Footer, idx: usize, session: &VortexSession) -> ColumnBounds {
    let Some(stats) = footer
        .statistics()
        .filter(|stats| idx < stats.stats_sets().len())
    else {
        return ColumnBounds::default();
    };
    let (set, dtype) = stats.get(idx);
    let count = |stat| {
        set.get_as::<u64>(stat, &vortex::dtype::PType::U64.into())
            .as_exact()
    };
    let null_count = count(Stat::NullCount);
    if dtype.is_float() && count(Stat::NaNCount) != Some(0) {
        return ColumnBounds {
            null_count,
            ..ColumnBounds::default()
        };
    }
    let bound = |stat: Stat| {
        let (value, exact) = match set.get(stat) {
            Precision::Exact(value) => (value, true),
            Precision::Inexact(value) => (value, false),
            Precision::Absent => return (None, true),
        };
        let scalar = stat
            .dtype(dtype)
            .and_then(|dtype| Scalar::try_new(dtype, Some(value)).ok());
        (
            scalar.and_then(|scalar| arrow_value(scalar, session)),
            exact,
        )
    };
    let ((min, min_exact), (max, max_exact)) = (bound(Stat::Min), bound(Stat::Max));
    ColumnBounds {
        null_count,
        min,
        max,
        exact: min_exact && max_exact,
    }
}

/// A value as an Arrow array of one row.
fn arrow_value(scalar: Scalar, session: &VortexSession) -> Option<ArrowRef> {
    let array = ConstantArray::new(scalar, 1).into_array();
    let mut context = session.create_execution_ctx();
    let converted = session.arrow().execute_arrow(array, None, &mut context);
    converted.ok()
}
