"""The commands of the page of removal, for whoever runs them: on a node, and where kubectl is."""

import re

from kit import tools

NODE = ("systemctl ", "daemonlet teardown", "apt purge ")


def commands(heading):
    """The commands below a heading of the page, in their order, without their comments."""
    page = (tools.REPO / "docs" / "removal.md").read_text(encoding="utf-8")
    (part,) = re.findall(rf"(?ms)^## {heading}$(.*?)(?=^##|\Z)", page)
    blocks = re.findall(r"(?ms)^ *```sh$(.*?)^ *```$", part)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


def is_of_a_node(line):
    """Whether a command is for each node."""
    return line.startswith(NODE)
