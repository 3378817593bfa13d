#!/usr/bin/env python3
"""Whether the simulator and the dice see: each patch of this folder is a fault, and lives are to find it.

    run.py [--limit N] [NAME…]   the patches with these names (parts of them), or all

Those whose names begin with `d` are for the dice of the coordinator (tests/dice), the others for
the simulator. Prints the first seed whose life breaks a law with the fault and holds without it. Fails for a patch that does
not apply or does not build, and for a fault that N lives (20,000; of the dice 5,000) do not find, but for those that
SURVIVORS explains.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import run as simulator  # noqa: E402

REPO = HERE.parent.parent.parent
TREE = REPO / "target" / "mutants"
# Cargo gives the copy's artifacts the names of the tree's: in one folder each would overwrite the other's.
TARGET = TREE / "target"
_FOUND = re.compile(r"^seed (\d+): (.*)$", re.MULTILINE)
_THROWN = re.compile(r"^seed (?P<seed>\d+): panicked at [^\n]*\n(?P<what>[^\n]*)", re.MULTILINE)
DICE_LIMIT = 5_000

# Faults that cannot be seen, and why.
SURVIVORS = {}


def lay_out():
    """A copy of the tree's files as they are now; what is the same keeps its time, and is not built again."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, stdout=subprocess.PIPE, check=True).stdout
    names = [name for name in tracked.decode().split("\0") if name and (REPO / name).is_file()]
    for name in names:
        here, there = REPO / name, TREE / name
        if there.is_file() and there.read_bytes() == here.read_bytes():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here, there)
    return names


def is_dice(patch):
    """Whether a fault is for the dice."""
    return patch.stem.startswith("d")


def build(is_for_dice=False):
    """Builds the copy's simulator or dice; gives its path, or None. The dependencies are those of the tree's, if it has any."""
    name = "dice" if is_for_dice else "sim"
    if not TARGET.exists() and (REPO / "target" / "sim").exists():
        shutil.copytree(REPO / "target" / "sim", TARGET / "sim", symlinks=True, ignore=shutil.ignore_patterns("incremental"))
    env = os.environ | simulator.environment() | {"CARGO_TARGET_DIR": str(TARGET)}
    argv = simulator.command(name)
    done = subprocess.run(argv, cwd=TREE, env=env, stdout=subprocess.PIPE, text=True, check=False)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        if said.get("reason") == "compiler-message" and said["message"]["level"] == "error":
            print(said["message"]["rendered"])
        if said.get("reason") == "compiler-artifact" and said["target"]["name"] == name and said.get("executable"):
            return said["executable"]
    return None


def broken(simulator, first, count):
    """The first of the seeds from `first` on that breaks a law, and which; None: none of so many does."""
    env = os.environ | {"SIM_SEED": str(first), "SIM_LIVES": str(count), "SIM_SECONDS": "1000000", "SIM_WHOLE": "1"}
    done = subprocess.run([simulator, "new"], cwd=REPO, env=env, stdout=subprocess.PIPE, text=True, check=False)
    found = sorted((int(seed), what) for seed, what in _FOUND.findall(done.stdout))
    return found[0] if found else None


def thrown(dice, **env):
    """The seed that breaks a law of the dice, and which; None: none does."""
    env = os.environ | {name: str(value) for name, value in env.items()}
    done = subprocess.run([dice], cwd=REPO, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = _THROWN.search(done.stdout)
    return (int(found["seed"]), found["what"]) if found else None


def first_throw(dice, right, limit):
    """As `first_seed`, for the dice. What the dice without the fault break, too, is found by their own test."""
    found = thrown(dice, DAEMONLET_SEEDS=limit)
    return found if found and not thrown(right, DAEMONLET_SEED=found[0]) else None


def first_seed(simulator, right, limit):
    """The first seed that breaks a law, and which, while `right`, the simulator without the fault, keeps it."""
    first = 1
    while first <= limit:
        found = broken(simulator, first, limit - first + 1)
        if not found or not broken(right, found[0], 1):
            return found
        first = found[0] + 1
    return None


def main():
    """The command; the exit status is 1 when a fault is not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=20_000)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    patches = sorted(HERE.glob("*.patch"))
    patches = [patch for patch in patches if not asked.names or any(name in patch.stem for name in asked.names)]
    lay_out()
    right = {}
    for which in sorted({is_dice(patch) for patch in patches}):
        made = build(which)
        if not made:
            return 1
        right[which] = TREE / ("right-dice" if which else "right")
        shutil.copy2(made, right[which])
    wrong = []
    for patch in patches:
        lay_out()
        began = time.monotonic()
        argv = ["patch", "-p1", "--fuzz=0", "--silent", "--no-backup-if-mismatch", "-i", patch]
        if subprocess.run(argv, cwd=TREE, check=False).returncode:
            wrong.append(patch.stem)
            print(f"{patch.stem:45} does not apply", flush=True)
            continue
        simulator = build(is_dice(patch))
        if not simulator:
            wrong.append(patch.stem)
            print(f"{patch.stem:45} does not build", flush=True)
            continue
        limit = min(asked.limit, DICE_LIMIT) if is_dice(patch) else asked.limit
        find = first_throw if is_dice(patch) else first_seed
        found = find(simulator, right[is_dice(patch)], limit)
        took = f"{time.monotonic() - began:.0f} s"
        if found:
            print(f"{patch.stem:45} seed {found[0]:>6}  {found[1][:110]}  ({took})", flush=True)
        elif patch.stem in SURVIVORS:
            print(f"{patch.stem:45} not found in {limit} lives: {SURVIVORS[patch.stem]}  ({took})", flush=True)
        else:
            wrong.append(patch.stem)
            print(f"{patch.stem:45} NOT FOUND in {limit} lives  ({took})", flush=True)
    lay_out()
    print(f"{len(patches) - len(wrong)} of {len(patches)} as they are to be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
