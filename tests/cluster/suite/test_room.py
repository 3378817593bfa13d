"""One real kubelet that takes three pods: how a daemon gets a place on a node that is full."""

import time
import unittest
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
DONGLE = "example.org/dongle"
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one small node for all, with an agent beside the kubelet."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.cluster.wait_namespace("default")
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster, config={"maxPods": 3}))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))
    WORLD.node.wait_ready()


class Room(unittest.TestCase):
    """Rooms that are not cpu, memory or disk."""

    def setUp(self):
        self.admin, self.cri, self.agent, self.name = WORLD.cluster.admin, WORLD.node.cri, WORLD.agent, WORLD.node.name

    def apply(self, name, **fields):
        """Applies a DaemonSet; deletes it at the end."""
        self.admin.apply(daemonset(name, namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True,
                                   terminationGracePeriodSeconds=1, **fields))
        self.addCleanup(self.cri.wait_gone, f"{name}-")
        self.addCleanup(self.admin.delete, "daemonsets", name, NAMESPACE)

    def pod(self, name, **container):
        """A pod without an owner on the node, which runs."""
        self.admin.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
            "nodeName": self.name, "hostNetwork": True, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "dl.test/box:1", "command": ["sleep", "100000"]} | container]}})
        self.addCleanup(lambda: self.admin.kubectl("delete", "pod", name, "--force", "--ignore-not-found"))
        self.admin.wait("pods", lambda seen: seen.get(("default", name), {}).get("status", {}).get("phase") == "Running", 30, f"{name} runs", "default")

    def test_a_pod_makes_room_where_the_node_takes_no_more_of_them(self):
        for name in ("first", "second", "third"):
            self.pod(name)
        self.apply("fourth")
        self.cri.wait_running("fourth-", 40)
        until(lambda: "the kubelet preempted default/" in self.agent.cli("status").stdout, 30, "status names the preempted pod")

    def test_a_host_port_is_taken_soon_after_it_is_free(self):
        port = {"ports": [{"containerPort": 4712, "hostPort": 4712}]}
        self.pod("holder", **port)
        self.apply("ported", container=port)
        until(lambda: "host port TCP 4712 is held by pod default/holder" in self.agent.cli("status").stdout, 40, "status names who holds it")
        until(lambda: "a new instance is tried in 8 s" in self.agent.process.tail(400), 120, "it was tried some times")
        self.admin.delete("pods", "holder", "default")
        until(lambda: not self.admin.get("pods", "holder", "default"), 30, "the holder is gone", pause=0.01)
        began = time.monotonic()
        self.cri.wait_running("ported-", 20)
        took = time.monotonic() - began
        print(f"          host port free to running: {took:.1f} s")
        self.assertLess(took, 5, "the next try by time alone is later")

    def test_the_kubelet_starts_a_pod_whose_extended_resource_the_node_does_not_have(self):
        self.apply("device", container={"resources": {"limits": {DONGLE: "1"}}})
        self.cri.wait_running("device-", 40)
