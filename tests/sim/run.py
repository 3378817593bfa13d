#!/usr/bin/env python3
"""The simulator: builds it, and lives lives.

    run.py [--seconds N] [--lives N] [--seed S] [WORD…]   for 60 seconds, or so many lives; words go to the simulator (see main.rs)
    run.py --dice [--lives N] [--seed S]                  the dice of the coordinator (tests/dice) in its place: 5,000 lives from 0 on
    run.py --build                                        builds both, and plays nothing
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent.parent


# How cargo builds it.
PROFILE = ["--profile", "sim", "--features", "simulation"]


def environment():
    """What cargo's environment has for it, too."""
    # tokio's choices come from the seed of a life only with its unstable part.
    return {"RUSTFLAGS": f"{os.environ.get('RUSTFLAGS', '')} --cfg tokio_unstable".strip()}


def command(name):
    """What builds the simulator, or the dice."""
    return ["cargo", "test", "--quiet", *PROFILE, "--test", name, "--no-run", "--message-format", "json"]


def build(name="sim"):
    """Builds the simulator, or the dice; gives its path."""
    done = subprocess.run(command(name), cwd=REPO, env=os.environ | environment(), stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        if said.get("reason") == "compiler-artifact" and said["target"]["name"] == name and said.get("executable"):
            return said["executable"]
    raise SystemExit(f"cargo does not say where {name} is")


def main():
    """The command; the exit status is the simulator's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--lives", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--dice", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("words", nargs="*")
    asked = parser.parse_args()
    if asked.build:
        build("sim")
        build("dice")
        return 0
    if asked.dice:
        program = build("dice")
        os.execve(program, [program], os.environ | {"DAEMONLET_SEED": str(asked.seed or 0), "DAEMONLET_SEEDS": str(asked.lives or 5_000)})
    seconds = asked.seconds or (10**6 if asked.lives else 60)
    env = os.environ | {"SIM_SECONDS": str(seconds)}
    env |= {name: str(value) for name, value in (("SIM_LIVES", asked.lives), ("SIM_SEED", asked.seed)) if value is not None}
    program = build()
    os.execve(program, [program, *asked.words], env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
