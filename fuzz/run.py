#!/usr/bin/env python3
"""Runs the fuzz targets for a bounded time each; a finding fails the run and is kept.

    run.py [--seconds N] [TARGET…]

Needs Rust and nothing else: the same instrumentation as `cargo fuzz run --sanitizer none`, by
options that a stable compiler takes. (The program is without `unsafe`; what is looked for are
panics, hangs, memory without bound, and results that contradict themselves.) The seeds are in
`seeds/TARGET`; what is found on the way stays below the target folder, for the next run.

Prints a line a target and last `N passed, N failed, N skipped`. DAEMONLET_FUZZ_SECONDS is the
default of `--seconds`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGETS = ("files", "api", "checkpoint", "config", "yaml", "runtime", "provider", "socket", "bundle", "cluster", "fields")
# As cargo-fuzz has it.
RUSTFLAGS = ("-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-trace-compares "
             "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table --cfg fuzzing")
# An input this long takes a fraction of a second; memory is mostly the fuzzer's own corpus.
LIMITS = ("-max_len=131072", "-len_control=20", "-timeout=10", "-rss_limit_mb=768", "-malloc_limit_mb=256")


def folder():
    """Where what is built and found goes: in cargo's target folder."""
    metadata = ["cargo", "metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path", HERE.parent / "Cargo.toml"]
    return Path(json.loads(subprocess.run(metadata, stdout=subprocess.PIPE, check=True).stdout)["target_directory"]) / "fuzz"


BUILT = folder()


def build():
    """Builds all targets; gives whether it worked."""
    env = os.environ | {"RUSTFLAGS": RUSTFLAGS, "CARGO_TARGET_DIR": str(BUILT)}
    # With a target named, build scripts and macros are not instrumented.
    command = ["cargo", "build", "--quiet", "--release", "--bins", "--target", host(), "--manifest-path", HERE / "Cargo.toml"]
    return subprocess.run(command, env=env, check=False).returncode == 0


def host():
    """The compiler's own platform."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^host: (\S+)$", said, re.M).group(1)


def fuzz(target, seconds):
    """Fuzzes one target; gives the line to print and whether it went well."""
    corpus, seeds, findings = BUILT / "corpus" / target, HERE / "seeds" / target, BUILT / "findings" / target
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = [BUILT / host() / "release" / target, corpus, seeds, f"-max_total_time={seconds}", f"-artifact_prefix={findings}/", "-print_final_stats=1", *LIMITS]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode("utf-8", "replace")
    last = re.findall(r"^#\d+\s+\S+\s+cov: (\d+).* rss: (\d+)Mb", said, re.M)
    runs = re.search(r"stat::number_of_executed_units: (\d+)", said)
    coverage, memory = last[-1] if last else ("?", "?")
    line = f"{time.monotonic() - began:6.1f} s  {target}: {runs.group(1) if runs else '?'} inputs, coverage {coverage}, {memory} MB"
    if done.returncode:
        line += "\n" + "\n".join(said.splitlines()[-60:])
    return line, done.returncode == 0


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS])
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("DAEMONLET_FUZZ_SECONDS", "20")))
    options = parser.parse_args()
    if not build():
        print("0 passed, 1 failed, 0 skipped")
        return 1
    targets = options.targets or TARGETS
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for line, well in pool.map(lambda target: fuzz(target, options.seconds), targets):
            failed += not well
            print(f"  {'ok' if well else 'FAILED':7} {line}", flush=True)
    print(f"{len(targets) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
