#!/usr/bin/env python3
"""`make static`: the program linked with musl, one file that needs no library.

Needs Rust's standard library for musl (rustup fetches it) and a C compiler for musl, which compiles the
assembler and C of ring (Debian: musl-tools).
"""

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
TARGET = f"{platform.machine()}-unknown-linux-musl"


def main():
    """The command."""
    if not shutil.which("musl-gcc"):
        print("musl-gcc is missing: apt-get install musl-tools", file=sys.stderr)
        return 1
    installed = subprocess.run(["rustup", "target", "list", "--installed"], stdout=subprocess.PIPE, text=True, check=True)
    if TARGET not in installed.stdout.split():
        subprocess.run(["rustup", "target", "add", TARGET], check=True)
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", TARGET, "--bin", "daemonlet"], cwd=REPO, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO, stdout=subprocess.PIPE, check=True).stdout
    program = Path(json.loads(metadata)["target_directory"]) / TARGET / "release" / "daemonlet"
    head = subprocess.run(["readelf", "--program-headers", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    if "INTERP" in head:
        print(f"{program} needs a loader: it is not static", file=sys.stderr)
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
