#!/usr/bin/env python3
"""`make static`: the program linked with musl, one file that needs no library.

    static.py [--arch aarch64]

Needs Rust's standard library for musl (rustup fetches it) and a C compiler, which compiles the assembler and C of
ring: for this machine one for musl (Debian: musl-tools), for another machine GNU's cross compiler (Debian:
gcc-aarch64-linux-gnu). What is built for another machine is started under qemu (Debian: qemu-user), if that is here.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
HERE = platform.machine()


def compilers(arch, target):
    """The variables by which cargo finds what compiles and links for `arch`, or a line that says what is missing."""
    if arch == HERE:
        return {} if shutil.which("musl-gcc") else "musl-gcc is missing: apt-get install musl-tools"
    compiler = f"{arch}-linux-gnu-gcc"
    if not shutil.which(compiler):
        return f"{compiler} is missing: apt-get install gcc-{arch.replace('_', '-')}-linux-gnu"
    name = target.replace("-", "_")
    # Rust's own linker and musl: nothing of the cross compiler's C library is linked.
    return {f"CC_{name}": compiler, f"CARGO_TARGET_{name.upper()}_LINKER": "rust-lld"}


def starts(program, arch):
    """Whether the program starts; None where nothing here can run it."""
    runner = [] if arch == HERE else [shutil.which(f"qemu-{arch}")]
    return None if None in runner else subprocess.run([*runner, program, "--version"], check=False).returncode == 0


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default=HERE, choices=("x86_64", "aarch64"))
    arch = parser.parse_args().arch
    target = f"{arch}-unknown-linux-musl"
    found = compilers(arch, target)
    if isinstance(found, str):
        print(found, file=sys.stderr)
        return 1
    installed = subprocess.run(["rustup", "target", "list", "--installed"], stdout=subprocess.PIPE, text=True, check=True)
    if target not in installed.stdout.split():
        subprocess.run(["rustup", "target", "add", target], check=True)
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", target, "--bin", "daemonlet"], cwd=REPO, env=os.environ | found, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO, stdout=subprocess.PIPE, check=True).stdout
    program = Path(json.loads(metadata)["target_directory"]) / target / "release" / "daemonlet"
    head = subprocess.run(["readelf", "--program-headers", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    if "INTERP" in head:
        print(f"{program} needs a loader: it is not static", file=sys.stderr)
        return 1
    if (started := starts(program, arch)) is None:
        print(f"not started: qemu-{arch} is missing: apt-get install qemu-user", file=sys.stderr)
    elif not started:
        print(f"{program} does not start", file=sys.stderr)
        return 1
    print(program)
    return 0


if __name__ == "__main__":
    sys.exit(main())
