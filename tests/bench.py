#!/usr/bin/env python3
"""`make bench`: runs the benches and prints one table, each figure beside the goal where there is one.

Owns the table only. A program that measures the running agent prints lines `bench: NAME | VALUE | GOAL`
on its standard output and is added to PROGRAMS.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
# Criterion's functions, as named in benches/core.rs: what is asked of them, in nanoseconds.
GOALS = {"render one large DaemonSet": 200e3, "pass over 100 quiet daemons": 2e6}
# Programs that measure the whole agent.
PROGRAMS = []


def human(nanoseconds):
    """A time with the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def functions():
    """What criterion measured: (name, median, goal) of each function."""
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "core", "--", "--noplot"], cwd=REPO, check=True, stdout=subprocess.DEVNULL)
    target = json.loads(subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps"], cwd=REPO, check=True, capture_output=True).stdout)
    for folder in sorted((Path(target["target_directory"]) / "criterion").glob("*/new")):
        name = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))["full_id"]
        median = json.loads((folder / "estimates.json").read_text(encoding="utf-8"))["median"]["point_estimate"]
        goal = GOALS.get(name)
        yield name, human(median), f"≤ {human(goal)}" if goal else ""


def programs():
    """What the programs measured."""
    for argv in PROGRAMS:
        told = subprocess.run(argv, cwd=REPO, check=True, capture_output=True, text=True).stdout
        for line in told.splitlines():
            if line.startswith("bench: "):
                yield tuple(part.strip() for part in line.removeprefix("bench: ").split("|"))


def main():
    """The command."""
    rows = [("what", "measured", "goal"), *functions(), *programs()]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    print(f"{platform.machine()}, {platform.system()} {platform.release()}")
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
