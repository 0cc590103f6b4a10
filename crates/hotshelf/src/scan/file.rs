//! One data file as one execution of a scan reads it, and its row groups as workers get them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hotshelf_cache::ScanContext;
use hotshelf_store::data_file::DataFile;
use parking_lot::Mutex;
use vortex::error::VortexResult;
use vortex::expr::{BoundExpression, Expression, get_item, root};
use vortex::layout::LayoutReader;
use vortex::mask::Mask;
use vortex::session::VortexSession;

use super::numbers::first_number;
use super::plan::{Role, ScanPlan};
use super::segments::{ScanSegments, SegmentAdapter};
use crate::error::Result;
use crate::index::{AccessPath, Selected, Selection};

/// One file as this execution reads it.
pub(crate) struct FileScan {
    pub file: Arc<DataFile>,
    pub segments: Arc<ScanSegments>,
    pub reader: Arc<dyn LayoutReader>,
    pub projection: BoundExpression,
    /// The columns that are read, one by one, by index in the table.
    pub columns: BTreeMap<usize, BoundExpression>,
    predicates: Vec<FilePredicate>,
    /// The columns that are read to choose rows, and those of them where an Elf selected rows before.
    filter_columns: Vec<usize>,
    /// The number of its first row, if rows have numbers.
    pub(super) first_number: Option<u64>,
    uncovered_columns: Vec<usize>,
    known: Known,
    /// The latest narrowings, and the version of what they say.
    narrowings: Mutex<Option<(u64, Arc<[Narrowing]>)>>,
}

/// A predicate over the columns of a file.
struct FilePredicate {
    expr: BoundExpression,
    /// Whether the scan evaluates it on rows.
    is_evaluated: bool,
    /// Whether it holds for every row that an Elf selects.
    is_covered: bool,
}

/// What is known about a file's rows before any is read.
pub(super) enum Known {
    Nothing,
    /// Those that its Elfs select.
    Selection(Arc<Selection>),
    /// Only these have to be read: the others come from an index, or are not asked for.
    Only(Vec<Range<u64>>),
}

/// A predicate that became known while the query ran, over the columns of a file.
#[derive(Clone)]
pub(super) struct Narrowing {
    pub expr: BoundExpression,
    /// Whether rows may be dropped by it, not only row groups: its columns are read in any case.
    pub drops_rows: bool,
    /// Those columns, by index in the table.
    pub columns: Vec<usize>,
}

/// A row group for a worker.
pub(crate) struct Morsel {
    pub file: Arc<FileScan>,
    pub row_group_idx: usize,
    pub rows: Range<u64>,
    /// What an Elf selected of the rows.
    pub selected: Selected,
    /// What became known before the row group was taken.
    pub(super) narrowing: Vec<Narrowing>,
    /// The version of that.
    pub(super) known_version: u64,
    pub(super) ahead: Vec<u32>,
    pub(super) ahead_bytes: u64,
}

impl FileScan {
    /// A file whose metadata is open already.
    pub(super) fn open(
        file: Arc<DataFile>,
        (access, known): (&AccessPath, Known),
        plan: &ScanPlan,
        context: &Arc<ScanContext>,
        session: &VortexSession,
    ) -> Result<Self> {
        let segments = ScanSegments::new(file.clone(), context.clone());
        let source = Arc::new(SegmentAdapter(segments.clone()));
        let layout = file.footer.layout();
        let reader = layout.new_reader("".into(), source, session, &Default::default())?;
        let bind = |expr: &Expression| expr.bind(file.footer.dtype());
        let elf = access.elf.as_ref();
        let elf = elf.filter(|_| matches!(known, Known::Selection(_)));
        let query = elf.and_then(|elf| elf.file(file.paths.number));
        let is_covered = |idx: usize| {
            query.is_some_and(|query| query.covered.get(idx).copied().unwrap_or(false))
        };
        let predicates = plan.predicates.iter().enumerate();
        let predicates = predicates.map(|(idx, predicate)| {
            Ok(FilePredicate {
                expr: bind(&predicate.expr)?,
                is_evaluated: predicate.role == Role::Evaluate,
                is_covered: is_covered(idx),
            })
        });
        let predicates = predicates.collect::<VortexResult<_>>()?;
        let projection = bind(&plan.projection)?;
        let filter_columns = plan.filter_columns(|_| false);
        let names = file.footer.dtype().as_struct_fields_opt();
        let names = names.map(|fields| fields.names());
        let columns = plan.columns.iter().chain(&filter_columns);
        let columns = columns
            .filter_map(|column| Some((*column, names?.get(*column)?.clone())))
            .map(|(column, name)| Ok((column, bind(&get_item(name, root()))?)))
            .collect::<VortexResult<_>>()?;
        Ok(Self {
            segments,
            reader,
            projection,
            columns,
            predicates,
            filter_columns,
            first_number: plan.numbers_rows.then(|| first_number(file.paths.number)),
            uncovered_columns: plan.filter_columns(is_covered),
            known,
            narrowings: Mutex::default(),
            file,
        })
    }

    /// What is known in a version, made once: the reader keeps what its zone maps say about a predicate as long as that
    /// is the same one. `None` if no row can pass any more.
    pub(super) fn narrowings(
        &self,
        version: u64,
        make: impl FnOnce() -> Option<Vec<Narrowing>>,
    ) -> Option<Arc<[Narrowing]>> {
        let mut latest = self.narrowings.lock();
        if let Some((of, known)) = latest.as_ref()
            && *of == version
        {
            return Some(known.clone());
        }
        let known: Arc<[Narrowing]> = make()?.into();
        *latest = Some((version, known.clone()));
        Some(known)
    }

    /// What is known about the rows of a row group before any is read.
    pub(super) async fn selected(&self, rows: &Range<u64>) -> Selected {
        match &self.known {
            Known::Selection(selection) => selection.rows(rows).await,
            Known::Only(ranges) => Selected::Rows(mask_within(rows, ranges)),
            Known::Nothing => Selected::Unknown,
        }
    }

    /// The predicates that the scan still has to evaluate on rows: all but those that an Elf's selection covers.
    pub fn to_evaluate<'a>(
        &'a self,
        selected: &'a Selected,
    ) -> impl Iterator<Item = &'a BoundExpression> {
        let remaining = self.remaining(selected);
        let evaluated = remaining.filter(|predicate| predicate.is_evaluated);
        evaluated.map(|predicate| &predicate.expr)
    }

    fn remaining<'a>(&'a self, selected: &'a Selected) -> impl Iterator<Item = &'a FilePredicate> {
        let has_rows = matches!(selected, Selected::Rows(_));
        let predicates = self.predicates.iter();
        predicates.filter(move |predicate| !(has_rows && predicate.is_covered))
    }

    /// The columns read to choose rows of a row group.
    pub(super) fn filter_columns(&self, selected: &Selected) -> &[usize] {
        match selected {
            Selected::Rows(_) => &self.uncovered_columns,
            Selected::Unknown => &self.filter_columns,
        }
    }

    /// Whether the zone maps prove that no row of the range meets all predicates and `further` ones.
    pub(super) async fn cannot_match(
        &self,
        rows: &Range<u64>,
        selected: &Selected,
        further: &[Narrowing],
    ) -> Result<bool> {
        let further = further.iter().map(|part| part.expr.clone());
        let remaining = self.remaining(selected).map(|one| one.expr.clone());
        for predicate in remaining.chain(further) {
            // The first row's zone mostly decides, at a fraction of the price of a mask of all rows.
            let first = rows.start..rows.end.min(rows.start + 1);
            let pruned = self.prunes(&first, &predicate).await?
                && (rows.end <= first.end || self.prunes(rows, &predicate).await?);
            if pruned {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the zone maps prove that a predicate holds for no row of a range.
    async fn prunes(&self, rows: &Range<u64>, predicate: &BoundExpression) -> Result<bool> {
        let all = Mask::new_true((rows.end - rows.start) as usize);
        let mask = match self.reader.pruning_evaluation(rows, predicate, all) {
            Ok(mask) => mask.await,
            Err(error) => Err(error),
        };
        let mask = mask.map_err(|error| self.segments.typed(error))?;
        Ok(mask.all_false())
    }

    /// Bytes of all that a scan may read of a row group.
    pub(super) fn row_group_bytes(&self, plan: &ScanPlan, row_group_idx: usize) -> u64 {
        let map = &self.file.map;
        let columns = plan.columns.iter().chain(&self.filter_columns);
        let segments = columns.flat_map(|column| map.data_segments(*column, row_group_idx));
        segments
            .filter(|idx| map.starts_in(**idx, row_group_idx))
            .map(|idx| u64::from(map.specs[*idx as usize].length))
            .sum()
    }
}

/// Those of some rows that are in other ranges, which ascend.
fn mask_within(rows: &Range<u64>, ranges: &[Range<u64>]) -> Mask {
    let inside = ranges.iter().filter_map(|range| {
        let (start, end) = (range.start.max(rows.start), range.end.min(rows.end));
        (start < end).then(|| ((start - rows.start) as usize, (end - rows.start) as usize))
    });
    Mask::from_slices((rows.end - rows.start) as usize, inside.collect())
}

impl Morsel {
    /// Its columns that were or have to be read: those that choose rows and, if rows survived, the others.
    pub(super) fn columns_read(&self, plan: &ScanPlan, matched: bool) -> Vec<usize> {
        let filters = self.file.filter_columns(&self.selected);
        let mut columns = filters.to_vec();
        let narrowing = self.narrowing.iter().flat_map(|one| &one.columns);
        let payload = plan.columns.iter().filter(|_| matched);
        for column in narrowing.chain(payload) {
            if !columns.contains(column) {
                columns.push(*column);
            }
        }
        columns
    }
}
