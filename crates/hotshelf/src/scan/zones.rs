//! Reads the bounds of a sort key from the zone maps of files, and orders files and row groups by them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::UInt64Type;
use futures::future::try_join_all;
use hotshelf_store::data_file::{DataFile, TableFile};
use vortex::array::aggregate_fn::fns::bounded_max::BOUNDED_MAX_BOUND;
use vortex::array::{MaskFuture, VortexSessionExecute};
use vortex::dtype::{DType, Nullability};
use vortex::error::VortexResult;
use vortex::expr::{Expression, get_item, pack, root};
use vortex::layout::layouts::zoned::Zoned;
use vortex::layout::{LayoutChildType, LayoutRef};
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use super::file::FileScan;
use super::read_first::{ReadFirst, Zones};
use super::segments::SegmentAdapter;
use crate::error::Result;

/// Names of what is read of a zone map.
const BOUND: &str = "bound";
const NULL_COUNT: &str = "null_count";

/// Files in the order of the bounds that the catalog has.
pub(super) fn ordered_files(
    files: &[Arc<TableFile>],
    first: &ReadFirst,
) -> VecDeque<Arc<TableFile>> {
    let bounds = files.iter().map(|file| Zones::of_file(&file.stats, first));
    let bounds: Vec<Zones> = bounds.collect();
    let order = first.order_files(&bounds).into_iter();
    order.map(|file_idx| files[file_idx].clone()).collect()
}

/// The row groups of open files in the order of the bounds of their zones. The zone maps are read side by side.
pub(super) async fn ordered_row_groups(
    files: Vec<Arc<FileScan>>,
    first: &ReadFirst,
    session: &VortexSession,
) -> Result<VecDeque<(Arc<FileScan>, usize)>> {
    let reads = files
        .iter()
        .map(|file| zones_of(file.clone(), first.clone(), session.clone()));
    let reads: Vec<_> = reads.collect();
    let zones = try_join_all(reads).await?;
    let row_groups = files.iter().map(|file| file.file.map.row_groups.as_slice());
    let row_groups: Vec<&[Range<u64>]> = row_groups.collect();
    let order = first.order_row_groups(&zones, &row_groups).into_iter();
    let found = order.map(|(file_idx, idx)| (files[file_idx].clone(), idx));
    Ok(found.collect())
}

/// The zones of a file; the whole file is one where it has no zone map of the column.
async fn zones_of(file: Arc<FileScan>, first: ReadFirst, session: VortexSession) -> Result<Zones> {
    let read = read_zones(&file, &first, &session).await;
    let read = read.map_err(|error| file.segments.typed(error))?;
    Ok(read.unwrap_or_else(|| Zones::of_file(&file.file.stats, &first)))
}

/// What the zone map says, if there is one that has bounds.
async fn read_zones(
    file: &FileScan,
    first: &ReadFirst,
    session: &VortexSession,
) -> VortexResult<Option<Zones>> {
    let Some((zone_rows, table)) = zone_map(&file.file, first.column)? else {
        return Ok(None);
    };
    let columns = columns(table.dtype(), first.options.descending);
    let Some(columns) = columns.and_then(|columns| columns.bind(table.dtype()).ok()) else {
        return Ok(None);
    };
    let rows = 0..table.row_count();
    let read = {
        let source = Arc::new(SegmentAdapter(file.segments.clone()));
        let reader = table.new_reader("".into(), source, session, &Default::default())?;
        let all = MaskFuture::new_true(rows.end as usize);
        reader.projection_evaluation(&rows, &columns, all)?
    };
    let read = read.await?;
    let mut context = session.create_execution_ctx();
    // Bounds that Arrow does not know are not needed for the answer.
    let read = session.arrow().execute_arrow(read, None, &mut context);
    let read = read.ok();
    Ok(read.and_then(|read| zones(first, zone_rows, &read)))
}

fn zones(first: &ReadFirst, zone_rows: u64, read: &ArrayRef) -> Option<Zones> {
    let read = read.as_struct_opt()?;
    let null_counts = read.column_by_name(NULL_COUNT);
    let null_counts = null_counts.and_then(|counts| counts.as_primitive_opt::<UInt64Type>());
    let may_hold_null = (0..read.len()).map(|zone_idx| {
        let holds_none =
            |counts: &UInt64Array| counts.is_valid(zone_idx) && counts.value(zone_idx) == 0;
        !null_counts.is_some_and(holds_none)
    });
    let may_hold_null = may_hold_null.collect();
    let bounds = read.column_by_name(BOUND);
    Some(Zones::new(first, zone_rows, bounds, may_hold_null))
}

/// The rows of a zone and the table of zones of a column, if it has one.
fn zone_map(file: &DataFile, column: usize) -> VortexResult<Option<(u64, LayoutRef)>> {
    let table = file.footer.layout();
    let fields = table.dtype().as_struct_fields_opt();
    let Some(name) = fields.and_then(|fields| fields.names().get(column)) else {
        return Ok(None);
    };
    let place = LayoutChildType::Field(name.clone());
    let mut slots = 0..table.nslots();
    let slot = slots.find(|slot| table.slot_type(*slot).as_ref() == Some(&place));
    let Some(slot) = slot else {
        return Ok(None);
    };
    let Some(layout) = table.slot(slot)? else {
        return Ok(None);
    };
    let Some(zoned) = layout.as_opt::<Zoned>() else {
        return Ok(None);
    };
    let zone_rows = zoned.zone_len() as u64;
    let zones = zoned.slot(1)?;
    Ok(zones
        .filter(|_| zone_rows > 0)
        .map(|zones| (zone_rows, zones)))
}

/// The bounds in a table of zones, and its counts of NULLs. Vortex names its columns by aggregates with their options.
fn columns(table: &DType, descending: bool) -> Option<Expression> {
    let names = table.as_struct_fields_opt()?.names();
    let find = |aggregate: &str| {
        let mut names = names.iter();
        let name = names.find(|name| name.inner().starts_with(aggregate))?;
        Some(get_item(name.clone(), root()))
    };
    let bound = match descending {
        false => find("vortex.min(").or_else(|| find("vortex.bounded_min(")),
        // An upper bound of long texts may be missing, so that it comes with a mark.
        true => find("vortex.max(").or_else(|| {
            let bound = find("vortex.bounded_max(")?;
            Some(get_item(BOUNDED_MAX_BOUND, bound))
        }),
    };
    let null_count = find("vortex.null_count(").map(|count| (NULL_COUNT, count));
    let read = [(BOUND, bound?)].into_iter().chain(null_count);
    Some(pack(read, Nullability::NonNullable))
}
