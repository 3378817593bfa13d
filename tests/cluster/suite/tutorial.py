"""A tutorial, as a reader follows it (no tests of its own): each command of a block `console cluster` is run, and shows what the page shows.

A line `…` stands for any lines, `…` within a line for any text, and spaces for any number of them. What is looked at is
looked at again until it is as shown; what changes something is done once.
"""

import re
import shlex
import subprocess
from contextlib import ExitStack

import shell
from kit import tools
from kit.sandbox import scratch
from kit.wait import until

PAGES = tools.REPO / "docs" / "tutorials"


def commands(page):
    """The commands of a page, each with the lines below it."""
    found = []
    for block in re.findall(r"(?ms)^```console cluster\n(.*?)^```", page):
        for line in block.splitlines():
            if line.startswith("$ shell "):
                found.append((shlex.split(line)[2:], []))
            else:
                found[-1][1].append(line)
    return found


def fits(printed, expected):
    """Whether the lines printed are those shown."""
    line = lambda text: r"[^\S\n]+".join(".*".join(re.escape(part) for part in word.split("…")) for word in text.split())
    shown = "".join("(?:.*\\n)*?" if text == "…" else r"[^\S\n]*" + line(text) + r"[^\S\n]*\n" for text in expected)
    return re.fullmatch(shown, "".join(f"{text}\n" for text in printed.splitlines())) is not None


class Reader:
    """Who follows a page."""

    def __init__(self, stack, name):
        self.stack, self.plugins, self.cluster, self.parts = stack, scratch() / name, None, {}
        shell.plug_in(self.plugins)

    def do(self, words, expected):
        """One command."""
        what, *rest = words
        if what == "up":
            self.cluster, self.parts = shell.build(self.stack, shell.parse(rest))
        elif what == "do":
            shell.obey(self.cluster, self.parts, *rest)
        elif what == "down":
            self.stack.close()
        elif what == "on" or rest[0] in ("get", "logs") or rest == ["daemonlet"]:
            until(lambda: self.shows(what, rest, expected), 120, f"{words} shows {expected}", pause=0.5)
        else:
            self.shows(what, rest, expected)

    def shows(self, what, rest, expected):
        """True, if a command prints what is expected."""
        printed = self.output(what, rest)
        assert fits(printed, expected), f"{rest} printed {printed}"
        return True

    def output(self, what, rest):
        """What a command prints."""
        if what == "on":
            return self.parts[rest[0]].run(*rest[1:], check=False)
        argv = shell.kubectl(self.cluster.admin.kubeconfig, self.plugins, *rest)
        return subprocess.run(argv, cwd=tools.REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=180).stdout


def follow(name):
    """Follows a page on a cluster of its own from its first command to its last."""
    known = commands((PAGES / name).read_text(encoding="utf-8"))
    assert len(known) > 8, "the commands are not found"
    with ExitStack() as stack:
        reader = Reader(stack, name)
        for words, expected in known:
            reader.do(words, expected)
