//! How long a statement becomes when every use of a WITH is written out, as the planner does: in a chain of WITHs that
//! each use the one before twice, there are as many copies of the first as 2 to their number.

use std::collections::{HashMap, VecDeque};

use datafusion::sql::sqlparser::ast::{ObjectName, Query};

/// Counts tables while a statement is visited.
#[derive(Default)]
pub(super) struct WrittenOut {
    /// The queries around the place that is visited, the outermost first.
    around: Vec<Level>,
    /// Tables that the text names.
    named: usize,
}

#[derive(Default)]
struct Level {
    /// WITHs that have not been visited. They come first, in their order.
    ahead: VecDeque<String>,
    /// Tables of those that have been.
    known: HashMap<String, usize>,
    /// The WITH that is visited.
    within: Option<String>,
    tables: usize,
}

impl WrittenOut {
    pub fn enter(&mut self, query: &Query) {
        if let Some(outer) = self.around.last_mut() {
            outer.within = outer.ahead.pop_front();
        }
        let withs = query.with.iter().flat_map(|with| &with.cte_tables);
        let ahead = withs.map(|with| with.alias.name.value.to_lowercase());
        self.around.push(Level {
            ahead: ahead.collect(),
            ..Level::default()
        });
    }

    /// How many tables the query has that ends here.
    pub fn leave(&mut self) -> usize {
        let tables = self.around.pop().map_or(0, |inner| inner.tables);
        if let Some(outer) = self.around.last_mut() {
            match outer.within.take() {
                // One that names no table is a row or more all the same.
                Some(name) => {
                    outer.known.insert(name, tables.max(1));
                }
                None => outer.tables = outer.tables.saturating_add(tables),
            }
        }
        tables
    }

    /// Tables that the text names.
    pub fn named(&self) -> usize {
        self.named
    }

    pub fn name(&mut self, table: &ObjectName) {
        self.named += 1;
        let name = table.to_string().replace('"', "").to_lowercase();
        let mut levels = self.around.iter().rev();
        let known = levels.find_map(|level| level.known.get(&name));
        let tables = known.copied().unwrap_or(1);
        if let Some(level) = self.around.last_mut() {
            level.tables = level.tables.saturating_add(tables);
        }
    }
}
