//! A batch of surviving rows. Each column is decoded when it is first asked for, in the form that is asked for: as
//! words of 64 bits, as codes of a dictionary, or as an array.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::{DataFusionError, Result as QueryResult};
use vortex::error::{VortexError, VortexResult};

use super::arithmetic::{Columns, Exact, Node};
use super::chunk::{ChunkBuffer, ChunkColumn};
use super::lookup::{Lookup, MISS};
use super::narrow::{Computation, Narrow, Source};
use super::stored::{Payload, Stored};
use super::words::{Words, are_words};

/// The values of an expression for the rows of a batch.
pub(super) enum Value {
    Words(Words),
    Array(ArrayRef),
}

/// Codes of a dictionary, and its values.
pub(super) struct Codes<'a> {
    pub codes: Vec<u32>,
    pub values: &'a ArrayRef,
}

/// The forms in which a column is at hand.
#[derive(Default)]
struct Forms {
    words: Option<Words>,
    array: Option<ArrayRef>,
    /// Whether it has values that words cannot hold.
    beyond_words: bool,
}

/// What rows find in a look-up.
#[derive(Clone, Copy)]
pub(super) struct Attached<'a> {
    pub lookup: &'a Lookup,
    /// The rows of its build side.
    pub build: &'a RecordBatch,
}

/// A batch of surviving rows.
pub(super) struct Rows<'a> {
    narrow: &'a Narrow,
    attached: &'a [Attached<'a>],
    payload: &'a Payload,
    buffer: &'a mut ChunkBuffer,
    /// Their numbers in the row group, ascending.
    rows: Vec<u32>,
    /// Their places by look-up.
    pub places: Vec<Vec<u32>>,
    build_rows: Vec<Option<UInt32Array>>,
    /// By narrow column.
    forms: Vec<Forms>,
}

impl<'a> Rows<'a> {
    /// The survivors of a row group from `start` on, with their numbers and places.
    pub fn new(
        narrow: &'a Narrow,
        attached: &'a [Attached<'a>],
        (payload, start): (&'a Payload, usize),
        (rows, places): (Vec<u32>, Vec<Vec<u32>>),
        buffer: &'a mut ChunkBuffer,
    ) -> Self {
        let mut forms: Vec<Forms> = Vec::new();
        forms.resize_with(narrow.schema.fields().len(), Forms::default);
        let probed = narrow.sources.iter().enumerate();
        let probed = probed.filter(|(_, source)| matches!(source, Source::Probe(_)));
        for ((idx, _), stored) in probed.zip(&payload.columns) {
            if let Stored::Array(array) = stored {
                forms[idx].array = Some(array.slice(start - payload.first, rows.len()));
            }
        }
        Self {
            build_rows: vec![None; attached.len()],
            narrow,
            attached,
            payload,
            buffer,
            rows,
            places,
            forms,
        }
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Keeps the rows of a set.
    pub fn keep(&mut self, kept: &BooleanBuffer) -> QueryResult<()> {
        self.rows = kept.set_indices().map(|row| self.rows[row]).collect();
        for places in self.places.iter_mut().filter(|places| !places.is_empty()) {
            *places = kept.set_indices().map(|row| places[row]).collect();
        }
        self.build_rows.fill(None);
        let mask = BooleanArray::new(kept.clone(), None);
        for forms in &mut self.forms {
            forms.words = forms.words.take().map(|words| words.filtered(kept));
            if let Some(array) = &mut forms.array {
                *array = filter(array, &mask)?;
            }
        }
        Ok(())
    }

    /// The value of an expression for each row.
    pub fn value(&mut self, computation: &Computation) -> QueryResult<Value> {
        if let Some(words) = computation
            .node
            .as_ref()
            .and_then(|node| self.computed(node))
        {
            return Ok(Value::Words(words));
        }
        self.exact(&computation.exact).map(Value::Array)
    }

    /// The same as an array.
    pub fn array(&mut self, computation: &Computation) -> QueryResult<ArrayRef> {
        if let Some(column) = computation.column() {
            return self.column(column);
        }
        let node = computation.node.as_ref().filter(|node| node.is_computed());
        if let Some(words) = node.and_then(|node| self.computed(node))
            && let Some(array) = words.to_array(&computation.data_type, self.count())
        {
            return Ok(array);
        }
        self.exact(&computation.exact)
    }

    /// The rows where a condition holds.
    pub fn set(&mut self, condition: &Computation) -> QueryResult<BooleanBuffer> {
        Ok(match self.value(condition)? {
            Value::Words(words) => words.to_set(self.count()),
            Value::Array(array) => {
                let Some(array) = array.as_boolean_opt() else {
                    return internal_err!("{} is not a condition", condition.expr);
                };
                match array.nulls() {
                    Some(nulls) => array.values() & nulls.inner(),
                    None => array.values().clone(),
                }
            }
        })
    }

    /// The codes of a column that is a dictionary in this row group and has no NULLs.
    pub fn codes(&mut self, column: usize) -> Option<Codes<'a>> {
        let Stored::Codes { codes, values } = self.stored(column)? else {
            return None;
        };
        let codes = self.gather_codes(codes, values).ok()?;
        Some(Codes { codes, values })
    }

    fn gather_codes(&mut self, codes: &ChunkColumn, values: &ArrayRef) -> QueryResult<Vec<u32>> {
        let codes = codes
            .gather_codes(&self.rows, self.buffer)
            .map_err(failed)?;
        match codes.iter().max() {
            Some(code) if *code as usize >= values.len() => {
                exec_err!(
                    "a dictionary of {} values has no value {code}",
                    values.len()
                )
            }
            _ => Ok(codes),
        }
    }

    /// How many codes there are of such a column.
    pub fn code_count(&self, column: usize) -> Option<usize> {
        match self.stored(column)? {
            Stored::Codes { values, .. } => Some(values.len()),
            _ => None,
        }
    }

    fn computed(&mut self, node: &Node) -> Option<Words> {
        node.words(self)
    }

    /// The value of an expression as it was planned. What reads a single column that is a small dictionary is computed
    /// once for each of its values.
    fn exact(&mut self, exact: &Exact) -> QueryResult<ArrayRef> {
        if let [column] = exact.columns[..]
            && self
                .code_count(column)
                .is_some_and(|count| count * 2 <= self.count())
            && let Some(Codes { codes, values }) = self.codes(column)
            && let Ok(by_code) = exact.evaluate(vec![values.clone()], values.len())
        {
            return Ok(take(&by_code, &UInt32Array::from(codes), None)?);
        }
        let columns = exact.columns.iter().map(|column| self.column(*column));
        let columns = columns.collect::<QueryResult<_>>()?;
        exact.evaluate(columns, self.count())
    }

    /// Where a column of the scan comes from.
    fn stored(&self, column: usize) -> Option<&'a Stored> {
        let sources = &self.narrow.sources;
        let is_probe = |source: &&Source| matches!(source, Source::Probe(_));
        sources.get(column).filter(is_probe)?;
        let place = sources[..column].iter().filter(is_probe).count();
        self.payload.columns.get(place)
    }

    /// A column as an array.
    fn column(&mut self, column: usize) -> QueryResult<ArrayRef> {
        if let Some(array) = &self.forms[column].array {
            return Ok(array.clone());
        }
        let array = self.make_array(column)?;
        self.forms[column].array = Some(array.clone());
        Ok(array)
    }

    fn make_array(&mut self, column: usize) -> QueryResult<ArrayRef> {
        let narrow = self.narrow;
        match (narrow.sources.get(column), self.stored(column)) {
            (None, _) => self.array(&narrow.computed[column - narrow.sources.len()]),
            (Some(Source::Build { join, column }), _) => {
                let rows = self.build_rows(*join);
                Ok(take(
                    self.attached[*join].build.column(*column),
                    &rows,
                    None,
                )?)
            }
            (_, Some(Stored::Codes { codes, values })) => {
                let codes = self.gather_codes(codes, values)?;
                Ok(take(values, &UInt32Array::from(codes), None)?)
            }
            (_, Some(Stored::Chunks { column: chunks, .. })) => {
                let words = match &self.forms[column].words {
                    Some(words) => words.clone(),
                    None => {
                        let gathered = chunks.gather_with_nulls(&self.rows, self.buffer);
                        let (values, nulls) = gathered.map_err(failed)?;
                        Words::each(values, nulls, None)
                    }
                };
                let data_type = narrow.schema.field(column).data_type();
                match words.to_array(data_type, self.count()) {
                    Some(array) => Ok(array),
                    None => internal_err!("{data_type} is not made of words"),
                }
            }
            (_, Some(Stored::Array(_)) | None) => internal_err!("column {column} is missing"),
        }
    }

    fn build_rows(&mut self, join: usize) -> UInt32Array {
        let lookup = self.attached[join].lookup;
        let row = |place: &u32| Some(lookup.row(*place)).filter(|row| *row != MISS);
        let places = &self.places[join];
        let rows = self.build_rows[join].get_or_insert_with(|| places.iter().map(row).collect());
        rows.clone()
    }

    /// The words of a column. `None` if they cannot hold its values.
    fn make_words(&mut self, column: usize) -> VortexResult<Option<Words>> {
        if let Some(Stored::Chunks { column, bounds }) = self.stored(column) {
            return column.words(&self.rows, *bounds, self.buffer);
        }
        let narrow = self.narrow;
        if !are_words(narrow.schema.field(column).data_type()) {
            return Ok(None);
        }
        if let Some(computed) = column.checked_sub(narrow.sources.len())
            && let Some(node) = &narrow.computed[computed].node
            && let Some(words) = self.computed(node)
        {
            return Ok(Some(words));
        }
        let array = self.column(column);
        Ok(array.ok().and_then(|array| Words::of_array(&array)))
    }
}

fn failed(error: VortexError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Columns for Rows<'_> {
    fn words(&mut self, column: usize) -> Option<Words> {
        if self.forms[column].beyond_words {
            return None;
        }
        if let Some(words) = &self.forms[column].words {
            return Some(words.clone());
        }
        // What cannot be decoded fails again as an array, and says why.
        let words = self.make_words(column).ok().flatten();
        self.forms[column].beyond_words = words.is_none();
        self.forms[column].words.clone_from(&words);
        words
    }

    fn test(&mut self, condition: &Exact) -> Option<ArrayRef> {
        self.exact(condition).ok()
    }
}
