"""DaemonSets that this node does not select: they cost it nothing, until a label or a file makes them its own."""

import json
import unittest
from pathlib import Path

from kit import coordinator
from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

LARGE, COUNT = 900_000, 60


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


def _memory(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


class Foreign(Story):
    """What is not selected is known by its name alone."""

    def test_large_ones_take_no_memory(self):
        for number in range(COUNT):
            self.put(daemonset(f"large-{number}", self.namespace, {"args": ["x" * LARGE]}))
        self.put(self.daemon("ours"))
        agent = self.start_agent()
        self.instance(agent, "ours")
        until(lambda: self.report(agent)["agent"]["api"] == "connected", SOON, "connected")
        memory = _memory(agent.process.pid)
        self.assertLess(memory, COUNT * LARGE / 2**20 / 2, "half of what they have")

    def test_a_label_makes_one_ours_and_its_loss_ends_it(self):
        self.put(self.daemon("later", labels={}))
        self.put(self.daemon("ours"))
        agent = self.start_agent()
        self.instance(agent, "ours")
        self.assertEqual(self.instances(agent, "later"), [])
        self.admin.patch("daemonsets", "later", {"metadata": {"labels": {"daemonlet.dev/mode": "static"}}}, self.namespace)
        self.instance(agent, "later")
        self.admin.patch("daemonsets", "later", {"metadata": {"labels": {"daemonlet.dev/mode": None}}}, self.namespace)
        self.wait_gone(agent, "later")
        self.assertEqual(len(self.instances(agent, "ours")), 1)

    def test_a_file_of_the_same_name_makes_one_ours(self):
        self.put(self.daemon("shared", {"image": "api:1"}, labels={}))
        self.put(self.daemon("ours"))
        agent = self.start_agent()
        self.instance(agent, "ours")
        (agent.folder / "shared.yaml").write_text(json.dumps(self.daemon("shared", {"image": "folder:1"}, labels={})), encoding="utf-8")
        until(lambda: [found.image for found in self.instances(agent, "shared")] == ["api:1"], SOON, "the API's version runs")
        self.admin.patch("daemonsets", "shared", {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "api:2"}]}}}}, self.namespace)
        until(lambda: [found.image for found in self.instances(agent, "shared")] == ["api:2"], SOON, "its changes are followed")


class Unlabelled(Story):
    """What no label gives to the agents, and agents run all the same."""

    def test_a_coordinator_reads_what_an_agent_runs_without_a_label(self):
        coordinator.install(self.cluster)
        self.put(self.daemon("plain", labels={}))
        self.put(daemonset("large", "default", {"args": ["x" * LARGE]}))
        self.enterContext(Coordinator(self.cluster, "one"))
        agent = self.start_agent(default_mode="static")
        self.instance(agent, "plain", seconds=60)
        status = lambda: self.admin.get("daemonsets", "plain", self.namespace).get("status", {})
        until(lambda: status().get("desiredNumberScheduled") == 1, 60, "the coordinator counts its nodes")
        self.change("plain", "two")
        until(lambda: status().get("observedGeneration") == 2, 60, "the coordinator follows its changes")
        self.assertEqual(self.admin.get("daemonsets", "large", "default").get("status", {}).get("conditions"), None)
