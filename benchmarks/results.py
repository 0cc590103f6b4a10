"""Query texts and query results: loading, typing, comparing.

A result is a dict: `columns` (names), `kinds` (one of int, decimal, float, date, text, bool per column) and `rows`. In
JSON, decimals and dates are strings, so that nothing is lost.
"""

import csv
import io
import json
import re
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path

QUERY_FOLDER = Path(__file__).resolve().parent.parent / "crates" / "datagen" / "queries"

# Relative difference allowed between floating-point values: sums in another order, divisions in another type.
FLOAT_TOLERANCE = Decimal("1e-9")
# A value printed with at least this many decimals may be cut or rounded there (decimal division does).
ROUNDED_DIGITS_MIN = 4


def load_queries(benchmark):
    """Query texts of `ssb` or `tpch` by name, in order."""
    files = sorted((QUERY_FOLDER / benchmark).glob("*.sql"))
    if not files:
        raise SystemExit(f"no queries of {benchmark!r} in {QUERY_FOLDER}")
    return {file.stem: file.read_text() for file in files}


def load_texts(benchmark, answers):
    """Query texts by name: those of the `answers.json` that tpcds.py makes, or else of `ssb` or `tpch`."""
    if not answers:
        return load_queries(benchmark)
    kept = json.loads(Path(answers).read_text())
    return {name: one["sql"] for name, one in sorted(kept.items())}


def kind_of(values):
    """Kind of a column of Python values, nulls ignored."""
    for value in values:
        if isinstance(value, bool):
            return "bool"
        if isinstance(value, int):
            return "int"
        if isinstance(value, Decimal):
            return "decimal"
        if isinstance(value, float):
            return "float"
        if isinstance(value, date):
            return "date"
        if value is not None:
            return "text"
    return "text"


def to_result(columns, rows):
    """A result from Python rows, ready for JSON."""
    kinds = [kind_of(row[idx] for row in rows) for idx in range(len(columns))]
    as_text = {"decimal", "date"}
    typed = [
        [str(value) if kind in as_text and value is not None else value for value, kind in zip(row, kinds)]
        for row in rows
    ]
    return {"columns": list(columns), "kinds": kinds, "rows": typed}


def parse_csv(text):
    """Header and rows of CSV text; every field stays text, an empty field is null."""
    lines = list(csv.reader(io.StringIO(text)))
    if not lines:
        return [], []
    return lines[0], [[field if field != "" else None for field in line] for line in lines[1:]]


def order_keys(sql, columns):
    """Positions of the result columns the query orders by, and whether it has a LIMIT."""
    text = re.sub(r"\s+", " ", sql).strip().rstrip(";")
    text, limits = re.subn(r" limit \d+$", "", text, flags=re.IGNORECASE)
    clause = re.split(r"\border by\b", text, flags=re.IGNORECASE)[-1]
    if clause == text or ")" in clause.replace("()", ""):
        return [], bool(limits)
    names = [re.sub(r"\s+(asc|desc)$", "", key.strip(), flags=re.IGNORECASE) for key in clause.split(",")]
    return [columns.index(name) for name in names if name in columns], bool(limits)


def same(expected, actual, kind):
    """Whether a typed value and a field of text mean the same."""
    if expected is None or actual is None:
        return expected in (None, "") and actual in (None, "")
    if kind in ("text", "date"):
        return str(expected) == str(actual)
    if kind == "bool":
        return str(expected).lower() == str(actual).lower()
    try:
        left, right = Decimal(str(expected)), Decimal(str(actual))
    except InvalidOperation:
        return str(expected) == str(actual)
    if left == right:
        return True
    if kind != "float" or not (left.is_finite() and right.is_finite()):
        return False
    digits = -right.as_tuple().exponent
    unit = Decimal(1).scaleb(-digits) if digits >= ROUNDED_DIGITS_MIN else Decimal(0)
    return abs(left - right) <= max(abs(left) * FLOAT_TOLERANCE, unit)


def sort_key(row, kinds):
    """Sorts rows by their exact columns first, then by rounded floats, so that equal results pair up."""
    exact = [normal(value, kind) for value, kind in zip(row, kinds) if kind != "float"]
    floats = [
        (value is not None, round(float(value), 3) if value is not None else 0.0)
        for value, kind in zip(row, kinds)
        if kind == "float"
    ]
    return exact, floats


def normal(value, kind):
    if value is None:
        return (0, "")
    if kind in ("int", "decimal"):
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            return (1, str(value))
        # Fixed width keeps text order and numeric order irrelevant: only equality of sorted positions matters.
        return (1, f"{number:.6f}")
    return (1, str(value))


def compare(expected, columns, rows, sql):
    """Differences between an expected result and `rows` of text fields; an empty list means equal.

    Rows may come in any order among those that tie on the query's ORDER BY columns, and where LIMIT cuts through a tie
    any of the tied rows will do.
    """
    kinds, wanted = expected["kinds"], expected["rows"]
    if len(columns) != len(kinds):
        return [f"{len(columns)} columns instead of {len(kinds)}"]
    if len(rows) != len(wanted):
        return [f"{len(rows)} rows instead of {len(wanted)}"]
    keys, limited = order_keys(sql, expected["columns"])
    for idx, (want, got) in enumerate(zip(wanted, rows)):
        if not all(same(want[key], got[key], kinds[key]) for key in keys):
            return [f"row {idx} in order: {got} instead of {want}"]
    if limited and keys and wanted:
        last = wanted[-1]
        def before_tie(want):
            return not all(want[key] == last[key] for key in keys)

        kept = [idx for idx, want in enumerate(wanted) if before_tie(want)]
        wanted, rows = [wanted[idx] for idx in kept], [rows[idx] for idx in kept]
    differences = []
    pairs = zip(
        sorted(wanted, key=lambda row: sort_key(row, kinds)),
        sorted(rows, key=lambda row: sort_key(row, kinds)),
    )
    for want, got in pairs:
        if not all(same(left, right, kind) for left, right, kind in zip(want, got, kinds)):
            differences.append(f"{got} instead of {want}")
    return differences
