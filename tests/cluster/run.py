#!/usr/bin/env python3
"""Runs the cluster tests: each file of `suite/` in a sandbox of its own.

    run.py [-k WORD] [FILE…]    FILE: `flannel` for suite/test_flannel.py; all of them without one
    run.py --build              only builds what the tests need

Prints a line a test as it ends, and last `N passed, N failed, N skipped`. Logs of a failed file are
kept under target/cluster-logs. The environment: DAEMONLET_BIN (the daemonlet to test, default the
checkout's debug build), DAEMONLET_CACHE, DAEMONLET_TOOLS, DAEMONLET_SCRATCH.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import sandbox  # noqa: E402
from kit import tools  # noqa: E402

LOGS = tools.REPO / "target" / "cluster-logs"


class Report(unittest.TestResult):
    """Prints one line a test, with its time, and counts."""

    def __init__(self):
        super().__init__()
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.began = time.monotonic()

    def startTest(self, test):  # noqa: N802 (unittest's name)
        super().startTest(test)
        self.began = time.monotonic()

    def failed_so_far(self):
        """How many tests failed."""
        return self.counts["failed"]

    def _line(self, outcome, test, detail=""):
        self.counts[outcome] += 1
        word = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[outcome]
        print(f"  {word:7} {time.monotonic() - self.began:6.1f} s  {test}{detail}", flush=True)

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
    """A test's sentence: its name with spaces."""
    name = getattr(test, "_testMethodName", None)
    return name.removeprefix("test_").replace("_", " ") if name else str(test)


class AsWritten(unittest.TestLoader):
    """Takes a class's tests in the order they are written (and `_inside` the classes): they tell a story."""

    def getTestCaseNames(self, testCaseClass):  # noqa: N802, N803 (unittest's names)
        written = [name for base in reversed(testCaseClass.__mro__) for name in vars(base)]
        return sorted(super().getTestCaseNames(testCaseClass), key=written.index)


def _inside(file, word):
    """In the sandbox: runs one file's tests and leaves the counts."""
    loader = AsWritten()
    if word:
        loader.testNamePatterns = [f"*{word}*"]
    report = Report()
    module = importlib.import_module(f"suite.test_{file}")
    cases = [case for case in vars(module).values() if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ == module.__name__]
    unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases).run(report)
    (sandbox.scratch() / "counts.json").write_text(json.dumps(report.counts), encoding="utf-8")


def _run_file(file, word):
    """Runs one file's tests in a sandbox; gives the counts."""
    print(f"{file}:", flush=True)
    run = sandbox.Sandbox()
    try:
        run.start([str(HERE / "run.py"), "--inside", file, *(["-k", word] if word else [])]).wait()
        try:
            counts = json.loads((run.scratch / "counts.json").read_text(encoding="utf-8"))
        except OSError:
            print("  FAILED  the run ended before its tests did")
            counts = {"passed": 0, "failed": 1, "skipped": 0}
        if counts["failed"] or os.environ.get("DAEMONLET_KEEP_LOGS"):
            _keep_logs(run.scratch, file)
        return counts
    finally:
        run.end()


def _keep_logs(scratch, file):
    kept = LOGS / file
    shutil.rmtree(kept, ignore_errors=True)
    if (scratch / "logs").exists():
        shutil.copytree(scratch / "logs", kept)
        print(f"  logs: {kept}")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("-k", dest="word", default="")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--inside")
    options = parser.parse_args()
    if options.inside:
        _inside(options.inside, options.word)
        return 0
    if options.build:
        tools.install_packages()
        tools.build()
        print(tools.bin_dir())
        return 0
    if os.geteuid() != 0:
        kept = [f"{key}={os.environ[key]}" for key in os.environ if key.startswith("DAEMONLET_")]
        return subprocess.call(["sudo", "env", f"DAEMONLET_CACHE={tools.cache()}", *kept, sys.executable, *sys.argv])
    sys.stdout.reconfigure(line_buffering=True)
    files = options.files or sorted(path.stem.removeprefix("test_") for path in (HERE / "suite").glob("test_*.py"))
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for file in files:
        for key, count in _run_file(file, options.word).items():
            total[key] += count
    print(", ".join(f"{count} {key}" for key, count in total.items()))
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
