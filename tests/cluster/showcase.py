#!/usr/bin/env python3
"""`make showcase`: three baked machines from power-on to a pod network, and what becomes of it when things fail.

    showcase.py [ACT…]     daemonlet, example, stock; all of them without one

Each act has a cluster of its own. `daemonlet`: a control plane without scheduler and DaemonSet controller, and
machines that got the .deb and one file that brings the pod network. `example`: the repository's own CNI DaemonSet,
with no API server at all. `stock`: the machines of the first act without daemonlet, with scheduler and DaemonSet
controller. The last table has their times side by side.

The file is the repository's own CNI, or the published one that MANIFEST names (its images: see kit/networks.py).
"""

import importlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import networks  # noqa: E402
from kit import preflight  # noqa: E402
from kit import sandbox  # noqa: E402
from kit import tools  # noqa: E402

ACTS = ("daemonlet", "example", "stock")
# What the table has, in the order of the acts; `None` where an act has no such step.
ROWS = (
    ("power-on → agent ready", "ready"),
    ("power-on → daemon's first container", "container"),
    ("power-on → Node Ready", "node"),
    ("last power-on → pods of all nodes reach each other", "network"),
    ("rolling update of the three nodes", "update"),
    ("bad update → halted and taken back everywhere", "bad"),
    ("API swallowed, power lost: power-on → first container", "cold"),
    ("power lost, no API server: power-on → network", "alone"),
    ("packets through again → network", "back"),
)


def _play(act):
    run = sandbox.Sandbox()
    try:
        status = run.start([str(HERE / "showcase.py"), "--inside", act]).wait()
        file = run.scratch / "showcase.json"
        return status, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    finally:
        run.end()


def _table(times):
    width = max(len(what) for what, _ in ROWS)
    print(f"\n{'':{width}}  {'daemonlet':>12}  {'example CNI':>12}  {'stock':>12}")
    for what, key in ROWS:
        cells = [times.get(act, {}).get(key, "—") for act in ACTS]
        print(f"{what:{width}}  " + "  ".join(f"{cell if isinstance(cell, str) else f'{cell:.1f} s':>12}" for cell in cells))
    print("\nstock: DaemonSet controller and scheduler, on the same machines in the same run; the longest of three nodes counts.")


def main():
    """The command; the exit status is 1 when an act did not come to its end."""
    sys.stdout.reconfigure(line_buffering=True)
    if sys.argv[1:2] == ["--inside"]:
        importlib.import_module("acts").play(sys.argv[2])
        return 0
    os.environ.setdefault("DAEMONLET_BIN", str(tools.target_dir() / "release/daemonlet"))
    os.environ.setdefault("DAEMONLET_LOG", "info")
    try:
        networks.chosen()
        lacks = preflight.check()
    except (networks.Unusable, FileNotFoundError) as error:
        lacks = [str(error)]
    if lacks:
        print("\n".join(lacks), file=sys.stderr)
        return 1
    times, failed = {}, 0
    for act in sys.argv[1:] or ACTS:
        status, times[act] = _play(act)
        failed |= status != 0
    _table(times)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
