#!/usr/bin/env python3
"""Appends with indexes on, queries over many small files, and what merging them brings.

    python3 benchmarks/elf_inserts.py --hotshelf target/release/hotshelf --lineitem FOLDER/lineitem.parquet
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

from elf_sql import RUNS, TPCH, WARM, seconds

INDEXES = {
    "none": [],
    "one": ["CREATE INDEX ship ON lineitem USING elf (l_shipdate, l_discount, l_quantity)"],
    "two": [
        "CREATE INDEX ship ON lineitem USING elf (l_shipdate, l_discount, l_quantity)",
        "CREATE INDEX mode ON lineitem USING elf (l_shipinstruct, l_shipmode, l_quantity, l_discount, l_receiptdate)",
    ],
    "clustered": ["CREATE INDEX ship ON lineitem USING elf (l_shipdate, l_discount, l_quantity) WITH (clustered = true)"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--lineitem", required=True, type=pathlib.Path)
    parser.add_argument("--segments", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budget", default="4GB")
    arguments = parser.parse_args()
    import duckdb

    folder = pathlib.Path(tempfile.mkdtemp(prefix="elf-inserts-", dir="/var/tmp"))
    connection = duckdb.connect()
    source = f"read_parquet('{arguments.lineitem}', file_row_number = true)"
    row_count = connection.execute(f"SELECT count(*) FROM {source}").fetchone()[0]
    parts = []
    for part in range(arguments.segments):
        path = folder / f"part-{part}.parquet"
        connection.execute(
            f"COPY (SELECT * EXCLUDE file_row_number FROM {source} WHERE file_row_number * {arguments.segments} // {row_count} "
            f"= {part}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
        )
        parts.append(path)

    def sql(db, *statements):
        command = [arguments.hotshelf, "sql", "--db", str(db), "--budget", arguments.budget, "--timing", "--format", "csv"]
        run = subprocess.run(command, input=";\n".join(statements) + ";\n", capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(run.stderr)
        return run.stdout, seconds(run.stderr)

    def queries(db):
        """Medians of warm runs, in ms, by query, with the indexes always asked."""
        names = ["Q6", "Q14", "narrow", "count"]
        runs = WARM + RUNS
        statements = ["SET hotshelf.elf = 'always'"] + [TPCH[name] for name in names for _ in range(runs)]
        _, took = sql(db, *statements)
        took = took[1:]
        medians = [statistics.median(took[i * runs + WARM : (i + 1) * runs]) * 1e3 for i in range(len(names))]
        return dict(zip(names, medians))

    print("| indexes | rows/s appended | against none | MB on disk |")
    print("|---|---|---|---|")
    rates = {}
    for name, statements in INDEXES.items():
        db = folder / f"db-{name}"
        took = []
        for repeat in range(arguments.repeats):
            subprocess.run(["rm", "-rf", str(db)], check=True)
            total = 0.0
            for number, part in enumerate(parts):
                start = time.monotonic()
                command = [arguments.hotshelf, "import", "--db", str(db), "lineitem", str(part), "--append"]
                subprocess.run(command + ["--budget", arguments.budget], check=True, stderr=subprocess.DEVNULL)
                # The first append makes the table; the indexes come then.
                total += time.monotonic() - start if number else 0.0
                if not number and statements:
                    sql(db, *statements)
            took.append(total)
        appended = row_count * (arguments.segments - 1) / arguments.segments
        rates[name] = appended / statistics.median(took)
        size = sum(path.stat().st_size for path in db.rglob("*") if path.is_file()) / 1e6
        print(f"| {name} | {rates[name] / 1e6:.2f} M | {rates[name] / rates['none']:.2f}x | {size:.0f} |", flush=True)
    print("\n| indexes | query | files | ms | merged into | ms | slow-down |\n|---|---|---|---|---|---|---|")
    for name in ("one", "clustered"):
        db = folder / f"db-{name}"
        many = queries(db)
        start = time.monotonic()
        sql(db, "OPTIMIZE TABLE lineitem")
        merged_s = time.monotonic() - start
        out, _ = sql(db, "SELECT files, indexed_files FROM hotshelf_indexes()")
        files = re.findall(r"\d+", out)[0]
        one = queries(db)
        for query in many:
            slow = many[query] / one[query]
            print(f"| {name} | {query} | {arguments.segments} | {many[query]:.2f} | {files} | {one[query]:.2f} | {slow:.2f}x |")
        print(f"| {name} | OPTIMIZE TABLE: {merged_s:.1f} s, {row_count / merged_s / 1e6:.2f} M rows/s | | | | | |", flush=True)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


if __name__ == "__main__":
    main()
