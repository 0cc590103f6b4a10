//! Why parts that occur more than once are shared or not, for EXPLAIN VERBOSE.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;

use super::{
    JOIN_COST_MIN, JOIN_COST_PER_ROW, Part, SPILLED_PARTS, Shared, ends_in_work, read_bytes,
    work_below,
};
use crate::plan::{is_repeatable, join_work};
use crate::settings::Notes;
use crate::statistics::sizes::stored_bytes;

/// Why a part is made again for each of its uses whatever is known about its size, if it is.
pub(super) fn against(part: &LogicalPlan, is_recursive: bool) -> Option<String> {
    if is_recursive {
        return Some("a recursive part of the query runs again and again".into());
    }
    if !is_repeatable(part).is_ok_and(|is| is) {
        return Some("it may give other rows each time, or depends on rows of its query".into());
    }
    match work_below(part) {
        LogicalPlan::Join(_) => against_joins(part),
        _ => None,
    }
}

/// Joins that do not take long are better made again: filters of one use reach them while the query runs, and
/// aggregations above are made with them.
fn against_joins(part: &LogicalPlan) -> Option<String> {
    let Some(work) = join_work(part) else {
        return Some("what its joins take is not known".into());
    };
    let rows = format!("its joins are expected to pass on {:.0} rows", work.cost);
    if work.cost < JOIN_COST_MIN {
        return Some(format!(
            "{rows}, and fewer than {JOIN_COST_MIN:.0} are quick"
        ));
    }
    (work.cost < JOIN_COST_PER_ROW * work.rows).then(|| {
        let given = work.rows;
        format!("{rows}, fewer than {JOIN_COST_PER_ROW} for each of the {given:.0} that they give")
    })
}

/// Notes the parts outside of shared ones that occur more than once and are made for each use, the largest such parts,
/// and uses of a WITH or a view that have become different parts.
pub(super) fn note_apart(
    plan: &LogicalPlan,
    shared: &HashMap<Part, usize>,
    apart: &HashMap<Part, String>,
    notes: &Notes,
) -> QueryResult<()> {
    let mut uses: HashMap<Part, usize> = HashMap::new();
    let mut by_name: HashMap<(String, Vec<usize>), Vec<LogicalPlan>> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node
            && ends_in_work(&alias.input)
        {
            let part = Part::of(&alias.input)?;
            let name = (alias.alias.to_string(), part.tables);
            by_name.entry(name).or_default().push(part.plan);
        }
        if !ends_in_work(node) {
            return Ok(TreeNodeRecursion::Continue);
        }
        let part = Part::of(node)?;
        if shared.contains_key(&part) {
            return Ok(TreeNodeRecursion::Jump);
        }
        if !apart.contains_key(&part) {
            return Ok(TreeNodeRecursion::Continue);
        }
        *uses.entry(part).or_default() += 1;
        Ok(TreeNodeRecursion::Jump)
    })?;
    let repeated = uses.iter().filter(|(_, uses)| **uses > 1);
    let mut lines: Vec<String> = repeated
        .filter_map(|(part, uses)| {
            let reason = apart.get(part)?;
            Some(not_shared(&part.plan, *uses, reason))
        })
        .collect();
    let differing = by_name.into_iter().filter(|(_, parts)| {
        let others = parts.iter().skip(1);
        others.into_iter().any(|part| *part != parts[0])
    });
    lines.extend(differing.map(|((name, _), parts)| {
        format!(
            "the {} uses of {name} are not one shared part: filters, columns or joins of only some of them are in it",
            parts.len()
        )
    }));
    lines.sort();
    lines.into_iter().for_each(|line| notes.note(line));
    Ok(())
}

/// Notes a part that is made once.
pub(super) fn note_shared(
    shared: &Shared,
    plan: &Arc<dyn ExecutionPlan>,
    notes: &Notes,
) -> QueryResult<()> {
    let Shared {
        number, uses, part, ..
    } = shared;
    let mut saved = Vec::new();
    let times = uses.saturating_sub(1) as u64;
    let read = read_bytes(plan)?.saturating_mul(times);
    if read > 0 {
        saved.push(format!("reading about {} again", mb(read)));
    }
    if let LogicalPlan::Join(_) = work_below(part)
        && let Some(work) = join_work(part)
    {
        let rows = work.cost * times as f64;
        saved.push(format!("passing on about {rows:.0} rows between joins"));
    }
    let saves = match saved.is_empty() {
        true => "making its rows again, of which no size is known".to_owned(),
        false => saved.join(" and "),
    };
    let keeps = match stored_bytes(plan)? {
        Some(bytes) => format!("keeps about {}", mb(bytes)),
        None => "keeps rows of a size that is not known".to_owned(),
    };
    notes.note(format!(
        "part {number} is computed once for its {uses} uses, which saves {saves} and {keeps}: {}",
        work_below(part).display()
    ));
    Ok(())
}

/// Notes a part that is made for each use because of its size.
pub(super) fn note_too_large(
    shared: &Shared,
    plan: &Arc<dyn ExecutionPlan>,
    bytes: u64,
    notes: &Notes,
) -> QueryResult<()> {
    let size = stored_bytes(plan)?.map_or("a size that is not known".into(), mb);
    let reason = format!(
        "its rows, of {size}, are more than one part in {SPILLED_PARTS} of the {} that making them reads, \
         and are not expected to stay in the {} that operators may hold",
        mb(read_bytes(plan)?),
        mb(bytes)
    );
    notes.note(not_shared(&shared.part, shared.uses, &reason));
    Ok(())
}

fn not_shared(part: &LogicalPlan, uses: usize, reason: &str) -> String {
    let work = work_below(part).display();
    format!("computed for each of its {uses} uses, as {reason}: {work}")
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 * 1e-6)
}
