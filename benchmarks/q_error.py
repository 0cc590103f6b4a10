"""How far estimated rows are from what ran: the Q-error of joins and of filtered scans, beside DuckDB's.

    python q_error.py suite tpch --hotshelf 'hotshelf shell --db tpch10 --threads 2' --duckdb tpch10.duckdb
    python q_error.py random --program target/release/hotshelf --folder work --queries 2000

The Q-error of an operator is the larger of estimate over truth and truth over estimate, both at least one row. Each engine is
asked for what it expected and what came out of the joins and filtered scans of its own plan (EXPLAIN ANALYZE), so plans, and
with them the operators, differ. What sends a join's keys down to a scan is off in both, since a scan would give fewer rows
than its own filters let through, and so are star pipelines, whose joins are one operator. What is below a join without rows
does not count: one side may not have been read.

`random` makes three tables of skewed columns, some of which follow from each other, and asks for the rows of joins and filters.
"""

import argparse
import json
import random
import statistics
import subprocess
from pathlib import Path

from results import load_texts
from shell import Shell

SETTINGS = [
    "datafusion.explain.format = 'pgjson'",
    "datafusion.optimizer.enable_dynamic_filter_pushdown = false",
    "hotshelf.star_pipelines = off",
]
KEPT_WORST = 5


class Hotshelf:
    def __init__(self, command, seconds):
        self.shell = Shell(command, seconds)

    def operators(self, sql):
        """Kind, estimate and truth of each join and filtered scan."""
        if not self.shell.process or self.shell.process.poll() is not None:
            for setting in SETTINGS:
                # SET has no rows to wait for.
                self.shell.ask(f"SET {setting}; SELECT 1")
        _, rows, _ = self.shell.ask(f"EXPLAIN ANALYZE {sql}")
        plan = next(row[1] for row in rows if row[0] == "json")
        return list(self.walk(json.loads(plan)[0]["Plan"]))

    def walk(self, node):
        kind = node["Node Type"]
        scans = any(detail.startswith("filter:") for detail in node["Details"]) and not node["Plans"]
        if ("Join" in kind or scans) and "Plan Rows" in node and "Actual Rows" in node:
            yield "join" if "Join" in kind else "filter", node["Plan Rows"], node["Actual Rows"]
        if "Join" in kind and node.get("Actual Rows") == 0:
            return
        for child in node["Plans"]:
            yield from self.walk(child)


class DuckDb:
    def __init__(self, path):
        import duckdb

        self.connection = duckdb.connect(str(path), read_only=True, config={"threads": 2})
        self.connection.execute("SET disabled_optimizers = 'join_filter_pushdown'")

    def operators(self, sql):
        [[_, text]] = self.connection.execute(f"EXPLAIN (ANALYZE, FORMAT json) {sql}").fetchall()
        return [found for root in json.loads(text)["operator"] for found in self.walk(root)]

    def walk(self, node):
        known, kind = node["extra_info"], node["type"]
        is_join = "JOIN" in kind
        if (is_join or "Filters" in known or kind == "FILTER") and "Estimated Cardinality" in known:
            yield "join" if is_join else "filter", int(known["Estimated Cardinality"]), node["intermediate_rows"]
        if is_join and node["intermediate_rows"] == 0:
            return
        for child in node["children"] if "children" in node else []:
            yield from self.walk(child)


def q_error(estimate, truth):
    estimate, truth = max(estimate, 1), max(truth, 1)
    return max(estimate / truth, truth / estimate)


def measure(engines, queries):
    """Q-errors by engine and kind, of all queries that both engines answer."""
    found = {name: {"join": [], "filter": []} for name in engines}
    for idx, (query, sql) in enumerate(queries):
        try:
            each = {name: engine.operators(sql) for name, engine in engines.items()}
        except Exception as error:  # whichever engine's own; the others go on
            print(f"{query}: {error}"[:200], flush=True)
            continue
        for name, operators in each.items():
            for kind, estimate, truth in operators:
                found[name][kind].append((q_error(estimate, truth), query, estimate, truth))
        if (idx + 1) % 100 == 0:
            print(f"{idx + 1} of {len(queries)}", flush=True)
    return found


def report(found):
    print("| engine | operators | number | median | 90th | 99th | largest |\n|---|---|---|---|---|---|---|")
    for name, kinds in found.items():
        for kind in ("filter", "join"):
            errors = sorted(kinds[kind])
            if not errors:
                continue
            part = lambda share: errors[min(int(len(errors) * share), len(errors) - 1)][0]
            median = statistics.median(error for error, *_ in errors)
            print(f"| {name} | {kind}s | {len(errors)} | {median:.2f} | {part(0.9):.1f} | {part(0.99):.0f} | {errors[-1][0]:.0f} |")
    for error, query, estimate, truth in sorted(found["Hotshelf"]["join"] + found["Hotshelf"]["filter"])[: -KEPT_WORST - 1 : -1]:
        print(f"{query}: expected {estimate}, were {truth} ({error:.0f})")


TABLES = {
    # Zipf-like columns, and columns that follow from others: s from r, u from t, day from id; keys with a favourite.
    "f": """SELECT i AS id, (100 * pow(h(i, 1), 3))::INT AS r, ((100 * pow(h(i, 1), 3))::INT // 5) AS s,
        (1000 * pow(h(i, 2), 2))::INT AS t, 'kind ' || ((1000 * pow(h(i, 2), 2))::INT // 50) AS u,
        DATE '2020-01-01' + (i // 400 + (10 * h(i, 3))::INT)::INT AS day,
        CASE WHEN h(i, 4) < 0.02 THEN NULL ELSE (20000 * pow(h(i, 5), 4))::INT END AS ak, (5000 * h(i, 6))::INT AS bk
        FROM range(400000) x(i)""",
    "a": """SELECT i AS k, (i // 500)::INT AS g, CASE WHEN i < 2000 THEN 'often' WHEN h(i, 7) < 0.5 THEN 'some' ELSE 'few' END AS c,
        (50 * pow(h(i, 8), 2))::INT AS v FROM range(20001) x(i)""",
    "b": """SELECT (5000 * pow(h(i, 9), 2))::INT AS k, (i % 7)::INT AS w, (12 * pow(h(i, 10), 3))::INT AS z,
        'city ' || (i % 7 * 10 + (3 * h(i, 11))::INT) AS city FROM range(30000) x(i)""",
}
FILTERS = {
    "f": [
        lambda of: f"f.r = {int(100 * of.random() ** 3)}",
        lambda of: f"f.s < {of.randint(0, 20)}",
        lambda of: f"f.r BETWEEN {(low := of.randint(0, 60))} AND {low + of.randint(0, 30)}",
        lambda of: f"f.t > {of.randint(0, 1000)}",
        lambda of: f"f.u = 'kind {of.randint(0, 19)}'",
        lambda of: f"f.u LIKE '%{of.randint(0, 9)}'",
        lambda of: f"f.day < DATE '2020-01-01' + {of.randint(0, 1000)}",
        lambda of: f"f.r % 7 = {of.randint(0, 6)}",
        lambda of: f"f.id % 100 < {of.randint(1, 60)}",
        lambda of: f"(f.r = {of.randint(0, 20)} OR f.t < {of.randint(0, 300)})",
        lambda of: "f.ak IS NOT NULL",
    ],
    "a": [
        lambda of: f"a.c = '{of.choice(['often', 'some', 'few'])}'",
        lambda of: f"a.g < {of.randint(0, 40)}",
        lambda of: f"a.v IN ({of.randint(0, 5)}, {of.randint(6, 50)})",
        lambda of: f"a.k BETWEEN {(low := of.randint(0, 15000))} AND {low + of.randint(0, 5000)}",
    ],
    "b": [
        lambda of: f"b.w = {of.randint(0, 6)}",
        lambda of: f"b.city = 'city {of.randint(0, 6) * 10 + of.randint(0, 3)}'",
        lambda of: f"b.z >= {of.randint(0, 12)}",
        lambda of: f"b.city LIKE 'city {of.randint(1, 6)}%'",
    ],
}


def random_query(of):
    tables = of.choice([["f"], ["f"], ["f", "a"], ["f", "a"], ["f", "b"], ["f", "a", "b"], ["a", "f", "b"]])
    joins = {"a": "f.ak = a.k", "b": "f.bk = b.k"}
    conditions = [joins[table] for table in tables if table in joins]
    for table in tables:
        conditions += [one(of) for one in of.sample(FILTERS[table], of.randint(1 if len(tables) == 1 else 0, 3))]
    # One that refers to a table's row count alone is no filter.
    return f"SELECT count(*) FROM {', '.join(tables)} WHERE {' AND '.join(conditions) or 'f.id >= 0'}"


def make_random(args):
    import duckdb

    args.folder.mkdir(parents=True, exist_ok=True)
    database, path = args.folder / "db", args.folder / "random.duckdb"
    if path.exists():
        return database, path
    connection = duckdb.connect(str(path))
    connection.execute("CREATE MACRO h(i, seed) AS (hash(i * 31 + seed) % 1000003) / 1000003.0")
    for name, sql in TABLES.items():
        connection.execute(f"CREATE TABLE {name} AS {sql}")
        connection.execute(f"COPY {name} TO '{args.folder / name}.parquet'")
        subprocess.run([args.program, "import", "--db", database, name, args.folder / f"{name}.parquet"], check=True)
    return database, path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="what", required=True)
    suite = kinds.add_parser("suite", help="the queries of a file with answers")
    suite.add_argument("benchmark", choices=["ssb", "tpch", "tpcds"])
    suite.add_argument("--texts", help="JSON with query texts, as tpcds.py makes it")
    suite.add_argument("--hotshelf", required=True, help="the shell with its database and budget")
    suite.add_argument("--duckdb", type=Path, required=True, help="DuckDB's own file")
    chance = kinds.add_parser("random", help="random queries over skewed and correlated columns")
    chance.add_argument("--program", required=True, help="the binary hotshelf")
    chance.add_argument("--folder", type=Path, required=True, help="for the data, which is kept")
    chance.add_argument("--queries", type=int, default=2000)
    chance.add_argument("--seed", type=int, default=1)
    for each in (suite, chance):
        each.add_argument("--seconds", type=float, default=120, help="give up a query after this long")
        each.add_argument("--out", type=Path, help="write all Q-errors as JSON")
    args = parser.parse_args()
    if args.what == "suite":
        queries, command, path = list(load_texts(args.benchmark, args.texts).items()), args.hotshelf, args.duckdb
    else:
        of = random.Random(args.seed)
        database, path = make_random(args)
        command = f"{args.program} shell --db {database} --budget 1GB --threads 2"
        queries = [(sql, sql) for sql in (random_query(of) for _ in range(args.queries))]
    found = measure({"Hotshelf": Hotshelf(command, args.seconds), "DuckDB": DuckDb(path)}, queries)
    report(found)
    if args.out:
        args.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
