"""Statements over more rows than memory has room for, each in a process of its own: does it end, how long does it take,
and how much memory does the process hold beyond its budget?

    python memory.py --program hotshelf --db DIR --parquet DIR --budgets 64MB 256MB 1GB --out result.json
    python memory.py … --duckdb FILE --statements "row_number over lineitem"

The database has the tables of TPC-H, the folder their Parquet files. Rows of answers are counted or go to a file that is
removed. `--duckdb` names DuckDB's own file of the same tables: each statement that changes nothing is its turn, too, with
the budget as its memory_limit and a folder to spill to. Exit code 1 if a statement of Hotshelf fails, or a number differs.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from budgets import run

# What each statement is called, and the statement. {out} is a file, {parquet} the folder with files.
STATEMENTS = {
    "sort orders by two columns": "COPY (SELECT o_custkey, o_orderkey FROM orders ORDER BY o_custkey, o_orderkey) TO '{out}.csv'",
    "table of sorted orders": "CREATE TABLE memory_sorted AS SELECT * FROM orders ORDER BY o_custkey, o_orderkey; DROP TABLE memory_sorted",
    "table clustered by date": "CREATE TABLE memory_clustered CLUSTER BY elf (o_orderdate, o_custkey) AS SELECT * FROM orders; DROP TABLE memory_clustered",
    "table clustered by comment": "CREATE TABLE memory_clustered CLUSTER BY elf (o_comment) AS SELECT * FROM '{parquet}/orders.parquet'; DROP TABLE memory_clustered",
    "sort lineitem by comment": "COPY (SELECT l_orderkey, l_comment FROM lineitem ORDER BY l_comment) TO '{out}.csv'",
    "sort lineitem by two numbers": "COPY (SELECT l_extendedprice, l_orderkey FROM lineitem ORDER BY l_extendedprice, l_orderkey) TO '{out}.parquet'",
    "row_number over orders": "SELECT max(r), sum(r % 7) FROM (SELECT row_number() OVER (ORDER BY o_totalprice, o_orderkey) AS r FROM orders)",
    "row_number over lineitem": "SELECT max(r), sum(r % 7) FROM (SELECT row_number() OVER (ORDER BY l_extendedprice, l_orderkey, l_linenumber) AS r FROM lineitem)",
    "lineitem join orders": "SELECT count(*), sum(o_totalprice), max(length(l_comment) + length(o_comment)) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    "orders join orders by comment": "SELECT count(*), sum(a.o_orderkey % 7) FROM orders a JOIN orders b ON a.o_comment = b.o_comment AND a.o_orderkey < b.o_orderkey",
    "three distinct counts": "SELECT count(DISTINCT l_orderkey), count(DISTINCT l_comment), count(DISTINCT l_extendedprice) FROM lineitem",
    "median": "SELECT median(l_extendedprice), median(l_orderkey) FROM lineitem",
    "groups by 15 M integers": "SELECT count(*), sum(n), max(n) FROM (SELECT l_orderkey, count(*) AS n FROM lineitem GROUP BY l_orderkey)",
    "groups by comments": "SELECT count(*), sum(n), max(n) FROM (SELECT l_comment, count(*) AS n FROM lineitem GROUP BY l_comment)",
    "union of keys": "SELECT count(*) FROM (SELECT l_orderkey AS k FROM lineitem UNION SELECT o_custkey FROM orders)",
    "lag by part": "SELECT count(d), sum(d) FROM (SELECT l_orderkey - lag(l_orderkey) OVER (PARTITION BY l_partkey ORDER BY l_orderkey, l_linenumber) AS d FROM lineitem WHERE l_linenumber < 3)",
    "sum over all, beside each row": "SELECT count(*), max(s), sum(length(l_comment)) FROM (SELECT l_comment, sum(l_quantity) OVER () AS s FROM lineitem)",
    "sum over suppliers, beside each row": "SELECT count(*), sum(s) FROM (SELECT l_suppkey, sum(l_quantity) OVER (PARTITION BY l_suppkey) AS s FROM lineitem)",
    "6 M whole rows to CSV": "COPY (SELECT * FROM lineitem LIMIT 6000000) TO '{out}.csv'",
    "import lineitem": "CREATE TABLE memory_lineitem AS SELECT * FROM '{parquet}/lineitem.parquet'; DROP TABLE memory_lineitem",
    "import 105 columns": "CREATE TABLE memory_wide AS SELECT {wide} FROM '{parquet}/orders.parquet' LIMIT 2000000; DROP TABLE memory_wide",
    "import 2 000 columns": "CREATE TABLE memory_wider AS SELECT {wider} FROM '{parquet}/customer.parquet' LIMIT 30000; DROP TABLE memory_wider",
    "all of lineitem sorted": "COPY (SELECT * FROM lineitem ORDER BY l_extendedprice, l_orderkey, l_linenumber) TO '{out}.parquet'",
    "500 M rows in 100 M groups": "SELECT count(*), sum(n), max(w) FROM (SELECT k, count(*) AS n, sum(v) AS w FROM (SELECT {spread} AS k, value % 1000 AS v FROM range(500000000) AS r(value)) x GROUP BY k) y",
    "60 M rows join 60 M": "SELECT count(*), sum(a.v + b.v) FROM (SELECT {spread} AS k, value % 1000 AS v FROM range(60000000) AS r(value)) a JOIN (SELECT {spread} AS k, value % 1000 AS v FROM range(60000000) AS r(value)) b ON a.k = b.k",
    "join that keeps an order": "SELECT count(*), sum(n), sum(length(o_comment)) FROM (SELECT w.l_orderkey, w.n, o.o_comment FROM orders o JOIN (SELECT l_orderkey, row_number() OVER (PARTITION BY l_orderkey ORDER BY l_linenumber) AS n FROM lineitem) w ON o.o_orderkey = w.l_orderkey) x",
    "distinct counts of few groups": "SELECT l_returnflag, count(DISTINCT l_orderkey), count(DISTINCT l_comment) FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag",
    "distinct counts above a join": "SELECT count(DISTINCT l_comment), count(DISTINCT o_comment) FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
    "sum up to equal keys": "SELECT count(*), sum(s) FROM (SELECT sum(l_quantity) OVER (ORDER BY l_linenumber) AS s FROM lineitem) x",
    "index of lineitem": "CREATE INDEX memory_index ON lineitem USING elf (l_shipdate, l_quantity, l_suppkey); DROP INDEX memory_index",
}


# Numbers of a multiplicative generator, spread over 10^8 keys.
SPREAD = "(value * 2654435761) % 4294967296 % 100000000"

# What answers a statement with DuckDB: file, text, budget, threads, folder.
DUCKDB = """
import sys, duckdb
file, text, budget, threads, folder = sys.argv[1:]
con = duckdb.connect(file, read_only=True, config={"memory_limit": budget, "threads": int(threads), "temp_directory": folder, "preserve_insertion_order": False})
for row in con.execute(text).fetchall():
    print(*row, sep=",")
"""


def wide(columns, numbers, text):
    names = [f"{numbers[i % len(numbers)]} + {i} AS c{i}" if i % 5 else f"{text} || '{i}' AS c{i}" for i in range(columns)]
    return ", ".join(names)


def text_of(statement, scratch, parquet):
    return statement.format(
        out=scratch / "out",
        parquet=parquet,
        spread=SPREAD,
        wide=wide(105, ["o_orderkey", "o_custkey", "o_shippriority"], "o_orderpriority"),
        wider=wide(2000, ["c_custkey", "c_nationkey"], "c_mktsegment"),
    )


def changes(name):
    return STATEMENTS[name].startswith("CREATE")


def measure_duckdb(arguments, name, budget):
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        text = text_of(STATEMENTS[name], Path(scratch), arguments.parquet)
        if text.endswith(".parquet'") and arguments.duckdb_parquet:
            text += f" (COMPRESSION {arguments.duckdb_parquet})"
        command = [sys.executable, "-c", DUCKDB, str(arguments.duckdb), text, budget, str(arguments.threads), f"{scratch}/spilled"]
        code, _, errors, seconds, rss_bytes = run(command, arguments.timeout)
    verdict = "ended" if code == 0 else f"not ended after {arguments.timeout} s" if code is None else f"failed: {errors.strip()[-300:]}"
    return {"statement": name, "budget": budget, "engine": "duckdb", "seconds": round(seconds, 2), "rss_bytes": rss_bytes, "verdict": verdict, "answer": ""}


def measure(arguments, name, budget):
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        text = text_of(STATEMENTS[name], Path(scratch), arguments.parquet)
        file = Path(scratch) / "statement.sql"
        file.write_text(text)
        command = [arguments.program, "sql", "--db", str(arguments.db), "--budget", budget]
        command += ["--threads", str(arguments.threads), "--format", "csv", "-f", str(file)]
        code, output, errors, seconds, rss_bytes = run(command, arguments.timeout)
    verdict = "ended" if code == 0 else f"not ended after {arguments.timeout} s" if code is None else f"failed: {errors.strip()[-300:]}"
    return {"statement": name, "budget": budget, "seconds": round(seconds, 2), "rss_bytes": rss_bytes, "verdict": verdict, "answer": output.strip()}


def megabytes(budget):
    return int(budget[:-2]) * {"MB": 1, "GB": 1000}[budget[-2:]]


def table(rows, budgets):
    """Seconds, and MB beyond the budget; those of DuckDB behind."""
    print(f"| statement | {' | '.join(budgets)} |\n|---|{'---|' * len(budgets)}")
    for name in STATEMENTS:
        cells = [cell([row for row in rows if row["statement"] == name and row["budget"] == budget]) for budget in budgets]
        if any(cells):
            print(f"| {name} | {' | '.join(cells)} |")


def cell(rows):
    """What is known of a statement with a budget."""
    texts = []
    for row in rows:
        figures = f"{row['seconds']:.1f} s, {row['rss_bytes'] / 1e6 - megabytes(row['budget']):+.0f} MB"
        texts.append(figures if row["verdict"] == "ended" else f"**{row['verdict'].splitlines()[-1][:60]}** after {row['seconds']:.0f} s")
    return "; DuckDB ".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the binary hotshelf")
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--parquet", type=Path, required=True)
    parser.add_argument("--duckdb", type=Path, help="DuckDB's own file of the same tables, to measure beside")
    parser.add_argument("--duckdb-parquet", help="how it compresses Parquet files: snappy if not said, Hotshelf's are zstd")
    parser.add_argument("--budgets", nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one statement")
    parser.add_argument("--statements", nargs="*", help="only these")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"), help="where results go that are removed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()

    rows = []
    for budget in arguments.budgets:
        for name in arguments.statements or STATEMENTS:
            turns = [measure] if changes(name) or not arguments.duckdb else [measure, measure_duckdb]
            for turn in turns:
                row = turn(arguments, name, budget)
                rows.append(row)
                engine = row.get("engine", "")
                print(f"{budget:>8} {name:36} {row['seconds']:8.2f} s {row['rss_bytes'] / 1e6:7.0f} MB  {engine} {row['verdict']} {row['answer'][:60]!r}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(rows, indent=1))
    table(rows, arguments.budgets)
    rows = [row for row in rows if "engine" not in row]
    failed = [row for row in rows if row["verdict"] != "ended"]
    answers = {}
    for row in rows:
        if row["verdict"] == "ended":
            answers.setdefault(row["statement"], set()).add(row["answer"])
    differ = [name for name, found in answers.items() if len(found) > 1]
    for name in differ:
        print(f"answers differ: {name}: {answers[name]}")
    sys.exit(bool(failed or differ))


if __name__ == "__main__":
    main()
