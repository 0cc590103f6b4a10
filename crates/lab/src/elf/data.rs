//! Tables of codes: uniform columns, and TPC-H's lineitem.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fastrand::Rng;
use hotshelf_elf::Result;
use hotshelf_elf::keys::{CodeColumn, CodeTable};
use tpchgen::generators::{LineItem, LineItemGenerator};

/// Independent columns with codes below `code_count`.
///
/// # Errors
/// When there are too many rows or columns.
pub fn uniform(row_count: usize, dimension_count: usize, code_count: u32) -> Result<CodeTable> {
    let mut random = Rng::with_seed(42);
    let columns = (0..dimension_count).map(|_| {
        let codes = (0..row_count).map(|_| random.u32(..code_count.max(1)));
        CodeColumn::from_codes(codes, code_count.saturating_sub(1))
    });
    CodeTable::new(columns.collect())
}

const STATUSES: [&str; 2] = ["F", "O"];
const FLAGS: [&str; 3] = ["A", "N", "R"];
const INSTRUCTIONS: [&str; 4] = [
    "COLLECT COD",
    "DELIVER IN PERSON",
    "NONE",
    "TAKE BACK RETURN",
];
const MODES: [&str; 7] = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];

/// 1992-01-01, the first day of the benchmark, in days since 1970.
const FIRST_DAY: i32 = 8035;

/// Values of some rows, before they become codes.
#[derive(Default)]
struct RawLines {
    bytes: [Vec<u8>; 8],
    days: [Vec<u16>; 3],
    keys: [Vec<u32>; 4],
}

impl RawLines {
    fn push(&mut self, line: &LineItem<'_>) {
        let rank = |values: &[&str], value: &str| {
            let found = values.iter().position(|one| *one == value);
            found.unwrap_or(values.len()) as u8
        };
        let bytes = [
            rank(&STATUSES, line.l_linestatus),
            rank(&FLAGS, line.l_returnflag),
            rank(&INSTRUCTIONS, line.l_shipinstruct),
            line.l_linenumber as u8,
            rank(&MODES, line.l_shipmode),
            line.l_tax.0 as u8,
            line.l_discount.0 as u8,
            line.l_quantity as u8,
        ];
        let days = [line.l_commitdate, line.l_shipdate, line.l_receiptdate]
            .map(|date| (date.to_unix_epoch() - FIRST_DAY) as u16);
        let keys = [
            line.l_suppkey as u32,
            line.l_extendedprice.0 as u32,
            line.l_partkey as u32,
            line.l_orderkey as u32,
        ];
        self.bytes
            .iter_mut()
            .zip(bytes)
            .for_each(|(column, value)| column.push(value));
        self.days
            .iter_mut()
            .zip(days)
            .for_each(|(column, value)| column.push(value));
        self.keys
            .iter_mut()
            .zip(keys)
            .for_each(|(column, value)| column.push(value));
    }

    fn append(&mut self, more: Self) {
        let Self { bytes, days, keys } = more;
        self.bytes
            .iter_mut()
            .zip(bytes)
            .for_each(|(all, more)| all.extend(more));
        self.days
            .iter_mut()
            .zip(days)
            .for_each(|(all, more)| all.extend(more));
        self.keys
            .iter_mut()
            .zip(keys)
            .for_each(|(all, more)| all.extend(more));
    }
}

/// Replaces every value by its rank among the values that occur.
fn rank<T: Copy + Into<u32> + TryFrom<u32> + Default>(values: &mut [T]) {
    let max = values.iter().map(|&value| value.into()).max().unwrap_or(0);
    let mut present = vec![0u64; max as usize / 64 + 1];
    values.iter().for_each(|&value| {
        let value: u32 = value.into();
        present[value as usize / 64] |= 1 << (value % 64);
    });
    let mut count = 0;
    let before: Vec<u32> = present
        .iter()
        .map(|word| {
            count += word.count_ones();
            count - word.count_ones()
        })
        .collect();
    for value in values {
        let full: u32 = (*value).into();
        let word = full as usize / 64;
        let below = present[word] & ((1 << (full % 64)) - 1);
        // A rank is no larger than its value.
        *value = T::try_from(before[word] + below.count_ones()).unwrap_or_default();
    }
}

/// Fifteen columns of lineitem, all but the comment, by ascending number of values: line status, return flag,
/// instructions, line number, mode, tax, discount, quantity, commit, ship and receipt date, supplier, price, part,
/// order.
///
/// # Errors
/// When there are too many rows.
pub fn lineitem(scale: f64, thread_count: usize) -> Result<CodeTable> {
    let part_count = thread_count.max(1) as i32;
    let generate = |part: i32| {
        let mut lines = RawLines::default();
        for line in LineItemGenerator::new(scale, part, part_count) {
            lines.push(&line);
        }
        lines
    };
    let mut parts = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=part_count)
            .map(|part| scope.spawn(move || generate(part)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, RawLines>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads
            .into_iter()
            .map(join)
            .collect::<Vec<_>>()
            .into_iter()
    });
    let mut lines = parts.next().unwrap_or_default();
    parts.for_each(|more| lines.append(more));
    let RawLines {
        mut bytes,
        mut days,
        mut keys,
    } = lines;
    bytes.iter_mut().for_each(|column| rank(column));
    days.iter_mut().for_each(|column| rank(column));
    keys.iter_mut().for_each(|column| rank(column));
    let columns = bytes.into_iter().map(CodeColumn::U8);
    let columns = columns.chain(days.into_iter().map(CodeColumn::U16));
    CodeTable::new(
        columns
            .chain(keys.into_iter().map(CodeColumn::U32))
            .collect(),
    )
}

/// Writes each column of a table as `c<number>.u32`, little endian, for programs that compare themselves.
///
/// # Errors
/// Those of the file system.
pub fn export(table: &CodeTable, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (number, column) in table.columns().iter().enumerate() {
        let mut file = BufWriter::new(File::create(folder.join(format!("c{number}.u32")))?);
        for row in 0..column.len() {
            file.write_all(&column.get(row).to_le_bytes())?;
        }
        file.flush()?;
    }
    Ok(())
}
