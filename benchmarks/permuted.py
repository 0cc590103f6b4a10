"""Times queries whose FROM clauses are written in random orders: the order of the text should not matter.

    python permuted.py tpch --hotshelf 'hotshelf shell --db DIR --budget 9GB --threads 2 --policy all' --orders 20
    python permuted.py tpcds --texts FOLDER/answers.json --hotshelf '…' --queries 40

Needs `pip install sqlglot`. In every SELECT whose tables are joined by commas, CROSS JOIN or INNER JOIN … ON alone, the tables
change places and the conditions go to WHERE; others stay as they are, and queries without such a SELECT are left out. An
order's time is the least of `--repeats` runs, planning included (plans are not kept), after one run that is not counted; all orders are run before
the first is run again, so that a slow minute of the machine is not one order's. Every order must give the rows of the first, as a set where
the text leaves ties open. A row names the query, the fastest and the slowest order, their ratio (the goal is 1.2), and how many plans all orders
have. Where that is one, what is left of the ratio is what times differ by anyway: `--control` shows it.
"""

import argparse
import json
import random
import statistics

import sqlglot
from sqlglot import exp

from results import load_texts
from shell import Shell


def is_movable(select):
    """Whether all tables of a SELECT are joined by inner joins."""
    joins = select.args.get("joins") or []
    kinds = all(
        not join.side and not join.method and join.kind in ("", "INNER", "CROSS") and not join.args.get("using") for join in joins
    )
    lateral = any(isinstance(join.this, exp.Lateral) for join in joins)
    return bool(joins) and kinds and not lateral and any(select.find_all(exp.From))


def flatten(select):
    """The tables of a SELECT, its conditions moved to WHERE."""
    source = select.args.get("from_") or select.args["from"]
    tables, conditions = [source.this], []
    for join in select.args["joins"]:
        tables.append(join.this)
        if join.args.get("on"):
            conditions.append(join.args["on"])
    for condition in conditions:
        select.where(condition.copy(), copy=False)
    return source, tables


def permuted(sql, generator):
    """The text with its tables in a random order; `None` where nothing can be moved."""
    tree = sqlglot.parse_one(sql, read="duckdb")
    selects = [select for select in tree.find_all(exp.Select) if is_movable(select)]
    for select in selects:
        source, tables = flatten(select)
        generator.shuffle(tables)
        source.set("this", tables[0])
        select.set("joins", [exp.Join(this=table) for table in tables[1:]])
    return tree.sql(dialect="duckdb") if selects else None


def plan_of(shell, sql):
    """The tree of operators of a query."""
    _, rows, _ = shell.ask("EXPLAIN " + sql)
    return "\n".join(row[1] for row in rows if row[0] == "plan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["ssb", "tpch", "tpcds"])
    parser.add_argument("--texts", help="JSON with query texts, as tpcds.py makes it")
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--control", action="store_true", help="one order as often as there would be orders: what times differ by anyway")
    parser.add_argument("--queries", type=int, help="only the first so many that can be permuted")
    parser.add_argument("--only", nargs="*", help="names of queries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="where the figures go as JSON")
    args = parser.parse_args()
    shell, rows = Shell(args.hotshelf), {}
    # Each run plans: SET has no rows to wait for.
    shell.ask("SET hotshelf.keep_plans = off; SELECT 1")
    print("| query | fastest ms | slowest ms | slowest / fastest | orders | plans | rows |\n|---|---|---|---|---|---|---|")
    for name, sql in load_texts(args.benchmark, args.texts).items():
        if args.only and name not in args.only or args.queries and len(rows) >= args.queries:
            continue
        generator = random.Random(f"{args.seed} {name}")
        orders = [permuted(sql, generator) for _ in range(args.orders)]
        if orders[0] is None:
            print(f"| {name} | | | | no inner joins by commas | | |", flush=True)
            continue
        orders = list(dict.fromkeys(orders))
        if args.control:
            orders = orders[:1] * len(orders)
        times, answers, plans = [], set(), set()
        for order in orders:
            try:
                _, found, _ = shell.ask(order)
            except (ValueError, TimeoutError) as error:
                print(f"| {name} | | | | failed | | {error} |\n{order}", flush=True)
                continue
            answers.add(json.dumps(sorted(found, key=str)))
            plans.add(plan_of(shell, order))
            times.append((order, []))
        failed = len(orders) - len(times)
        if not times:
            continue
        for _ in range(args.repeats):
            for order, seconds in times:
                seconds.append(shell.ask(order)[2])
        seconds = [min(each) for _, each in times]
        fastest, slowest = min(seconds), max(seconds)
        rows[name] = {"seconds": seconds, "ratio": slowest / fastest, "orders": orders, "equal": len(answers) == 1, "failed": failed, "plans": len(plans)}
        equal = "equal" if len(answers) == 1 else f"{len(answers)} different"
        print(f"| {name} | {fastest * 1e3:.1f} | {slowest * 1e3:.1f} | {slowest / fastest:.2f} | {len(orders)} | {len(plans)} | {equal} |", flush=True)
    ratios = [row["ratio"] for row in rows.values()]
    above = sum(ratio > 1.2 for ratio in ratios)
    one = sum(row["plans"] == 1 for row in rows.values())
    print(f"{len(ratios)} queries, {one} with one plan: median ratio {statistics.median(ratios):.2f}, greatest {max(ratios):.2f}, {above} above 1.2")
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows, file)


if __name__ == "__main__":
    main()
