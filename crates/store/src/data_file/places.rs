//! Where the segments of a data file are in a copy of it.

use arrow::datatypes::Schema;
use vortex::file::SegmentSpec;

use super::segments::SegmentMap;
use crate::placement::Placement;

/// Segments begin on multiples of this: the grain of the devices, and enough for values of any type.
pub(super) const ALIGN: usize = 256;
/// Where a segment begins in a copy, and its length.
pub(super) type Place = (usize, usize);
/// Of each segment; none for those that are not there.
pub(super) type Places = Box<[Option<Place>]>;

/// Where the segments of a file are in its copy, and how long that is.
pub(super) fn layout(map: &SegmentMap, schema: &Schema, placement: &Placement) -> (Places, usize) {
    let columns = placement.column_idxs(schema);
    let is_wanted = |column: Option<usize>| match (&columns, column) {
        (None, _) => true,
        (Some(columns), Some(column)) => columns.contains(&column),
        (Some(_), None) => false,
    };
    let mut end = 0usize;
    let segments = map.places.iter().zip(&map.specs);
    let places = segments.map(|(place, spec)| {
        let len = spec.length as usize;
        is_wanted(place.column_idx).then(|| {
            let start = end.next_multiple_of(ALIGN);
            end = start + len;
            (start, len)
        })
    });
    (places.collect(), end)
}

/// Where the segments of a file lie in the file itself.
pub(super) fn own_places(map: &SegmentMap) -> Places {
    let place = |spec: &SegmentSpec| Some((spec.offset as usize, spec.length as usize));
    map.specs.iter().map(place).collect()
}
