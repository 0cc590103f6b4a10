//! Damaged and hostile input files: every one is read or refused with a typed error, none ends the process.

use std::path::Path;

use hotshelf::{ImportOptions, Options};

use crate::Fixture;

/// Damaged copies of each file.
const DAMAGES: usize = 20;

/// Small files of every format, compressed and not.
fn good_files(db: &Fixture) -> Vec<String> {
    let rows = "SELECT value AS a, value * 0.5 AS b, concat('text number ', value % 7) AS c,
                CASE WHEN value % 3 = 0 THEN NULL ELSE value END AS d FROM generate_series(1, 200) AS g(value)";
    let files = [
        ("t.csv", "csv", ""),
        ("t.json", "json", ""),
        ("t.csv.gz", "csv", "OPTIONS ('format.compression' 'gzip')"),
        (
            "plain.parquet",
            "parquet",
            "OPTIONS ('format.compression' 'uncompressed')",
        ),
        (
            "zstd.parquet",
            "parquet",
            "OPTIONS ('format.compression' 'zstd(3)')",
        ),
        (
            "snappy.parquet",
            "parquet",
            "OPTIONS ('format.compression' 'snappy')",
        ),
        ("lz4.arrow", "arrow", ""),
    ];
    let mut paths = Vec::new();
    for (name, format, tail) in files {
        let path = db.path(name);
        db.run(&format!(
            "COPY ({rows}) TO '{path}' STORED AS {format} {tail}"
        ))
        .unwrap();
        paths.push(path);
    }
    let batches = db.run(rows).unwrap();
    for (name, codec) in [
        ("plain.stream.arrow", None),
        ("zstd.stream.arrow", Some(arrow::ipc::CompressionType::ZSTD)),
    ] {
        let path = db.path(name);
        let file = std::fs::File::create(&path).unwrap();
        let options = arrow::ipc::writer::IpcWriteOptions::default()
            .try_with_compression(codec)
            .unwrap();
        let mut writer = arrow::ipc::writer::StreamWriter::try_new_with_options(
            file,
            &batches[0].schema(),
            options,
        )
        .unwrap();
        batches
            .iter()
            .for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
        paths.push(path);
    }
    paths
}

/// Flips bytes, overwrites lengths, cuts or doubles a part.
fn damage(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let at = random.usize(..bytes.len());
    match random.u8(..5) {
        0 => bytes.truncate(at),
        1 => bytes[at] ^= 1 << random.u8(..8),
        2 => bytes[at] = random.u8(..),
        3 => {
            let end = (at + 8).min(bytes.len());
            let value = [u64::MAX, i64::MAX as u64, 1 << 62, 1 << 31, 0][random.usize(..5)];
            let value = value.to_le_bytes();
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
        _ => {
            let end = (at + random.usize(1..64)).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

fn import(db: &Fixture, path: &str) -> hotshelf::Result<hotshelf::ImportReport> {
    let options = ImportOptions {
        table: "t".into(),
        inputs: vec![path.to_owned()],
        existing: hotshelf::ExistingTable::Replace,
        ..ImportOptions::default()
    };
    db.import(&options)
}

#[test]
fn damaged_files_are_read_or_refused_by_name() {
    let db = Fixture::new();
    let mut random = fastrand::Rng::with_seed(13);
    for good in good_files(&db) {
        let original = std::fs::read(&good).unwrap();
        let name = Path::new(&good)
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        import(&db, &good).unwrap();
        for round in 0..DAMAGES {
            let mut bytes = original.clone();
            damage(&mut bytes, &mut random);
            let path = db.path(&format!("bad{round}.{name}"));
            std::fs::write(&path, &bytes).unwrap();
            if let Err(error) = import(&db, &path) {
                assert!(
                    error.to_string().contains(&format!("bad{round}.")),
                    "{name} {round}: {error}"
                );
            }
            if let Err(error) = db.run(&format!("SELECT * FROM '{path}'")) {
                assert!(
                    error.to_string().contains(&format!("bad{round}.")),
                    "{name} {round}: {error}"
                );
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn an_arrow_buffer_that_claims_exabytes_is_refused() {
    let db = Fixture::new();
    good_files(&db);
    let mut bytes = std::fs::read(db.path("lz4.arrow")).unwrap();
    // The frame's magic follows the length that the buffer claims.
    let frame = bytes
        .windows(4)
        .position(|bytes| bytes == [0x04, 0x22, 0x4d, 0x18])
        .unwrap();
    bytes[frame - 8..frame].copy_from_slice(&(1_i64 << 60).to_le_bytes());
    let path = db.path("bomb.arrow");
    std::fs::write(&path, bytes).unwrap();
    for error in [
        import(&db, &path).unwrap_err(),
        db.error(&format!("SELECT * FROM '{path}'")),
    ] {
        assert!(error.code() == "input_too_large", "{error:?}");
    }
}

#[test]
fn pages_and_rows_that_are_too_large_for_the_budget_are_refused() {
    let writer = Fixture::new();
    let page = writer.path("page.parquet");
    let wide =
        "SELECT concat(repeat('x', 2000000), value) AS s FROM generate_series(1, 100) AS g(value)";
    let pages = "'format.compression' 'zstd(3)', 'format.dictionary_enabled' 'false',
                 'format.data_pagesize_limit' '1000000000'";
    writer
        .run(&format!(
            "COPY ({wide}) TO '{page}' STORED AS parquet OPTIONS ({pages})"
        ))
        .unwrap();
    let row = writer.path("row.csv.gz");
    let long = "SELECT repeat('x', 20000000) AS s";
    writer
        .run(&format!(
            "COPY ({long}) TO '{row}' STORED AS csv OPTIONS ('format.compression' 'gzip')"
        ))
        .unwrap();
    let db = Fixture::with(Options {
        budget_bytes: 64 << 20,
        ..Options::default()
    });
    for path in [page, row] {
        for error in [
            import(&db, &path).unwrap_err(),
            db.error(&format!("SELECT s FROM '{path}'")),
        ] {
            assert!(error.code() == "input_too_large", "{path}: {error:?}");
            assert!(error.hint().unwrap().contains("budget"));
        }
    }
}
