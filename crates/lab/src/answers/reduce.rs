//! Reduction of a finding: leaves out what it does not need, as long as the check still fails in the same way.

mod candidates;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::answers::check::Case;
use crate::answers::schema::World;

/// Whether a case still fails as the first one did.
pub type Fails<'a> = dyn FnMut(&Case) -> bool + 'a;

/// Before the query is small, rows go in large pieces only.
const COARSE_PIECES: usize = 8;

/// Makes a failing case smaller until nothing can be left out or the time is over.
pub fn reduce(case: Case, time: Duration, fails: &mut Fails) -> Case {
    let mut reduction = Reduction {
        case,
        fails,
        end: Instant::now() + time,
    };
    while reduction.pass() {}
    reduction.case
}

struct Reduction<'a, 'b> {
    case: Case,
    fails: &'a mut Fails<'b>,
    end: Instant,
}

impl Reduction<'_, '_> {
    /// Tries everything once; whether something could be left out.
    fn pass(&mut self) -> bool {
        let before = self.size();
        self.drop_tables();
        self.halve_rows(COARSE_PIECES);
        self.simplify_query();
        self.drop_tables();
        self.drop_columns();
        self.halve_rows(usize::MAX);
        self.simplify_settings();
        self.simplify_layout();
        self.size() < before && !self.is_late()
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    fn size(&self) -> usize {
        let tables = self.case.world.tables.iter();
        let columns: usize = tables
            .map(|table| table.columns.len() + table.indexes.len() + table.files.len())
            .sum();
        let sql = crate::answers::report::statements_of(&self.case).len();
        columns * 20 + self.case.world.row_count() * 20 + sql + self.case.settings.simpler().len()
    }

    fn accept(&mut self, candidate: Case) -> bool {
        let works = !self.is_late() && (self.fails)(&candidate);
        if works {
            self.case = candidate;
        }
        works
    }

    fn accept_world(&mut self, world: World) -> bool {
        let world = Arc::new(world);
        self.accept(Case {
            world,
            ..self.case.clone()
        })
    }

    /// Tables that the query does not name go at once.
    fn drop_tables(&mut self) {
        let mut named = Vec::new();
        self.case.query.tables(&mut named);
        if let Some(predicate) = &self.case.predicate {
            crate::answers::query::tables_of(predicate, &mut named);
        }
        let mut world = World::clone(&self.case.world);
        world.tables.retain(|table| named.contains(&table.name));
        if world.tables.len() < self.case.world.tables.len() {
            self.accept_world(world);
        }
    }

    /// One file, no index, no change between two runs.
    fn simplify_layout(&mut self) {
        if !self.case.then.is_empty() {
            self.accept(Case {
                then: Vec::new(),
                ..self.case.clone()
            });
        }
        for table_idx in 0..self.case.world.tables.len() {
            for index_idx in (0..self.case.world.tables[table_idx].indexes.len()).rev() {
                let mut world = World::clone(&self.case.world);
                world.tables[table_idx].indexes.remove(index_idx);
                self.accept_world(world);
            }
            if self.case.world.tables[table_idx].files.len() > 1 {
                let mut world = World::clone(&self.case.world);
                world.tables[table_idx].files = vec![world.tables[table_idx].row_count()];
                self.accept_world(world);
            }
        }
    }

    /// Drops halves, then quarters, … of each table: down to this many pieces, or to single rows.
    fn halve_rows(&mut self, piece_count_max: usize) {
        for table_idx in 0..self.case.world.tables.len() {
            let mut piece = self.case.world.tables[table_idx].row_count().div_ceil(2);
            let piece_min = self.case.world.tables[table_idx].row_count() / piece_count_max;
            while piece > piece_min && !self.is_late() {
                self.drop_pieces(table_idx, piece);
                piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
            }
        }
    }

    fn drop_pieces(&mut self, table_idx: usize, piece: usize) {
        let mut start = 0;
        while start < self.case.world.tables[table_idx].row_count() && !self.is_late() {
            let mut world = World::clone(&self.case.world);
            let table = &mut world.tables[table_idx];
            *table = table.with_rows(|row_idx| !(start..start + piece).contains(&row_idx));
            if !self.accept_world(world) {
                start += piece;
            }
        }
    }

    fn simplify_query(&mut self) {
        loop {
            let candidates = candidates::of_case(&self.case);
            let mut candidates = candidates.into_iter();
            if self.is_late() || !candidates.any(|candidate| self.accept(candidate)) {
                return;
            }
        }
    }

    fn simplify_settings(&mut self) {
        for settings in self.case.settings.simpler() {
            let together = self.case.other;
            self.accept(Case {
                settings,
                other: together,
                ..self.case.clone()
            });
        }
        for other in self.case.other.simpler() {
            self.accept(Case {
                other,
                ..self.case.clone()
            });
        }
    }

    fn drop_columns(&mut self) {
        for table_idx in 0..self.case.world.tables.len() {
            for column_idx in (0..self.case.world.tables[table_idx].columns.len()).rev() {
                let mut world = World::clone(&self.case.world);
                let table = &mut world.tables[table_idx];
                if table.columns.len() > 1 {
                    table.columns.remove(column_idx);
                    self.accept_world(world);
                }
            }
        }
    }
}
