"""The plan of a large data set: from lengths to the report and to the first batch."""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from report import print_header, print_table, spread

from t2t_torch.pipeline.plan import EpochPlan, batching_scheme


def lengths(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Returns lengths of two sides, alike in length as those of a translation are."""
    rng = np.random.default_rng(seed)
    inputs = rng.gamma(4, 7, rows)
    sides = {"inputs": inputs, "targets": inputs * rng.normal(1, 0.2, rows)}
    return {name: np.clip(side, 1, 256).astype(np.int32) for name, side in sides.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print_header(arguments.seed)
    data = lengths(arguments.rows, arguments.seed)
    scheme = batching_scheme(4096, 256, 8, 1.1, drop_long_sequences=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = []
    for repeat in range(arguments.repeats):
        clock = [time.perf_counter()]
        plan = EpochPlan(data, scheme, seed=repeat)
        clock.append(time.perf_counter())
        report = plan.report
        clock.append(time.perf_counter())
        plan.batch(0)
        clock.append(time.perf_counter())
        assert plan.fingerprint
        clock.append(time.perf_counter())
        times.append([*np.diff(clock), clock[-2] - clock[0]])
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    names = ("plan", "report", "first batch", "fingerprint", "plan, report and first batch")
    rows = [
        [f"seconds: {name}", *spread(column, 2)]
        for name, column in zip(names, np.transpose(times).tolist(), strict=True)
    ]
    rows.append(["peak memory beside the lengths, MiB", f"{after - before:,.0f}", "", ""])
    rows.append(["batches in an epoch", f"{report.batches:,}", "", ""])
    print_table([f"{arguments.rows:,} rows", "median", "min", "max"], rows)


if __name__ == "__main__":
    main()
