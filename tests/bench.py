#!/usr/bin/env python3
"""`make bench`: runs the benches and prints one table: what, figure, goal, verdict; and the machine.

    bench.py [functions|agent|STORY…]     functions: criterion's; agent: the running agent, all of it;
                                          a STORY of tests/cluster/bench.py; everything without one

Owns the table only. A program that measures the running agent prints lines
`bench: WHAT | FIGURE | GOAL | VERDICT` on its standard output.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
# Criterion's functions, as named in benches/core.rs: what is asked of them, in nanoseconds.
GOALS = {"render one large DaemonSet": 200e3, "pass over 100 quiet daemons": 2e6,
         "coordinator: pass over 5,000 nodes x 20 daemons": 50e6}
# The running agent.
STORIES = ("manifest", "apply", "power", "cold", "hundred", "coordinator", "foreign")
# The stripped release binary, in bytes.
LARGEST = 12 << 20


def human(nanoseconds):
    """A time with the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def target_dir():
    """Where cargo builds; asked of cargo, since environment and configuration can move it."""
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO, check=True, capture_output=True).stdout
    return Path(json.loads(metadata)["target_directory"])


def functions():
    """What criterion measured: (name, median, goal, verdict) of each function."""
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "core", "--", "--noplot"], cwd=REPO, check=True, stdout=subprocess.DEVNULL)
    for folder in sorted((target_dir() / "criterion").glob("*/new")):
        name = json.loads((folder / "benchmark.json").read_text(encoding="utf-8"))["full_id"]
        median = json.loads((folder / "estimates.json").read_text(encoding="utf-8"))["median"]["point_estimate"]
        goal = GOALS.get(name)
        yield name, human(median), f"≤ {human(goal)}" if goal else "", verdict(median <= goal) if goal else ""


def verdict(met):
    """The verdict on a goal."""
    return "met" if met else "MISSED"


def size():
    """The size of the binary that is shipped."""
    binary = target_dir() / "release/daemonlet"
    with tempfile.TemporaryDirectory() as folder:
        stripped = Path(folder) / "daemonlet"
        subprocess.run(["strip", "-o", stripped, binary], check=True)
        length = stripped.stat().st_size
    return "stripped release binary", f"{length / (1 << 20):.1f} MiB", "≤ 12 MiB", verdict(length <= LARGEST)


def agent(stories):
    """What was measured of the running agent."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "--bin", "daemonlet"], cwd=REPO, check=True)
    subprocess.run([sys.executable, REPO / "tests/cluster/run.py", "--build"], check=True, stdout=subprocess.DEVNULL)
    yield size()
    with subprocess.Popen([sys.executable, REPO / "tests/cluster/bench.py", *stories], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if line.startswith("bench: "):
                yield tuple(part.strip() for part in line.removeprefix("bench: ").split(" | "))
    if child.returncode:
        yield "some of it could not be measured", "", "", verdict(False)


def machine():
    """Where this was measured."""
    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")), platform.machine())
    memory = int(Path("/proc/meminfo").read_text(encoding="ascii").split()[1]) / (1 << 20)
    disk = subprocess.run(["findmnt", "-no", "SOURCE,FSTYPE", "-T", "/var/tmp"], check=True, capture_output=True, text=True).stdout.split()
    load = os.getloadavg()[0]
    return (f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {disk[1]} on {disk[0]}, {platform.system()} {platform.release()}; "
            f"load before: {load:.1f}")


def main():
    """The command."""
    where, wanted = machine(), sys.argv[1:]
    stories = [word for word in wanted if word in STORIES] or (STORIES if not wanted or "agent" in wanted else ())
    rows = [("what", "figure", "goal", "verdict")]
    if not wanted or "functions" in wanted:
        rows += functions()
    if stories:
        rows += agent(stories)
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    print(where)
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return int(any(row[3] == verdict(False) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
