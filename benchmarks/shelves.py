"""The 13 queries of the Star Schema Benchmark with the fact table in memory, and on a shelf: with a cache, without one, and
without one and with look-ups and groups on the shelf as well.

    python shelves.py --program hotshelf --db DIR --shelf emulated:optane100-128 --budget 800MB --repeats 7 --out result.json

Copies of the database are made beside it, one for each contender, and stay open; each repeat runs every query in all, in
an order that alternates. Before, every contender runs all queries `--warm` times, so that the tuner knows them. Answers
are compared first. Figures are medians; those of an emulated shelf are *emulated*.
"""

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
from pathlib import Path

from limits import default_threads
from results import load_queries
from star import Shell


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--db", type=Path, required=True, help="the database; it is copied")
    parser.add_argument("--shelf", default="emulated:optane100-128")
    parser.add_argument("--table", default="lineorder")
    parser.add_argument("--budget", default="800MB", help="of the contenders on the shelf")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--queries", nargs="*")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def copied(settings, name):
    folder = settings.db.with_name(f"{settings.db.name}.{name}")
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(settings.db, folder)
    return folder


def contenders(settings):
    """Names, commands, and statements that put the table and look-ups on the shelf."""
    base = f"{settings.program} shell --threads {settings.threads}"
    moved = f"ALTER TABLE {settings.table} SET (shelf = '{settings.shelf}')"
    look_ups = f"SET hotshelf.look_up_shelf = '{settings.shelf}'"
    return {
        "DRAM": (f"{base} --budget 12GB --policy all", []),
        "cached": (f"{base} --budget {settings.budget}", [moved]),
        "uncached": (f"{base} --budget {settings.budget} --policy none", [moved]),
        "all-there": (f"{base} --budget {settings.budget} --policy none", [moved, look_ups]),
    }


def answers(command, folder, queries):
    words = shlex.split(command)
    words[words.index("shell")] = "sql"
    text = "; ".join(" ".join(sql.rstrip().rstrip(";").split()) for sql in queries.values())
    run = subprocess.run([*words, "--db", folder, "--format", "csv", "-c", text], capture_output=True, text=True, check=True)
    return run.stdout


def print_table(times):
    others = [name for name in times if name != "DRAM"]
    medians = {name: {query: statistics.median(all_s) for query, all_s in of.items()} for name, of in times.items()}
    titles = [f"{name} s" for name in times] + [f"{name} / DRAM" for name in others]
    print(f"| query | {' | '.join(titles)} |")
    print("|---" * (len(titles) + 1) + "|")

    def line(title, seconds):
        cells = [f"{seconds[name]:.4f}" for name in times] + [f"{seconds[name] / seconds['DRAM']:.2f}" for name in others]
        print(f"| {title} | {' | '.join(cells)} |")

    for query in medians["DRAM"]:
        line(query, {name: medians[name][query] for name in times})
    line("sum", {name: sum(medians[name].values()) for name in times})
    ratios = {name: [medians[name][query] / medians["DRAM"][query] for query in medians["DRAM"]] for name in others}
    print("mean of ratios: " + ", ".join(f"{name} {statistics.mean(of):.2f}" for name, of in ratios.items()))


def main():
    settings = parse_arguments()
    queries = load_queries("ssb")
    if settings.queries:
        queries = {name: queries[name] for name in settings.queries}
    shells, folders, found = {}, {}, {}
    for name, (command, statements) in contenders(settings).items():
        folders[name] = copied(settings, name)
        found[name] = answers(command, folders[name], queries)
        shells[name] = Shell(f"{command} --db {folders[name]}")
        for statement in statements:
            print(f"{name}: {statement}: {shells[name].run(statement):.1f} s", flush=True)
        for _ in range(settings.warm):
            for sql in queries.values():
                shells[name].run(sql)
    equal = [name for name in found if found[name] == found["DRAM"]]
    print(f"answers equal: {', '.join(equal)}")
    times = {name: {query: [] for query in queries} for name in shells}
    for repeat in range(settings.repeats):
        for idx, (query, sql) in enumerate(queries.items()):
            order = list(shells)
            turn = (repeat + idx) % len(order)
            for name in order[turn:] + order[:turn]:
                times[name][query].append(shells[name].run(sql))
    for shell in shells.values():
        shell.close()
    # What was read on the shelf by then is copied again: the answers are the shelf's.
    for name, (command, statements) in contenders(settings).items():
        if statements:
            assert answers(command, folders[name], queries) == found["DRAM"], name
    print_table(times)
    if settings.out:
        settings.out.write_text(json.dumps({"shelf": settings.shelf, "times": times}, indent=1))
    for folder in folders.values():
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
