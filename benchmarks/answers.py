"""Runs a benchmark's queries in DuckDB over a folder of Parquet files and writes the answers as JSON.

    python answers.py ssb PARQUET_FOLDER --out answers.json
"""

import argparse
import json
import time
from pathlib import Path

import duckdb

from results import load_queries, to_result


def register_tables(connection, folder):
    """One view per table: `t.parquet` or the files of `t/`."""
    found = sorted(folder.glob("*.parquet")) + sorted(path for path in folder.iterdir() if path.is_dir())
    if not found:
        raise SystemExit(f"no Parquet files in {folder}")
    for path in found:
        files = str(path / "*.parquet") if path.is_dir() else str(path)
        files = files.replace("'", "''")
        connection.execute(f"CREATE VIEW \"{path.stem}\" AS SELECT * FROM read_parquet('{files}')")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["ssb", "tpch"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    connection = duckdb.connect()
    register_tables(connection, arguments.folder)
    answers = {}
    for name, sql in load_queries(arguments.benchmark).items():
        start = time.monotonic()
        cursor = connection.execute(sql)
        columns = [column[0] for column in cursor.description]
        answers[name] = to_result(columns, cursor.fetchall())
        print(f"{name}: {len(answers[name]['rows'])} rows, {time.monotonic() - start:.2f} s")
    document = {"benchmark": arguments.benchmark, "engine": f"duckdb {duckdb.__version__}", "queries": answers}
    temporary = arguments.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(document))
    temporary.rename(arguments.out)


if __name__ == "__main__":
    main()
