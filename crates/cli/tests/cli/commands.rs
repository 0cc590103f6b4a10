//! Every command does what it says.

use super::Bench;

#[test]
fn help_shows_examples_for_every_command() {
    let bench = Bench::new();
    for command in [
        "demo", "import", "sql", "shell", "tables", "verify", "generate", "bench",
    ] {
        let help = bench.ok(&[command, "--help"]);
        assert!(help.contains(&format!("hotshelf {command}")), "{help}");
    }
    assert!(bench.ok(&["--version"]).starts_with("hotshelf "));
}

#[test]
fn import_appends_replaces_and_refuses_as_told() {
    let bench = Bench::with_table();
    let count = || bench.query("SELECT count(*) AS n, sum(a) AS s FROM t");
    bench.fails(
        1,
        &["import", "--db", "db", "t", "t.csv"],
        &["'t' already exists", "hint: ", "--append"],
    );
    assert_eq!(count(), "n,s\n1000,499500\n");
    bench.ok(&["import", "--db", "db", "t", "t.csv", "--append"]);
    assert_eq!(count(), "n,s\n2000,999000\n");
    bench.write("u.csv", "5;x\n6;y\n");
    let replace = ["import", "--db", "db", "t", "u.csv", "--replace"];
    let unnamed = ["--no-header", "--delimiter", ";"];
    bench.ok(&[&replace[..], &unnamed[..]].concat());
    assert_eq!(
        bench.query("SELECT * FROM t ORDER BY 1"),
        "column_1,column_2\n5,x\n6,y\n"
    );
}

#[test]
fn import_takes_globs_and_types() {
    let bench = Bench::new();
    bench.write("in/1.csv", "zip,n\n01234,1\n");
    bench.write("in/2.csv", "zip,n\n99999,2\n");
    let import = ["import", "--db", "db", "z", "in/*.csv"];
    let done = bench.run(&[&import[..], &["--schema", "zip VARCHAR"]].concat());
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""));
    assert!(
        done.stderr.contains("2 rows from 2 files"),
        "{}",
        done.stderr
    );
    assert_eq!(
        bench.query("SELECT zip FROM z ORDER BY n"),
        "zip\n01234\n99999\n"
    );
}

#[test]
fn import_reads_what_sql_writes_in_every_common_format() {
    let bench = Bench::with_table();
    for (format, ending) in [
        ("csv", "csv"),
        ("ndjson", "json"),
        ("parquet", "parquet"),
        ("arrow", "arrow"),
    ] {
        let file = format!("out.{ending}");
        let sql = ["sql", "--db", "db", "-c", "SELECT a, b FROM t"];
        bench.ok(&[&sql[..], &["--format", format, "--output", &file]].concat());
        bench.ok(&["import", "--db", "db", format, &file]);
        let sum = format!("SELECT sum(a) AS s, max(b) AS m FROM {format}");
        assert_eq!(bench.query(&sum), "s,m\n499500,text 999\n", "{format}");
    }
}

#[test]
fn sql_comes_from_flag_file_and_standard_input() {
    let bench = Bench::new();
    let csv = ["sql", "--format", "csv"];
    bench.write("q.sql", "SELECT 1 AS one");
    let by_flag = bench.ok(&[&csv[..], &["-c", "SELECT 1 AS one"]].concat());
    let by_file = bench.ok(&[&csv[..], &["-f", "q.sql"]].concat());
    let by_stdin = bench.run_with_stdin(&csv, "SELECT 1 AS one;\n").stdout;
    assert_eq!([by_flag, by_file, by_stdin], ["one\n1\n"; 3]);
}

#[test]
fn several_statements_are_answered_in_order_and_timed_on_standard_error() {
    let bench = Bench::new();
    let text = "CREATE TABLE t AS SELECT 7 AS a; INSERT INTO t VALUES (8); SELECT a FROM t ORDER BY a; \
                SHOW hotshelf.policy";
    let done = bench.run(&[
        "sql", "--policy", "lru", "--budget", "64MB", "--timing", "--format", "csv", "-c", text,
    ]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.stdout,
        "count\n1\na\n7\n8\nname,value\nhotshelf.policy,lru\n"
    );
    let times = done.stderr.lines().filter(|line| {
        let seconds = line
            .strip_suffix(" s")
            .and_then(|line| line.rsplit(' ').next());
        seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
    });
    assert_eq!(times.count(), 4, "{}", done.stderr);
}

#[test]
fn sql_reads_files_with_no_set_up() {
    let bench = Bench::with_table();
    let sql = [
        "sql",
        "--format",
        "csv",
        "-c",
        "SELECT count(*) AS n FROM 't.csv'",
    ];
    assert_eq!(bench.ok(&sql), "n\n1000\n");
}

#[test]
fn settings_of_the_call_reach_the_database() {
    let bench = Bench::new();
    let settings = ["--budget", "64MB", "--policy", "s3fifo", "--threads", "1"];
    let cap = ["--storage-bandwidth", "300MB/s", "--format", "csv", "-c"];
    let sql = "SELECT budget_bytes, policy, bandwidth_max FROM cache_stats(), io_stats()";
    let answer = bench.ok(&[&["sql"], &settings[..], &cap[..], &[sql]].concat());
    assert_eq!(
        answer,
        "budget_bytes,policy,bandwidth_max\n64000000,s3fifo,300000000\n"
    );
}

#[test]
fn tables_lists_rows_and_files() {
    let bench = Bench::with_table();
    let list = bench.ok(&["tables", "--db", "db", "--format", "json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[0]["table"], "t");
    assert_eq!(list[0]["rows"], 1000);
    assert_eq!(list[0]["files"], 1);
    assert_eq!(list[0]["state"], "ok");
    assert!(bench.ok(&["tables", "--db", "db"]).contains("| t "));
}

#[test]
fn the_shell_answers_statements_and_commands_and_survives_errors() {
    let bench = Bench::with_table();
    let typed = ".mode csv\nSELECT count(*) AS n\nFROM t;\nSELECT nonsense FROM t;\n\\nonsense\n\\d\n\\d t\n\
                 SELECT 2 AS two;\n\\q\nSELECT 3 AS three;\n";
    let done = bench.run_with_stdin(&["shell", "--db", "db"], typed);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let answers = ["n\n1000\n", "\nt,2,1000,1,", "a,Int64,", "two\n2\n"];
    let places: Vec<_> = answers.map(|part| done.stdout.find(part)).into();
    assert!(places.iter().all(Option::is_some), "{}", done.stdout);
    assert!(places.is_sorted(), "{}", done.stdout);
    assert!(!done.stdout.contains("three"));
    assert!(done.stderr.contains("nonsense") && done.stderr.contains("\\nonsense"));
    assert!(
        std::fs::read_to_string(bench.path("history"))
            .unwrap()
            .contains("FROM t;")
    );
}

#[test]
fn a_script_in_the_shell_ends_with_1_if_a_statement_failed() {
    let bench = Bench::new();
    let shell = |script: &str| bench.run_with_stdin(&["shell"], script);
    let failed = shell("SELECT nonsense;\n.mode csv\nSELECT 2 AS two;\n");
    assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), "two\n2\n"));
    assert!(
        failed.stderr.contains("1 of the statements failed"),
        "{}",
        failed.stderr
    );
    let sound = shell(".mode csv\nSELECT 2 AS two");
    assert_eq!((sound.code, sound.stdout.as_str()), (Some(0), "two\n2\n"));
}

#[test]
fn timer_and_mode_take_their_arguments() {
    let bench = Bench::new();
    let script = ".timer on\nSELECT 1;\n.timer off\n.timer\n.timer maybe\n.mode\n";
    let done = bench.run_with_stdin(&["shell"], script);
    let told: Vec<_> = done.stderr.matches("timing is on").collect();
    assert_eq!(told.len(), 2, "{}", done.stderr);
    assert!(done.stderr.contains("timing is off"), "{}", done.stderr);
    assert!(
        done.stderr.contains("it takes on, off or nothing"),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains("it takes table, csv"),
        "{}",
        done.stderr
    );
}

#[test]
fn a_byte_order_mark_before_sql_is_skipped() {
    let bench = Bench::new();
    let text = "\u{feff}SELECT 1 AS one;\n";
    bench.write("q.sql", text);
    let csv = ["sql", "--format", "csv"];
    let by_file = bench.ok(&[&csv[..], &["-f", "q.sql"]].concat());
    let by_stdin = bench.run_with_stdin(&csv, text).stdout;
    assert_eq!([by_file, by_stdin], ["one\n1\n"; 2]);
    let shell = bench.run_with_stdin(&["shell"], text);
    assert_eq!(shell.code, Some(0), "{}", shell.stderr);
}

#[test]
fn a_temporary_database_says_what_goes_with_it() {
    let bench = Bench::new();
    let two = "CREATE TABLE a AS SELECT 1 AS x; CREATE TABLE b AS SELECT 1 AS x";
    for done in [
        bench.run(&["sql", "-c", two]),
        bench.run_with_stdin(&["shell"], two),
    ] {
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        let told = done
            .stderr
            .matches("temporary database: 2 tables discarded");
        assert_eq!(told.count(), 1, "{}", done.stderr);
    }
    let none = bench.run(&["sql", "-c", "SELECT 1"]);
    assert_eq!(none.stderr, "");
    let kept = bench.run(&["sql", "--db", "db", "-c", two]);
    assert!(!kept.stderr.contains("temporary"), "{}", kept.stderr);
}

#[test]
fn a_new_database_without_tables_is_not_left_behind() {
    let bench = Bench::new();
    bench.fails(
        1,
        &["sql", "--db", "new", "-c", "SELECT * FROM t"],
        &["'t'"],
    );
    bench.fails(
        1,
        &["import", "--db", "new", "t", "nowhere.csv"],
        &["nowhere.csv"],
    );
    assert!(!bench.path("new").exists());
    let done = bench.run(&["sql", "--db", "new", "-c", "SELECT 1"]);
    assert_eq!(done.code, Some(0));
    assert!(
        done.stderr.contains("new was made for this call"),
        "{}",
        done.stderr
    );
    assert!(!bench.path("new").exists());
    std::fs::create_dir(bench.path("made")).unwrap();
    bench.ok(&["sql", "--db", "made", "-c", "SELECT 1"]);
    assert!(bench.path("made").exists());
    bench.ok(&[
        "sql",
        "--db",
        "new",
        "-c",
        "CREATE TABLE t AS SELECT 1 AS a",
    ]);
    bench.ok(&["sql", "--db", "new", "-c", "DROP TABLE t"]);
    assert!(bench.path("new").exists());
}

#[test]
fn generate_replaces_tables_only_when_told() {
    let bench = Bench::new();
    bench.query("CREATE TABLE part AS SELECT 7 AS a; CREATE TABLE date AS SELECT 8 AS a");
    let generate = ["generate", "ssb", "--scale", "0.001", "--db", "db"];
    bench.fails(1, &generate, &["part", "date", "hint: ", "--replace"]);
    assert_eq!(bench.query("SELECT a FROM part"), "a\n7\n");
    assert!(!bench.ok(&["tables", "--db", "db"]).contains("lineorder"));
    bench.ok(&[&generate[..], &["--replace"]].concat());
    assert_eq!(
        bench.query("SELECT count(*) > 1 AS n FROM part"),
        "n\ntrue\n"
    );
}

#[test]
fn generated_files_and_generated_tables_hold_the_same_rows() {
    let bench = Bench::new();
    bench.ok(&["generate", "ssb", "--scale", "0.001", "--out", "files"]);
    bench.ok(&["generate", "ssb", "--scale", "0.001", "--db", "db"]);
    let sums = "SELECT count(*) AS n, sum(lo_revenue) AS r, sum(lo_custkey) AS c FROM ";
    let of_files = bench.query(&format!("{sums}'files/lineorder.parquet'"));
    assert_eq!(bench.query(&format!("{sums}lineorder")), of_files);
    bench.ok(&["generate", "tpch", "--scale", "0.001", "--out", "tpch"]);
    let nations = bench.query("SELECT count(*) AS n FROM 'tpch/nation.parquet'");
    assert_eq!(nations, "n\n25\n");
}

#[test]
fn bench_keeps_its_database_and_counts_bytes() {
    let bench = Bench::new();
    let call = [
        "bench",
        "ssb",
        "--scale",
        "0.001",
        "--data",
        "db",
        "--runs",
        "1",
        "--format",
        "json",
        "--policy",
        "none",
        "--query",
        "q1.1,Q2.1",
    ];
    let first: serde_json::Value = serde_json::from_str(&bench.ok(&call)).unwrap();
    assert_eq!(first.as_array().unwrap().len(), 2);
    assert_eq!(first[0]["query"], "Q1.1");
    assert!(first[0]["bytes_storage"].as_u64().unwrap() > 0);
    assert!(first[0]["seconds"].as_f64().unwrap() > 0.0);
    let files = bench.data_files("lineorder");
    let again = bench.run(&call);
    assert!(!again.stderr.contains("generated"), "{}", again.stderr);
    assert_eq!(bench.data_files("lineorder"), files);
    let other_scale = ["bench", "ssb", "--scale", "0.002", "--data", "db"];
    bench.fails(1, &other_scale, &["rows", "hint: "]);
}

#[test]
fn bench_times_tpch_too() {
    let bench = Bench::new();
    let call = "bench tpch --scale 0.001 --runs 1 --format csv --query Q06,q01";
    let answer = bench.ok(&call.split(' ').collect::<Vec<_>>());
    let names: Vec<&str> = answer.lines().map(|line| &line[..4]).collect();
    assert_eq!(names[1..], ["Q01,", "Q06,"]);
}

#[test]
fn bench_queries_parquet_in_place() {
    let bench = Bench::new();
    bench.ok(&["generate", "ssb", "--scale", "0.001", "--out", "files"]);
    let answer = bench.ok(&[
        "bench",
        "ssb",
        "--scale",
        "0.001",
        "--parquet",
        "files",
        "--runs",
        "1",
        "--format",
        "csv",
        "--query",
        "Q4.1",
    ]);
    assert!(answer.contains("\nQ4.1,"), "{answer}");
}

#[test]
fn the_demo_compares_policies_and_draws_a_chart() {
    let bench = Bench::new();
    let report = bench.ok(&["demo", "--scale", "0.001", "--dir", "d"]);
    for part in [
        "no cache",
        "lru",
        "all in memory",
        "Q4.3",
        "all passes",
        "300 MB/s",
        "d/demo.svg",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    let chart = std::fs::read_to_string(bench.path("d/demo.svg")).unwrap();
    assert!(chart.contains("time passed (seconds)"));
    assert!(!bench.path("d/db").exists());
}

#[test]
fn a_history_that_is_no_file_is_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    std::fs::create_dir(bench.path("history")).unwrap();
    let mode = || {
        std::fs::metadata(bench.path("history"))
            .unwrap()
            .permissions()
            .mode()
    };
    let before = mode();
    let done = bench.run_with_stdin(&["shell"], "SELECT 2 AS two;\n");
    assert_eq!((done.code, mode()), (Some(0), before), "{}", done.stderr);
    assert!(!done.stderr.contains("history"), "{}", done.stderr);
}
