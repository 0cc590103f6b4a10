//! What joining two parts costs: rows that are kept for look-ups, rows that look something up, rows that come out. The
//! unit is a row that goes from one operator to the next, a few nanoseconds.

use datafusion::logical_expr::LogicalPlan;

use super::cardinality::Cardinality;
use super::graph::{Graph, Member};
use super::prices::JoinPrices;
use super::rel_set::RelSet;
use super::tree::Tree;
use crate::past_runs::Correction;
use crate::settings::JoinSides;
use crate::statistics::error::EstimateError;
use crate::statistics::sizes::{BUILD_PARTS, TABLE_ROW_BYTES, row_bytes};

/// Keys that a scan tests rows by are kept up to this many.
const TESTED_KEYS_MAX: f64 = 4e6;
/// A row that comes out, and what each of its bytes adds: a join copies the columns of both sides.
const OUTPUT: f64 = 1.0;
const OUTPUT_BYTE: f64 = 1.0 / 64.0;
/// Star pipelines take build sides of up to this many rows; of up to that many whichever side the engine chose.
const LOOK_UP_ROWS_MAX: f64 = 8e6;
const LOOK_UP_ROWS_ALWAYS: f64 = 1e5;
/// A worst case ten times as bad counts as this share of the cost, and one beyond this many rows like that.
const WORSE: f64 = 0.01;
const WORST_MAX: f64 = 1e24;
/// A column with this share of the rows as distinct values is a key; estimates err by as much.
const UNIQUE: f64 = 0.95;

/// Some relations, joined.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub relations: RelSet,
    pub rows: f64,
    /// Bytes of a row that is kept.
    row_bytes: f64,
    pub cost: f64,
    /// The most rows that its joins could give, whatever is expected.
    worst: f64,
    pub tree: Tree,
    /// Relations whose rows occur once at most: no join repeats them.
    unrepeated: RelSet,
    /// Rows of the largest table, whose scan star pipelines follow.
    table_rows: f64,
    /// Whether one star pipeline could give the rows.
    is_star: bool,
}

impl Part {
    /// What orders are compared by: the cost, and as much more as a worse case is worth. Of orders that cost about the
    /// same that one is taken which can go wrong by less.
    pub fn price(&self) -> f64 {
        let worse = (self.worst.min(WORST_MAX) / self.cost.max(1.0)).max(1.0);
        self.cost * (1.0 + WORSE * worse.log10())
    }

    /// Whether one star pipeline could give the rows.
    pub fn is_star(&self) -> bool {
        self.is_star
    }

    /// Whether any join that another way to join the same relations makes cheap is as cheap with this one.
    pub fn serves_as(&self, other: &Self) -> bool {
        (self.is_star || !other.is_star) && self.unrepeated.contains(other.unrepeated)
    }

    /// Whether it serves as any other.
    pub fn serves_all(&self) -> bool {
        self.is_star && self.unrepeated == self.relations
    }
}

/// The costs of joins of one graph.
pub(super) struct Costs<'a> {
    graph: &'a Graph,
    pub cardinality: Cardinality<'a>,
    /// What a build side may take without being spilled.
    build_bytes_max: f64,
    /// What a byte of a row that a hash join gives costs.
    output_byte: f64,
    prices: JoinPrices,
    error: EstimateError,
}

impl<'a> Costs<'a> {
    /// The costs where operators may hold this many bytes. How wide rows are is not known before scans name their
    /// columns, which is when rules run for the first time.
    pub fn new(
        graph: &'a Graph,
        operator_bytes: u64,
        prices: JoinPrices,
        error: EstimateError,
        past: &[Correction],
    ) -> Self {
        let mut relations = graph.relations.iter();
        let (build_bytes_max, output_byte) =
            match relations.all(|relation| names_columns(&relation.plan)) {
                true => ((operator_bytes / BUILD_PARTS) as f64, OUTPUT_BYTE),
                false => (f64::INFINITY, 0.0),
            };
        Self {
            graph,
            cardinality: Cardinality::new(graph, error, past),
            build_bytes_max,
            output_byte,
            prices,
            error,
        }
    }

    /// A relation alone: every order reads it.
    pub fn leaf(&self, relation: usize) -> Part {
        let known = &self.graph.relations[relation];
        let fields = known.plan.schema().fields().iter();
        Part {
            relations: RelSet::of(relation),
            rows: {
                let expected = self.error.of(known.estimate.rows, RelSet::of(relation));
                known.estimate.bounds.within(expected)
            },
            row_bytes: row_bytes(fields.map(|field| field.data_type())) as f64,
            cost: 0.0,
            worst: 0.0,
            tree: Tree::Leaf(relation),
            unrepeated: RelSet::of(relation),
            table_rows: known.estimate.table_rows,
            is_star: is_scan(&known.plan),
        }
    }

    /// Two parts joined, the one that is kept for look-ups first; `None` where the plan does not allow that.
    pub fn join(&self, a: &Part, b: &Part) -> Option<Part> {
        if let Some(reduced) = self.reduce(a, b).or_else(|| self.reduce(b, a)) {
            return Some(reduced);
        }
        if self.is_reducer(a) || self.is_reducer(b) {
            return None;
        }
        let relations = a.relations.union(b.relations);
        let rows = self.cardinality.rows(relations);
        let mut unrepeated = RelSet::default();
        for (looked_up, kept) in [(a, b), (b, a)] {
            if self.is_unique(looked_up, kept) {
                unrepeated = unrepeated.union(kept.unrepeated);
            }
        }
        let joined = Part {
            relations,
            rows,
            row_bytes: a.row_bytes + b.row_bytes - TABLE_ROW_BYTES as f64,
            cost: a.cost + b.cost,
            worst: a.worst + b.worst + self.cardinality.most(relations),
            tree: Tree::Leaf(0),
            unrepeated,
            table_rows: a.table_rows.max(b.table_rows),
            is_star: false,
        };
        let hashed = self.hash(a, b, joined.clone());
        let star = self.look_up(a, b, joined);
        Some(match star {
            Some((star, build_rows)) => {
                match build_rows > LOOK_UP_ROWS_ALWAYS && hashed.cost < star.cost {
                    true => hashed,
                    false => star,
                }
            }
            None => hashed,
        })
    }

    /// A hash join: the side is kept with which it costs less.
    fn hash(&self, a: &Part, b: &Part, joined: Part) -> Part {
        let are_words = self.are_words(a, b);
        let cost = |build: &Part, probe: &Part| {
            self.looked_up(build, probe, are_words, joined.rows) + self.spill(build, probe)
        };
        let (build, probe) = match cost(a, b) > cost(b, a) {
            true => (b, a),
            false => (a, b),
        };
        let pairs = match self.are_compared(a, b) {
            true => cost(build, probe),
            false => a.rows * b.rows,
        };
        let output = OUTPUT + self.output_byte * joined.row_bytes;
        Part {
            cost: joined.cost + pairs + output * joined.rows,
            tree: Tree::join(build.tree.clone(), probe.tree.clone()),
            ..joined
        }
    }

    /// Rows that are kept in a hash join's table, and those that look for them, of which these find one. A scan drops
    /// others by their keys, if these are words.
    fn looked_up(&self, build: &Part, probe: &Part, are_words: bool, found: f64) -> f64 {
        let JoinPrices {
            hash_build,
            hash_probe,
            key_test,
            ..
        } = self.prices;
        let probed = hash_probe * probe.rows;
        let tests_keys = are_words && probe.is_star && build.rows <= TESTED_KEYS_MAX;
        let probed = match tests_keys {
            true => probed.min(key_test * probe.rows + hash_probe * found),
            false => probed,
        };
        hash_build * build.rows + probed
    }

    /// What it costs that a build side does not fit: that part of both sides is spilled.
    fn spill(&self, build: &Part, probe: &Part) -> f64 {
        let build_bytes = build.rows * build.row_bytes;
        if build_bytes <= self.build_bytes_max {
            return 0.0;
        }
        let share = 1.0 - self.build_bytes_max / build_bytes;
        self.prices.spill_byte * share * (build_bytes + probe.rows * probe.row_bytes)
    }

    /// A star pipeline that follows the scan of the larger table, or the other if only keys of the larger one can be
    /// looked up, and how many rows are kept for its look-up.
    fn look_up(&self, a: &Part, b: &Part, joined: Part) -> Option<(Part, f64)> {
        let (smaller, larger) = match a.table_rows > b.table_rows {
            true => (b, a),
            false => (a, b),
        };
        let (build, probe) = match self.is_unique(smaller, larger) || larger.rows > smaller.rows {
            true => (smaller, larger),
            false => (larger, smaller),
        };
        let fits = build.rows * build.row_bytes <= self.build_bytes_max;
        let is_possible = probe.is_star && build.rows <= LOOK_UP_ROWS_MAX && fits;
        if !is_possible || !self.is_unique(build, probe) {
            return None;
        }
        let looked_up = probe.rows + joined.rows;
        let star = Part {
            cost: joined.cost
                + self.prices.look_up_build * build.rows
                + self.prices.look_up * looked_up,
            tree: Tree::join(build.tree.clone(), probe.tree.clone()),
            is_star: true,
            ..joined
        };
        Some((star, build.rows))
    }

    fn is_reducer(&self, part: &Part) -> bool {
        let mut relations = part.relations.iter();
        part.relations.len() == 1
            && relations.all(|relation| self.graph.relations[relation].reducer.is_some())
    }

    /// A semi, anti or left join of rows with the relation on its right side.
    fn reduce(&self, rows: &Part, keys: &Part) -> Option<Part> {
        // What a left join adds by itself has not been joined by that.
        if keys.relations.len() != 1 || self.is_reducer(rows) {
            return None;
        }
        let relation = keys.relations.iter().next()?;
        let reduction = self.graph.relations[relation].reducer.as_ref()?;
        if !rows.relations.contains(reduction.reads) {
            return None;
        }
        let relations = rows.relations.union(keys.relations);
        let remaining = self.cardinality.rows(relations);
        let join = &reduction.reducer.join;
        let attaches = reduction.reducer.attaches();
        let is_star = rows.is_star
            && (!attaches || reduction.is_unique)
            && join.filter.is_none()
            && join.on.len() == 1
            && keys.rows <= LOOK_UP_ROWS_MAX
            && keys.table_rows <= rows.table_rows;
        let cost = match is_star {
            true => {
                self.prices.look_up_build * keys.rows
                    + self.prices.look_up * (rows.rows + remaining)
            }
            false => {
                let (build, probe, found) = match rows.rows < keys.rows {
                    // The scan of the keys drops those that nothing asks for.
                    true => (rows, keys, rows.rows * reduction.matches),
                    false => (keys, rows, f64::INFINITY),
                };
                let output = OUTPUT + self.output_byte * rows.row_bytes;
                self.looked_up(build, probe, join.on.len() == 1, found) + output * remaining
            }
        };
        Some(Part {
            relations,
            rows: remaining,
            row_bytes: match attaches {
                true => rows.row_bytes + keys.row_bytes - TABLE_ROW_BYTES as f64,
                false => rows.row_bytes,
            },
            cost: rows.cost + cost,
            worst: rows.worst + self.cardinality.most(relations),
            tree: Tree::join(rows.tree.clone(), keys.tree.clone()),
            unrepeated: match attaches && !reduction.is_unique {
                true => RelSet::EMPTY,
                false => rows.unrepeated,
            },
            table_rows: rows.table_rows.max(keys.table_rows),
            is_star,
        })
    }

    /// Whether one of the keys occurs once among the rows of a build side.
    fn is_unique(&self, build: &Part, probe: &Part) -> bool {
        let is_key = |member: &Member| {
            let estimate = &self.graph.relations[member.relation].estimate;
            member.is_looked_up
                && !member.values.repeats
                && member.values.distinct >= estimate.rows * UNIQUE
                && build.unrepeated.has(member.relation)
        };
        let has = |class: &[Member], part: &Part| {
            let mut members = class.iter();
            members.any(|member| part.relations.has(member.relation))
        };
        let of_build = |member: &&Member| build.relations.has(member.relation);
        self.graph
            .classes
            .iter()
            .any(|class| has(class, probe) && class.iter().filter(of_build).any(&is_key))
    }

    /// Whether two parts are joined by integers or times.
    fn are_words(&self, a: &Part, b: &Part) -> bool {
        self.graph.classes.iter().any(|class| {
            let crossing = self.graph.crossing(class, a.relations, b.relations);
            crossing.is_some_and(|(member, _)| member.is_looked_up)
        })
    }

    /// Whether an equality joins two parts.
    fn are_compared(&self, a: &Part, b: &Part) -> bool {
        let in_class = self.graph.classes.iter().any(|class| {
            self.graph
                .crossing(class, a.relations, b.relations)
                .is_some()
        });
        let by_edge = self.graph.edges.iter().any(|edge| {
            let [(left, _), (right, _)] = &edge.sides;
            (a.relations.has(*left) && b.relations.has(*right))
                || (a.relations.has(*right) && b.relations.has(*left))
        });
        in_class || by_edge
    }

    /// The cost of an order, with the sides of its joins as they are cheapest.
    pub fn of(&self, tree: &Tree) -> Option<Part> {
        match tree {
            Tree::Leaf(relation) => Some(self.leaf(*relation)),
            Tree::Join(left, right) => self.join(&self.of(left)?, &self.of(right)?),
        }
    }

    /// Which side of each inner join is kept.
    pub fn sides(&self, tree: &Tree, sides: &mut Vec<JoinSides>) {
        let Tree::Join(kept, streamed) = tree else {
            return;
        };
        self.sides(kept, sides);
        self.sides(streamed, sides);
        let (of_kept, of_streamed) = (kept.relations(), streamed.relations());
        let names = |side: RelSet, other: RelSet| {
            let classes = self.graph.classes.iter();
            let crossing =
                classes.filter(|class| self.graph.crossing(class, side, other).is_some());
            let members = crossing
                .flatten()
                .filter(|member| side.has(member.relation));
            let names = members.map(|member| member.column.name.clone());
            names.collect::<Vec<_>>()
        };
        let choice = JoinSides {
            kept: names(of_kept, of_streamed),
            streamed: names(of_streamed, of_kept),
            rows: self.cardinality.rows(of_kept),
            expected: self.cardinality.expected(tree.relations()),
        };
        if !choice.kept.is_empty() && !sides.contains(&choice) {
            sides.push(choice);
        }
    }
}

/// Whether all scans below read the columns that are needed, and no others.
fn names_columns(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.projection.is_some(),
        _ => plan.inputs().into_iter().all(names_columns),
    }
}

/// Whether a part of a plan is a scan with filters.
fn is_scan(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::Filter(filter) => is_scan(&filter.input),
        LogicalPlan::Projection(projection) => is_scan(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_scan(&alias.input),
        _ => false,
    }
}
