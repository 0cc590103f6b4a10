"""Times queries with a setting at two values, in turns: what it brings where it helps, and costs where it does not.

    python two_settings.py tpch --hotshelf 'hotshelf shell --db DIR --budget 9GB --threads 2 --policy all' \\
        --setting datafusion.optimizer.enable_dynamic_filter_pushdown
    python two_settings.py tpcds --texts FOLDER/answers.json --hotshelf '…' --setting hotshelf.star_pipelines --values on off

In each of `--turns` turns there is one run with each value that does not count, and then `--repeats` more; the least counts. All answers
must have the same rows.
Shown are queries whose times differ by more than 3 %, and the sums.
"""

import argparse

from results import load_texts
from shell import Shell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["ssb", "tpch", "tpcds"])
    parser.add_argument("--texts", help="JSON with query texts, as tpcds.py makes it")
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--setting", required=True)
    parser.add_argument("--values", nargs=2, default=["true", "false"], help="the second is what the first is compared with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="give up a query after this long")
    parser.add_argument("--only", nargs="*", help="names of queries")
    args = parser.parse_args()
    shell, times = Shell(args.hotshelf, args.seconds), {}
    for name, sql in load_texts(args.benchmark, args.texts).items():
        if args.only and name not in args.only:
            continue
        seconds, answers = {value: [] for value in args.values}, []
        for value in args.values * args.turns:
            # SET has no rows to wait for. The first run afterwards is planned anew.
            shell.ask(f"SET {args.setting} = {value}; SELECT 1")
            for repeat in range(args.repeats + 1):
                _, rows, took = shell.ask(sql)
                answers.append(sorted(map(str, rows)))
                if repeat:
                    seconds[value].append(took)
        times[name] = [min(seconds[value]) for value in args.values]
        first, second = times[name]
        note = "" if all(rows == answers[0] for rows in answers) else " other rows"
        if abs(first / second - 1) > 0.03 or note:
            print(f"{name} {first * 1e3:.1f} ms, {second * 1e3:.1f} ms, {first / second:.2f}{note}", flush=True)
    first, second = (sum(column) for column in zip(*times.values()))
    slower = [name for name, (a, b) in times.items() if a > b * 1.03]
    print(f"sum {first:.2f} s with {args.values[0]}, {second:.2f} s with {args.values[1]}: {first / second:.2f}; slower {slower}")


if __name__ == "__main__":
    main()
