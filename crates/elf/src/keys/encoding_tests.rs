//! Codes preserve order and predicates mean the same on codes as on values, for every type.

use std::path::Path;

use proptest::prelude::*;

use super::typed::{Column, compare, holds};
use super::*;

fn column() -> impl Strategy<Value = Column> {
    let n = 0..12usize;
    let vec = proptest::collection::vec::<BoxedStrategy<i64>>;
    prop_oneof![
        proptest::collection::vec(any::<bool>(), n.clone()).prop_map(Column::Bool),
        proptest::collection::vec(any::<i8>(), n.clone()).prop_map(Column::I8),
        proptest::collection::vec(any::<i16>(), n.clone()).prop_map(Column::I16),
        proptest::collection::vec(any::<i32>(), n.clone()).prop_map(Column::I32),
        proptest::collection::vec(any::<u8>(), n.clone()).prop_map(Column::U8),
        proptest::collection::vec(any::<u16>(), n.clone()).prop_map(Column::U16),
        vec((-5i64..5).boxed(), n.clone()).prop_map(Column::I64),
        vec(any::<i64>().boxed(), n.clone()).prop_map(Column::I64),
        proptest::collection::vec(any::<i128>(), n.clone()).prop_map(Column::I128),
        proptest::collection::vec(any::<u32>(), n.clone()).prop_map(Column::U32),
        proptest::collection::vec(any::<u64>(), n.clone()).prop_map(Column::U64),
        proptest::collection::vec(any::<f32>(), n.clone()).prop_map(Column::F32),
        proptest::collection::vec(any::<f64>(), n.clone()).prop_map(Column::F64),
        proptest::collection::vec(proptest::collection::vec(0u8..3, 0..7), n)
            .prop_map(Column::Bytes),
    ]
}

fn predicates(literals: &[Value]) -> Vec<Predicate> {
    let mut all = vec![
        Predicate::IsNull,
        Predicate::IsNotNull,
        Predicate::In(literals.to_vec()),
    ];
    for value in literals.iter().chain([&Value::Null]) {
        let v = || value.clone();
        all.extend([
            Predicate::Eq(v()),
            Predicate::NotEq(v()),
            Predicate::Lt(v()),
        ]);
        all.extend([Predicate::Le(v()), Predicate::Gt(v()), Predicate::Ge(v())]);
        all.extend(
            literals
                .iter()
                .map(|hi| Predicate::Between(v(), hi.clone())),
        );
    }
    all
}

/// All values as literals; of an empty column none.
fn literals_of(column: &Column) -> Vec<Value> {
    (0..column.with(None, |values| values.len()))
        .map(|row| column.value(row))
        .collect()
}

fn same(a: &Value, b: &Value) -> bool {
    compare(a, b).map_or_else(|| a == b, std::cmp::Ordering::is_eq)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn predicates_mean_the_same_on_codes_as_on_values(
        rows in column(),
        probes in column(),
        missing in proptest::collection::vec(any::<bool>(), 12),
        has_nulls in any::<bool>(),
        prefix in any::<bool>(),
    ) {
        let literals = literals_of(&rows);
        let validity: Vec<bool> = (0..literals.len()).map(|i| !missing[i]).collect();
        let shown: Vec<Value> = literals
            .iter()
            .zip(&validity)
            .map(|(v, &ok)| if ok || !has_nulls { v.clone() } else { Value::Null })
            .collect();
        let (encoding, codes) = rows.with(has_nulls.then_some(&validity), |values| {
            let encoding = if prefix && matches!(rows, Column::Bytes(_)) {
                ColumnEncoding::prefix_for_tests(has_nulls)
            } else {
                ColumnEncoding::learn(values).unwrap()
            };
            let codes = encoding.encode(values).unwrap();
            (encoding, codes)
        });
        let read = ColumnEncoding::from_bytes(Path::new("t"), &encoding.to_bytes()).unwrap();
        prop_assert_eq!(&read, &encoding);
        for (row, value) in shown.iter().enumerate() {
            let decoded = encoding.decode(codes.get(row));
            prop_assert!(encoding.is_lossy() || same(&decoded.unwrap(), value));
        }
        let mut values = literals;
        if std::mem::discriminant(&rows) == std::mem::discriminant(&probes) {
            values.extend(literals_of(&probes));
        }
        for predicate in predicates(&values) {
            let (restriction, coverage) = encoding.restriction(&predicate).unwrap();
            for (row, value) in shown.iter().enumerate() {
                let accepted = restriction.contains(codes.get(row));
                let expected = holds(&predicate, value);
                match coverage {
                    Coverage::Exact => prop_assert_eq!(accepted, expected, "{:?} on {:?}", predicate, value),
                    Coverage::Superset => prop_assert!(accepted || !expected),
                }
            }
        }
    }

    #[test]
    fn a_union_has_codes_for_the_values_of_both_sides(
        pair in prop_oneof![
            (proptest::collection::vec(-9i64..9, 0..6), proptest::collection::vec(0i64..40, 0..6)),
            (proptest::collection::vec(any::<i64>(), 0..6), proptest::collection::vec(any::<i64>(), 2..6)),
        ],
        nulls in any::<(bool, bool)>(),
    ) {
        let validity = |rows: &[i64], null: bool| -> Vec<bool> {
            (0..rows.len()).map(|i| i > 0 || !null).collect()
        };
        let validities = (validity(&pair.0, nulls.0), validity(&pair.1, nulls.1));
        let sides = [(&pair.0, &validities.0), (&pair.1, &validities.1)].map(|(rows, validity)| {
            Values { values: ValuesRef::I64(rows), validity: Some(validity) }
        });
        let [left, right] = sides.each_ref().map(|values| ColumnEncoding::learn(values).unwrap());
        if let Some(union) = left.union(&right) {
            for (own, values) in [(&left, &sides[0]), (&right, &sides[1])] {
                let (codes, own_codes) = (union.encode(values).unwrap(), own.encode(values).unwrap());
                for row in 0..codes.len() {
                    prop_assert_eq!(union.decode(codes.get(row)), own.decode(own_codes.get(row)));
                }
            }
        }
    }

    #[test]
    fn reading_an_encoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = ColumnEncoding::from_bytes(Path::new("t"), &bytes);
    }
}

#[test]
fn comparing_with_another_type_is_an_error() {
    let values = Values {
        values: ValuesRef::I32(&[1, 2]),
        validity: None,
    };
    let encoding = ColumnEncoding::learn(&values).unwrap();
    assert!(
        encoding
            .restriction(&Predicate::Eq(Value::Float(1.0)))
            .is_err()
    );
    assert!(
        encoding
            .restriction(&Predicate::In(vec![Value::Bytes(vec![])]))
            .is_err()
    );
}

#[test]
fn a_value_outside_the_domain_cannot_be_encoded() {
    let encoding = ColumnEncoding::learn(&Values {
        values: ValuesRef::I32(&[1, 2]),
        validity: None,
    })
    .unwrap();
    let foreign = Values {
        values: ValuesRef::I32(&[1, 3]),
        validity: None,
    };
    assert!(encoding.encode(&foreign).is_err());
    let null = Values {
        values: ValuesRef::I32(&[1, 2]),
        validity: Some(&[true, false]),
    };
    assert!(encoding.encode(&null).is_err());
}

#[test]
fn sparse_numbers_get_a_dictionary_and_few_codes() {
    let values = Values {
        values: ValuesRef::I64(&[0, 1_000, 2_000]),
        validity: None,
    };
    assert_eq!(ColumnEncoding::learn(&values).unwrap().code_count(), 3);
    let far = Values {
        values: ValuesRef::I64(&[i64::MIN, i64::MAX]),
        validity: None,
    };
    assert_eq!(ColumnEncoding::learn(&far).unwrap().code_count(), 2);
}
