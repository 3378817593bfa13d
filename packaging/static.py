#!/usr/bin/env python3
"""`make static`: the program linked statically, one file that needs no library.

    static.py [--arch aarch64]

With musl, which needs Rust's standard library for it (rustup fetches it) and a C compiler, which compiles the assembler and C
of ring: for this machine one for musl (Debian: musl-tools), for another machine GNU's cross compiler (Debian:
gcc-aarch64-linux-gnu). What is built for another machine is started under qemu (Debian: qemu-user), if that is here.

Where that library cannot be had, the program for this machine is linked with the C library of GNU (`+crt-static`), and lies in
the same place; for another machine nothing is built.
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


def with_flags(more, target):
    """The variable by which rustc gets `more` for `target`. Of cargo's sources only the first that is set counts."""
    for name, space in (("CARGO_ENCODED_RUSTFLAGS", "\x1f"), ("RUSTFLAGS", " ")):
        if os.environ.get(name):
            return {name: space.join([os.environ[name], *more.split(" ")])}
    return {f"CARGO_TARGET_{target.upper().replace('-', '_')}_RUSTFLAGS": more}


def has(target):
    """Whether Rust's standard library for `target` is here, or rustup fetches it."""
    libdir = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], stdout=subprocess.PIPE, text=True, check=False)
    if libdir.returncode == 0 and any(Path(libdir.stdout.strip()).glob("libstd-*")):
        return True
    return bool(shutil.which("rustup")) and subprocess.run(["rustup", "target", "add", target], check=False).returncode == 0


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
    built = target if has(target) else f"{arch}-unknown-linux-gnu"
    if built == target:
        found = compilers(arch, target)
    elif arch == HERE:
        print(f"Rust's standard library for {target} cannot be had: linked with the C library of GNU, statically", file=sys.stderr)
        found = with_flags("-C target-feature=+crt-static", built)
    else:
        found = f"skipped: Rust's standard library for {target} cannot be had, and this machine is another one"
    if isinstance(found, str):
        print(found, file=sys.stderr)
        return 1
    subprocess.run(["cargo", "build", "--release", "--locked", "--target", built, "--bin", "daemonlet"], cwd=REPO, env=os.environ | found, check=True)
    metadata = subprocess.run(["cargo", "metadata", "--format-version=1", "--no-deps", "--offline"], cwd=REPO, stdout=subprocess.PIPE, check=True).stdout
    folder = Path(json.loads(metadata)["target_directory"])
    program = folder / target / "release" / "daemonlet"
    if built != target:
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(folder / built / "release" / "daemonlet", program)
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
