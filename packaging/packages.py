#!/usr/bin/env python3
"""`make packages`: the .deb and the .rpm, in target/packages.

    packages.py                      release build, both packages, lintian and rpmlint where they are installed
    packages.py --arch aarch64       the same for arm64, on another machine: around the program of `make static ARCH=aarch64`
    packages.py --binary PROGRAM --version 0.0.9 --out FOLDER --fast
                                     the same packages around another program, for tests: nothing is built, checked
                                     or compressed well
    packages.py --lint FILE ...      only asks lintian and rpmlint
    packages.py --readme             prints the README of the packages
    packages.py --tools              only installs cargo-deb and cargo-generate-rpm, pinned, into the cache folder

Metadata is in Cargo.toml. What the repository does not have (manual pages, completions, the list of
dependencies) is made here from what the program says of itself.
"""

import argparse
import fcntl
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
OUT = REPO / "target" / "packages"
STAGE = OUT / "stage"
HERE = platform.machine()
TOOLS = {"cargo-deb": "3.8.0", "cargo-generate-rpm": "0.21.1"}
# What the packages are dated: the same sources give the same packages.
EPOCH = "1795262400"
# They run for seconds, and their optimized build takes minutes.
SOON_BUILT = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "0", "CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
LICENCE_FILES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE")


def static_target(arch):
    """Rust's name of what `make static` builds for."""
    return f"{arch}-unknown-linux-musl"


def say(text):
    """Progress, for the person who watches."""
    print(f"--- {text}", file=sys.stderr, flush=True)


def cache():
    """The folder kept between runs, shared with the cluster tests."""
    return Path(os.environ.get("DAEMONLET_CACHE") or Path.home() / ".cache" / "daemonlet") / "packaging"


def tool(name):
    """The path of a tool."""
    path = cache() / f"{name}-{TOOLS[name]}" / "bin" / name
    if not path.exists():
        raise SystemExit(f"{path} is not there: run packaging/packages.py --tools")
    return path


def install(name, pinned):
    """The path of a tool, which is installed where it is not there."""
    root = cache() / f"{name}-{pinned}"
    if not (root / "bin" / name).exists():
        say(f"installing {name} {pinned}")
        command = ["cargo", "install", "--locked", "--quiet", "--root", root, f"{name}@{pinned}"]
        if subprocess.run(command, check=False, cwd="/", env=os.environ | SOON_BUILT).returncode != 0:
            raise SystemExit(f"{name} {pinned} cannot be installed; cargo says why above")
    return root / "bin" / name


def run(*argv, **options):
    """Runs a command in the repository."""
    return subprocess.run([str(word) for word in argv], check=True, cwd=REPO, **options)


def target_dir():
    """Where cargo builds; asked of cargo, since environment and configuration can move it."""
    metadata = run("cargo", "metadata", "--format-version=1", "--no-deps", "--offline", stdout=subprocess.PIPE).stdout
    return Path(json.loads(metadata)["target_directory"])


def compress(source, target):
    """A compressed copy, the same each time."""
    with open(target, "wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        packed.write(source)


def dependencies():
    """The licences of everything that is linked into the program: a table, then each text once."""
    words = ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(run(*words, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    linked, todo = set(), [metadata["resolve"]["root"]]
    while todo:
        one = todo.pop()
        if one not in linked:
            linked.add(one)
            todo += [dep["pkg"] for dep in edges[one] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    linked.discard(metadata["resolve"]["root"])
    rows, texts = [], {}
    for package in sorted((packages[one] for one in linked), key=lambda p: (p["name"], p["version"])):
        if not package["license"] and not package["license_file"]:
            raise SystemExit(f"{package['name']} {package['version']} says no licence")
        rows.append(f"{package['name']:32} {package['version']:14} {package['license'] or 'see its text below'}")
        folder = Path(package["manifest_path"]).parent
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name.upper().startswith(LICENCE_FILES):
                texts.setdefault(file.read_text(encoding="utf-8", errors="replace").strip(), []).append(f"{package['name']} {package['version']} ({file.name})")
    parts = ["What daemonlet is linked with, and the licences under which that is given.\n", *rows]
    for text, owners in texts.items():
        parts.append(f"\n{'=' * 80}\n" + "\n".join(owners) + f"\n{'-' * 80}\n{text}")
    return "\n".join(parts) + "\n"


def readme():
    """README without what needs a checkout: how to build, how the source is made, and examples that no package has."""
    kept, skipped = [], False
    for part in re.split(r"(?m)(?=^## )|\n\n", (REPO / "README.md").read_text(encoding="utf-8").strip()):
        if part.startswith("## "):
            skipped = part in ("## See it", "## How it is built")
        if skipped or not part or part.startswith(("    make ", "The demo needs ")):
            continue
        lines = [line for line in part.splitlines() if not line.startswith(("make packages", "apt install ./target"))]
        kept.append("\n".join(lines))
    return "\n\n".join(kept) + "\n"


def stage(binary, arch):
    """Everything that Cargo.toml's metadata names below `stage`."""
    shutil.rmtree(STAGE, ignore_errors=True)
    STAGE.mkdir(parents=True)
    run("strip" if arch == HERE else f"{arch}-linux-gnu-strip", "-o", STAGE / "daemonlet", binary)
    run("cargo", "run", "--quiet", "--locked", "--example", "manuals", "--", STAGE, stdout=subprocess.DEVNULL)
    for page in sorted((STAGE / "man").iterdir()):
        compress(page.read_bytes(), page.with_name(page.name + ".gz"))
        page.unlink()
    compress(dependencies().encode(), STAGE / "DEPENDENCIES.gz")
    (STAGE / "README.md").write_text(readme(), encoding="utf-8")


def members(deb):
    """Name and content of each member of a .deb, which is an archive of ar."""
    data, found, at = deb.read_bytes(), [], 8
    while at < len(data):
        name, size = data[at:at + 16].decode().strip().rstrip("/"), int(data[at + 48:at + 58])
        found.append((name, data[at + 60:at + 60 + size]))
        at += 60 + size + size % 2
    return found


def control(deb):
    """The names of the files in a .deb's control archive."""
    (content,) = (content for name, content in members(deb) if name.startswith("control.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.getnames()


def add_md5sums(deb):
    """Adds what dpkg --verify compares with: cargo-deb leaves it out."""
    found = members(deb)
    (content,) = (content for name, content in found if name.startswith("data.tar"))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = sorted((member.name.removeprefix("./").lstrip("/"), tar.extractfile(member).read()) for member in tar if member.isfile() and not member.name.startswith("./etc/"))
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {name}\n" for name, content in files).encode()
    out = b"!<arch>\n"
    for name, content in found:
        if name.startswith("control.tar"):
            name, content = "control.tar.gz", with_file(content, "./md5sums", sums)
        out += f"{name:16}{EPOCH:12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode() + content + b"\n" * (len(content) % 2)
    deb.write_bytes(out)


def with_file(packed, name, content):
    """The archive with one more file."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(packed)) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as new:
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        added = tarfile.TarInfo(name)
        added.size, added.mode, added.mtime = len(content), 0o644, int(EPOCH)
        new.addfile(added, io.BytesIO(content))
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(plain.getvalue())
    return out.getvalue()


def packages(options):
    """Builds both packages; gives their paths."""
    env = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    out = Path(options.out or OUT).resolve()
    out.mkdir(parents=True, exist_ok=True)
    offline = ["--offline"] if options.fast else []
    deb = [tool("cargo-deb"), "--no-build", "--no-strip", "--quiet", "--locked", *offline, "--output", out]
    rpm = [tool("cargo-generate-rpm"), "--output", out]
    if options.arch != HERE:
        # A static program needs no library.
        deb += ["--target", static_target(options.arch)]
        rpm += ["--arch", options.arch, "--auto-req", "disabled"]
    if options.version:
        deb += ["--deb-version", options.version]
        rpm += ["--set-metadata", f"version = \"{options.version}\""]
    if options.fast:
        deb.append("--fast")
        rpm += ["--payload-compress", "gzip"]
    run(*deb, env=env)
    run(*rpm, env=env)
    for file in out.glob("*.deb"):
        if not any(name.endswith("md5sums") for name in control(file)):
            add_md5sums(file)
    return sorted([*out.glob("*.deb"), *out.glob("*.rpm")])


def lint(files):
    """Asks lintian and rpmlint; an error of theirs is one here."""
    good = True
    for file in files:
        deb = file.suffix == ".deb"
        words = ["lintian", "--fail-on", "error"] if deb else ["rpmlint", "--config", REPO / "packaging/rpm/rpmlint.toml"]
        if not shutil.which(words[0]):
            say(f"no {words[0]} here: {file.name} is not checked")
            continue
        done = subprocess.run([*words, file], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="", file=sys.stderr)
        # rpmlint's exit status is about its own score.
        good &= done.returncode == 0 and not re.search(r"^\S+: E: ", done.stdout, re.MULTILINE)
    return good


def main():
    """The command; the exit status is 0 when packages were made and no check found an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default=HERE)
    parser.add_argument("--binary")
    parser.add_argument("--version")
    parser.add_argument("--out")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--lint", nargs="+", type=Path)
    options = parser.parse_args()
    if options.readme:
        print(readme(), end="")
        return 0
    if options.lint:
        return 0 if lint(options.lint) else 1
    for name, pinned in () if options.fast else TOOLS.items():
        install(name, pinned)
    if options.tools:
        return 0
    program = options.binary
    if not program and options.arch == HERE:
        run("cargo", "build", "--release", "--locked", "--bin", "daemonlet")
        program = target_dir() / "release/daemonlet"
    elif not program:
        # It says itself what it lacks.
        if subprocess.run([sys.executable, "packaging/static.py", "--arch", options.arch], cwd=REPO, check=False).returncode != 0:
            say(f"no packages for {options.arch}: its program was not built")
            return 1
        program = target_dir() / static_target(options.arch) / "release/daemonlet"
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for old in () if options.out else [*OUT.glob("*.deb"), *OUT.glob("*.rpm")]:
            old.unlink()
        stage(program, options.arch)
        files = packages(options)
    for file in files:
        print(file)
    return 0 if options.fast or lint(files) else 1


if __name__ == "__main__":
    sys.exit(main())
