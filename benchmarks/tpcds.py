"""TPC-DS: data, queries and answers by DuckDB's own generator, and Hotshelf beside them.

    python tpcds.py make --scale 1 --out FOLDER     # needs the packages duckdb 1.5.5 and duckdb-extension-tpcds 1.5.5
    python tpcds.py load --out FOLDER --program target/release/hotshelf --db tpcds1
    python tpcds.py run --out FOLDER --hotshelf 'hotshelf shell --db tpcds1 --budget 4GB --threads 2' --repeats 3

`make` writes a Parquet file per table, and `answers.json` with the texts of the 99 queries and DuckDB's rows. `run` asks each
query in a shell that stays open, and in DuckDB over its own file if `--duckdb` names one, in turns; a first run of each
counts for the answers only. Rows are compared as sets, since query texts leave ties open, and as `results.py` does: decimals
exactly, floating-point numbers apart from the order in which they are added up.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import time
from pathlib import Path

from results import compare, to_result
from shell import Shell

SHOWN = 2


def make(args):
    import duckdb
    import duckdb_extension_tpcds

    [extension] = Path(duckdb_extension_tpcds.__file__).parent.rglob("tpcds.duckdb_extension")
    con = duckdb.connect(str(args.out / "tpcds.duckdb"), config={"allow_unsigned_extensions": "true"})
    con.execute(f"LOAD '{extension}'")
    con.execute(f"CALL dsdgen(sf = {args.scale})")
    for [table] in con.execute("SELECT table_name FROM information_schema.tables").fetchall():
        con.execute(f"COPY {table} TO '{args.out / table}.parquet'")
    answers = {}
    for number, sql in con.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
        text = re.sub(r"--[^\n]*", "", sql)
        cursor = con.execute(text)
        answers[f"Q{number:02}"] = {"sql": text, **to_result([one[0] for one in cursor.description], cursor.fetchall())}
    (args.out / "answers.json").write_text(json.dumps(answers))


def load(args):
    for file in sorted(args.out.glob("*.parquet")):
        subprocess.run([args.program, "import", "--db", args.db, file.stem, file], check=True)


class Duck:
    def __init__(self, path):
        import duckdb

        self.con = duckdb.connect(path, read_only=True, config={"threads": 2})

    def ask(self, sql):
        begun = time.perf_counter()
        rows = self.con.execute(sql).fetchall()
        return rows, time.perf_counter() - begun


def run(args):
    answers = json.loads((args.out / "answers.json").read_text())
    shell, duck = Shell(args.hotshelf, args.seconds), Duck(args.duckdb) if args.duckdb else None
    equal, ratios, sums = 0, {}, [0.0, 0.0]
    for name in args.queries or answers:
        sql, times = answers[name]["sql"], ([], [])
        try:
            columns, rows, first = shell.ask(sql)
            # Without its text, and so without its ORDER BY, all rows count and none by its place.
            found = compare(answers[name], columns, rows, "")
            for _ in range(args.repeats if duck else 0):
                times[0].append(shell.ask(sql)[2])
                times[1].append(duck.ask(sql)[1])
        except (ValueError, TimeoutError, ChildProcessError) as error:
            print(f"{name}: {error}", flush=True)
            continue
        equal += not found
        words = "; ".join(["equal" if not found else f"DIFFERENT, {len(found)}", *found[:SHOWN]])
        if duck:
            mine, other = map(statistics.median, times)
            ratios[name], sums = mine / other, [sums[0] + mine, sums[1] + other]
            words = f"{mine:.3f} s, DuckDB {other:.3f} s, {mine / other:.2f}: {words}"
        print(f"{name}: {len(rows)} rows, first {first:.3f} s, {words}", flush=True)
    print(f"{equal} of {len(args.queries or answers)} equal")
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
        slow = ", ".join(f"{name} {ratio:.1f}" for name, ratio in sorted(ratios.items(), key=lambda one: -one[1])[:10])
        print(f"sum {sums[0]:.2f} s, DuckDB {sums[1]:.2f} s: {sums[0] / sums[1]:.2f}; geometric mean {mean:.2f}; slowest {slow}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "load", "run"])
    parser.add_argument("--out", type=Path, required=True, help="folder of the Parquet files and answers.json")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--program", help="the hotshelf binary")
    parser.add_argument("--db", help="Hotshelf's database")
    parser.add_argument("--hotshelf", help="the shell with its database, budget and threads")
    parser.add_argument("--duckdb", help="DuckDB's own file, to measure beside")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="give up a query after this long")
    parser.add_argument("--queries", nargs="*", help="only these")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    {"make": make, "load": load, "run": run}[args.what](args)


if __name__ == "__main__":
    main()
