"""Grouping, joining, distinct counts, sorts and top-k in growing sizes, Hotshelf and DuckDB in turn.

    python ladders.py --hotshelf 'hotshelf shell --db DIR --budget 12GB --threads 2' --duckdb FILE --rows 60000000 --make
    python ladders.py --hotshelf … --duckdb FILE --only join --setting 'hotshelf.operators = off' --out result.json

`--make` makes the table `ladder` in both engines: `id`, keys `g3` to `g8` of 10^3 to 10^8 values (spread over the rows),
`z`, skewed (half of its rows have one of 16 values), `s`, texts of a million values, and `v`; and the table `zipf` of as
many rows, whose key `k` of a million values and whose text `s` follow Zipf's law with exponent 1. Both engines stay open
and run each step in turns; figures are medians.
"""

import argparse
import json
import statistics
from pathlib import Path

from limits import default_threads
from star import Duck, Shell

# A step of a multiplicative generator: spreads the numbers from 0 to the number of rows over the keys.
SPREAD = "(value * 2654435761) % 4294967296"


def table(rows):
    """The statement that makes the table, in words that both engines know."""
    keys = ", ".join(f"{SPREAD} % {10**exponent} AS g{exponent}" for exponent in range(3, 9))
    skewed = f"CASE WHEN value % 2 = 0 THEN value % 16 ELSE {SPREAD} % 1000000 END AS z"
    text = f"concat('customer number ', CAST({SPREAD} % 1000000 AS VARCHAR)) AS s"
    numbers = f"(SELECT range AS value FROM range({rows}))"
    return f"CREATE TABLE ladder AS SELECT value AS id, {keys}, {skewed}, {text}, value % 1000 AS v FROM {numbers}"


def zipf_table():
    """The statement that makes the table of keys by Zipf's law: the logarithm of a key is spread evenly."""
    key = "CAST(floor(exp((g8 + 0.5) / 1e8 * ln(1e6))) AS BIGINT)"
    rows = f"SELECT {key} AS k, v FROM ladder"
    return f"CREATE TABLE zipf AS SELECT k, concat('customer number ', CAST(k AS VARCHAR)) AS s, v FROM ({rows}) x"


def steps(rows):
    """The queries of every ladder: each has one row as its answer."""
    grouped = "SELECT count(*), sum(n), max(w) FROM (SELECT {0}, count(*) AS n, sum(v) AS w FROM ladder GROUP BY {0}) x"
    for key in ["v % 10", "g3", "g5", "g6", "g7", "g8", "z", "s", "g3, v", "s, v % 4"]:
        named = ", ".join(f"{part} AS k{idx}" for idx, part in enumerate(key.split(", ")))
        outer = ", ".join(f"k{idx}" for idx in range(len(key.split(", "))))
        inner = grouped.format(outer).replace("FROM ladder", f"FROM (SELECT {named}, v FROM ladder) y")
        yield "group", key, inner
    for key in ["k", "s"]:
        yield "group", f"Zipf, {key}", grouped.format(key).replace("FROM ladder", "FROM zipf")
    for build in [1_000, 100_000, 1_000_000, 10_000_000, rows]:
        sql = f"SELECT count(*), sum(a.v + b.v) FROM ladder a JOIN ladder b ON a.g8 = b.g8 AND b.id < {build}"
        yield "join", f"{build} rows", sql
    for matches in [1, 10, 100]:
        build = f"(SELECT id % {10_000 // matches} AS k, v FROM ladder WHERE id < 10000)"
        yield "join", f"{matches} matches", f"SELECT count(*), sum(a.v * b.v) FROM ladder a JOIN {build} b ON a.g5 = b.k"
    for missing in [0, 50, 90]:
        # The key is spread over as many values as leave this part of the rows without a partner.
        probe = f"(SELECT g8 % {1_000_000_000 // (100 - missing)} AS k, v FROM ladder)"
        build = "(SELECT id AS k, v FROM ladder WHERE id < 10000000)"
        sql = f"SELECT count(*), sum(a.v + b.v) FROM {probe} a JOIN {build} b ON a.k = b.k"
        yield "join", f"{missing} % missing", sql
    zipf = "SELECT count(*), sum(a.v + b.v) FROM zipf a JOIN (SELECT id, v FROM ladder WHERE id < 1000000) b ON a.k = b.id"
    yield "join", "Zipf", zipf
    build = "(SELECT s, min(v) AS m FROM ladder WHERE id < 1000000 GROUP BY s)"
    yield "join", "texts", f"SELECT count(*), sum(a.v + b.m) FROM ladder a JOIN {build} b ON a.s = b.s"
    for key in ["g3", "g6", "g8", "s"]:
        yield "distinct", key, f"SELECT count(DISTINCT {key}) FROM ladder"
    for part in [100, 10, 1]:
        numbered = f"SELECT v, row_number() OVER (ORDER BY g8, id) AS n FROM ladder WHERE id < {rows // part}"
        yield "sort", f"{rows // part} rows", f"SELECT count(*), sum(n % 7 * v) FROM ({numbered}) x"
    for limit in [10, 1_000, 100_000]:
        top = f"SELECT g8, v FROM ladder ORDER BY g8 DESC, id LIMIT {limit}"
        yield "top", f"{limit} rows", f"SELECT count(*), sum(g8), sum(v) FROM ({top}) x"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget and threads")
    parser.add_argument("--duckdb", required=True, help="DuckDB's own database file")
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--make", action="store_true", help="make the table in both engines first")
    parser.add_argument("--only", nargs="*", help="these ladders: group, join, distinct, sort, top")
    parser.add_argument("--steps", nargs="*", help="of these the steps with one of these words in their name")
    parser.add_argument("--setting", action="append", default=[], help="for Hotshelf, such as 'hotshelf.operators = off'")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def make(settings):
    import duckdb

    ours = Shell(settings.hotshelf)
    # Hotshelf's range() names its column `value`.
    ours.run(table(settings.rows).replace("range AS value", "value"))
    ours.run(zipf_table())
    ours.close()
    with duckdb.connect(settings.duckdb) as connection:
        connection.execute(table(settings.rows))
        connection.execute(zipf_table())


def main():
    settings = parse_arguments()
    if settings.make:
        make(settings)
    ours, theirs = Shell(settings.hotshelf), Duck(settings.duckdb, settings.threads)
    for setting in settings.setting:
        ours.run(f"SET {setting}")
    rows = []
    print("| ladder | step | hotshelf s | DuckDB s | ratio |")
    print("|---|---|---|---|---|")
    for ladder, step, sql in steps(settings.rows):
        if settings.only and ladder not in settings.only:
            continue
        if settings.steps and not any(word in step for word in settings.steps):
            continue
        times = ([], [])
        for repeat in range(settings.repeats + 1):
            for side in (0, 1) if repeat % 2 == 0 else (1, 0):
                seconds = (ours, theirs)[side].run(sql)
                if repeat > 0:
                    times[side].append(seconds)
        mine, duck = (statistics.median(side) for side in times)
        rows.append({"ladder": ladder, "step": step, "hotshelf_s": mine, "duckdb_s": duck, "all_s": times})
        print(f"| {ladder} | {step} | {mine:.3f} | {duck:.3f} | {mine / duck:.2f} |", flush=True)
    ours.close()
    theirs.close()
    if settings.out:
        settings.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
