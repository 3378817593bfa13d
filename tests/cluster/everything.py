#!/usr/bin/env python3
"""`make test`: every check and test of the project, and one closing line that counts them.

    everything.py           tools, format, clippy, cargo's tests, 600 simulated lives, the dice, benches once, cluster tests
    everything.py --long    the same with DAEMONLET_LONG=1, 20,000 simulated lives, ten minutes of fuzzing, `make docs` and
                            `make deny` (`make test-long`)
    everything.py --fast    format, clippy, cargo's tests and 200 simulated lives (`make check`)

The tools are made while the lints run and cargo's tests are built. The simulator, the dice and the benches take what the
cluster tests leave of the processors, and nothing else: these wait most of their time, and their deadlines are short. A
failed step does not stop the next one: whoever reads the output sees all that is wrong.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import tools  # noqa: E402
from kit.daemons import CORPUS  # noqa: E402

REPO = HERE.parent.parent
_SIMULATOR = [sys.executable, "-u", REPO / "tests" / "sim" / "run.py"]
# With these control groups each test's group has as large a part of the processors as all that runs outside of one.
_UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
_CLUSTER = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# What cargo's tests, and the cluster tests, say of one that failed.
_FAILED = re.compile(r"^(?:---- (.+) stdout ----|  FAILED +(?:[\d.]+ s  )?(.+))$")


class Tally:
    """Counts over all steps. Format and clippy count as one test each."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self._lock = threading.Lock()

    def step(self, name, argv, pattern=None, env=None):
        """Runs a step; adds what its output counts, or the step itself."""
        print(f"=== {name}", flush=True)
        said = self._run(name, argv, pattern, lambda line: print(line, end="", flush=True), env=env)
        print(said, flush=True)

    def idly(self, steps):
        """Runs steps, one after the other, with what is left of the processors; gives what waits for their end and prints."""
        lines, left = [], len(steps)

        def run():
            nonlocal left
            for name, argv, pattern in steps:
                lines.append(f"=== {name}\n")
                said = self._run(name, argv, pattern, lines.append, stderr=subprocess.STDOUT, preexec_fn=_idle)
                lines.append(f"{said}, beside the cluster tests\n")
                left -= 1

        running = threading.Thread(target=run, daemon=True)
        running.start()

        def ended():
            nonlocal left
            running.join()
            print("".join(lines), end="", flush=True)
            self.failed += left  # whatever kept them from being run
            self.failures += [name for name, *_ in steps[len(steps) - left:]]
            lines.clear()
            left = 0

        return ended

    def _run(self, name, argv, pattern, out, **how):
        """Runs a command, adds what it counts, and gives its closing line."""
        began = time.monotonic()
        counts, failures = [0, 0, 0], []
        with subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, text=True, errors="replace", **how) as child:
            for line in child.stdout:
                found = pattern.match(line) if pattern else None
                if found:
                    counts = [sum(pair) for pair in zip(counts, map(int, found.groups()))]
                if failed := _FAILED.match(line):
                    failures.append(f"{name}: {failed[1] or failed[2]}")
                if not (found and pattern is _CLUSTER):
                    out(line)
        if not pattern:
            counts = [int(child.returncode == 0), int(child.returncode != 0), 0]
        elif child.returncode and not counts[1]:
            counts[1] = 1  # it broke before it could count
        with self._lock:
            self.failures += failures or [name] * bool(child.returncode)
            self.passed, self.failed, self.skipped = (a + b for a, b in zip((self.passed, self.failed, self.skipped), counts))
        return f"=== {name}: {'ok' if child.returncode == 0 else 'FAILED'}, {time.monotonic() - began:.0f} s"


def _idle():
    """In a new process: it and its children run only where a processor has nothing else to do, and end with this one."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # The kernel may share the processors between sessions first, and between a session's processes then.
    os.setsid()
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text("19", encoding="ascii")
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main():
    """The command; the exit status is 0 when nothing failed."""
    unknown = [argument for argument in sys.argv[1:] if argument not in ("--fast", "--long")]
    if unknown:
        print(__doc__)
        return 0 if unknown == ["--help"] else 2
    fast, long = "--fast" in sys.argv[1:], "--long" in sys.argv[1:]
    tally = Tally()
    # The same lives each time: this fails for a change, and not by chance. New ones: `make sim`, `make test-long`.
    lives = ["--lives", "20000"] if long else ["--lives", "200" if fast else "600", "--seed", "1"]
    if fast:
        _check(tally, dict(os.environ))
        tally.step("simulator", [*_SIMULATOR, *lives])
    else:
        _everything(tally, lives, long)
    if not CORPUS.is_dir():
        print(f"not tested: published manifests (there is no folder {CORPUS})")
    for failure in tally.failures:
        print(f"failed: {failure}")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


def _check(tally, env, making=None):
    """The lints and cargo's tests; these ask the oracles where the tools are made, and wait for that."""
    began = time.monotonic()
    tally.step("format", ["cargo", "fmt", "--all", "--check"])
    tally.step("format of the fuzz targets", ["cargo", "fmt", "--manifest-path", REPO / "fuzz" / "Cargo.toml", "--check"])
    tally.step("clippy", ["cargo", "clippy", "--quiet", "--all-targets", "--features", "simulation", "--", "-D", "warnings"])
    test = ["cargo", "test", "--quiet", "--no-fail-fast"]
    made = not making
    if making:
        tally.step("build of cargo's tests", [*test, "--no-run"])
        made = making.wait() == 0
        print(f"=== tools: {'ok' if made else 'FAILED'}, {time.monotonic() - began:.0f} s, lints and builds included", flush=True)
        tally.failed += not made
        tally.failures += ["tools"] * (not made)
    if made and tools.bin_dir().exists():
        env["DAEMONLET_TOOLS"] = str(tools.bin_dir())
    tally.step("cargo test", test, _CARGO, env)
    return made


def _everything(tally, lives, long):
    """All steps of `make test`."""
    env = dict(os.environ)
    run = [sys.executable, "-u", HERE / "run.py"]
    making = subprocess.Popen([*run, "--build"], stdout=subprocess.DEVNULL, env=env | ({"DAEMONLET_LONG": "1"} if long else {}))
    made = _check(tally, env, making)
    tally.step("build of the simulator", [*_SIMULATOR, "--build"])
    idle = [
        ("simulator", [*_SIMULATOR, *lives], None),
        ("dice", [*_SIMULATOR, "--dice"], _CARGO),
        # Once each, and slowly, so that they do not rot; of those with 20,000 parts the unit tests have smaller ones.
        ("benches", ["cargo", "bench", "--quiet", "--profile", "dev", "--bench", "core", "--", "--test", "^[^2]"], None),
    ]
    if long:
        env["DAEMONLET_LONG"] = "1"
        tally.step("book", [sys.executable, REPO / "docs" / "book.py"])
        tally.step("licences and sources", [sys.executable, REPO / "packaging" / "dependencies.py"])
        tally.step("fuzz targets", [sys.executable, "-u", REPO / "fuzz" / "run.py", "--seconds", "600"], _CLUSTER)
    # A debug build takes four times the processors, and a cluster has two of them. The simulator's has its checks, too.
    optimised = tools.target_dir() / "sim" / "daemonlet"
    if optimised.exists():
        env["DAEMONLET_BIN"] = str(optimised)
    ended = tally.idly(idle)
    if _UNIFIED.exists():
        ended()
    if made:
        tally.step("cluster tests", [*run, "--beside"], _CLUSTER, env)
    ended()
    if made:
        tally.step("cluster tests that run alone", [*run, "--alone"], _CLUSTER, env)


if __name__ == "__main__":
    sys.exit(main())
