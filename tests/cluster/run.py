#!/usr/bin/env python3
"""Runs the cluster tests: each file of `suite/` in a sandbox of its own, six files at a time.

    run.py [-k WORD] [--lanes N] [FILE…]   FILE: `flannel` for suite/test_flannel.py; all of them without one
    run.py --beside, run.py --alone        only those that run beside others, or only those that run alone
    run.py --measure [FILE…]               and writes what each took into suite/seconds.txt
    run.py --build                         only makes what the tests need; nothing else needs the network
    run.py --preflight                     only looks whether this machine can run them

The longest come first (`suite/seconds.txt` has what they took). Those that have a line `ALONE = …`
assert times or load the disk: they run after the others, one at a time. A file's output is printed
when it has ended; with one lane, as it comes. The last lines name the ten slowest tests, what was
skipped and why, and count: `N passed, N failed, N skipped`. Logs of a failed file are kept under
cluster-logs in cargo's target folder. The environment: DAEMONLET_BIN (the daemonlet to test, default
the checkout's debug build), DAEMONLET_CACHE, DAEMONLET_TOOLS, DAEMONLET_SCRATCH.
"""

import argparse
import ctypes
import faulthandler
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import cgroups  # noqa: E402
from kit import preflight  # noqa: E402
from kit import sandbox  # noqa: E402
from kit import tools  # noqa: E402

# Files side by side: stories wait most of their time, and six of them leave little of two processors.
LANES = 6
SLOWEST = 10
# A file that takes longer, in seconds, hangs: it is ended, and what it waited for is printed.
LIMIT = 3 * 3600 if os.environ.get("DAEMONLET_LONG") else 900
# What each file took, by this machine's clock, when it was last measured: `run.py` orders by it.
SECONDS = HERE / "suite" / "seconds.txt"
_ALONE = re.compile(r"^ALONE = ", re.M)
_LOGS = "DAEMONLET_LOGS"


class Report(unittest.TestResult):
    """Prints one line a test, with its time, and counts."""

    def __init__(self):
        super().__init__()
        self.tests = []
        self.began = time.monotonic()

    def startTest(self, test):  # noqa: N802 (unittest's name)
        super().startTest(test)
        self.began = time.monotonic()

    def failed_so_far(self):
        """How many tests failed."""
        return sum(test["outcome"] == "failed" for test in self.tests)

    def _line(self, outcome, test, detail=""):
        took = time.monotonic() - self.began
        self.tests.append({"outcome": outcome, "test": test, "seconds": took, "detail": detail})
        word = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[outcome]
        print(f"  {word:7} {took:6.1f} s  {test}{detail}", flush=True)

    def addSuccess(self, test):  # noqa: N802
        self._line("passed", _title(test))

    def addSkip(self, test, reason):  # noqa: N802
        self._line("skipped", _title(test), f": {reason}")

    def _bad(self, test, error):
        self._line("failed", _title(test))
        print("".join(traceback.format_exception(*error)), flush=True)

    def addFailure(self, test, err):  # noqa: N802
        self._bad(test, err)

    def addError(self, test, err):  # noqa: N802
        self._bad(test, err)

    def addSubTest(self, test, subtest, err):  # noqa: N802
        """One that failed fails its test, which is not reported as passed then."""
        if err is not None:
            self._bad(subtest, err)

    def addExpectedFailure(self, test, err):  # noqa: N802
        self._line("skipped", _title(test), f": known to fail: {err[1]}")

    def addUnexpectedSuccess(self, test):  # noqa: N802
        self._line("failed", _title(test), ": was known to fail, and passed")


def _title(test):
    """A test's sentence: its name with spaces. What is no test is the preparation of a module or class."""
    name = getattr(test, "_testMethodName", None)
    return name.removeprefix("test_").replace("_", " ") if name else f"all of it ({test})"


class AsWritten(unittest.TestLoader):
    """Takes a class's tests in the order they are written (and `_inside` the classes): they make a story."""

    def getTestCaseNames(self, testCaseClass):  # noqa: N802, N803 (unittest's names)
        written = [name for base in reversed(testCaseClass.__mro__) for name in vars(base)]
        return sorted(super().getTestCaseNames(testCaseClass), key=written.index)


def _inside(file, word):
    """In the sandbox: runs one file's tests and leaves what became of them."""
    faulthandler.dump_traceback_later(LIMIT - 10, file=sys.stdout)
    loader = AsWritten()
    if word:
        loader.testNamePatterns = [f"*{word}*"]
    report = Report()
    module = importlib.import_module(f"suite.test_{file}")
    cases = [case for case in vars(module).values() if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__]
    unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases).run(report)
    (sandbox.scratch() / "tests.json").write_text(json.dumps(report.tests), encoding="utf-8")


def _one(file, word, result):
    """In a process of its own: runs one file's tests in a sandbox, and leaves what became of them in `result`."""
    # Ends with the run, as the sandbox ends with this process.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    run = sandbox.Sandbox()
    try:
        inside = run.start([str(HERE / "run.py"), "--inside", file, *(["-k", word] if word else [])])
        try:
            status = inside.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = f"none after {LIMIT} s"
        try:
            tests = json.loads((run.scratch / "tests.json").read_text(encoding="utf-8"))
        except OSError:
            what = f"the run of {file} ended (status {status}) before its tests did"
            print(f"  FAILED  {what}")
            tests = [{"outcome": "failed", "test": what, "seconds": 0.0, "detail": ""}]
        if os.environ.get("DAEMONLET_KEEP_LOGS") or any(test["outcome"] == "failed" for test in tests):
            _keep_logs(run.scratch, file)
        result.write_text(json.dumps({"tests": tests, "processor": cgroups.processor_seconds(run.name)}), encoding="utf-8")
    finally:
        run.end()


def _keep_logs(scratch, file):
    kept = Path(os.environ[_LOGS]) / file
    shutil.rmtree(kept, ignore_errors=True)
    if (scratch / "logs").exists():
        shutil.copytree(scratch / "logs", kept)
        print(f"  logs: {kept}")


class Lanes:
    """Files side by side: `run(files, lanes)`; `done` has (file, seconds, tests) of each."""

    def __init__(self, word):
        self.word, self.done = word, []
        self._began, self._lock, self._left = time.monotonic(), threading.Lock(), []

    def run(self, files, count):
        """Runs the files in that order, `count` at a time."""
        self._left = list(reversed(files))
        lanes = [threading.Thread(target=self._lane, args=(lane, count == 1)) for lane in range(1, min(count, len(files)) + 1)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    def _lane(self, lane, live):
        while True:
            with self._lock:
                if not self._left:
                    return
                file = self._left.pop()
            self._say(f"lane {lane}: {file} starts")
            self._file(file, live)

    def _say(self, text, block=""):
        with self._lock:
            print(f"[{time.monotonic() - self._began:5.0f} s] {text}\n{block}", end="", flush=True)

    def _file(self, file, live):
        began = time.monotonic()
        result = sandbox.RUNS / f"result-{os.getpid()}-{file}.json"
        argv = [sys.executable, "-u", str(HERE / "run.py"), "--one", file, "--result", str(result), *(["-k", self.word] if self.word else [])]
        block = []
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as child:
            for line in child.stdout:
                print(line, end="", flush=True) if live else block.append(line)
        try:
            record = json.loads(result.read_text(encoding="utf-8"))
            result.unlink()
        except OSError:
            record = {"tests": [{"outcome": "failed", "test": f"{file} did not come to its end", "seconds": 0.0, "detail": ""}], "processor": None}
        took = time.monotonic() - began
        counts = ", ".join(f"{count} {outcome}" for outcome, count in _count(record["tests"]).items())
        with self._lock:
            self.done.append((file, took, record["tests"]))
        self._say(f"{file}: {counts}, {took:.0f} s, {record['processor'] or 0:.0f} s of processors", "".join(block))


def _count(tests):
    return {outcome: sum(test["outcome"] == outcome for test in tests) for outcome in ("passed", "failed", "skipped")}


def _seconds():
    """What each file took when it was last measured."""
    return {name: float(took) for name, took in (line.split() for line in SECONDS.read_text(encoding="utf-8").splitlines())}


def _write_seconds(done):
    """Keeps what each file took now."""
    took = _seconds() | {file: took for file, took, _ in done}
    SECONDS.write_text("".join(f"{file} {seconds:.0f}\n" for file, seconds in sorted(took.items())), encoding="utf-8")


def in_order(files):
    """The files that can run side by side, longest first (what was never measured may be longest), and those that run alone."""
    took = _seconds()
    files = sorted(files, key=lambda file: (-took.get(file, float("inf")), file))
    alone = [file for file in files if _ALONE.search((HERE / "suite" / f"test_{file}.py").read_text(encoding="utf-8"))]
    return [file for file in files if file not in alone], alone


def _closing(done):
    """The last lines; gives the exit status."""
    tests = [(test, file) for file, _, tests in done for test in tests]
    print(f"the {SLOWEST} slowest:")
    for test, file in sorted(tests, key=lambda pair: -pair[0]["seconds"])[:SLOWEST]:
        print(f"  {test['seconds']:6.1f} s  {file}: {test['test']}")
    for outcome in ("skipped", "failed"):
        for test, file in tests:
            if test["outcome"] == outcome:
                print(f"{outcome}: {file}: {test['test']}{test['detail']}")
    total = _count([test for test, _ in tests])
    print(", ".join(f"{count} {outcome}" for outcome, count in total.items()))
    return 1 if total["failed"] or not total["passed"] else 0


def _build():
    """Makes what is not there yet."""
    try:
        tools.install_packages()
        print(tools.build())
    except (subprocess.CalledProcessError, RuntimeError) as error:
        print(f"the tools could not be made: {error}", file=sys.stderr)
        return 1
    return 0


def _ready():
    """Whether this machine can run the tests; says what it lacks."""
    lacks = preflight.check()
    for line in lacks:
        print(f"preflight: {line}")
    return not lacks


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-k", dest="word", default="")
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--preflight", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--result", type=Path)
    parser.add_argument("--inside")
    options = parser.parse_args()
    if options.inside:
        _inside(options.inside, options.word)
        return 0
    if options.one:
        _one(options.one, options.word, options.result)
        return 0
    if options.build:
        return _build()
    # Asked here, for root may have no cargo.
    os.environ.setdefault("DAEMONLET_BIN", str(tools.target_dir() / "debug" / "daemonlet"))
    os.environ.setdefault(_LOGS, str(tools.target_dir() / "cluster-logs"))
    if os.geteuid() != 0:
        kept = [f"{key}={os.environ[key]}" for key in os.environ if key.startswith("DAEMONLET_")]
        return subprocess.call(["sudo", "env", f"DAEMONLET_CACHE={tools.cache()}", *kept, sys.executable, *sys.argv])
    sys.stdout.reconfigure(line_buffering=True)
    if not _ready():
        print("0 passed, 1 failed, 0 skipped")
        return 1
    if options.preflight:
        return 0
    beside, alone = in_order(options.files or [path.stem.removeprefix("test_") for path in (HERE / "suite").glob("test_*.py")])
    lanes = Lanes(options.word)
    if not options.alone:
        lanes.run(beside, preflight.lanes(options.lanes))
    if not options.beside:
        lanes.run(alone, 1)
    if options.measure:
        _write_seconds(lanes.done)
    return _closing(lanes.done)


if __name__ == "__main__":
    sys.exit(main())
