"""Times small queries: round trips to the shell, with plans kept and not, beside DuckDB in this process. "Other values"
are those of queries with another number at each repeat.

    python small_queries.py --hotshelf 'hotshelf shell --threads 2'

A table of a million rows is made in a temporary database. Each query is asked `--repeats` times in a row; seconds are medians.
The round trip to the shell is part of Hotshelf's; `SELECT 1` shows what it takes at most. "Planning" is the processor time of the
threads that parse and plan, of the same query again and of other values (Linux counts it in /proc).
"""

import argparse
import statistics
import time
from pathlib import Path

from shell import Shell

ROWS = "SELECT value AS k, value % 1000 AS g, value * 7 AS v FROM range(1000000)"
QUERIES = {
    "one": "SELECT 1",
    "point": "SELECT v FROM t WHERE k = {k}",
    "indexed point": "SELECT k, g FROM i WHERE k = {k}",
    "range": "SELECT sum(v) FROM t WHERE k BETWEEN {k} AND {k_to}",
    "join": "SELECT sum(t.v) FROM t JOIN d ON t.g = d.g WHERE d.g = 17 AND t.k < {k}",
}
FIRST = 20000


def text(query, repeat=0):
    """The query, with another value of `k` for each repeat."""
    k = FIRST + 37 * repeat
    return query.format(k=k, k_to=k + 100)


def median(run, repeats):
    seconds = []
    for repeat in range(repeats):
        begun = time.perf_counter()
        run(repeat)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def planning_seconds(process):
    """Processor time of the threads that parse and plan, so far."""
    seconds = 0.0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        try:
            if (thread / "comm").read_text().startswith("hotshelf-plan"):
                seconds += int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue  # it has ended
    return seconds


def planning(process, run, repeats):
    """Median seconds of a run, and what each took to be planned."""
    before = planning_seconds(process)
    seconds = median(run, repeats)
    return seconds, (planning_seconds(process) - before) / repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--repeats", type=int, default=500)
    arguments = parser.parse_args()

    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    connection.execute("CREATE TABLE t AS SELECT range AS k, range % 1000 AS g, range * 7 AS v FROM range(1000000)")
    connection.execute("CREATE TABLE d AS SELECT range AS g FROM range(1000)")
    shell = Shell(arguments.hotshelf)
    shell.ask(f"CREATE TABLE t AS {ROWS}; SELECT 1")
    shell.ask("CREATE TABLE d AS SELECT value AS g FROM range(1000); SELECT 1")
    connection.execute("CREATE TABLE i AS SELECT * FROM t")
    shell.ask("CREATE TABLE i AS SELECT * FROM t; CREATE INDEX by_k ON i USING elf (k, g); SELECT 1")
    print("| query | plan made ms | plan kept ms | other values ms | DuckDB ms | planning ms | of other values |\n|---|---|---|---|---|---|---|")
    for name, query in QUERIES.items():
        shell.ask("SET hotshelf.keep_plans = off; SELECT 1")
        made = median(lambda _: shell.ask(text(query)), arguments.repeats)
        shell.ask("SET hotshelf.keep_plans = on; SELECT 1")
        shell.ask(text(query))
        kept, planned = planning(shell.process, lambda _: shell.ask(text(query)), arguments.repeats)
        shell.ask(text(query, arguments.repeats + 1))
        others, filled = planning(shell.process, lambda repeat: shell.ask(text(query, repeat + 1)), arguments.repeats)
        theirs = median(lambda repeat: connection.execute(text(query, repeat)).fetchall(), arguments.repeats)
        columns = " | ".join(f"{seconds * 1e3:.2f}" for seconds in (made, kept, others, theirs, planned, filled))
        print(f"| {name} | {columns} |", flush=True)


if __name__ == "__main__":
    main()
