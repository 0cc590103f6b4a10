//! Every output format, on standard output and in files.

use super::Bench;

const ROWS: &str =
    "SELECT * FROM (VALUES (1, 'x|y', 2.5), (2, NULL, 3.5)) AS v(n, t, f) ORDER BY n";

fn answer(format: &str) -> String {
    Bench::new().ok(&["sql", "--format", format, "-c", ROWS])
}

#[test]
fn text_formats_are_exact() {
    assert_eq!(answer("csv"), "n,t,f\n1,x|y,2.5\n2,,3.5\n");
    assert_eq!(
        answer("ndjson"),
        "{\"n\":1,\"t\":\"x|y\",\"f\":2.5}\n{\"n\":2,\"t\":null,\"f\":3.5}\n"
    );
    assert_eq!(
        answer("markdown"),
        "| n | t | f |\n|---:|---|---:|\n| 1 | x\\|y | 2.5 |\n| 2 |  | 3.5 |\n"
    );
    let json: serde_json::Value = serde_json::from_str(&answer("json")).unwrap();
    assert_eq!(
        json,
        serde_json::json!([{"n": 1, "t": "x|y", "f": 2.5}, {"n": 2, "t": null, "f": 3.5}])
    );
    assert!(answer("table").contains("| 2 | NULL | 3.5 |"));
}

#[test]
fn an_answer_without_rows_still_has_its_columns() {
    let bench = Bench::new();
    let none = |format: &str| {
        let sql = "SELECT 1 AS a, 'x' AS b WHERE false";
        bench.ok(&["sql", "--format", format, "-c", sql])
    };
    assert_eq!(none("csv"), "a,b\n");
    assert_eq!(none("json"), "[]\n");
    assert_eq!(none("ndjson"), "");
    assert!(none("table").contains("| a | b |"));
}

#[test]
fn binary_formats_can_be_redirected() {
    let bench = Bench::new();
    for format in ["parquet", "arrow"] {
        let file = format!("out.{format}");
        let out = std::fs::File::create(bench.path(&file)).unwrap();
        let mut command = bench.command(&["sql", "--format", format, "-c", ROWS]);
        assert!(command.stdout(out).status().unwrap().success());
        let back = format!("SELECT n, t FROM '{file}' ORDER BY n");
        assert_eq!(bench.query(&back), "n,t\n1,x|y\n2,\n", "{format}");
    }
}

#[test]
fn a_binary_file_holds_one_answer_and_appears_only_when_it_is_whole() {
    let bench = Bench::new();
    let to_file = [
        "sql",
        "--format",
        "parquet",
        "--output",
        "out.parquet",
        "-c",
    ];
    let two = [&to_file[..], &["SELECT 1; SELECT 2"]].concat();
    bench.fails(2, &two, &["one answer", "hint: "]);
    let failing = [
        &to_file[..],
        &["SELECT CAST('x' AS INT) FROM generate_series(1, 3)"],
    ]
    .concat();
    bench.fails(1, &failing, &["x"]);
    assert_eq!(super::entries(bench.folder.path()).len(), 0);
    bench.ok(&[&to_file[..], &["SET hotshelf.policy = 'lru'; SELECT 2"]].concat());
    assert!(bench.path("out.parquet").exists());
}

#[test]
fn a_long_table_is_cut_with_a_note_and_other_formats_are_not() {
    let bench = Bench::new();
    let sql = "SELECT value FROM generate_series(1, 20000)";
    let done = bench.run(&["sql", "-c", sql]);
    assert_eq!(done.stdout.lines().count(), 1000 + 4);
    assert!(
        done.stderr.contains("the first 1000 rows"),
        "{}",
        done.stderr
    );
    let csv = bench.ok(&["sql", "--format", "csv", "-c", sql]);
    assert_eq!(csv.lines().count(), 20_001);
}

#[test]
fn a_full_disk_is_an_error() {
    let bench = Bench::new();
    for format in ["csv", "json", "parquet", "arrow", "markdown", "table"] {
        let call = [
            "sql",
            "--format",
            format,
            "--output",
            "/dev/full",
            "-c",
            ROWS,
        ];
        bench.fails(1, &call, &["No space left on device"]);
    }
}
