"""DuckDB behind a pipe, for `hotshelf-lab fuzz --oracle 'python3 benchmarks/duckdb_oracle.py'`.

A line of JSON each way. {"sql": "..."} is answered with {"rows": [[...], ...]} or {"error": "..."}; {"reset": true}
drops all tables. Values that JSON lacks are objects with one member: i (large integer), d (decimal), f (NaN and
infinities), t (date or timestamp in microseconds since 1970). Needs `pip install duckdb`.
"""
import datetime
import decimal
import json
import math
import sys
import threading

import duckdb

SECONDS_MAX = 20
EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


def connect():
    connection = duckdb.connect()
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'; SET memory_limit = '2GB'")
    return connection


def cell(value):
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else {"i": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, decimal.Decimal):
        return {"d": format(value, "f")}
    if isinstance(value, datetime.datetime):
        return {"t": str((value - EPOCH) // MICROSECOND)}
    if isinstance(value, datetime.date):
        return {"t": str((value - EPOCH.date()) // MICROSECOND)}
    return str(value)


def answer(connection, sql):
    timer = threading.Timer(SECONDS_MAX, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(sql)
        rows = result.fetchall() if result.description else []
        return {"rows": [[cell(value) for value in row] for row in rows]}
    except Exception as error:  # whatever DuckDB or Python cannot do is the statement's answer
        return {"error": str(error).split("\n")[0]}
    finally:
        timer.cancel()


def main():
    connection = connect()
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("reset"):
            connection.close()
            connection = connect()
            reply = {"rows": []}
        else:
            reply = answer(connection, request["sql"])
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
