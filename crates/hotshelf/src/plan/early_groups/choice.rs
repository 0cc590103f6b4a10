//! Whether rows are grouped before they are joined: what the joins and groups cost with and without.

use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{Aggregate, LogicalPlan};

use super::grouping::Grouping;
use super::joins::is_inner;
use super::padded::PaddedGroups;
use super::tables::{First, Tables};
use super::values::{Padded, Values};
use crate::plan::join_order::{JoinWork, estimate, join_work, ordered_join_work};
use crate::prices::{HASH_BUILD_CYCLES, HASH_PROBE_CYCLES, JOINED_ROW_CYCLES};
use crate::settings::SessionSettings;

/// Rows that are grouped early, at least: below, one more operator costs as much as it saves.
pub(super) const ROWS_MIN: f64 = 200_000.0;
/// Rows for each early group, at least.
pub(super) const ROWS_PER_GROUP: f64 = 8.0;
/// A row that is put into its group, and a group, in the unit of the costs of joins.
const GROUPED_ROW: f64 = HASH_PROBE_CYCLES / JOINED_ROW_CYCLES;
const GROUP: f64 = HASH_BUILD_CYCLES / JOINED_ROW_CYCLES;
/// Of ways to group early, this many with the fewest groups are looked at.
const WAYS_MAX: usize = 4;
/// What early groups may cost of the work without them, at most: estimates err.
const SHARE_MAX: f64 = 0.75;

/// What has been decided on an aggregation of joined rows.
pub(super) enum Choice {
    Early(LogicalPlan),
    /// The groups are made of what is joined, for this reason.
    Late(String),
}

/// A plan with early groups, before those with the same keys are put together.
struct Way {
    joined: LogicalPlan,
    cost: f64,
}

/// None where there is nothing to decide: few rows, or no way to group earlier.
pub(super) fn choose(
    grouping: &Grouping,
    aggregate: &Aggregate,
    settings: &SessionSettings,
) -> QueryResult<Option<Choice>> {
    match grouping.input {
        LogicalPlan::Join(join) if !is_inner(join) => {
            let groups = PaddedGroups::of(join, &grouping.keys, &grouping.calls);
            let Some((groups, all)) = groups.zip(whole(grouping, settings)) else {
                return Ok(None);
            };
            of_padded(&groups, &all, grouping, aggregate, settings).map(Some)
        }
        _ => of_tables(grouping, aggregate, settings),
    }
}

/// The work without early groups; none where the rows are few, in whatever order they are joined.
fn whole(grouping: &Grouping, settings: &SessionSettings) -> Option<JoinWork> {
    let all = join_work(grouping.input).filter(|all| all.rows >= ROWS_MIN)?;
    ordered_join_work(grouping.input, settings).or(Some(all))
}

fn of_padded(
    groups: &PaddedGroups,
    all: &JoinWork,
    grouping: &Grouping,
    aggregate: &Aggregate,
    settings: &SessionSettings,
) -> QueryResult<Choice> {
    if all.is_star {
        return Ok(Choice::Late(star()));
    }
    let rows = work(groups.rows(), settings);
    let rows = rows.filter(|rows| groups.groups * ROWS_PER_GROUP <= rows.rows);
    let Some(rows) = rows else {
        return Ok(Choice::Late(many_groups(groups.groups)));
    };
    let Some(grouped) = groups.grouped()? else {
        return Ok(Choice::Late(names()));
    };
    let joined = groups.with_others(grouped)?;
    let way = way(&rows, groups.groups, joined, settings);
    let keys = grouping.keys.clone();
    finished(way, all, |joined| {
        groups.values.merged(joined, keys, aggregate, Padded::Rows)
    })
}

fn of_tables(
    grouping: &Grouping,
    aggregate: &Aggregate,
    settings: &SessionSettings,
) -> QueryResult<Option<Choice>> {
    let Some(tables) = Tables::of(grouping.input, &grouping.keys, &grouping.calls) else {
        return Ok(None);
    };
    let Some(all) = whole(grouping, settings) else {
        return Ok(None);
    };
    if all.is_star {
        return Ok(Some(Choice::Late(star())));
    }
    let firsts = tables.firsts();
    let Some(fewest) = firsts.first() else {
        return Ok(None);
    };
    let Some((first, values, way)) = cheapest(&tables, &firsts, &all, settings)? else {
        let has_room = firsts.iter().any(|first| tables.values(first).is_some());
        let reason = match has_room {
            true => many_groups(fewest.groups),
            false => "sums of some groups might have no room in their type".into(),
        };
        return Ok(Some(Choice::Late(reason)));
    };
    let keys = tables.last_keys(first)?;
    let merged = |joined| values.merged(joined, keys, aggregate, Padded::Never);
    finished(Some(way), &all, merged).map(Some)
}

/// The way with the least work; none where no groups are few beside the rows.
fn cheapest<'a>(
    tables: &Tables,
    firsts: &'a [First],
    all: &JoinWork,
    settings: &SessionSettings,
) -> QueryResult<Option<(&'a First, Values, Way)>> {
    let firsts = firsts
        .iter()
        .take_while(|first| first.groups * ROWS_PER_GROUP <= all.rows);
    let mut best: Option<(&First, Values, Way)> = None;
    for first in firsts.take(WAYS_MAX) {
        let Some((values, way)) = of_first(tables, first, settings)? else {
            continue;
        };
        if best
            .as_ref()
            .is_none_or(|(_, _, best)| way.cost < best.cost)
        {
            best = Some((first, values, way));
        }
    }
    Ok(best)
}

/// Groups of these tables' rows, joined with the others; none where they are not few beside the rows.
fn of_first(
    tables: &Tables,
    first: &First,
    settings: &SessionSettings,
) -> QueryResult<Option<(Values, Way)>> {
    let (Some(values), Some(rows)) = (tables.values(first), tables.rows(first)?) else {
        return Ok(None);
    };
    let of_rows = work(&rows, settings);
    let of_rows = of_rows.filter(|of_rows| first.groups * ROWS_PER_GROUP <= of_rows.rows);
    let Some(of_rows) = of_rows else {
        return Ok(None);
    };
    let Some(grouped) = values.grouped(rows, &first.keys)? else {
        return Ok(None);
    };
    let joined = tables.with_others(first, grouped)?;
    let way = joined.and_then(|joined| way(&of_rows, first.groups, joined, settings));
    Ok(way.map(|way| (values, way)))
}

/// The cost of groups of rows and of joins with them.
fn way(
    rows: &JoinWork,
    groups: f64,
    joined: LogicalPlan,
    settings: &SessionSettings,
) -> Option<Way> {
    let after = work(&joined, settings)?;
    let grouped = GROUPED_ROW * rows.rows + GROUP * groups;
    let cost = rows.cost + grouped + after.cost + GROUPED_ROW * after.rows;
    Some(Way { joined, cost })
}

/// The work of a part that may be joined.
fn work(plan: &LogicalPlan, settings: &SessionSettings) -> Option<JoinWork> {
    ordered_join_work(plan, settings).or_else(|| {
        let rows = estimate(plan)?.rows;
        Some(JoinWork {
            cost: 0.0,
            rows,
            is_star: false,
        })
    })
}

/// The plan with early groups where it costs less.
fn finished(
    way: Option<Way>,
    all: &JoinWork,
    merged: impl FnOnce(LogicalPlan) -> QueryResult<Option<LogicalPlan>>,
) -> QueryResult<Choice> {
    let Some(way) = way else {
        return Ok(Choice::Late(
            "the work with early groups is not known".into(),
        ));
    };
    let share = way.cost / (all.cost + GROUPED_ROW * all.rows).max(1.0);
    if share > SHARE_MAX {
        let percent = share * 100.0;
        return Ok(Choice::Late(format!(
            "that would take about {percent:.0} % of the work"
        )));
    }
    let plan = merged(way.joined)?;
    Ok(plan.map_or_else(|| Choice::Late(names()), Choice::Early))
}

fn star() -> String {
    "one star pipeline joins and groups them".into()
}

fn names() -> String {
    "different columns have the same name".into()
}

fn many_groups(groups: f64) -> String {
    format!("about {groups:.0} groups are not few beside the rows")
}
