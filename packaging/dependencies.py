#!/usr/bin/env python3
"""`make deny`: what the program is linked with. Two checks:

* that docs/dependencies.md names each crate that has a build script or unsafe code, and no other;
* cargo-deny, by deny.toml: licences, crates that are there twice, sources, and advisories as far as a database is at hand.

    dependencies.py             both; cargo-deny is installed, pinned, into the cache folder
    dependencies.py --check     the first alone, which cargo's tests do, too; needs no network
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packages import REPO
from packages import install
from packages import say

VERSION = "0.20.2"
PAGE = REPO / "docs" / "dependencies.md"
# Code that can break Rust's rules; what is only in comments and strings is none.
_UNSAFE = re.compile(r"\bunsafe\s*(?:\{|fn|impl|extern|trait)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')


def crates():
    """Each crate of the program and of its build: its name, its folder, whether it has a build script."""
    words = ["cargo", "--quiet", "metadata", "--format-version=1", "--locked", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(words, cwd=REPO, stdout=subprocess.PIPE, check=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    seen, todo = set(), [metadata["resolve"]["root"]]
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += [dep["pkg"] for dep in edges[one] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
    seen.discard(metadata["resolve"]["root"])
    for package in (packages[one] for one in seen):
        has_script = any("custom-build" in target["kind"] for target in package["targets"])
        yield package["name"], Path(package["manifest_path"]).parent, has_script


def is_unsafe(folder):
    """Whether a crate has unsafe code besides its tests."""
    for file in folder.rglob("*.rs"):
        if file.relative_to(folder).parts[0] in ("tests", "benches", "examples"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if "unsafe" in text and _UNSAFE.search(_STRING.sub('""', _COMMENT.sub("", text))):
            return True
    return False


def named(heading):
    """The crates that a section of the page names."""
    (part,) = re.findall(rf"(?ms)^## {heading}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"))
    rows = [line for line in part.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| what"))]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[-1])}


def disagreements():
    """What the page and the crates do not agree on."""
    found = list(crates())
    scripts = {name for name, _, has_script in found if has_script}
    dangerous = {name for name, folder, _ in found if is_unsafe(folder)}
    for heading, real in (("Build scripts", scripts), ("Unsafe code", dangerous)):
        listed = named(heading)
        for what, names in (("does not name", real - listed), ("names, and it is none (any more),", listed - real)):
            for name in sorted(names):
                yield f"docs/dependencies.md, {heading}: the page {what} {name}"


def deny():
    """Runs cargo-deny; gives its exit status."""
    program = shutil.which("cargo-deny") or install("cargo-deny", VERSION)
    status = subprocess.run([program, "check", "licenses", "bans", "sources"], cwd=REPO, check=False).returncode
    fetched = subprocess.run([program, "fetch", "db"], cwd=REPO, check=False, capture_output=True).returncode
    if fetched:
        say("no database of advisories can be had here: advisories are not checked")
        return status
    return status or subprocess.run([program, "check", "advisories"], cwd=REPO, check=False).returncode


def main():
    """The command; the exit status is 0 when nothing was found."""
    bad = list(disagreements())
    for line in bad:
        print(line)
    if sys.argv[1:] == ["--check"]:
        return 1 if bad else 0
    return 1 if deny() or bad else 0


if __name__ == "__main__":
    sys.exit(main())
