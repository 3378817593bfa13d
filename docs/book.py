#!/usr/bin/env python3
"""`make docs`: the pages as a book, in target/book; then every link of it is looked at.

The pages of the repository's root that docs link to become pages of the book. mdbook is installed, pinned, into the
cache folder. The links of the files themselves are followed by cargo's tests (`tests/cli/readme.rs`).
"""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from urllib.parse import urldefrag

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "packaging"))

from packages import install  # noqa: E402  (packaging is no folder of Python's)

VERSION = "0.5.4"
PAGES = REPO / "target" / "book-pages"
BOOK = REPO / "target" / "book"
ROOT = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]


def stage():
    """The pages as mdbook wants them: all below one folder, and all in the summary."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(REPO / "docs", PAGES, ignore=shutil.ignore_patterns("*.py"))
    for page in PAGES.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(re.sub(rf"\]\(\.\./({'|'.join(ROOT)})", r"](root/\1", text), encoding="utf-8")
    (PAGES / "root").mkdir()
    shutil.copy(REPO / "LICENSE", PAGES / "root")
    for name in ROOT:
        text = (REPO / name).read_text(encoding="utf-8")
        (PAGES / "root" / name).write_text(text.replace("](docs/", "](../"), encoding="utf-8")
    with open(PAGES / "SUMMARY.md", "a", encoding="utf-8") as summary:
        summary.write("\n# The project\n\n" + "".join(f"* [{name.removesuffix('.md').capitalize()}](root/{name})\n" for name in ROOT))


class Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


def broken():
    """Each link within the book that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in BOOK.rglob("*.html") if path.name not in ("404.html", "print.html", "toc.html")}
    for path, page in pages.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            # Debian's mdbook comes without its fonts, and pages ask for them all the same.
            if re.match(r"[a-z]+:", target) or target.endswith("fonts/fonts.css"):
                continue
            file = (path.parent / unquote(target)).resolve() if target else path
            if not file.exists() or anchor and file in pages and unquote(anchor) not in pages[file].anchors:
                yield f"{path.relative_to(BOOK)}: {link}"


def main():
    """The command."""
    mdbook = shutil.which("mdbook") or install("mdbook", VERSION)
    stage()
    subprocess.run([mdbook, "build"], cwd=REPO, check=True)
    bad = sorted(broken())
    for link in bad:
        print(f"broken link: {link}", file=sys.stderr)
    print(BOOK / "index.html")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
