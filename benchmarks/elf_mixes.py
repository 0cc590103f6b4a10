#!/usr/bin/env python3
"""One budget for the blocks of an index and for columns: `auto` beside nine fixed splits of the same bytes.

    python3 benchmarks/elf_mixes.py --lab target/release/hotshelf-lab --db mydb --questions FOLDER --budget 128MB

FOLDER has the questions that `elf_points.py load` writes, and the database a table `li` with an Elf index `five`. A mix asks
small questions of the index and runs a scan after every so many of them, again and again. With a fixed split of k tenths, the
questions are asked in a process whose index has k tenths of the budget for its blocks, and the scans run in another one, whose
budget is the rest: neither can take from the other. `auto` does both in one process. Figures are medians over the rounds after
the first two, in seconds a round.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import elf_points

# Both read more than they compute.
TWO = "SELECT sum(l_suppkey), sum(l_partkey) FROM li"
FOUR = "SELECT sum(l_suppkey), sum(l_partkey), max(l_shipdate), max(l_quantity) FROM li"
# Questions, how many, the scan, and after how many questions it runs.
MIXES = {
    "boxes, few scans": ("boxes", 1000, TWO, 500),
    "boxes, many scans": ("boxes", 200, TWO, 50),
    "points, few scans": ("points", 10000, TWO, 5000),
    "points, many scans": ("points", 5000, FOUR, 500),
}


def run(args, name, budget, count, rounds, alter, scan=None, every=1):
    values = args.questions / f"{name}.ndjson"
    few = args.questions / f"{name}-{count}.ndjson"
    few.write_text("".join(line + "\n" for line in values.read_text().splitlines()[:count]))
    sql = elf_points.POINT if name == "points" else elf_points.BOX
    command = [str(args.lab), "points", "--db", str(args.db), "--budget", str(budget), "--values", str(few)]
    command += ["--rounds", str(rounds), "--before", f"ALTER INDEX {args.index} SET ({alter})"]
    command += ["--between", scan, "--every", str(every)] if scan else []
    done = subprocess.run(command + [sql], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def median(rows, key):
    return statistics.median(row[key] for row in rows[2:])


def read_mb(rows):
    """Millions of bytes that a round read from the device."""
    return statistics.median(row["device_bytes"] * row["statements"] for row in rows[2:]) / 1e6


def measure(args, mix):
    name, count, scan, every = MIXES[mix]
    budget = args.budget
    rows = run(args, name, budget, count, args.rounds, "cache = 'auto', cache_bytes = 'auto'", scan, every)
    auto = median(rows, "seconds"), median(rows, "between_s")
    print(f"{mix:20} auto       {sum(auto):8.3f} s ({auto[0]:.3f} questions, {auto[1]:.3f} scans), {read_mb(rows):7.1f} MB", flush=True)
    found, splits = {row["found"] for row in rows}, []
    for tenths in range(1, 10):
        blocks = budget * tenths // 10
        # Blocks have at most half of a budget; the head is beside them.
        asked = run(args, name, 2 * blocks + (64 << 20), count, args.rounds, f"cache = 'sieve', cache_bytes = '{blocks}'")
        scans = run(args, name, budget - blocks, count // every, args.rounds, "cache = 'none'", scan, 1)
        found |= {row["found"] for row in asked}
        split = median(asked, "seconds"), median(scans, "between_s")
        splits.append(sum(split))
        mb = read_mb(asked) + read_mb(scans)
        print(f"{mix:20} {tenths} tenths   {sum(split):8.3f} s ({split[0]:.3f} questions, {split[1]:.3f} scans), {mb:7.1f} MB", flush=True)
    if len(found) != 1:
        sys.exit(f"{mix}: answers differ: {found}")
    best, middle = min(splits), statistics.median(splits)
    print(f"{mix:20} auto over the best {sum(auto) / best:.3f}, the median over auto {middle / sum(auto):.2f}", flush=True)
    return {"mix": mix, "auto_s": auto, "splits_s": splits, "over_best": sum(auto) / best, "median_over": middle / sum(auto)}


def size(text):
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", type=pathlib.Path, required=True, help="the binary hotshelf-lab")
    parser.add_argument("--db", type=pathlib.Path, required=True, help="the database with the table li")
    parser.add_argument("--questions", type=pathlib.Path, required=True, help="folder with points.ndjson and boxes.ndjson")
    parser.add_argument("--index", default="five", help="name of the index")
    parser.add_argument("--budget", type=size, default=size("128MB"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(MIXES), choices=list(MIXES))
    parser.add_argument("--out", type=pathlib.Path, help="write the figures as JSON")
    args = parser.parse_args()
    rows = [measure(args, mix) for mix in args.only]
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
