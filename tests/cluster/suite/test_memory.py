"""Large ConfigMaps in use: the agent has each in memory once, also while all of them change and at a start."""

import os
import unittest
from pathlib import Path
from unittest import mock

from kit import tools
from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.wait import until
from suite.bare import WORLD
from suite.bare import Story

COUNT, BYTES = 24, 1_000_000
# Debug builds are slow, and the machine may be busy.
LONG = 200


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


def _allocator():
    """The variables that the unit sets for the allocator."""
    lines = (tools.REPO / "systemd/daemonlet.service").read_text(encoding="utf-8").splitlines()
    words = " ".join(line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")).split()
    return dict(word.split("=", 1) for word in words if word.startswith("MALLOC_"))


class Memory(Story):
    """What the agent takes at most, beside what it is while nothing happens."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, _allocator()))
        for number in range(COUNT):
            self.config(f"c{number}", key="0" * BYTES)
            self.put(self.daemon(f"d{number}", {"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                                 volumes=[{"name": "v", "configMap": {"name": f"c{number}"}}]))
        self.agent = self.start_agent()
        self.wait_data("0")

    def data(self):
        """The first characters of all volumes' data."""
        files = self.agent.node.root.glob("pods/*/volumes/kubernetes.io~empty-dir/v/key")
        return [file.read_text(encoding="ascii")[:1] for file in files]

    def wait_data(self, word):
        """Waits until all volumes have the data `word`."""
        until(lambda: self.data() == [word] * COUNT, LONG, f"all volumes have {word!r}", pause=1)

    def change_all(self, word):
        """Changes all ConfigMaps."""
        for number in range(COUNT):
            self.admin.patch("configmaps", f"c{number}", {"data": {"key": word * BYTES}}, self.namespace)

    def memory(self, name):
        """A line of what the kernel says of the agent, in MB."""
        lines = Path(f"/proc/{self.agent.process.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(name))

    def test_it_has_each_object_once(self):
        size = COUNT * BYTES / 1e6
        program = self.memory("RssFile")
        most = lambda: self.memory("VmHWM") - program
        self.assertLess(most(), 3 * size, "as they come")
        self.agent.process.freeze()
        self.change_all("1")
        self.agent.process.thaw()
        self.wait_data("1")
        self.assertLess(most(), 3 * size, "as all change at once")
        self.agent.kill()
        self.agent.start()
        self.admin.patch("configmaps", "c0", {"data": {"key": "2" * BYTES}}, self.namespace)
        until(lambda: "2" in self.data(), LONG, "it follows the API server again", pause=1)
        self.assertLess(most(), 3 * size, "after a start")
