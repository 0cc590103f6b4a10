#!/usr/bin/env python3
"""Solves random instances of HPCache's optimisation problem (Equations 1-4, as printed) with CVXPY.

The result is the fixture against which the crate `hotshelf-cache` checks its exact solver:

    python3 benchmarks/paper_formulation.py > crates/cache/src/tune/paper_formulation.json

Bytes are in GB, bandwidths in GB/s, times in seconds.
"""

import json

import cvxpy as cp
import numpy as np

INSTANCES = 50


def instance(rng):
    column_count = int(rng.integers(3, 13))
    sizes = np.round(rng.uniform(1.0, 30.0, column_count), 3)
    storage, memory = round(rng.uniform(7.0, 84.0), 3), 116.0
    terms = []
    for _ in range(int(rng.integers(2, 13))):
        count = int(rng.integers(1, min(5, column_count) + 1))
        columns = sorted(int(c) for c in rng.choice(column_count, count, replace=False))
        terms.append(
            {
                "weight": round(rng.uniform(0.05, 1.0), 3),
                "columns": columns,
                "processing_bandwidth": round(rng.uniform(10.0, 140.0), 3),
            }
        )
    budget = round(float(sizes.sum() * rng.uniform(0.05, 0.8)), 3)
    return {
        "sizes": sizes.tolist(),
        "storage_bandwidth": storage,
        "memory_bandwidth": memory,
        "budget": budget,
        "terms": terms,
    }


def solve(inst):
    x = cp.Variable(len(inst["sizes"]))
    sizes = np.array(inst["sizes"])
    total = 0
    for term in inst["terms"]:
        size = float(sizes[term["columns"]].sum())
        # Equation 3 over Equation 1, with the pipeline's bandwidths split over its columns by size.
        per_column = [
            cp.maximum(
                (1 - x[c]) * size / inst["storage_bandwidth"],
                x[c] * size / inst["memory_bandwidth"],
                size / term["processing_bandwidth"],
            )
            for c in term["columns"]
        ]
        time = cp.maximum(*per_column) if len(per_column) > 1 else per_column[0]
        total += term["weight"] * time
    problem = cp.Problem(cp.Minimize(total), [x >= 0, x <= 1, sizes @ x <= inst["budget"]])
    problem.solve()
    assert problem.status == "optimal", problem.status
    return float(problem.value)


def main():
    rng = np.random.default_rng(2023)
    instances = []
    for _ in range(INSTANCES):
        inst = instance(rng)
        inst["total_s"] = round(solve(inst), 9)
        instances.append(inst)
    lines = ",\n".join(json.dumps(inst) for inst in instances)
    print(f"[\n{lines}\n]")


if __name__ == "__main__":
    main()
