use std::sync::Arc;

use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int8Array, Int32Array,
    Int64Array, StringArray, StringViewArray,
};
use arrow_array::{DictionaryArray, StructArray};
use arrow_row::{RowConverter, SortField};

use super::*;

fn columns_of_every_kind(rows: usize, seed: u64) -> Vec<ArrayRef> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut some = |up_to: i64| -> Vec<Option<i64>> {
        let values = (0..rows).map(|_| (random.u8(..5) > 0).then(|| random.i64(-up_to..=up_to)));
        values.collect()
    };
    let text = |value: Option<i64>| value.map(|value| "x".repeat(value.unsigned_abs() as usize));
    let decimal =
        Decimal128Array::from_iter(some(1).iter().map(|v| v.map(|v| i128::from(v) << 70)));
    let dictionary: DictionaryArray<Int32Type> = some(1)
        .iter()
        .map(|v| v.map(|v| if v > 0 { "a" } else { "b" }))
        .collect();
    let inner: ArrayRef = Arc::new(Int32Array::from_iter(
        some(1).iter().map(|v| v.map(|v| v as i32)),
    ));
    let field = arrow_schema::Field::new("inner", DataType::Int32, true);
    vec![
        Arc::new(Int64Array::from(some(2))),
        Arc::new(Int32Array::from_iter(
            some(2).iter().map(|v| v.map(|v| v as i32)),
        )),
        Arc::new(Int8Array::from_iter(
            some(2).iter().map(|v| v.map(|v| v as i8)),
        )),
        Arc::new(Date32Array::from_iter(
            some(2).iter().map(|v| v.map(|v| v as i32)),
        )),
        Arc::new(BooleanArray::from_iter(
            some(2).iter().map(|v| v.map(|v| v > 0)),
        )),
        Arc::new(Float64Array::from_iter(
            some(2).iter().map(|v| v.map(|v| v as f64)),
        )),
        Arc::new(decimal),
        Arc::new(StringArray::from_iter(some(2).into_iter().map(text))),
        Arc::new(StringViewArray::from_iter(some(2).into_iter().map(text))),
        Arc::new(dictionary),
        Arc::new(StructArray::from(vec![(Arc::new(field), inner)])),
    ]
}

fn encoder(columns: &[ArrayRef], nulls: Nulls) -> KeyEncoder {
    let types = columns
        .iter()
        .map(|column| (column.data_type().clone(), true));
    KeyEncoder::try_new(&types.collect::<Vec<_>>(), nulls).unwrap()
}

fn keys_of(columns: &[ArrayRef], nulls: Nulls) -> (KeyEncoder, Keys) {
    let encoder = encoder(columns, nulls);
    let mut keys = Keys::default();
    encoder
        .encode(columns, columns[0].len(), &mut keys)
        .unwrap();
    (encoder, keys)
}

fn equal(encoder: &KeyEncoder, keys: &Keys, left: usize, right: usize) -> bool {
    match encoder.shape() {
        KeyShape::Words(_) => keys.words(left) == keys.words(right),
        KeyShape::Bytes => keys.bytes(left) == keys.bytes(right),
    }
}

/// The columns in Arrow's row format, whose equality is that of `IS NOT DISTINCT FROM`.
fn oracle(columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).unwrap();
    let rows = converter.convert_columns(columns).unwrap();
    rows.iter().map(|row| row.data().to_vec()).collect()
}

/// All choices of one, two or three columns.
fn choices(columns: &[ArrayRef]) -> Vec<Vec<ArrayRef>> {
    let masks = 1_usize..1 << columns.len();
    let small = masks.filter(|mask| mask.count_ones() <= 3);
    let chosen = |mask: usize| move |idx: &usize| mask >> idx & 1 == 1;
    small
        .map(|mask| {
            let idxs = (0..columns.len()).filter(chosen(mask));
            idxs.map(|idx| Arc::clone(&columns[idx])).collect()
        })
        .collect()
}

#[test]
fn keys_are_equal_exactly_if_the_rows_are() {
    let columns: Vec<ArrayRef> = columns_of_every_kind(70, 1)
        .iter()
        .map(|column| column.slice(6, 60))
        .collect();
    for chosen in choices(&columns) {
        let expected = oracle(&chosen);
        for nulls in [Nulls::Equal, Nulls::Distinct] {
            let (encoder, keys) = keys_of(&chosen, nulls);
            assert_eq!(keys.len(), 60);
            let has_null = |row: usize| chosen.iter().any(|column| column.is_null(row));
            let has_key = |row: usize| keys.has_key(row);
            for left in 0..60 {
                assert_eq!(has_key(left), nulls == Nulls::Equal || !has_null(left));
                for right in (0..left).filter(|&right| has_key(left) && has_key(right)) {
                    let is_equal = expected[left] == expected[right];
                    assert_eq!(equal(&encoder, &keys, left, right), is_equal, "{chosen:?}");
                    assert!(!is_equal || keys.hashes()[left] == keys.hashes()[right]);
                }
            }
        }
    }
}

#[test]
fn keys_become_the_columns_that_they_were() {
    let columns = columns_of_every_kind(50, 2);
    for chosen in choices(&columns) {
        let (encoder, keys) = keys_of(&chosen, Nulls::Equal);
        let decoded = match encoder.shape() {
            KeyShape::Words(_) => encoder.decode_words(keys.all_words()).unwrap(),
            KeyShape::Bytes => encoder
                .decode_bytes((0..50).map(|row| keys.bytes(row)))
                .unwrap(),
        };
        for (decoded, column) in decoded.iter().zip(&chosen) {
            assert_eq!(decoded.data_type(), column.data_type());
            assert_eq!(
                oracle(std::slice::from_ref(decoded)),
                oracle(std::slice::from_ref(column))
            );
        }
    }
}

#[test]
fn narrow_columns_share_words() {
    let shape = |types: &[DataType], nullable: bool, nulls: Nulls| {
        let columns: Vec<_> = types.iter().map(|t| (t.clone(), nullable)).collect();
        KeyEncoder::try_new(&columns, nulls).unwrap().shape()
    };
    use DataType::*;
    let words = KeyShape::Words;
    assert_eq!(shape(&[Int64], true, Nulls::Distinct), words(1));
    assert_eq!(shape(&[Int64], true, Nulls::Equal), words(2));
    assert_eq!(shape(&[Int32, Date32], false, Nulls::Equal), words(1));
    assert_eq!(
        shape(&[Int8, Int16, Boolean, Int32], true, Nulls::Equal),
        words(1)
    );
    assert_eq!(
        shape(
            &[Int16, Decimal128(15, 2), Int64, Int8],
            false,
            Nulls::Equal
        ),
        words(4)
    );
    assert_eq!(shape(&vec![Int64; 5], false, Nulls::Equal), KeyShape::Bytes);
    assert_eq!(shape(&[Int64, Utf8], false, Nulls::Equal), KeyShape::Bytes);
}

#[test]
fn there_is_one_zero_and_one_nan() {
    let odd = f64::from_bits(0xfff8_0000_0000_1234);
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![
        0.0,
        -0.0,
        f64::NAN,
        odd,
        1.0,
        f64::INFINITY,
    ]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; 6]));
    for columns in [vec![Arc::clone(&floats)], vec![floats, texts]] {
        let (encoder, keys) = keys_of(&columns, Nulls::Distinct);
        assert!(equal(&encoder, &keys, 0, 1));
        assert!(equal(&encoder, &keys, 2, 3));
        for (left, right) in [(0, 2), (1, 4), (2, 4), (2, 5), (4, 5)] {
            assert!(!equal(&encoder, &keys, left, right));
        }
    }
    let one = 1.5_f64;
    let kept: ArrayRef = Arc::new(Float64Array::from(vec![one, -one]));
    let (encoder, keys) = keys_of(&[kept], Nulls::Distinct);
    let decoded = encoder.decode_words(keys.all_words()).unwrap();
    let values = arrow_array::cast::AsArray::as_primitive::<Float64Type>(&decoded[0]);
    assert_eq!(values.values(), &[one, -one]);
}
