"""DuckDB, Polars and SQLite on the table and queries that `elf-rivals` wrote, then a chart of all results.

    cargo run --release --manifest-path benchmarks/elf-rivals/Cargo.toml -- DIR 5000000 100 > DIR/rust.jsonl
    python benchmarks/elf_rivals.py DIR [--chart FILE.svg]

One thread each. Every contender gives the sum of the TIDs of the rows in a box; the sums are compared.
"""

import argparse
import csv
import json
import math
import pathlib
import sqlite3
import time

COLUMNS = 10
ROUNDS = 3


def read_queries(folder):
    groups = {}
    with open(folder / "queries.csv", newline="") as file:
        for line in csv.reader(file):
            case, percent, total = line[0], float(line[1]), int(line[2])
            bounds = list(zip(map(int, line[3::2]), map(int, line[4::2])))
            groups.setdefault((case, percent, total), []).append(bounds)
    return groups


def restricted(bounds, maximum):
    return [(idx, lo, hi) for idx, (lo, hi) in enumerate(bounds) if (lo, hi) != (0, maximum)]


def sql_where(bounds, maximum):
    parts = [f"c{idx} BETWEEN {lo} AND {hi}" for idx, lo, hi in restricted(bounds, maximum)]
    return " AND ".join(parts)


def duckdb_contender(columns, order):
    import duckdb
    import pyarrow

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    source = pyarrow.table({f"c{i}": column[order] for i, column in enumerate(columns)} | {"tid": order})
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    del source
    maximum = int(columns[0].max())

    def answer(bounds):
        found = connection.execute(f"SELECT sum(tid) FROM t WHERE {sql_where(bounds, maximum)}").fetchone()[0]
        return int(found or 0)

    return answer


def polars_contender(columns, order):
    import polars

    frame = polars.DataFrame({f"c{i}": column[order] for i, column in enumerate(columns)} | {"tid": order})
    maximum = int(columns[0].max())

    def answer(bounds):
        conditions = [polars.col(f"c{idx}").is_between(lo, hi) for idx, lo, hi in restricted(bounds, maximum)]
        total = frame.lazy().filter(polars.all_horizontal(conditions)).select(polars.col("tid").cast(polars.Int64).sum())
        return int(total.collect().item())

    return answer


def sqlite_contender(columns, order):
    connection = sqlite3.connect(":memory:")
    names = ", ".join(f"c{i}" for i in range(COLUMNS))
    connection.execute(f"CREATE TABLE t ({names}, tid)")
    rows = zip(*(column[order].tolist() for column in columns), order.tolist())
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * (COLUMNS + 1))})", rows)
    connection.execute(f"CREATE INDEX i ON t ({names}, tid)")
    connection.execute("ANALYZE")
    maximum = int(columns[0].max())

    def answer(bounds):
        found = connection.execute(f"SELECT sum(tid) FROM t WHERE {sql_where(bounds, maximum)}").fetchone()[0]
        return int(found or 0)

    return answer


def measure(folder):
    import numpy

    columns = [numpy.fromfile(folder / f"c{i}.u32", dtype="<u4").astype("u1") for i in range(COLUMNS)]
    order = numpy.lexsort(columns[::-1]).astype("u4")
    makers = {
        "DuckDB, sorted": duckdb_contender,
        "Polars, sorted": polars_contender,
        "SQLite, composite index": sqlite_contender,
    }
    results = []
    for name, make in makers.items():
        start = time.perf_counter()
        answer = make(columns, order)
        results.append({"contender": name, "build_s": round(time.perf_counter() - start, 2)})
        for (case, percent, total), queries in read_queries(folder).items():
            if name.startswith("SQLite") and case in ("2-4", "4-6") and percent != 1.0:
                continue  # A full scan whatever the selectivity; one point says it.
            times = []
            for _ in range(ROUNDS if not name.startswith("SQLite") else 1):
                start = time.perf_counter()
                found = sum(answer(bounds) for bounds in queries)
                times.append((time.perf_counter() - start) / len(queries))
                assert found == total, f"{name} finds other rows: {found} instead of {total}"
            results.append(
                {"case": case, "percent": percent, "contender": name, "us": round(sorted(times)[len(times) // 2] * 1e6, 3)}
            )
    return results


def cases_of(results):
    return list(dict.fromkeys(one["case"] for one in results if "us" in one))


def break_even(results, case, name, scan):
    """Where a contender stops being faster than the scan, in percent of the rows, between measured points."""
    of = lambda name: {one["percent"]: one["us"] for one in results if one.get("case") == case and one["contender"] == name}
    ours, theirs = of(name), of(scan)
    before = None
    for percent in sorted(ours.keys() & theirs.keys()):
        lead = math.log(theirs[percent] / ours[percent])
        if lead < 0:
            if before is None:
                return f"below {percent:g} %"
            share = before[1] / (before[1] - lead)
            return f"{math.exp(math.log(before[0]) + share * math.log(percent / before[0])):.2g} %"
        before = (percent, lead)
    return "none"


def chart(results, path):
    """A panel per case, time over selectivity, both logarithmic."""
    titles = {"1-10": "ranges on all ten"}
    cases = [(case, titles.get(case, f"ranges on dimensions {case}")) for case in cases_of(results)]
    timed = [one for one in results if "us" in one]
    names = list(dict.fromkeys(one["contender"] for one in timed))
    colours = ["#c0392b", "#2c3e50", "#e6806f", "#7b92a8", "#a0a0a0", "#2980b9", "#8e44ad", "#16a085", "#f39c12", "#27ae60", "#d35400"]
    width, height, left, top, gap = 300, 260, 62, 40, 30
    low, high = 0.0, 6.5
    x_at = lambda panel, percent: left + panel * (width + gap) + (math.log10(percent) + 3) / 4.7 * width
    y_at = lambda us: top + height - (min(max(math.log10(us), low), high) - low) / (high - low) * height
    right = left + len(cases) * (width + gap) - gap
    total = right + 220
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{top + height + 50}" font-family="sans-serif" font-size="11">']
    out.append(f'<rect width="{total}" height="{top + height + 50}" fill="white"/>')
    for panel, (case, title) in enumerate(cases):
        x0 = left + panel * (width + gap)
        out.append(f'<text x="{x0 + width / 2}" y="{top - 14}" text-anchor="middle" font-size="13">{title}</text>')
        out.append(f'<rect x="{x0}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        for power in range(-3, 2):
            x = x_at(panel, 10.0**power)
            out.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + height}" stroke="#eee"/>')
            out.append(f'<text x="{x:.1f}" y="{top + height + 15}" text-anchor="middle">{10.0**power:g} %</text>')
        for power, label in enumerate(["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"]):
            y = y_at(10.0**power)
            out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" stroke="#eee"/>')
            if panel == 0:
                out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        for name, colour in zip(names, colours):
            points = sorted((one["percent"], one["us"]) for one in timed if one["case"] == case and one["contender"] == name)
            line = " ".join(f"{x_at(panel, percent):.1f},{y_at(us):.1f}" for percent, us in points)
            weight = 2.5 if name.startswith("elf") else 1.3
            if len(points) > 1:
                out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{weight}"/>')
            for percent, us in points:
                out.append(f'<circle cx="{x_at(panel, percent):.1f}" cy="{y_at(us):.1f}" r="2" fill="{colour}"/>')
    for idx, (name, colour) in enumerate(zip(names, colours)):
        x, y = right + 14, top + 14 + idx * 20
        out.append(f'<line x1="{x}" y1="{y}" x2="{x + 22}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{x + 28}" y="{y + 4}">{name}</text>')
    out.append(f'<text x="{(left + right) / 2}" y="{top + height + 38}" text-anchor="middle">share of the rows asked for; time of one query, one thread</text>')
    out.append("</svg>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--chart", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="take the results of DIR/python.jsonl instead of measuring")
    flags = parser.parse_args()
    own = flags.folder / "python.jsonl"
    if flags.keep:
        results = [json.loads(line) for line in own.read_text().splitlines()]
    else:
        results = measure(flags.folder)
        own.write_text("".join(json.dumps(one) + "\n" for one in results))
    rust = flags.folder / "rust.jsonl"
    if rust.exists():
        results = [json.loads(line) for line in rust.read_text().splitlines()] + results
    for case in cases_of(results):
        percents = sorted({one["percent"] for one in results if one.get("case") == case})
        print(f"| dimensions {case} | " + " | ".join(f"{percent:g} %" for percent in percents) + " |")
        for name in dict.fromkeys(one["contender"] for one in results if one.get("case") == case):
            found = {one["percent"]: one["us"] for one in results if one.get("case") == case and one["contender"] == name}
            print(f"| {name} | " + " | ".join(f"{found[p]:.1f}" if p in found else "" for p in percents) + " |")
        for name, scan in [("elf, clustered: rows", "bit-packed scan, sorted: rows"), ("elf", "byte-wise scan")]:
            print(f"break-even of {name} with {scan}: {break_even(results, case, name, scan)}")
    if flags.chart:
        chart(results, flags.chart)


if __name__ == "__main__":
    main()
