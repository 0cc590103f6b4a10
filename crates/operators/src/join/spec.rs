//! What a join is to do.

use std::fmt;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};

use crate::Result;
use crate::keys::Nulls;

/// One of the two inputs. The left one is built, the right one probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The input that is built.
    Left,
    /// The input that probes.
    Right,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Which rows a join returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and left rows without a partner.
    Left,
    /// Pairs, and right rows without a partner.
    Right,
    /// Pairs, and rows of both sides without a partner.
    Full,
    /// Left rows with a partner.
    LeftSemi,
    /// Right rows with a partner.
    RightSemi,
    /// Left rows without a partner.
    LeftAnti,
    /// Right rows without a partner.
    RightAnti,
    /// Left rows, each with whether it has a partner.
    LeftMark,
    /// Right rows, each with whether it has a partner.
    RightMark,
}

/// Which rows of a side are returned apart from pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Single {
    None,
    Matched,
    Unmatched,
    Marked,
}

impl JoinKind {
    /// Whether pairs are returned.
    pub(super) fn has_pairs(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Right | Self::Full)
    }

    /// What is returned of one side apart from pairs.
    pub(super) fn single(self, side: Side) -> Single {
        match (self, side) {
            (Self::Left | Self::Full | Self::LeftAnti, Side::Left) => Single::Unmatched,
            (Self::Right | Self::Full | Self::RightAnti, Side::Right) => Single::Unmatched,
            (Self::LeftSemi, Side::Left) | (Self::RightSemi, Side::Right) => Single::Matched,
            (Self::LeftMark, Side::Left) | (Self::RightMark, Side::Right) => Single::Marked,
            _ => Single::None,
        }
    }
}

/// A test of pairs of rows that have equal keys.
pub trait PairTest: Send + Sync {
    /// Which pairs pass: those with NULL do not. The batch has the columns of [`Condition::columns`].
    ///
    /// # Errors
    /// Whatever the test fails with.
    fn test(&self, pairs: &RecordBatch) -> Result<BooleanArray>;
}

/// What pairs with equal keys must pass to be partners.
#[derive(Clone)]
pub struct Condition {
    /// The columns that the test reads.
    pub columns: Vec<(Side, usize)>,
    /// The schema of these columns.
    pub schema: SchemaRef,
    /// The test.
    pub test: Arc<dyn PairTest>,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = &self.columns;
        f.debug_struct("Condition")
            .field("columns", columns)
            .finish_non_exhaustive()
    }
}

/// What a join is to do.
#[derive(Debug, Clone)]
pub struct JoinSpec {
    /// The schema of left batches.
    pub left: SchemaRef,
    /// The schema of right batches.
    pub right: SchemaRef,
    /// Columns that must be equal: left and right, of one type. Without any, each row meets all of the other side.
    pub on: Vec<(usize, usize)>,
    /// Which rows are returned.
    pub kind: JoinKind,
    /// Whether NULL equals NULL.
    pub nulls: Nulls,
    /// `NOT IN`: an anti join whose rows with NULL, and with NULL on the other side, have an unknown answer and are
    /// not returned. One pair of columns, no condition.
    pub null_aware: bool,
    /// What pairs must pass besides.
    pub condition: Option<Condition>,
    /// The columns of the output. A mark follows them. The output has no order.
    pub output: Vec<(Side, usize)>,
    /// The schema of the output.
    pub schema: SchemaRef,
}

impl JoinSpec {
    /// # Errors
    /// Key columns of different types, which no two rows could have in common.
    pub(super) fn check(&self) -> Result<()> {
        for &(left, right) in &self.on {
            let (left, right) = (self.left.field(left), self.right.field(right));
            if left.data_type() != right.data_type() {
                let [left, right] =
                    [left, right].map(|field| format!("{} {}", field.name(), field.data_type()));
                let message =
                    format!("a join needs keys of one type, and {left} and {right} differ");
                return Err(ArrowError::SchemaError(message).into());
            }
        }
        Ok(())
    }
}
