"""Grouping, joining, distinct counts, sorts and top-k in growing sizes, Hotshelf and DuckDB in turn.

    python ladders.py --hotshelf 'hotshelf shell --db DIR --budget 12GB --threads 2' --duckdb FILE --rows 60000000 --make
    python ladders.py --hotshelf … --duckdb FILE --only join --setting 'hotshelf.operators = off' --out result.json

`--make` makes the table `ladder` in both engines: `id`, keys `g3` to `g8` of 10^3 to 10^8 values (spread over the rows),
`z`, skewed (half of its rows have one of 16 values), `s`, texts of a million values, and `v`; and the table `zipf` of as
many rows, whose key `k` of a million values and whose text `s` follow Zipf's law with exponent 1; and `texts`, as many
rows with texts `s7` of 10^7 values. With names, `--make` makes only these tables. Both engines stay open and run each
step in turns; figures are medians.
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


def texts_table():
    """The statement that makes the table of texts of ten million values."""
    return "CREATE TABLE texts AS SELECT concat('customer number ', CAST(g7 AS VARCHAR)) AS s7, v FROM ladder"


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
    yield "group", "many texts", grouped.format("s7").replace("FROM ladder", "FROM texts")
    for build in [1_000, 100_000, 1_000_000, 10_000_000, rows]:
        sql = f"SELECT count(*), sum(a.v + b.v) FROM ladder a JOIN ladder b ON a.g8 = b.g8 AND b.id < {build}"
        yield "join", f"{build} rows", sql
    for matches in [1, 10, 100]:
        build = f"(SELECT id % {10_000 // matches} AS k, v FROM ladder WHERE id < 10000)"
        yield "join", f"{matches} matches", f"SELECT count(*), sum(a.v * b.v) FROM ladder a JOIN {build} b ON a.g5 = b.k"
    many = rows // 10
    for matches in [1, 10, 100]:
        probe = f"(SELECT g8 % {many // matches} AS k, v FROM ladder WHERE id < {many})"
        build = f"(SELECT id % {many // matches} AS k, v FROM ladder WHERE id < {many})"
        sql = f"SELECT count(*), sum(a.v * b.v) FROM {probe} a JOIN {build} b ON a.k = b.k"
        yield "join", f"{matches} matches of {many}", sql
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
    each = "SELECT g3, count(DISTINCT g6) AS n FROM ladder GROUP BY g3"
    yield "distinct", "g6 by g3", f"SELECT count(*), sum(n) FROM ({each}) x"
    for part in [100, 10, 1]:
        numbered = f"SELECT v, row_number() OVER (ORDER BY g8, id) AS n FROM ladder WHERE id < {rows // part}"
        yield "sort", f"{rows // part} rows", f"SELECT count(*), sum(n % 7 * v) FROM ({numbered}) x"
    numbered = f"SELECT v, row_number() OVER (ORDER BY s, id) AS n FROM ladder WHERE id < {rows // 10}"
    yield "sort", f"{rows // 10} by texts", f"SELECT count(*), sum(n % 7 * v) FROM ({numbered}) x"
    whole = "SELECT * FROM ladder ORDER BY s DESC, id LIMIT 1000"
    sums = "count(*), sum(id), sum(g3 + g4 + g5 + g6 + g7 + g8 + z + v), max(s)"
    yield "top", "1000 whole rows", f"SELECT {sums} FROM ({whole}) x"
    for limit in [10, 1_000, 100_000]:
        top = f"SELECT g8, v FROM ladder ORDER BY g8 DESC, id LIMIT {limit}"
        yield "top", f"{limit} rows", f"SELECT count(*), sum(g8), sum(v) FROM ({top}) x"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget and threads")
    parser.add_argument("--duckdb", required=True, help="DuckDB's own database file")
    parser.add_argument("--rows", type=int, default=60_000_000)
    tables = ["ladder", "zipf", "texts"]
    parser.add_argument("--make", nargs="*", choices=tables, help="make these tables, or all, in both engines first")
    parser.add_argument("--only", nargs="*", help="these ladders: group, join, distinct, sort, top")
    parser.add_argument("--steps", nargs="*", help="of these the steps with one of these words in their name")
    parser.add_argument("--setting", action="append", default=[], help="for Hotshelf, such as 'hotshelf.operators = off'")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def make(settings):
    import duckdb

    made = {"ladder": table(settings.rows), "zipf": zipf_table(), "texts": texts_table()}
    made = [made[name] for name in settings.make or made]
    ours = Shell(settings.hotshelf)
    for statement in made:
        # Hotshelf's range() names its column `value`.
        ours.run(statement.replace("range AS value", "value"))
    ours.close()
    with duckdb.connect(settings.duckdb) as connection:
        for statement in made:
            connection.execute(statement)


def main():
    settings = parse_arguments()
    if settings.make is not None:
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
