use super::*;

fn flags(line: &str) -> Result<Flags> {
    validate(Raw::try_parse_from(line.split_whitespace()).unwrap())
}

fn refusal(line: &str) -> String {
    match flags(line) {
        Err(Failure::Usage { message, hint }) => {
            format!("{message} | {}", hint.unwrap_or_default())
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn the_flags_are_consistent() {
    use clap::CommandFactory;
    Raw::command().debug_assert();
}

#[test]
fn sizes_rates_and_names_are_resolved() {
    let line =
        "hotshelf sql --budget 64MB --policy S3-FIFO --storage-bandwidth 300MB/s --threads 3 -c x";
    let Command::Sql(sql) = flags(line).unwrap().command else {
        panic!("not sql");
    };
    assert_eq!(sql.engine.options.budget_bytes, 64_000_000);
    assert_eq!(sql.engine.options.policy, PolicyKind::S3Fifo);
    assert_eq!(sql.engine.options.storage_bandwidth_max, Some(300_000_000));
    assert_eq!(sql.engine.options.threads, 3);
    assert!(sql.engine.db.is_none());
}

#[test]
fn bad_values_are_refused_with_what_would_be_right() {
    for (line, expected) in [
        ("hotshelf sql --budget lots -c x", "64MB"),
        ("hotshelf sql --policy lrru -c x", "choose none, all, lru"),
        ("hotshelf sql --storage-bandwidth fast -c x", "300MB/s"),
        ("hotshelf sql --format xml -c x", "ndjson"),
        ("hotshelf sql --output x.csv.gz -c x", "compress"),
        ("hotshelf tables --db d --format parquet", "markdown"),
        ("hotshelf import --db d --format xml t f", "parquet"),
        ("hotshelf import --db d --delimiter :: t f", "tab"),
        ("hotshelf generate tpcds --scale 1 --out d", "ssb, tpch"),
        ("hotshelf bench tpcds --scale 1", "ssb, tpch"),
        (
            "hotshelf bench hpcache --sequence paper",
            "`hotshelf-lab hpcache`",
        ),
        ("hotshelf bench elf", "`hotshelf-lab elf`"),
        ("hotshelf probe --tier ram", "emulated:NAME"),
        ("hotshelf probe --tier node:x", "file:DIR"),
        (
            "hotshelf probe --tier emulated:octane",
            "`emulated:optane` is one",
        ),
        ("hotshelf probe --format parquet", "ndjson"),
        ("hotshelf generate ssb --scale 1", "--db mydb"),
        ("hotshelf probe --working-set 1kB", "1MB"),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(expected), "{line}: {refusal}");
    }
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for line in [
        "hotshelf import --db d t f --append --replace",
        "hotshelf sql -c x -f y",
        "hotshelf generate ssb --scale 1 --out d --db e",
        "hotshelf generate ssb --scale 1 --out d --replace",
        "hotshelf bench ssb --scale 1 --data d --parquet e",
        "hotshelf bench",
        "hotshelf bench ssb --scale 1 --runs 0",
        "hotshelf sql --threads 0 -c x",
        "hotshelf probe --from x --tier dram",
        "hotshelf probe --from x --quick",
        "hotshelf import --db d t",
    ] {
        assert!(
            Raw::try_parse_from(line.split_whitespace()).is_err(),
            "{line}"
        );
    }
}

#[test]
fn a_probe_measures_what_it_is_asked_to() {
    let probe = |line: &str| match flags(line).unwrap().command {
        Command::Probe(probe) => probe,
        other => panic!("{other:?}"),
    };
    let target = |line: &str| match probe(line).source {
        ProbeSource::Measure(measure) => measure.target.to_string(),
        ProbeSource::File(path) => path.display().to_string(),
    };
    assert_eq!(target("hotshelf probe --quick"), "dram");
    assert_eq!(target("hotshelf probe --db d"), "file:d");
    assert_eq!(target("hotshelf probe --db d --tier node:1"), "node:1");
    assert_eq!(target("hotshelf probe --from r.json --db d"), "r.json");
    let ProbeSource::Measure(part) =
        probe("hotshelf probe --only depth --only write --keep-file").source
    else {
        panic!("nothing to measure");
    };
    assert_eq!(part.only, ["depth", "write"]);
    assert!(part.keep_file);
    assert_eq!(probe("hotshelf probe").format, None);
    assert_eq!(
        probe("hotshelf probe --out r.json").format,
        Some(Format::Json)
    );
}

#[test]
fn a_tab_can_be_written_as_a_word() {
    assert_eq!(delimiter("tab").unwrap(), b'\t');
    assert_eq!(delimiter(";").unwrap(), b';');
    assert!(delimiter("é").is_err());
}
