//! Filters as conditions on single columns, where they are that.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal,
};
use hotshelf_elf::keys::{Predicate, Value};

use super::is_indexable;

/// A condition on one column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Condition {
    pub column: usize,
    pub predicate: Predicate,
}

/// The predicate as a condition on one column of `schema`, if it compares that column with literals of its
/// type and means the same in the Elf's order.
pub(crate) fn condition(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Condition> {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return comparison(binary, schema);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let column = column_of(list.expr(), schema)?;
        let values = list.list().iter();
        let values = values
            .map(|value| literal_of(value, column, schema))
            .collect::<Option<Vec<_>>>()?;
        return (!list.negated()).then_some(Condition {
            column,
            predicate: Predicate::In(values),
        });
    }
    if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
        let column = column_of(null.arg(), schema)?;
        let predicate = Predicate::IsNull;
        return Some(Condition { column, predicate });
    }
    if let Some(present) = expr.downcast_ref::<IsNotNullExpr>() {
        let column = column_of(present.arg(), schema)?;
        let predicate = Predicate::IsNotNull;
        return Some(Condition { column, predicate });
    }
    None
}

fn comparison(binary: &BinaryExpr, schema: &Schema) -> Option<Condition> {
    if *binary.op() == Operator::Or {
        return either(binary, schema);
    }
    let (column, value, op) = match column_of(binary.left(), schema) {
        Some(column) => (
            column,
            literal_of(binary.right(), column, schema)?,
            *binary.op(),
        ),
        None => {
            let column = column_of(binary.right(), schema)?;
            let value = literal_of(binary.left(), column, schema)?;
            (column, value, binary.op().swap()?)
        }
    };
    let predicate = predicate_of(op, value)?;
    Some(Condition { column, predicate })
}

/// The condition that a column of `schema` compares in this way with a literal, if it can be one.
pub(crate) fn compared(
    column: usize,
    op: Operator,
    literal: &ScalarValue,
    schema: &Schema,
) -> Option<Condition> {
    let value = literal_as(literal, column, schema)?;
    let predicate = predicate_of(op, value)?;
    Some(Condition { column, predicate })
}

/// The condition that a column of `schema` equals one of some literals, if it can be one.
pub(crate) fn among<'l>(
    column: usize,
    literals: impl IntoIterator<Item = &'l ScalarValue>,
    schema: &Schema,
) -> Option<Condition> {
    let literals = literals.into_iter();
    let values = literals.map(|literal| literal_as(literal, column, schema));
    let predicate = Predicate::In(values.collect::<Option<_>>()?);
    Some(Condition { column, predicate })
}

fn predicate_of(op: Operator, value: Value) -> Option<Predicate> {
    Some(match op {
        Operator::Eq => Predicate::Eq(value),
        Operator::NotEq => Predicate::NotEq(value),
        Operator::Lt => Predicate::Lt(value),
        Operator::LtEq => Predicate::Le(value),
        Operator::Gt => Predicate::Gt(value),
        Operator::GtEq => Predicate::Ge(value),
        _ => return None,
    })
}

/// `a = 1 OR a = 2 OR a IN (3)` as a membership.
fn either(binary: &BinaryExpr, schema: &Schema) -> Option<Condition> {
    let left = condition(binary.left(), schema)?;
    let right = condition(binary.right(), schema)?;
    let members = |predicate| match predicate {
        Predicate::Eq(value) => Some(vec![value]),
        Predicate::In(values) => Some(values),
        _ => None,
    };
    if left.column != right.column {
        return None;
    }
    let mut values = members(left.predicate)?;
    values.extend(members(right.predicate)?);
    Some(Condition {
        column: left.column,
        predicate: Predicate::In(values),
    })
}

/// The column of `schema` that an expression is, if an index can have it.
pub(crate) fn column_of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
    let column = expr.downcast_ref::<Column>()?.index();
    let field = schema.fields().get(column)?;
    is_indexable(field.data_type()).then_some(column)
}

fn literal_of(expr: &Arc<dyn PhysicalExpr>, column: usize, schema: &Schema) -> Option<Value> {
    let literal = expr.downcast_ref::<Literal>()?.value();
    literal_as(literal, column, schema)
}

/// The literal in the Elf's words. Numbers must have the column's own type: another scale or unit would be
/// another number. Strings may come in any of their three forms.
pub(crate) fn literal_as(literal: &ScalarValue, column: usize, schema: &Schema) -> Option<Value> {
    let value = value(literal)?;
    let data_type = schema.field(column).data_type();
    let same = matches!(value, Value::Null | Value::Bytes(_)) || literal.data_type() == *data_type;
    let is_text = |value: &Value| matches!(value, Value::Bytes(_));
    let fits = !is_text(&value) || data_type.is_string() || data_type.is_binary();
    (same && fits).then_some(value)
}

/// A literal in the Elf's words, if it can be one.
fn value(literal: &ScalarValue) -> Option<Value> {
    use ScalarValue::*;
    if literal.is_null() {
        return Some(Value::Null);
    }
    Some(match literal {
        Boolean(Some(v)) => Value::Integer((*v).into()),
        Int8(Some(v)) => Value::Integer((*v).into()),
        Int16(Some(v)) => Value::Integer((*v).into()),
        Int32(Some(v)) | Date32(Some(v)) | Time32Second(Some(v)) | Time32Millisecond(Some(v)) => {
            Value::Integer((*v).into())
        }
        Int64(Some(v))
        | Date64(Some(v))
        | Time64Microsecond(Some(v))
        | Time64Nanosecond(Some(v))
        | TimestampSecond(Some(v), _)
        | TimestampMillisecond(Some(v), _)
        | TimestampMicrosecond(Some(v), _)
        | TimestampNanosecond(Some(v), _) => Value::Integer((*v).into()),
        UInt8(Some(v)) => Value::Integer((*v).into()),
        UInt16(Some(v)) => Value::Integer((*v).into()),
        UInt32(Some(v)) => Value::Integer((*v).into()),
        UInt64(Some(v)) => Value::Integer((*v).into()),
        Decimal128(Some(v), _, _) => Value::Integer(*v),
        Float32(Some(v)) => Value::Float((*v).into()),
        Float64(Some(v)) => Value::Float(*v),
        Utf8(Some(v)) | LargeUtf8(Some(v)) | Utf8View(Some(v)) => {
            Value::Bytes(v.as_bytes().to_vec())
        }
        Binary(Some(v)) | LargeBinary(Some(v)) | BinaryView(Some(v)) => Value::Bytes(v.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};
    use datafusion::physical_expr::expressions::{binary, col, in_list, is_null, lit};

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Decimal128(10, 2), true),
            Field::new("l", DataType::new_list(DataType::Int32, true), true),
        ])
    }

    #[test]
    fn comparisons_memberships_and_null_tests_are_conditions() {
        let schema = schema();
        let a = || col("a", &schema).unwrap();
        let found = |expr| condition(&expr, &schema).map(|found| (found.column, found.predicate));
        let number = |number| Value::Integer(number);
        let less = binary(a(), Operator::Lt, lit(3i32), &schema).unwrap();
        assert_eq!(found(less), Some((0, Predicate::Lt(number(3)))));
        let swapped = binary(lit(3i32), Operator::Lt, a(), &schema).unwrap();
        assert_eq!(found(swapped), Some((0, Predicate::Gt(number(3)))));
        let list = in_list(a(), vec![lit(1i32), lit(2i32)], &false, &schema).unwrap();
        let member = Predicate::In(vec![number(1), number(2)]);
        assert_eq!(found(list), Some((0, member.clone())));
        let equal = |value: i32| binary(a(), Operator::Eq, lit(value), &schema).unwrap();
        let either = binary(equal(1), Operator::Or, equal(2), &schema).unwrap();
        assert_eq!(found(either), Some((0, member)));
        assert_eq!(found(is_null(a()).unwrap()), Some((0, Predicate::IsNull)));
    }

    #[test]
    fn other_types_two_columns_and_negations_are_not() {
        let schema = schema();
        let a = || col("a", &schema).unwrap();
        let b = || col("b", &schema).unwrap();
        let wide = binary(a(), Operator::Lt, lit(3i64), &schema).unwrap();
        assert_eq!(condition(&wide, &schema), None);
        let scale = ScalarValue::Decimal128(Some(1), 10, 3);
        let scaled: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(b(), Operator::Lt, lit(scale)));
        assert_eq!(condition(&scaled, &schema), None);
        let columns = binary(a(), Operator::Lt, a(), &schema).unwrap();
        assert_eq!(condition(&columns, &schema), None);
        let list = in_list(a(), vec![lit(1i32)], &true, &schema).unwrap();
        assert_eq!(condition(&list, &schema), None);
        assert_eq!(
            condition(&is_null(col("l", &schema).unwrap()).unwrap(), &schema),
            None
        );
    }
}
