"""Times queries whose estimates are wrong on purpose: plans should stay good enough.

    python wrong_estimates.py tpch --hotshelf 'hotshelf shell --db DIR --budget 9GB --threads 2 --policy all' --seeds 5
    python wrong_estimates.py tpcds --texts FOLDER/answers.json --hotshelf '…' --seeds 5

Each expected number of rows is multiplied by something between 1/factor and factor, their logarithms evenly distributed
(`SET hotshelf.estimate_error`). A query is asked with right estimates and with the wrong ones of each seed, in turns; the least of
`--repeats` runs counts, after one that does not. Every answer must have the rows of the first, as a set. Goals at a factor of 100:
the sum over all queries at most 2 times, no query above 10 times.
"""

import argparse
import json

from results import load_texts
from shell import Shell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["ssb", "tpch", "tpcds"])
    parser.add_argument("--texts", help="JSON with query texts, as tpcds.py makes it")
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--factor", type=float, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="give up a query after this long")
    parser.add_argument("--only", nargs="*", help="names of queries")
    parser.add_argument("--out", help="where the figures go as JSON")
    args = parser.parse_args()
    shell, rows = Shell(args.hotshelf, args.seconds), {}
    kinds = ["1", *(f"{args.factor:g} seed {seed}" for seed in range(1, args.seeds + 1))]
    print("| query | right ms | wrong ms, each seed | worst / right |\n|---|---|---|---|")
    for name, sql in load_texts(args.benchmark, args.texts).items():
        if args.only and name not in args.only:
            continue
        times, answer, notes = {kind: [] for kind in kinds}, None, []
        for repeat in range(args.repeats + 1):
            for kind in kinds:
                # SET has no rows to wait for.
                shell.ask(f"SET hotshelf.estimate_error = '{kind}'; SELECT 1")
                try:
                    _, found, seconds = shell.ask(sql)
                except (ValueError, TimeoutError, ChildProcessError) as error:
                    notes.append(f"{kind}: {error}"[:100])
                    seconds, found = args.seconds, answer
                answer = sorted(map(str, found or [])) if answer is None else answer
                if found is not answer and sorted(map(str, found)) != answer:
                    notes.append(f"{kind}: other rows")
                if repeat or seconds >= args.seconds:
                    times[kind].append(seconds)
        right, *wrong = [min(times[kind]) for kind in kinds]
        rows[name] = {"right_s": right, "wrong_s": wrong, "notes": notes}
        each = ", ".join(f"{seconds * 1e3:.0f}" for seconds in wrong)
        print(f"| {name} | {right * 1e3:.0f} | {each} | {max(wrong) / right:.2f} | {'; '.join(sorted(set(notes)))}", flush=True)
    right = sum(row["right_s"] for row in rows.values())
    sums = [sum(seconds) for seconds in zip(*(row["wrong_s"] for row in rows.values()))]
    worst = sorted(((max(row["wrong_s"]) / row["right_s"], name) for name, row in rows.items()), reverse=True)
    ratios = ", ".join(f"{wrong / right:.2f}" for wrong in sums)
    print(f"sum {right:.2f} s; wrong over right by seed {ratios}; worst {', '.join(f'{name} {ratio:.1f}' for ratio, name in worst[:5])}")
    if args.out:
        with open(args.out, "w") as out:
            json.dump(rows, out)


if __name__ == "__main__":
    main()
