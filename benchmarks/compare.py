"""Compares answers written by answers.py with another engine's CSV output, query by query.

    python compare.py answers.json --csv FOLDER                  # FOLDER/Q1.1.csv, ...
    python compare.py answers.json --run 'hotshelf sql --db DIR --format csv'

`--run` appends `-f QUERY.sql` to the command and reads its standard output. Exit code 1 if any query differs.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path

from results import QUERY_FOLDER, compare, load_queries, parse_csv

DIFFERENCES_SHOWN = 3


def output_of(command, benchmark, name):
    """Standard output of the command for one query, or None with the reason on standard error."""
    query = QUERY_FOLDER / benchmark / f"{name}.sql"
    run = subprocess.run([*shlex.split(command), "-f", str(query)], capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{name}: exit code {run.returncode}: {run.stderr.strip()[-500:]}", file=sys.stderr)
        return None
    return run.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--csv", type=Path, help="folder of <query>.csv files with a header line")
    source.add_argument("--run", help="command that prints CSV with a header line")
    parser.add_argument("--queries", nargs="*", help="only these")
    arguments = parser.parse_args()

    document = json.loads(arguments.answers.read_text())
    benchmark = document["benchmark"]
    texts = load_queries(benchmark)
    names = arguments.queries or list(document["queries"])
    different = 0
    for name in names:
        expected = document["queries"][name]
        if arguments.csv:
            file = arguments.csv / f"{name}.csv"
            output = file.read_text() if file.exists() else None
        else:
            output = output_of(arguments.run, benchmark, name)
        if output is None:
            found = ["no output"]
        else:
            found = compare(expected, *parse_csv(output), texts[name])
        if found:
            different += 1
            print(f"{name}: DIFFERENT ({len(found)} differences)")
            for line in found[:DIFFERENCES_SHOWN]:
                print(f"    {line}")
        else:
            print(f"{name}: equal, {len(expected['rows'])} rows")
    print(f"{len(names) - different} of {len(names)} equal to {document['engine']}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
