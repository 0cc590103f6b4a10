//! The columns that several files have together, matched by name.
//!
//! A file may lack columns that others have: they are NULL there. Integers and floats widen to the type that holds
//! both; other differences are an error that names file and column.

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::error::Error;

/// Types that the user chose, by column.
pub(crate) type TypeOverrides = [(String, DataType)];

/// The columns of files, put together one file after the other.
#[derive(Debug, Default)]
pub(crate) struct CommonColumns {
    fields: Vec<Field>,
    file_count: usize,
}

impl CommonColumns {
    /// Adds a file's columns. `table` is what they are for, in messages.
    pub fn add(&mut self, path: &Path, own: &Schema, table: &str) -> Result<(), Error> {
        let mismatch = |what| Error::SchemaMismatch {
            input: path.display().to_string(),
            table: table.to_owned(),
            what,
        };
        let shares_one = own
            .fields()
            .iter()
            .any(|field| self.position(field.name()).is_some());
        if self.file_count > 0 && !shares_one {
            return Err(mismatch(format!(
                "it has no column of the files before; it has: {}",
                names(own.fields().iter().map(AsRef::as_ref))
            )));
        }
        for field in own.fields() {
            match self.position(field.name()) {
                None => {
                    let nullable = self.file_count > 0 || field.is_nullable();
                    self.fields
                        .push(field.as_ref().clone().with_nullable(nullable));
                }
                Some(idx) => {
                    let known = &mut self.fields[idx];
                    let common = common_type(known.data_type(), field.data_type());
                    let common = common.ok_or_else(|| {
                        mismatch(format!(
                            "column '{}' is {} here and {} in the files before",
                            field.name(),
                            field.data_type(),
                            known.data_type()
                        ))
                    })?;
                    let nullable = known.is_nullable() || field.is_nullable();
                    *known = known.clone().with_data_type(common).with_nullable(nullable);
                }
            }
        }
        for field in &mut self.fields {
            if own.field_with_name(field.name()).is_err() {
                field.set_nullable(true);
            }
        }
        self.file_count += 1;
        Ok(())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name() == name)
    }

    /// All columns, in the order in which they were found.
    pub fn finish(self) -> SchemaRef {
        Arc::new(Schema::new(self.fields))
    }
}

fn names<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
    names.join(", ")
}

/// The type that holds the values of both, if one does.
fn common_type(a: &DataType, b: &DataType) -> Option<DataType> {
    if a == b || b.is_null() {
        return Some(a.clone());
    }
    if a.is_null() {
        return Some(b.clone());
    }
    if a.is_integer() && b.is_integer() {
        return common_integer(a, b);
    }
    let is_number = |data_type: &DataType| data_type.is_integer() || data_type.is_floating();
    (is_number(a) && is_number(b)).then_some(DataType::Float64)
}

fn common_integer(a: &DataType, b: &DataType) -> Option<DataType> {
    let signed = a.is_signed_integer() || b.is_signed_integer();
    let bits = |data_type: &DataType| {
        let bits = data_type.primitive_width().unwrap_or(8) * 8;
        // A signed type needs one more bit for unsigned values.
        bits + usize::from(signed && data_type.is_unsigned_integer())
    };
    Some(match (signed, bits(a).max(bits(b))) {
        (true, ..=8) => DataType::Int8,
        (true, ..=16) => DataType::Int16,
        (true, ..=32) => DataType::Int32,
        (true, ..=64) => DataType::Int64,
        (true, _) => return None,
        (false, ..=8) => DataType::UInt8,
        (false, ..=16) => DataType::UInt16,
        (false, ..=32) => DataType::UInt32,
        (false, _) => DataType::UInt64,
    })
}

/// The columns with the types that the user chose.
pub(crate) fn with_overrides(schema: &Schema, overrides: &TypeOverrides) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let chosen = overrides.iter().find(|(name, _)| name == field.name());
        match chosen {
            Some((_, data_type)) => field.as_ref().clone().with_data_type(data_type.clone()),
            None => field.as_ref().clone(),
        }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Fails if a chosen type is for a column that no file has.
pub(crate) fn check_overrides(schema: &Schema, overrides: &TypeOverrides) -> Result<(), Error> {
    match overrides
        .iter()
        .find(|(name, _)| schema.field_with_name(name).is_err())
    {
        None => Ok(()),
        Some((name, _)) => Err(Error::InvalidValue {
            what: "schema",
            value: name.clone(),
            expected: format!(
                "a column of the files: {}",
                names(schema.fields().iter().map(AsRef::as_ref))
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DataType::{Float32, Float64, Int8, Int32, Int64, UInt32, UInt64, Utf8};

    #[test]
    fn numbers_widen_to_what_holds_both() {
        let cases = [
            (Int32, Int64, Some(Int64)),
            (Int64, Float64, Some(Float64)),
            (Float32, Float64, Some(Float64)),
            (UInt32, Int8, Some(Int64)),
            (UInt64, Int8, None),
            (UInt32, UInt64, Some(UInt64)),
            (DataType::Null, Utf8, Some(Utf8)),
            (Int64, Utf8, None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(common_type(&a, &b), expected, "{a} and {b}");
            assert_eq!(common_type(&b, &a), expected, "{b} and {a}");
        }
    }

    #[test]
    fn a_file_without_any_known_column_is_refused() {
        let schema = |name: &str| Schema::new(vec![Field::new(name, Int64, true)]);
        let mut common = CommonColumns::default();
        common.add(Path::new("a.csv"), &schema("v"), "t").unwrap();
        let error = common
            .add(Path::new("b.csv"), &schema("1"), "t")
            .unwrap_err();
        assert!(error.to_string().contains("b.csv"), "{error}");
    }
}
