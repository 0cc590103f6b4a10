//! Predicates that compare two columns of a table: `l_commitdate < l_receiptdate`.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};

/// Two columns of integers, dates or times are compared. No row passes where one of them is NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Columns, by index in the table.
    pub left: usize,
    pub right: usize,
    pub op: Comparing,
}

/// How two integers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparing {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparing {
    fn of(op: Operator) -> Option<Self> {
        Some(match op {
            Operator::Eq => Self::Equal,
            Operator::NotEq => Self::Different,
            Operator::Lt => Self::Less,
            Operator::LtEq => Self::LessOrEqual,
            Operator::Gt => Self::Greater,
            Operator::GtEq => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    /// Whether integers pass that are in this order.
    pub fn passes(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::Different => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// The least difference of integers that pass, and the greatest less that one: modulo 2^`bits`, for differences of
    /// that many bits with their signs.
    pub fn differences(self, bits: u32) -> (u64, u64) {
        let negative = 1 << (bits - 1);
        let all = u64::MAX >> (64 - bits);
        match self {
            Self::Equal => (0, 0),
            Self::Different => (1, all - 1),
            Self::Less => (negative, negative - 1),
            Self::LessOrEqual => (negative, negative),
            Self::Greater => (1, negative - 2),
            Self::GreaterOrEqual => (0, negative - 1),
        }
    }
}

impl Comparison {
    /// A predicate over some columns of a table as a comparison of two of them, by their indices in the table, if they
    /// are integers, dates or times.
    pub fn of(
        predicate: &Arc<dyn PhysicalExpr>,
        schema: &Schema,
        in_table: &[usize],
    ) -> Option<Self> {
        let binary = predicate.downcast_ref::<BinaryExpr>()?;
        let [left, right] = [binary.left(), binary.right()];
        let index = |side: &Arc<dyn PhysicalExpr>| Some(side.downcast_ref::<Column>()?.index());
        let (left, right) = (index(left)?, index(right)?);
        let data_type = |idx: usize| Some(schema.fields().get(idx)?.data_type());
        let compared = data_type(left)?;
        (data_type(right)? == compared && is_key_type(compared)).then_some(())?;
        Some(Self {
            left: *in_table.get(left)?,
            right: *in_table.get(right)?,
            op: Comparing::of(*binary.op())?,
        })
    }
}

/// Whether keys of this type can be looked up, and compared as integers: these, dates and times.
pub(crate) fn is_key_type(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(_, _)
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_pass_as_what_they_are_differences_of() {
        use Comparing::{Different, Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
        let numbers = [i64::MIN, -7, -1, 0, 1, 2, i64::MAX - 1, i64::MAX];
        for op in [Equal, Different, Less, LessOrEqual, Greater, GreaterOrEqual] {
            let (lo, span) = op.differences(64);
            for difference in numbers {
                let passes = (difference as u64).wrapping_sub(lo) <= span;
                assert_eq!(passes, op.passes(difference.cmp(&0)), "{op:?} {difference}");
            }
            let (lo, span) = op.differences(32);
            for difference in numbers.map(|number| (number >> 32) as i32) {
                let passes = (difference as u32).wrapping_sub(lo as u32) <= span as u32;
                assert_eq!(passes, op.passes(difference.cmp(&0)), "{op:?} {difference}");
            }
        }
    }
}
