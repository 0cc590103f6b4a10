//! Every encoding that is decoded by chunks gives its values.

use super::*;
use arrow::array::Int32Array;
use vortex::VortexSessionDefault;
use vortex::array::VortexSessionExecute;
use vortex::array::arrays::{ConstantArray, DictArray};
use vortex::array::dtype::DecimalDType;
use vortex::array::validity::Validity;
use vortex::buffer::Buffer;
use vortex::encodings::fastlanes::{BitPackedData, FoRData, RLE, RLEData};
use vortex::encodings::runend::RunEnd;
use vortex::session::VortexSession;

fn decoded(array: &ArrayRef, context: &mut ExecutionCtx) -> Option<Vec<i64>> {
    let column = ChunkColumn::of_stored(array, context).unwrap()?;
    let mut buffer = ChunkBuffer::default();
    let mut values = Vec::new();
    for chunk in 0..array.len().div_ceil(CHUNK_ROWS) {
        column.decode(chunk, &mut buffer).unwrap();
        let rows = 0..column.chunk_len(chunk);
        values.extend(rows.map(|row| column.word(&buffer, row) as i64));
    }
    Some(values)
}

/// Codes of a chunk's own values.
fn rle(array: &ArrayRef, context: &mut ExecutionCtx) -> ArrayRef {
    let array = array.clone().execute::<PrimitiveArray>(context).unwrap();
    let array = RLEData::encode(array.as_view(), context).unwrap();
    array.into_array()
}

/// Small values with a few far outliers: these become patches.
fn values() -> Vec<i32> {
    let value = |row: i32| {
        if row % 97 == 5 {
            row * 100_000 % 1_000_003
        } else {
            row * 7 % 300
        }
    };
    (0..2500).map(value).collect()
}

#[test]
fn every_integer_encoding_decodes_to_its_values() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let values = values();
    let plain = Buffer::copy_from(&values).into_array();
    let primitive = plain.clone().execute::<PrimitiveArray>(&mut context);
    let primitive = primitive.unwrap();
    let codes: Vec<u16> = (0..2500).map(|row| row % 300).collect();
    let words = Buffer::copy_from(&values[..300]).into_array();
    let by_code: Vec<i32> = codes.iter().map(|code| values[*code as usize]).collect();
    let run_values: Vec<i32> = (0..2500).map(|row| row / 3 % 50 + row / 100).collect();
    let runs_plain = Buffer::copy_from(&run_values).into_array();
    let runs = runs_plain.clone();
    let runs = RunEnd::encode(runs, &mut context).unwrap();
    let is_end = |row: &usize| run_values.get(*row) != run_values.get(row - 1);
    let ends: Vec<usize> = (1031..=2500).filter(is_end).collect();
    let values_of_runs: Vec<i32> = ends.iter().map(|end| run_values[end - 1]).collect();
    let ends: Vec<u32> = ends.into_iter().map(|end| end as u32).collect();
    let part = RunEnd::try_new_offset_length(
        Buffer::copy_from(&ends).into_array(),
        Buffer::copy_from(&values_of_runs).into_array(),
        1030,
        1100,
        &mut context,
    );
    let cases: Vec<(ArrayRef, Vec<i32>)> = vec![
        (plain.clone(), values.clone()),
        (
            BitPackedData::encode(&plain, 9, &mut context)
                .unwrap()
                .into_array(),
            values.clone(),
        ),
        (
            BitPackedData::encode_blocked(&plain, &[9, 0, 20], &mut context)
                .unwrap()
                .into_array(),
            values.clone(),
        ),
        (
            FoRData::encode(primitive.clone(), &mut context)
                .unwrap()
                .into_array(),
            values.clone(),
        ),
        (
            FoRData::encode_chunked(primitive, &mut context)
                .unwrap()
                .into_array(),
            values.clone(),
        ),
        (runs.into_array(), run_values.clone()),
        (part.unwrap().into_array(), run_values[1030..2130].to_vec()),
        (
            DictArray::try_new(Buffer::copy_from(&codes).into_array(), words)
                .unwrap()
                .into_array(),
            by_code,
        ),
        (ConstantArray::new(-7i32, 2500).into_array(), vec![-7; 2500]),
        (rle(&runs_plain, &mut context), run_values.clone()),
    ];
    for (array, expected) in cases {
        let expected: Vec<i64> = expected.into_iter().map(i64::from).collect();
        let found = decoded(&array, &mut context);
        assert_eq!(found, Some(expected), "{}", array.encoding_id());
    }
}

#[test]
fn signs_survive_narrow_and_wide_types() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let narrow = Buffer::copy_from([-3i8, 5, i8::MIN]).into_array();
    let wide = Buffer::copy_from([-3i64, 5, i64::MIN]).into_array();
    let unsigned = Buffer::copy_from([200u8, 5, 255]).into_array();
    assert_eq!(decoded(&narrow, &mut context), Some(vec![-3, 5, -128]));
    assert_eq!(decoded(&wide, &mut context), Some(vec![-3, 5, i64::MIN]));
    assert_eq!(decoded(&unsigned, &mut context), Some(vec![200, 5, 255]));
}

#[test]
fn runs_of_wide_integers_are_narrow_where_their_values_are() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let edge = i64::from(i32::MAX);
    let mut runs = |values: [i64; 3], is_narrow: bool| {
        let values: Vec<i64> = values.iter().flat_map(|value| [*value; 700]).collect();
        let plain = Buffer::copy_from(&values).into_array();
        let runs = RunEnd::encode(plain, &mut context).unwrap().into_array();
        let column = ChunkColumn::of_stored(&runs, &mut context)
            .unwrap()
            .unwrap();
        assert_eq!(column.is_wide(), !is_narrow, "{values:?}");
        assert_eq!(column.runs(0).is_some(), is_narrow);
        assert_eq!(decoded(&runs, &mut context), Some(values));
    };
    runs([-3, edge, -edge - 1], true);
    runs([-3, edge + 1, 0], false);
    runs([-3, -edge - 2, 0], false);
}

#[test]
fn codes_beyond_a_chunk_s_values_are_of_nulls_or_damage() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let values = Buffer::copy_from([70i32, 80, 90]).into_array();
    let starts = Buffer::copy_from([0u64, 3]).into_array();
    let array = |third: Validity| {
        let mut codes: Vec<u16> = (0..1024).map(|row| row % 3).collect();
        codes[2] = 700;
        let codes = PrimitiveArray::new(Buffer::copy_from(&codes), third).into_array();
        let starts = starts.slice(0..1).unwrap();
        let array = RLE::try_new(values.clone(), codes, starts, 0, 1024);
        array.unwrap().into_array()
    };
    let valid = Validity::from_iter((0..1024).map(|row| row != 2));
    let column = ChunkColumn::of_stored(&array(valid), &mut context).unwrap();
    let mut buffer = ChunkBuffer::default();
    let words = column
        .unwrap()
        .words(&[0, 1, 2, 3], None, &mut buffer)
        .unwrap();
    let found = words.unwrap().to_array(&DataType::Int32, 4).unwrap();
    let expected = Int32Array::from(vec![Some(70), Some(80), None, Some(70)]);
    assert_eq!(found.as_ref(), &expected);
    let damaged = ChunkColumn::of_stored(&array(Validity::NonNullable), &mut context).unwrap();
    let error = damaged.unwrap().decode(0, &mut buffer).unwrap_err();
    assert!(error.to_string().contains("code 700"), "{error}");
}

#[test]
fn nulls_are_known_by_row() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let array = PrimitiveArray::from_option_iter([Some(1i32), None, Some(3)]).into_array();
    let column = ChunkColumn::of_stored(&array, &mut context).unwrap();
    let column = column.unwrap();
    let mut buffer = ChunkBuffer::default();
    let words = column.words(&[0, 1, 2], column.bounds(), &mut buffer);
    let words = words.unwrap().unwrap();
    let array = words.to_array(&DataType::Int32, 3).unwrap();
    assert_eq!(
        array.as_ref(),
        &Int32Array::from(vec![Some(1), None, Some(3)])
    );
}

#[test]
fn decimals_are_decoded_to_words_within_their_bounds() {
    let session = VortexSession::default();
    let mut context = session.create_execution_ctx();
    let cents: Vec<i64> = (0..3000).map(|row| 100_000 + row * 37 % 5000).collect();
    let dtype = DecimalDType::new(15, 2);
    let plain = Buffer::copy_from(&cents).into_array();
    let packed = BitPackedData::encode(&plain, 17, &mut context)
        .unwrap()
        .into_array();
    let codes: Vec<u16> = (0..3000).map(|row| row % 40).collect();
    let few = DecimalArray::new(
        Buffer::copy_from(&cents[..40]),
        dtype,
        Validity::NonNullable,
    );
    let codes = Buffer::copy_from(&codes).into_array();
    let by_code = (0..3000).map(|row| cents[row % 40]).collect();
    let whole = DecimalArray::new(Buffer::copy_from(&cents), dtype, Validity::NonNullable);
    let cases: [(ArrayRef, &Vec<i64>); 3] = [
        (
            DecimalByteParts::try_new(packed, dtype)
                .unwrap()
                .into_array(),
            &cents,
        ),
        (whole.into_array(), &cents),
        (
            DictArray::try_new(codes, few.into_array())
                .unwrap()
                .into_array(),
            &by_code,
        ),
    ];
    for (array, expected) in cases {
        let column = ChunkColumn::of_stored(&array, &mut context)
            .unwrap()
            .unwrap();
        let rows: Vec<u32> = (0..3000)
            .filter(|row| row % 3 != 1 || *row > 2000)
            .collect();
        let mut buffer = ChunkBuffer::default();
        let words = column
            .words(&rows, column.bounds(), &mut buffer)
            .unwrap()
            .unwrap();
        let expected: Vec<i64> = rows.iter().map(|row| expected[*row as usize]).collect();
        assert_eq!(words.values.each(), expected, "{}", array.encoding_id());
        let extremes = Bounds {
            min: expected.iter().copied().min().unwrap(),
            max: expected.iter().copied().max().unwrap(),
        };
        assert!(words.bounds.contain(extremes), "{}", array.encoding_id());
    }
}
