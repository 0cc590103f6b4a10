"""Times planning: how long EXPLAIN of each query takes, and what share of the query that is.

    python planning.py tpch --hotshelf 'hotshelf shell --db DIR --budget 9GB --threads 2 --policy all' --duckdb FILE
    python planning.py tpcds --texts FOLDER/answers.json --hotshelf '…' --duckdb FILE

Seconds are the least of `--repeats`, after one run that is not counted, with what the shell takes to send the text and print
the plan; runs plan, too (plans are not kept). DuckDB's EXPLAIN is timed beside it where a file is given.
"""

import argparse
import statistics
import time

from results import load_texts
from shell import Shell


def least(run, repeats):
    run()
    return min(run() for _ in range(repeats))


def duckdb_seconds(connection, sql):
    begun = time.perf_counter()
    connection.execute(sql).fetchall()
    return time.perf_counter() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=["tpch", "ssb", "tpcds"])
    parser.add_argument("--texts", help="answers.json of tpcds.py")
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--duckdb", help="a DuckDB database with the same tables")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="these queries")
    arguments = parser.parse_args()

    connection = None
    if arguments.duckdb:
        import duckdb

        connection = duckdb.connect(arguments.duckdb, read_only=True, config={"threads": 2})
    shell = Shell(arguments.hotshelf)
    # A run plans, too: SET has no rows to wait for.
    shell.ask("SET hotshelf.keep_plans = off; SELECT 1")
    plans, runs, theirs = [], [], []
    for name, sql in load_texts(arguments.suite, arguments.texts).items():
        if arguments.only and name not in arguments.only:
            continue
        plan = least(lambda: shell.ask("EXPLAIN " + sql)[2], arguments.repeats)
        run = least(lambda: shell.ask(sql)[2], arguments.repeats)
        plans.append(plan)
        runs.append(run)
        line = f"{name}: planned in {plan * 1e3:.1f} ms, ran in {run * 1e3:.1f} ms, share {plan / run:.2f}"
        if connection:
            theirs.append(least(lambda: duckdb_seconds(connection, "EXPLAIN " + sql), arguments.repeats))
            line += f", DuckDB planned in {theirs[-1] * 1e3:.1f} ms"
        print(line, flush=True)
    shares = [plan / run for plan, run in zip(plans, runs)]
    summary = f"planning: sum {sum(plans):.3f} s of {sum(runs):.3f} s, median share {statistics.median(shares):.2f}"
    summary += f", longest {max(plans) * 1e3:.1f} ms"
    if theirs:
        summary += f"; DuckDB: sum {sum(theirs):.3f} s, longest {max(theirs) * 1e3:.1f} ms"
    print(summary)


if __name__ == "__main__":
    main()
