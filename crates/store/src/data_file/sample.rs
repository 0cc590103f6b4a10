//! A sample of a data file's rows, for the planner: `sums/<n>.sample` (`docs/FORMAT.md`).
//!
//! Every row is as likely to be in it as any other, and in any place of it, so that its first rows are a smaller sample
//! (reservoir sampling by skips, Li 1994, "algorithm L"). It only steers plans: one that is damaged does not count, and
//! none may be there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, interleave_record_batch, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use super::parts::own_bytes;
use super::paths::FilePaths;
use crate::arrow_stream;
use crate::fields::{put_number, put_word};

const MAGIC: &[u8; 8] = b"HSSAMP01";
const HEADER_BYTES: usize = 8 + 8 + 4 + 4;

/// Rows of a sample, at most.
pub const SAMPLE_ROWS_MAX: usize = 10_000;
/// Of many rows one in this many, of few as many as in the second number, are in a sample.
const ROWS_PER_SAMPLED: u64 = 32;
const FEW_ROWS: u64 = 1_024;
/// Rows that are stored together and read together.
const FRAME_ROWS: usize = 1_024;
/// Bytes of a sample, at most; and rows below which there is none: of rows that wide, and of files that small.
const BYTES_MAX: u64 = 2 << 20;
const ROWS_MIN: usize = 64;
/// What is larger was not written as one: a sample may have twice its bytes for a while, and names in each frame.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Chooses rows of batches as they pass by on their way to a file.
pub(super) struct SampleBuilder {
    /// Columns that are sampled: those that hold no other columns.
    columns: Vec<usize>,
    schema: SchemaRef,
    random: fastrand::Rng,
    /// Places of the sample; known with the first rows.
    places_max: usize,
    /// Batch and row of what is in each place.
    places: Vec<(usize, usize)>,
    /// Rows that had a place when they came.
    batches: Vec<RecordBatch>,
    held_rows: usize,
    held_bytes: u64,
    seen_rows: u64,
    /// The next row that takes a place once all are taken, and the probability that the skips follow.
    next_row: u64,
    weight: f64,
}

impl SampleBuilder {
    /// A sample of nothing yet of a file with these columns. The same seed and rows give the same sample.
    pub fn new(schema: &Schema, seed: u64) -> Self {
        let fields = schema.fields().iter().enumerate();
        let columns = fields.filter_map(|(idx, field)| {
            let data_type = plain_type(field.data_type())?;
            Some((idx, Field::new(idx.to_string(), data_type, true)))
        });
        let (columns, fields): (Vec<_>, Vec<_>) = columns.unzip();
        Self {
            columns,
            schema: Arc::new(Schema::new(fields)),
            random: fastrand::Rng::with_seed(seed),
            places_max: 0,
            places: Vec::new(),
            batches: Vec::new(),
            held_rows: 0,
            held_bytes: 0,
            seen_rows: 0,
            next_row: 0,
            weight: 1.0,
        }
    }

    /// Gives rows of a batch places.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let rows = batch.num_rows();
        if self.seen_rows == 0 && rows > 0 {
            self.places_max = places_for(own_bytes(batch) / rows as u64);
        }
        let first = self.seen_rows;
        self.seen_rows += rows as u64;
        if self.places_max == 0 || self.columns.is_empty() {
            return Ok(());
        }
        // Row by place: a later row drives an earlier one out.
        let mut chosen: BTreeMap<usize, usize> = BTreeMap::new();
        let filling = rows.min(self.places_max - self.places.len());
        for row in 0..filling {
            chosen.insert(self.places.len(), row);
            self.places.push((0, 0));
            if self.places.len() == self.places_max {
                self.next_row = first + row as u64 + 1;
                self.skip();
            }
        }
        while self.places.len() == self.places_max && self.next_row < self.seen_rows {
            let place = self.random.usize(..self.places_max);
            chosen.insert(place, (self.next_row - first) as usize);
            self.next_row += 1;
            self.skip();
        }
        self.keep(batch, &chosen)
    }

    /// Draws how many rows pass by before the next one that takes a place.
    fn skip(&mut self) {
        let mut chance = || (1.0 - self.random.f64()).max(f64::MIN_POSITIVE);
        self.weight *= (chance().ln() / self.places_max as f64).exp();
        let skipped = chance().ln() / (1.0 - self.weight).ln();
        self.next_row = self.next_row.saturating_add(skipped as u64);
    }

    fn keep(
        &mut self,
        batch: &RecordBatch,
        chosen: &BTreeMap<usize, usize>,
    ) -> Result<(), ArrowError> {
        if chosen.is_empty() {
            return Ok(());
        }
        // The first rows may have been narrow, and others not.
        let row_bytes = own_bytes(batch) / batch.num_rows().max(1) as u64;
        if row_bytes * chosen.len() as u64 > 2 * BYTES_MAX {
            self.give_up();
            return Ok(());
        }
        let rows = chosen.values().map(|row| *row as u32);
        let rows = UInt32Array::from_iter_values(rows);
        let taken = self.plain(&take_record_batch(&batch.project(&self.columns)?, &rows)?)?;
        for (row, place) in chosen.keys().enumerate() {
            self.places[*place] = (self.batches.len(), row);
        }
        self.held_rows += chosen.len();
        self.held_bytes += own_bytes(&taken);
        self.batches.push(taken);
        if self.held_rows > 2 * self.places_max || self.held_bytes > 4 * BYTES_MAX {
            let kept = self.rows_of(&self.places)?;
            self.held_rows = self.places.len();
            self.held_bytes = own_bytes(&kept);
            self.places = (0..self.places.len()).map(|row| (0, row)).collect();
            self.batches = vec![kept];
            if self.held_bytes > 2 * BYTES_MAX {
                self.give_up();
            }
        }
        Ok(())
    }

    /// Rows as wide as these are not sampled.
    fn give_up(&mut self) {
        self.places_max = 0;
        self.places.clear();
        self.batches.clear();
    }

    /// Columns in types that hold their bytes alone, not those of the batch that they come from.
    fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }

    fn rows_of(&self, places: &[(usize, usize)]) -> Result<RecordBatch, ArrowError> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        interleave_record_batch(&batches, places)
    }

    /// The sample in pieces, its rows in no order.
    fn finish(mut self) -> Result<Vec<RecordBatch>, ArrowError> {
        let mut places = std::mem::take(&mut self.places);
        self.random.shuffle(&mut places);
        let wanted = (self.seen_rows / ROWS_PER_SAMPLED).max(FEW_ROWS);
        places.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        if places.len() < ROWS_MIN {
            return Ok(Vec::new());
        }
        places
            .chunks(FRAME_ROWS)
            .map(|places| self.rows_of(places))
            .collect()
    }

    /// Writes the sample beside the file that these paths and this identity are of. Not synced: after a power cut it
    /// may be missing or damaged.
    pub fn write(self, paths: &FilePaths, id: u64) {
        let root = paths.root();
        let written = self.finish().map_err(io::Error::other).and_then(|frames| {
            if frames.is_empty() {
                return Ok(());
            }
            let bytes = encode(&frames, id).map_err(io::Error::other)?;
            File::create(root.real(&paths.sample()))?.write_all(&bytes)
        });
        if let Err(error) = written {
            let path = paths.sample();
            tracing::debug!(path = %path.display(), %error, "a sample of rows was not written");
            root.remove(&path);
        }
    }
}

/// Places of a sample of rows that wide.
fn places_for(row_bytes: u64) -> usize {
    let places = (BYTES_MAX / row_bytes.max(1)) as usize;
    match places {
        0..ROWS_MIN => 0,
        _ => places.min(SAMPLE_ROWS_MAX),
    }
}

/// As what a column is sampled; `None` for columns of columns.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::Utf8View => Some(DataType::Utf8),
        DataType::BinaryView => Some(DataType::Binary),
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        nested if nested.is_nested() => None,
        other => Some(other.clone()),
    }
}

fn encode(frames: &[RecordBatch], id: u64) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = MAGIC.to_vec();
    put_number(&mut bytes, id);
    put_word(&mut bytes, frames.len() as u32);
    let sum = crc32fast::hash(&bytes);
    put_word(&mut bytes, sum);
    for frame in frames {
        let stream = arrow_stream::encode(&frame.schema(), Some(frame))?;
        put_word(&mut bytes, stream.len() as u32);
        put_word(&mut bytes, crc32fast::hash(&stream));
        bytes.extend_from_slice(&stream);
    }
    Ok(bytes)
}

/// About this many rows of a file's sample, or all that it has: each is as likely to be among them as any other row of
/// the file. Columns are called by their number in the table; those that hold columns are not there. Empty if there is
/// no sample of the file of this identity, or it is damaged.
pub(super) fn read(paths: &FilePaths, id: u64, rows: usize) -> Vec<RecordBatch> {
    let path = paths.sample();
    match read_frames(paths, id, rows) {
        Ok(frames) => frames,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(path = %path.display(), %error, "a sample of rows cannot be read");
            }
            Vec::new()
        }
    }
}

fn read_frames(paths: &FilePaths, id: u64, rows: usize) -> io::Result<Vec<RecordBatch>> {
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let mut file = File::open(paths.root().real(&paths.sample()))?;
    if file.metadata()?.len() > FILE_BYTES_MAX {
        return Err(damaged());
    }
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header)?;
    let (body, sum) = header.split_last_chunk::<4>().ok_or_else(damaged)?;
    let is_whole = crc32fast::hash(body) == u32::from_le_bytes(*sum);
    if !is_whole || body[..8] != *MAGIC || body[8..16] != id.to_le_bytes() {
        return Err(damaged());
    }
    let count = body[16..].try_into().map(u32::from_le_bytes);
    let count = count.map_err(|_| damaged())?;
    let mut frames = Vec::new();
    let mut missing = rows;
    for _ in 0..count {
        if missing == 0 {
            break;
        }
        let frame = read_frame(&mut file)?;
        let frame = frame.slice(0, frame.num_rows().min(missing));
        missing -= frame.num_rows();
        frames.push(frame);
    }
    Ok(frames)
}

fn read_frame(file: &mut File) -> io::Result<RecordBatch> {
    let damaged = || io::Error::from(io::ErrorKind::InvalidData);
    let mut word = || {
        let mut word = [0; 4];
        file.read_exact(&mut word)
            .map(|()| u32::from_le_bytes(word))
    };
    let (len, sum) = (word()?, word()?);
    // Read as far as there is something: a damaged length asks for no memory.
    let mut bytes = Vec::new();
    file.take(len.into()).read_to_end(&mut bytes)?;
    if bytes.len() != len as usize || crc32fast::hash(&bytes) != sum {
        return Err(damaged());
    }
    let (_, frame) = arrow_stream::decode(&bytes).map_err(io::Error::other)?;
    frame.ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;
    use arrow::array::{AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        let texts = values.clone().map(|value| format!("text number {value}"));
        let texts = Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef;
        let numbers = Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    fn sample_of(rows: i64, batch_rows: i64, seed: u64) -> Vec<RecordBatch> {
        let mut builder = SampleBuilder::new(&batch(0..1).schema(), seed);
        for first in (0..rows).step_by(batch_rows as usize) {
            let batch = batch(first..(first + batch_rows).min(rows));
            builder.add(&batch).unwrap();
        }
        builder.finish().unwrap()
    }

    fn numbers(frames: &[RecordBatch]) -> Vec<i64> {
        let columns = frames.iter().map(|frame| frame.column(0));
        let values =
            columns.flat_map(|column| column.as_primitive::<Int64Type>().values().to_vec());
        values.collect()
    }

    #[test]
    fn a_sample_has_each_row_at_most_once_and_texts_beside_their_numbers() {
        for (rows, expected) in [
            (0, 0),
            (10, 0),
            (64, 64),
            (1_024, 1_024),
            (40_000, 1_250),
            (400_000, 10_000),
        ] {
            let frames = sample_of(rows, 3_000, 7);
            let mut found = numbers(&frames);
            assert_eq!(found.len(), expected, "of {rows}");
            for frame in &frames {
                let texts = frame.column(1).as_string::<i32>();
                for (value, text) in numbers(std::slice::from_ref(frame)).iter().zip(texts) {
                    assert_eq!(text.unwrap(), format!("text number {value}"));
                }
            }
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), expected, "twice");
        }
    }

    #[test]
    fn every_part_of_the_rows_is_as_likely_as_any_other() {
        let (parts, rows) = (20, 400_000);
        let mut counts = vec![0f64; parts];
        let mut of_first_frames = vec![0f64; parts];
        for seed in 0..20 {
            let frames = sample_of(rows, 8_192, seed);
            for value in numbers(&frames) {
                counts[value as usize * parts / rows as usize] += 1.0;
            }
            for value in numbers(&frames[..1]) {
                of_first_frames[value as usize * parts / rows as usize] += 1.0;
            }
        }
        for counts in [counts, of_first_frames] {
            let expected = counts.iter().sum::<f64>() / parts as f64;
            let chi: f64 = counts
                .iter()
                .map(|count| (count - expected).powi(2) / expected)
                .sum();
            // 19 degrees of freedom: one in a thousand is above 43.8.
            assert!(chi < 43.8, "{chi}: {counts:?}");
        }
    }

    #[test]
    fn a_stored_sample_is_read_from_the_front_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_folder(&root.table("t-1").join("sums")).unwrap();
        let paths = FilePaths::new(&root, "t-1", 3);
        let mut builder = SampleBuilder::new(&batch(0..1).schema(), 1);
        builder.add(&batch(0..100_000)).unwrap();
        builder.write(&paths, 99);
        assert_eq!(numbers(&read(&paths, 99, usize::MAX)).len(), 3_125);
        let some = numbers(&read(&paths, 99, 1_500));
        assert_eq!(some, numbers(&read(&paths, 99, usize::MAX))[..1_500]);
        assert!(read(&paths, 98, 1_500).is_empty(), "of another file");
        let path = root.real(&paths.sample());
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(997) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            std::fs::write(&path, &bytes).unwrap();
            assert!(read(&paths, 99, usize::MAX).is_empty(), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&paths, 99, usize::MAX).is_empty(), "cut at {at}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read(&paths, 99, 10).is_empty());
    }

    #[test]
    fn rows_that_are_wide_have_no_sample() {
        let texts = |count: usize, bytes: usize| {
            let texts = StringViewArray::from_iter_values((0..count).map(|_| "x".repeat(bytes)));
            RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap()
        };
        for narrow in [0, 500, 30_000] {
            let mut builder = SampleBuilder::new(&texts(1, 1).schema(), 1);
            builder.add(&texts(narrow, 3)).unwrap();
            for _ in 0..20 {
                builder.add(&texts(narrow / 10 + 10, 100_000)).unwrap();
            }
            assert!(builder.finish().unwrap().is_empty(), "after {narrow}");
        }
    }
}
