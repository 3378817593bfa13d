"""daemonlet's own packages, made as `make packages` makes them.

The metadata, scripts and files are those of the release; the program inside is the one under test, so
that no test waits for a release build.
"""

import subprocess
import sys

from . import agent
from . import tools
from .sandbox import scratch


def build(version, folder="packages"):
    """Packages of that version, below a folder of that name; gives the paths of the .deb and the .rpm."""
    out = scratch() / folder / version
    subprocess.run([sys.executable, tools.REPO / "packaging/packages.py", "--binary", agent.binary(), "--version", version,
                    "--out", out, "--fast"], check=True, stdout=subprocess.DEVNULL)
    (deb,), (rpm,) = out.glob("*.deb"), out.glob("*.rpm")
    return deb, rpm
