"""TPC-DS: data, queries and answers by DuckDB's own generator, and Hotshelf beside them.

    python tpcds.py make --scale 1 --out FOLDER     # needs the packages duckdb 1.5.5 and duckdb-extension-tpcds 1.5.5
    python tpcds.py load --out FOLDER --program target/release/hotshelf --db tpcds1
    python tpcds.py run --out FOLDER --hotshelf 'hotshelf shell --db tpcds1 --budget 4GB --threads 2' --repeats 3

`make` writes a Parquet file per table, and `answers.json` with the texts of the 99 queries and DuckDB's rows. `run` asks each
query in a shell that stays open, and in DuckDB over its own file if `--duckdb` names one, in turns; a first run of each
counts for the answers only. Rows are compared as sets: query texts leave ties open. Numbers may differ in the last digits,
since averages and quotients of decimals have other scales there.
"""

import argparse
import csv
import io
import json
import math
import os
import re
import select
import shlex
import statistics
import subprocess
import time
from pathlib import Path

SHOWN = 2
TOLERANCE = 1e-6


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
        rows = con.execute(sql).fetchall()
        answers[f"Q{number:02}"] = {"sql": sql, "rows": [[None if v is None else str(v) for v in row] for row in rows]}
    (args.out / "answers.json").write_text(json.dumps(answers))


def load(args):
    for file in sorted(args.out.glob("*.parquet")):
        subprocess.run([args.program, "import", "--db", args.db, file.stem, file], check=True)


class Shell:
    """A shell that gives back the rows of a statement and the seconds it took, and begins anew when it has to be stopped."""

    def __init__(self, command, seconds):
        self.command, self.seconds, self.process = command, seconds, None

    def start(self):
        environment = {**os.environ, "HOTSHELF_HISTORY": os.devnull}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(shlex.split(self.command), env=environment, **pipes)
        self.process.stdin.write(b"\\format csv\n")

    def ask(self, sql):
        if not self.process or self.process.poll() is not None:
            self.start()
        text = " ".join(re.sub(r"--[^\n]*", "", sql).split()).rstrip("; ")
        begun = time.perf_counter()
        self.process.stdin.write(text.encode() + b";\n")
        self.process.stdin.flush()
        said = b""
        while not (end := re.search(rb"(?:^|\n)(?:error[^\n]*\n|[0-9,]+ rows?[^\n]*, [0-9.]+ s\n)$", said)):
            left = begun + self.seconds - time.perf_counter()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.process.kill()
                raise TimeoutError(f"no answer in {self.seconds} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise ChildProcessError(f"the shell ended: {said[-300:].decode()}")
            said += more
        seconds = time.perf_counter() - begun
        if end.group().lstrip().startswith(b"error"):
            raise ValueError(end.group().decode().strip()[:300])
        lines = list(csv.reader(io.StringIO(said[: end.start() + 1].decode())))
        return [[field if field != "" else None for field in line] for line in lines[1:]], seconds


class Duck:
    def __init__(self, path):
        import duckdb

        self.con = duckdb.connect(path, read_only=True, config={"threads": 2})

    def ask(self, sql):
        begun = time.perf_counter()
        rows = self.con.execute(sql).fetchall()
        return rows, time.perf_counter() - begun


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def same(ours, theirs):
    if ours == theirs or (ours, theirs) in {("true", "True"), ("false", "False")}:
        return True
    one, two = number(ours), number(theirs)
    # Fewer digits than the other engine prints: half of the last one's unit.
    return one is not None and two is not None and math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=6e-5)


def order(row):
    return [(value is not None, number(value) is None, round(number(value), 2) if number(value) is not None else str(value)) for value in row]


def differences(ours, theirs):
    """What differs, as lines of text: none if equal."""
    theirs = [[None if value in (None, "") else value for value in row] for row in theirs]
    if len(ours) != len(theirs):
        return [f"{len(ours)} rows, {len(theirs)} expected"]
    for pairs in [zip(ours, theirs), zip(sorted(ours, key=order), sorted(theirs, key=order))]:
        found = [f"{one} for {two}" for one, two in pairs if len(one) != len(two) or not all(map(same, one, two))]
        if not found:
            return []
    return found


def run(args):
    answers = json.loads((args.out / "answers.json").read_text())
    shell, duck = Shell(args.hotshelf, args.seconds), Duck(args.duckdb) if args.duckdb else None
    equal, ratios, sums = 0, {}, [0.0, 0.0]
    for name in args.queries or answers:
        sql, times = answers[name]["sql"], ([], [])
        try:
            rows, first = shell.ask(sql)
            found = differences(rows, answers[name]["rows"])
            for _ in range(args.repeats if duck else 0):
                times[0].append(shell.ask(sql)[1])
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
