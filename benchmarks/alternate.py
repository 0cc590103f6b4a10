"""Times every query of a benchmark under two values of one setting, alternating, in one shell.

    python alternate.py ssb hotshelf.star_pipelines off on --hotshelf 'hotshelf shell --db DIR --budget 6GB --threads 2 --policy all'
    python alternate.py ssb datafusion.execution.target_partitions 1 2 --hotshelf '…'
    python alternate.py tpcds hotshelf.operators off on --texts FOLDER/answers.json --runs 3 --hotshelf '…'

A machine whose processors are now faster and now slower gives both the same share of either. Figures are medians; the first run of each
query and value is not counted. A setting makes plans anew: with `--runs` the query is asked so often after it is set, and the least of all but
the first counts. With `--duckdb FILE`, DuckDB takes its turns with one thread and two in the same minutes.
"""

import argparse
import statistics

from results import load_texts
from star import LARGEST, Duck, Shell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=[*sorted(LARGEST), "tpcds"])
    parser.add_argument("setting")
    parser.add_argument("values", nargs=2)
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--duckdb", help="DuckDB's file of the same data: one thread and two, beside")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--queries", nargs="*")
    parser.add_argument("--runs", type=int, default=1, help="runs with a value each time that it is set")
    parser.add_argument("--texts", help="JSON with query texts, as tpcds.py makes it")
    settings = parser.parse_args()
    queries, runs = load_texts(settings.benchmark, settings.texts), settings.runs
    shell = Shell(settings.hotshelf)
    sides = [lambda sql, value=value: timed(shell, f"SET {settings.setting} = {value}", sql, runs) for value in settings.values]
    names = [*settings.values]
    if settings.duckdb:
        duck = Duck(settings.duckdb, 2)
        sides += [lambda sql, threads=threads: timed(duck, f"SET threads = {threads}", sql, runs) for threads in (1, 2)]
        names += ["DuckDB 1", "DuckDB 2"]
    sums = [0.0] * len(sides)
    cells = [cell for first, second in pairs(names) for cell in (f"{first} ms", f"{second} ms", f"{first} / {second}")]
    print(f"| query | {' | '.join(cells)} |\n|{'---|' * (1 + len(cells))}")
    for name in settings.queries or queries:
        seconds = [[] for _ in sides]
        for _ in range(settings.repeats + 1):
            for measured, side in zip(seconds, sides):
                measured.append(side(queries[name]))
        medians = [statistics.median(side[1:]) * 1e3 for side in seconds]
        sums = [total + one for total, one in zip(sums, medians)]
        print_row(name, medians)
    print_row("sum", sums)
    shell.close()


def timed(engine, setting, sql, runs):
    engine.run(setting)
    seconds = [engine.run(sql) for _ in range(runs)]
    return min(seconds[1:] or seconds)


def pairs(listed):
    return zip(listed[::2], listed[1::2])


def print_row(name, medians):
    cells = [f"{first:.1f} | {second:.1f} | {first / second:.2f}" for first, second in pairs(medians)]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
