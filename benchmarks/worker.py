"""One engine in its own process: reads `{"name", "sql"}` lines, answers `{"name", "seconds", "rows", "read_bytes"}` lines.

    python worker.py duckdb-native|duckdb-parquet|polars-parquet PATH THREADS [MEMORY_BYTES]
"""

import json
import sys
import tempfile
import time
from pathlib import Path


def duckdb_connection(database, threads, memory_bytes, read_only):
    import duckdb

    config = {"threads": threads, "temp_directory": str(Path(tempfile.gettempdir()) / "hotshelf-rivals-spill")}
    if memory_bytes:
        config["memory_limit"] = f"{memory_bytes // 1024}KiB"
    return duckdb.connect(database, read_only=read_only, config=config)


def duckdb_native(path, threads, memory_bytes):
    connection = duckdb_connection(str(path), threads, memory_bytes, read_only=True)
    return lambda sql: len(connection.execute(sql).fetchall())


def duckdb_parquet(path, threads, memory_bytes):
    from answers import register_tables

    connection = duckdb_connection(":memory:", threads, memory_bytes, read_only=False)
    register_tables(connection, path)
    return lambda sql: len(connection.execute(sql).fetchall())


def polars_parquet(path, threads, _memory_bytes):
    import os

    os.environ["POLARS_MAX_THREADS"] = str(threads)
    import polars

    context = polars.SQLContext({file.stem: polars_table(file) for file in sorted(path.glob("*.parquet"))})
    return lambda sql: context.execute(sql).collect(engine="streaming").height


def polars_table(file):
    """The file's table with the summed columns widened: Polars sums 32-bit integers in 32 bits, which overflows."""
    import polars

    table = polars.scan_parquet(file)
    summed = [name for name in table.collect_schema().names() if name in ("lo_extendedprice", "lo_revenue")]
    return table.with_columns(polars.col(name).cast(polars.Int64) for name in summed)


ENGINES = {
    "duckdb-native": duckdb_native,
    "duckdb-parquet": duckdb_parquet,
    "polars-parquet": polars_parquet,
}


def read_bytes():
    """Bytes this process caused to be read from storage."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def main():
    name, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    memory_bytes = int(sys.argv[4]) if len(sys.argv) > 4 else None
    run = ENGINES[name](path, threads, memory_bytes)
    for line in sys.stdin:
        query = json.loads(line)
        bytes_before, start = read_bytes(), time.perf_counter()
        answer = {"name": query["name"]}
        try:
            answer["rows"] = run(query["sql"])
            answer["seconds"] = time.perf_counter() - start
            answer["read_bytes"] = read_bytes() - bytes_before
        except Exception as error:  # any engine's own errors; the pass continues
            answer["error"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
