#!/usr/bin/env python3
"""Counts the lines of Rust code in src/, without tests, comments and blank lines: `make loc`.

Tests are the files and folders named tests, golden, fixture and fake, and each item under `#[cfg(test)]`.
"""

import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
TESTS = {"tests", "golden", "fixture", "fake"}


def is_test(path):
    return any(part.removesuffix(".rs") in TESTS for part in path.relative_to(SRC).parts)


def code(text):
    """The lines of code of a file."""
    test_indent = None  # of the item under #[cfg(test)] that has not ended
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith("//"):
            continue
        indent = len(line) - len(line.lstrip())
        if test_indent is not None:
            if indent == test_indent and bare[-1] in ";}":
                test_indent = None
        elif bare == "#[cfg(test)]":
            test_indent = indent
        else:
            yield line


def before_tests(text):
    """The lines of code before the first item for tests: a coarser count, which earlier figures used."""
    return list(code(text.split("#[cfg(test)]")[0]))


def main():
    files = {path: path.read_text() for path in sorted(SRC.rglob("*.rs")) if not is_test(path)}
    folders = {}
    for path, text in files.items():
        folder = "/".join(path.relative_to(SRC).parts[:2]).removesuffix(".rs")
        folders[folder] = folders.get(folder, 0) + len(list(code(text)))
    if "--total" not in sys.argv:
        for folder, count in sorted(folders.items()):
            print(f"{count:6} src/{folder}")
    print(f"{sum(folders.values()):6} lines of code")
    print(f"{sum(len(before_tests(text)) for text in files.values()):6} up to the first #[cfg(test)] of each file")


if __name__ == "__main__":
    main()
