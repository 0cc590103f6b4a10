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
fn a_table_in_a_pipe_or_file_is_whole() {
    let bench = Bench::new();
    // The last rows are wider than those that the widths are taken from.
    let sql = "SELECT value, CASE WHEN value > 12000 THEN 'a long text' ELSE 't' END AS b \
               FROM generate_series(1, 20000)";
    let done = bench.run(&["sql", "--timing", "-c", sql]);
    assert_eq!(done.stdout.lines().count(), 20_000 + 4);
    assert!(done.stdout.contains("\n| 20000 | a long text |\n"));
    assert!(done.stderr.contains(": 20000 rows"), "{}", done.stderr);
    bench.ok(&["sql", "--output", "out.txt", "-c", sql]);
    let file = std::fs::read_to_string(bench.path("out.txt")).unwrap();
    assert_eq!(file.lines().count(), 20_000 + 4);
}

#[test]
fn tables_keep_their_columns_apart() {
    let sql = "SELECT * FROM (VALUES (1, 'x\ny'), (22, '日本'), (3, NULL)) AS v(n, t) ORDER BY n";
    let lines = [
        "+----+------+",
        "| n  | t    |",
        "+----+------+",
        "| 1  | x    |",
        "|    | y    |",
        "| 3  | NULL |",
        "| 22 | 日本 |",
        "+----+------+",
    ];
    let table = Bench::new().ok(&["sql", "-c", sql]);
    assert_eq!(table.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn the_ending_of_the_output_decides_the_format_unless_one_is_named() {
    let bench = Bench::new();
    let to = |file: &str, more: &[&str]| {
        let sql = ["sql", "-c", ROWS, "--output", file];
        bench.ok(&[&sql[..], more].concat());
        std::fs::read(bench.path(file)).unwrap()
    };
    assert!(to("x.csv", &[]).starts_with(b"n,t,f\n"));
    assert!(to("x.json", &[]).starts_with(b"[{"));
    assert!(to("x.ndjson", &[]).starts_with(b"{"));
    assert!(to("x.md", &[]).starts_with(b"| n |"));
    assert!(to("x.PARQUET", &[]).starts_with(b"PAR1"));
    assert!(to("x.arrow", &[]).starts_with(b"ARROW1"));
    assert!(to("x.txt", &[]).starts_with(b"+---"));
    assert!(to("y.csv", &["--format", "ndjson"]).starts_with(b"{"));
}

#[test]
fn an_empty_text_and_null_differ_in_csv() {
    let sql = "SELECT * FROM (VALUES (1, ''), (2, NULL), (3, 'a,\"b')) AS v(n, t) ORDER BY n";
    let csv = Bench::new().ok(&["sql", "--format", "csv", "-c", sql]);
    assert_eq!(csv, "n,t\n1,\"\"\n2,\n3,\"a,\"\"b\"\n");
}

#[test]
fn csv_writes_lists_as_text() {
    let sql = "SELECT make_array(1, 2) AS l, 1 AS n";
    let csv = Bench::new().ok(&["sql", "--format", "csv", "-c", sql]);
    assert_eq!(csv, "l,n\n\"[1, 2]\",1\n");
}

#[test]
fn a_query_that_fails_before_its_first_row_prints_nothing() {
    let bench = Bench::new();
    let sql = "SELECT CAST(concat('x', value) AS INT) AS n FROM generate_series(1, 3)";
    for format in ["csv", "json", "parquet", "arrow", "markdown", "table"] {
        bench.fails(1, &["sql", "--format", format, "-c", sql], &["x1"]);
    }
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
        bench.fails(1, &call, &["(os error 28)"]);
    }
}

/// The calls that print results.
const PRINTING: [&[&str]; 7] = [
    &["sql", "-c", ROWS],
    &["sql", "--format", "parquet", "-c", ROWS],
    &["tables", "--db", "db"],
    &["--help"],
    &["sql", "--help"],
    &["--version"],
    &["probe", "--quick", "--tier", "emulated:optane100-128"],
];

#[test]
fn a_full_standard_output_is_an_error() {
    let bench = Bench::with_table();
    for call in PRINTING {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = bench.command(call);
        let done: super::Done = command.stdout(full.unwrap()).output().unwrap().into();
        assert_eq!(done.code, Some(1), "{call:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("(os error 28)"),
            "{call:?}: {}",
            done.stderr
        );
    }
}

#[test]
fn a_closed_standard_output_is_an_error() {
    let bench = Bench::with_table();
    for call in PRINTING
        .iter()
        .copied()
        .chain([&["verify", "--db", "db"][..]])
    {
        let program = bench.command(call);
        let done: super::Done = std::process::Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" >&-"])
            .arg(program.get_program())
            .args(program.get_args())
            .current_dir(bench.path("."))
            .output()
            .unwrap()
            .into();
        assert_eq!(done.code, Some(1), "{call:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("it is closed"),
            "{call:?}: {}",
            done.stderr
        );
    }
}

#[test]
fn tabs_separate_the_columns_of_a_tsv_file() {
    let bench = Bench::new();
    let sql = "SELECT 1 AS a, 'x,y' AS b, 'c	d' AS c";
    bench.ok(&["sql", "--output", "o.tsv", "-c", sql]);
    let text = std::fs::read_to_string(bench.path("o.tsv")).unwrap();
    assert_eq!(text, "a\tb\tc\n1\tx,y\t\"c\td\"\n");
    assert_eq!(
        bench.query("SELECT * FROM 'o.tsv'"),
        "a,b,c\n1,\"x,y\",c\td\n"
    );
}

#[test]
fn a_time_beyond_the_calendar_is_an_error_in_every_format_for_reading() {
    let bench = Bench::new();
    let sql = "SELECT to_timestamp_seconds(9223372036854775807) AS t";
    for format in ["table", "csv", "tsv", "json", "ndjson", "markdown"] {
        let call = ["sql", "--format", format, "-c", sql];
        let done = bench.run(&call);
        let stderr = &done.stderr;
        assert_eq!(done.code, Some(1), "{format}: {stderr}");
        assert!(stderr.contains("9223372036854775807"), "{format}: {stderr}");
        assert!(!done.stdout.contains("9223372036854775807"), "{format}");
    }
}
