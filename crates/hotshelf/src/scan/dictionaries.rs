//! The values of a column from the dictionaries of a data file, which are read without the codes of its rows.
//!
//! A dictionary that spans row groups has the values of their rows and no others: Vortex's writer, which wrote the file
//! for Hotshelf, puts a value there when a row has it for the first time, NULL included (`DictEncoder`). It does not
//! say so in the file: `has_all_values_referenced` is only true of dictionaries of single segments. Those are not used:
//! they come with their codes in one read. Files with codes that are NULL themselves are of another writer.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use hotshelf_cache::ScanContext;
use hotshelf_store::data_file::DataFile;
use vortex::array::{MaskFuture, VortexSessionExecute};
use vortex::error::VortexResult;
use vortex::expr::root;
use vortex::layout::layouts::dict::Dict;
use vortex::layout::segments::SegmentSource;
use vortex::layout::{LayoutChildType, LayoutRef};
use vortex::session::VortexSession;
use vortex_arrow::ArrowSessionExt;

use super::segments::{ScanSegments, SegmentAdapter};
use crate::error::Result;

/// The dictionaries of a column.
pub(super) struct Dictionaries(Vec<LayoutRef>);

impl Dictionaries {
    /// Those of a column of a file, by index. `None` unless all of its rows have codes of one.
    pub fn of(file: &DataFile, column: usize) -> Option<Self> {
        let fields = file.footer.dtype().as_struct_fields_opt()?;
        let name = fields.names().get(column)?;
        let mut dictionaries = Vec::new();
        let column = field(file.footer.layout(), name.as_ref()).ok()??;
        let are_all = collect(&column, &mut dictionaries).ok()?;
        are_all.then_some(Self(dictionaries))
    }

    /// How many values they have together.
    pub fn value_count(&self) -> u64 {
        self.0.iter().map(|values| values.row_count()).sum()
    }

    /// The values, one column for each dictionary.
    pub async fn read(
        &self,
        file: &Arc<DataFile>,
        field: &Field,
        (context, session): (Arc<ScanContext>, &VortexSession),
    ) -> Result<Vec<ArrayRef>> {
        let segments = ScanSegments::new(file.clone(), context);
        let mut columns = Vec::with_capacity(self.0.len());
        for values in &self.0 {
            let source = Arc::new(SegmentAdapter(segments.clone()));
            let column = read(values, source, field, session).await;
            columns.push(column.map_err(|error| segments.typed(error))?);
        }
        Ok(columns)
    }
}

async fn read(
    values: &LayoutRef,
    source: Arc<dyn SegmentSource>,
    field: &Field,
    session: &VortexSession,
) -> VortexResult<ArrayRef> {
    let reader = values.new_reader("".into(), source, session, &Default::default())?;
    let count = values.row_count();
    let all = root().bind(reader.dtype())?;
    let mask = MaskFuture::new_true(count as usize);
    let values = reader.projection_evaluation(&(0..count), &all, mask)?;
    let values = values.await?;
    let mut context = session.create_execution_ctx();
    session
        .arrow()
        .execute_arrow(values, Some(field), &mut context)
}

/// The layout of a table's column.
fn field(table: &LayoutRef, name: &str) -> VortexResult<Option<LayoutRef>> {
    for (child, kind) in table.children()?.into_iter().zip(table.child_types()) {
        let found = match kind {
            LayoutChildType::Field(own) if own.as_ref() == name => Some(child),
            LayoutChildType::Transparent(_) => field(&child, name)?,
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Adds the values of a column's dictionaries. Whether all of its rows have codes of one.
fn collect(column: &LayoutRef, found: &mut Vec<LayoutRef>) -> VortexResult<bool> {
    if let Some(dictionary) = column.as_opt::<Dict>() {
        let (values, codes) = (dictionary.slot(0)?, dictionary.slot(1)?);
        let is_known = codes.is_some_and(|codes| !codes.dtype().is_nullable());
        found.extend(values);
        return Ok(is_known && column.row_count() > 0);
    }
    let mut has_rows = false;
    for (child, kind) in column.children()?.into_iter().zip(column.child_types()) {
        let are_all = match kind {
            LayoutChildType::Auxiliary(_) => continue,
            LayoutChildType::Transparent(_) | LayoutChildType::Chunk(_) => collect(&child, found)?,
            LayoutChildType::Field(_) => false,
        };
        if !are_all {
            return Ok(false);
        }
        has_rows = true;
    }
    Ok(has_rows)
}
