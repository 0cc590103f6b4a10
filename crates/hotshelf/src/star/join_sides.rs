//! Which joins are look-ups: the side that stays a stream of scanned rows, and the key.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::HashJoinExec;

use super::declined::Declined;
use super::forecast::{has_fewer_rows, is_known_key, is_repeated, largest_table};
use super::matching::Matching;

/// Which side stays a stream of scanned rows: the one the join preserves, or the one with the larger table unless only
/// its key can be looked up.
pub(super) fn probe_side(join: &HashJoinExec) -> Result<(JoinSide, Matching), Declined> {
    let (left, right) = (largest_table(join.left()), largest_table(join.right()));
    let (side, matching) = match join.join_type() {
        JoinType::Inner => return Ok((inner_probe_side(join, left > right), Matching::Inner)),
        JoinType::LeftSemi => (JoinSide::Left, Matching::Semi),
        JoinType::LeftAnti => (JoinSide::Left, Matching::Anti),
        JoinType::Left => (JoinSide::Left, Matching::Outer),
        JoinType::RightSemi => (JoinSide::Right, Matching::Semi),
        JoinType::RightAnti => (JoinSide::Right, Matching::Anti),
        JoinType::Right => (JoinSide::Right, Matching::Outer),
        other => return Err(Declined(format!("{other} joins are not looked up"))),
    };
    let smaller_probes = match side {
        JoinSide::Left => left < right,
        _ => right < left,
    };
    if smaller_probes {
        return Err(Declined::because("the preserved side is the smaller one"));
    }
    Ok((side, matching))
}

fn inner_probe_side(join: &HashJoinExec, left_is_larger: bool) -> JoinSide {
    let side = |is_left| match is_left {
        true => JoinSide::Left,
        false => JoinSide::Right,
    };
    let [(left_key, right_key)] = join.on() else {
        return side(left_is_larger);
    };
    let (left, right) = ((join.left(), left_key), (join.right(), right_key));
    let (larger, smaller) = match left_is_larger {
        true => (left, right),
        false => (right, left),
    };
    let is_turned = is_repeated(smaller.0, smaller.1)
        && is_known_key(larger.0, larger.1)
        && has_fewer_rows(larger.0, smaller.0);
    side(left_is_larger != is_turned)
}

/// Two expressions that a join takes for equal, one of each side.
pub(super) type KeyPair = (Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>);

/// The key of a join that is looked up, and equalities that are tested afterwards. Of several keys that is one that is
/// known not to repeat, so that the others are tested on the one row that it finds.
pub(super) fn looked_up_key(
    join: &HashJoinExec,
    matching: Matching,
    probe_side: JoinSide,
) -> Result<(&KeyPair, Vec<&KeyPair>), Declined> {
    let keys = join.on();
    if let [only] = keys {
        return Ok((only, Vec::new()));
    }
    let is_key = |(left, right): &KeyPair| match probe_side {
        JoinSide::Left => is_known_key(join.right(), right),
        _ => is_known_key(join.left(), left),
    };
    let several = || Declined::because("a join has more than one key");
    let is_inner = matching == Matching::Inner;
    let place = keys.iter().position(is_key).filter(|_| is_inner);
    let place = place.ok_or_else(several)?;
    let others = keys.iter().enumerate().filter(|(idx, _)| *idx != place);
    let others: Vec<_> = others.map(|(_, pair)| pair).collect();
    // A comparison takes -0.0 and 0.0 for different values, a join for equal ones.
    for (left, _) in &others {
        let data_type = left.data_type(&join.left().schema())?;
        if data_type.is_floating() || data_type.is_nested() {
            return Err(several());
        }
    }
    Ok((&keys[place], others))
}

/// The columns of a join in its own order, before its projection.
pub(super) fn joined(
    join: &HashJoinExec,
    probe_side: JoinSide,
    probe: Vec<Arc<dyn PhysicalExpr>>,
    build: Vec<Arc<dyn PhysicalExpr>>,
) -> Vec<Arc<dyn PhysicalExpr>> {
    use JoinType::{LeftAnti, LeftSemi, RightAnti, RightSemi};
    if matches!(
        join.join_type(),
        LeftSemi | LeftAnti | RightSemi | RightAnti
    ) {
        return probe;
    }
    match probe_side {
        JoinSide::Left => probe.into_iter().chain(build).collect(),
        _ => build.into_iter().chain(probe).collect(),
    }
}
