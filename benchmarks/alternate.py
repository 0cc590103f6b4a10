"""Times every query of a benchmark under two values of one setting, alternating, in one shell.

    python alternate.py ssb hotshelf.star_pipelines off on --hotshelf 'hotshelf shell --db DIR --budget 6GB --threads 2 --policy all'
    python alternate.py ssb datafusion.execution.target_partitions 1 2 --hotshelf '…'

A machine whose processors are now faster and now slower gives both the same share of either. Figures are medians; the first run of each
query and value is not counted.
"""

import argparse
import statistics

from results import load_queries
from star import LARGEST, Shell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=sorted(LARGEST))
    parser.add_argument("setting")
    parser.add_argument("values", nargs=2)
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--queries", nargs="*")
    settings = parser.parse_args()
    queries = load_queries(settings.benchmark)
    shell = Shell(settings.hotshelf)
    sums = [0.0, 0.0]
    first, second = settings.values
    print(f"| query | {first} ms | {second} ms | {second} / {first} | {first} / {second} |\n|---|---|---|---|---|")
    for name in settings.queries or queries:
        seconds = ([], [])
        for _ in range(settings.repeats + 1):
            for side, value in zip(seconds, settings.values):
                shell.run(f"SET {settings.setting} = {value}")
                side.append(shell.run(queries[name]))
        medians = [statistics.median(side[1:]) * 1e3 for side in seconds]
        sums = [total + one for total, one in zip(sums, medians)]
        print_row(name, *medians)
    print_row("sum", *sums)
    shell.close()


def print_row(name, first, second):
    print(f"| {name} | {first:.1f} | {second:.1f} | {second / first:.2f} | {first / second:.2f} |", flush=True)


if __name__ == "__main__":
    main()
