#!/usr/bin/env python3
"""Selections with and without an Elf index, against DuckDB.

    python3 benchmarks/elf_sql.py --hotshelf target/release/hotshelf --parquet FOLDER --kind tpch --repeats 5

Loads what it needs into a fresh database (and DuckDB file), makes the indexes, and runs every query warm, alternating
between the ways: `elf` (the planner chooses), `off`, and DuckDB on a table in load order and on one sorted like the clustered
index. Prints medians, what the planner chose, and whether the answers are equal.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

TPCH = {
    "Q6": "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND "
    "l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    "Q12": "SELECT l_shipmode, count(*) FROM lineitem WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate "
    "AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01' "
    "GROUP BY l_shipmode ORDER BY l_shipmode",
    "Q14": "SELECT sum(l_extendedprice * (1 - l_discount)), count(*) FROM lineitem WHERE l_shipdate >= DATE '1995-09-01' "
    "AND l_shipdate < DATE '1995-10-01'",
    "Q19": "SELECT sum(l_extendedprice * (1 - l_discount)) FROM lineitem WHERE l_shipinstruct = 'DELIVER IN PERSON' AND "
    "l_shipmode IN ('AIR', 'REG AIR') AND l_quantity BETWEEN 4 AND 6 AND l_discount = 0.05",
    "narrow": "SELECT sum(l_extendedprice), count(*) FROM lineitem WHERE l_shipdate = DATE '1994-03-03' AND l_discount = 0.05 "
    "AND l_quantity = 24",
    "count": "SELECT count(*) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND "
    "l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
}
SSB = {
    "Q1.1": "SELECT sum(lo_extendedprice * lo_discount) FROM lineorder, date WHERE lo_orderdate = d_datekey AND d_year = 1993 "
    "AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
    "Q1.2": "SELECT sum(lo_extendedprice * lo_discount) FROM lineorder, date WHERE lo_orderdate = d_datekey AND "
    "d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
    "Q1.3": "SELECT sum(lo_extendedprice * lo_discount) FROM lineorder, date WHERE lo_orderdate = d_datekey AND "
    "d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35",
}
KINDS = {
    "tpch": {
        "queries": TPCH,
        "table": "lineitem",
        "tables": ["lineitem"],
        "indexes": [
            ("ship", "l_shipdate, l_discount, l_quantity", True),
            ("mode", "l_shipinstruct, l_shipmode, l_quantity, l_discount, l_receiptdate", False),
        ],
    },
    "ssb": {
        "queries": SSB,
        "table": "lineorder",
        "tables": ["lineorder", "date"],
        "indexes": [("sale", "lo_orderdate, lo_discount, lo_quantity", True)],
    },
}


# Runs before those that count, and those.
WARM, RUNS = 20, 5


class Shell:
    """A `hotshelf sql` process that answers one statement after the other."""

    def __init__(self, hotshelf, db, budget, settings=()):
        self.command = [hotshelf, "sql", "--db", str(db), "--budget", budget, "--timing", "--format", "csv"]
        self.settings = list(settings)

    def run(self, statements):
        text = ";\n".join(self.settings + statements) + ";\n"
        run = subprocess.run(self.command, input=text, capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(run.stderr)
        return run.stdout, run.stderr


def seconds(stderr):
    """The times that `--timing` reports, in order."""
    found = re.findall(r"([\d.]+)\s*(ms|s|us|µs)\b", stderr)
    scale = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
    return [float(number) * scale[unit] for number, unit in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--parquet", required=True, type=pathlib.Path)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/elf-sql"))
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    import duckdb

    kind = KINDS[arguments.kind]
    table, queries = kind["table"], kind["queries"]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    ways = {}
    for name, clustered in (("plain", False), ("clustered", True)):
        db = arguments.folder / f"{arguments.kind}-{name}"
        if not db.exists():
            for one in kind["tables"]:
                load = [arguments.hotshelf, "import", "--db", str(db), one, str(arguments.parquet / f"{one}.parquet")]
                subprocess.run(load + ["--budget", arguments.budget], check=True, stderr=subprocess.DEVNULL)
            shell = Shell(arguments.hotshelf, db, arguments.budget)
            for index, columns, may_cluster in kind["indexes"]:
                option = " WITH (clustered = true)" if clustered and may_cluster else ""
                start = time.monotonic()
                shell.run([f"CREATE INDEX {index} ON {table} USING elf ({columns}){option}"])
                print(f"{name}: index {index} ({columns}) in {time.monotonic() - start:.1f} s", flush=True)
            sizes, _ = shell.run(["SELECT index_name, rows, bytes FROM hotshelf_indexes()"])
            print(f"{name}: {' '.join(sizes.split())}", flush=True)
        for setting in ("on", "off"):
            ways[f"hotshelf {name}, elf {setting}"] = Shell(
                arguments.hotshelf, db, arguments.budget, [f"SET hotshelf.elf = '{setting}'"]
            )
    duck = arguments.folder / f"{arguments.kind}.duckdb"
    fresh = not duck.exists()
    connection = duckdb.connect(str(duck), config={"threads": arguments.threads})
    if fresh:
        columns = kind["indexes"][0][1]
        for one in kind["tables"]:
            connection.execute(f"CREATE TABLE {one} AS SELECT * FROM '{arguments.parquet / one}.parquet'")
        connection.execute(f"CREATE TABLE sorted AS SELECT * FROM {table} ORDER BY {columns}")
        connection.execute("CHECKPOINT")

    times = {query: {} for query in queries}
    answers = {query: {} for query in queries}
    chosen = {}
    for repeat in range(arguments.repeats):
        for way, shell in ways.items():
            # The first runs bring the bytes, and the Elfs where they pay, into memory.
            statements = [sql for sql in queries.values() for _ in range(WARM + RUNS)]
            out, err = shell.run(statements)
            took = seconds(err)[-len(statements):]
            for number, query in enumerate(queries):
                end = (number + 1) * (WARM + RUNS)
                times[query].setdefault(way, []).append(statistics.median(took[end - RUNS : end]))
        for way, source in (("DuckDB", table), ("DuckDB, sorted", "sorted")):
            for query, sql in queries.items():
                sql = re.sub(rf"\b{table}\b", source, sql)
                took = []
                for _ in range(2 + RUNS):
                    start = time.perf_counter()
                    answers[query][way] = connection.execute(sql).fetchall()
                    took.append(time.perf_counter() - start)
                times[query].setdefault(way, []).append(statistics.median(took[2:]))
    for query, sql in queries.items():
        for way, shell in ways.items():
            out, _ = shell.run([sql])
            # The first line names the columns.
            answers[query][way] = [tuple(line.split(",")) for line in out.strip().splitlines()[1:]]
            if way.endswith("elf on"):
                plan, _ = shell.run(
                    [sql] * WARM + ["SET datafusion.explain.format = 'indent'", f"EXPLAIN ANALYZE {sql}"]
                )
                access = re.search(r"access=(elf|scan)[^)]*\)(, found [^,]*)?", plan)
                chosen[query, way] = access[0] if access else "no index"
    names = list(ways) + ["DuckDB", "DuckDB, sorted"]
    print("| query | " + " | ".join(f"{name}, ms" for name in names) + " | equal |")
    print("|---" * (len(names) + 2) + "|")
    for query in queries:
        norm = {
            way: sorted(tuple(f"{float(x):.3f}" if re.fullmatch(r"-?[\d.]+", str(x)) else str(x) for x in row) for row in rows)
            for way, rows in answers[query].items()
        }
        equal = all(rows == norm["DuckDB"] for rows in norm.values())
        cells = [f"{statistics.median(times[query][name]) * 1e3:.1f}" for name in names]
        print(f"| {query} | " + " | ".join(cells) + f" | {'yes' if equal else 'NO'} |")
        if not equal:
            print(norm)
    for (query, way), access in chosen.items():
        print(f"{query}, {way}: {access}")


if __name__ == "__main__":
    sys.exit(main())
