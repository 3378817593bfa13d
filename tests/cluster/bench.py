#!/usr/bin/env python3
"""Measures the running agent, each story of `benches/` in a sandbox of its own.

    bench.py [STORY…]      STORY: `manifest`, `apply`, `power`, `cold`, `hundred`, `coordinator`, `foreign`; all of them without one

`swarm` and `heavy` run only when they are named: they take the whole machine for minutes.

Prints lines `bench: WHAT | FIGURE | GOAL | VERDICT`; `make bench` puts them in its table. Measures
target/release/daemonlet, or $DAEMONLET_BIN.
"""

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import cgroups  # noqa: E402
from kit import sandbox  # noqa: E402
from kit import tools  # noqa: E402

STORIES = ("manifest", "apply", "power", "cold", "hundred", "coordinator", "foreign")


def _run(story):
    run = sandbox.Sandbox()
    try:
        child = run.start([str(HERE / "bench.py"), "--inside", story])
        _go_first(run.name)
        return child.wait()
    finally:
        run.end()


def _go_first(name):
    """What else goes on on this machine is not to be measured: the run's group has the right of way."""
    for file, weight in (("cpu/{}/cpu.shares", "262144"), ("{}/cpu.weight", "10000")):
        try:
            (cgroups.ROOT / file.format(name)).write_text(weight, encoding="ascii")
        except OSError:
            pass  # the other version of control groups, or no right to it: then it takes its chances


def main():
    """The command; the exit status is 1 when a story did not come to its end."""
    sys.stdout.reconfigure(line_buffering=True)
    if sys.argv[1:2] == ["--inside"]:
        importlib.import_module(f"benches.{sys.argv[2]}").main()
        return 0
    os.environ.setdefault("DAEMONLET_BIN", str(tools.target_dir() / "release/daemonlet"))
    os.environ.setdefault("DAEMONLET_LOG", "info")
    ended = [_run(story) for story in sys.argv[1:] or STORIES]
    return int(any(ended))


if __name__ == "__main__":
    sys.exit(main())
