"""A full node with a real kubelet, and nothing to preempt: a daemon starts soon after there is room, and `status` names who holds it."""

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
MOST_PODS = 3
# What is asserted; two seconds are the aim, on a machine that does nothing else.
PROMPT = 6
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one small node for all, with an agent beside the kubelet."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.cluster.wait_namespace("default")
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster, config={"maxPods": MOST_PODS}))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))
    WORLD.node.wait_ready()
    # As a node's owner advertises what no device plugin manages.
    WORLD.cluster.admin.patch("nodes", WORLD.node.name, {"status": {"capacity": {DONGLE: "1"}}}, sub="status")
    until(lambda: DONGLE in allocatable(), 30, "the node has a dongle")


def allocatable():
    """What the node has for pods."""
    return WORLD.cluster.admin.get("nodes", WORLD.node.name)["status"]["allocatable"]


def mebibytes(quantity):
    """A quantity of the kubelet's, in bytes or KiB."""
    kibibytes = int(quantity[:-2]) if quantity.endswith("Ki") else int(quantity) // 1024
    return kibibytes // 1024


class Retries(unittest.TestCase):
    """One daemon holds what another needs."""

    def setUp(self):
        self.admin, self.cri, self.agent, self.name = WORLD.cluster.admin, WORLD.node.cri, WORLD.agent, WORLD.node.name

    def apply(self, name, **container):
        """Applies a DaemonSet of the node's own network; deletes it at the end."""
        self.admin.apply(daemonset(name, namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True,
                                   terminationGracePeriodSeconds=1, container=container))
        self.addCleanup(self.cri.wait_gone, f"{name}-")
        self.addCleanup(lambda: self.admin.kubectl("-n", NAMESPACE, "delete", "daemonset", name, "--ignore-not-found"))

    def pods(self, prefix, namespace=NAMESPACE):
        """The pods of that prefix in the API."""
        return [pod["metadata"]["name"] for pod in self.admin.list("pods", namespace) if pod["metadata"]["name"].startswith(prefix)]

    def says(self, *words):
        """Waits until `status` says it all."""
        until(lambda: all(word in self.agent.cli("status").stdout for word in words), 30, f"status says {words}\n{self.agent.process.tail(30)}")

    def measure(self, what, wanted, gone):
        """Waits until there is room, and measures how long the pod takes from then on."""
        until(gone, 40, "there is room", pause=0.01)
        began = time.time()
        self.cri.wait_running(wanted, 40)
        made = self.cri.created(wanted, began - 5)[-1][0] - 5
        print(f"          {what}: a container {made:.1f} s after there was room")
        self.assertLess(made, PROMPT, f"{what}: the next try by time alone is later\n{self.agent.process.tail(60)}")

    def hold(self, resource, amount, words):
        """One daemon holds most of a resource, and another needs as much: once soon after it was rejected, and once later."""
        needs = {"resources": {"requests": {resource: amount}, "limits": {resource: amount}}}
        for when in ("soon", "later"):
            holder, wanted = f"holder-{when}", f"wanted-{when}"
            with self.subTest(when):
                self.apply(holder, **needs)
                self.cri.wait_running(f"{holder}-", 40)
                until(lambda: self.pods(holder), 20, "its mirror pod is there")
                self.apply(wanted, **needs)
                until(lambda: self.agent.manifests(wanted), 20, "the other one is tried")
                if when == "later":
                    self.says(words, f"held by pod {NAMESPACE}/{holder}-")
                    until(lambda: "a new instance is tried in 8 s" in self.agent.process.tail(400), 60, "it was tried some times")
                self.admin.delete("daemonsets", holder, NAMESPACE)
                self.measure(f"{resource}, {when}", f"{wanted}-", lambda: not self.pods(holder))
                self.doCleanups()

    def test_cpu(self):
        self.hold("cpu", "1100m", "cpu: it requests 1100m")

    def test_memory(self):
        most = mebibytes(allocatable()["memory"]) * 2 // 3
        self.hold("memory", f"{most}Mi", f"memory: it requests {most}Mi")

    def test_ephemeral_storage(self):
        most = mebibytes(allocatable()["ephemeral-storage"]) * 2 // 3
        self.hold("ephemeral-storage", f"{most}Mi", f"ephemeral-storage: it requests {most}Mi")

    def test_an_extended_resource(self):
        self.hold(DONGLE, "1", f"{DONGLE}: it requests 1, and 0 of 1 are free")

    def test_the_number_of_pods(self):
        for number in range(MOST_PODS):
            self.apply(f"full-{number}")
            self.cri.wait_running(f"full-{number}-", 40)
        until(lambda: len(self.pods("full-")) == MOST_PODS, 20, "the node is full")
        self.apply("one-more")
        self.says(f"the node takes {MOST_PODS} pods; held by pods {NAMESPACE}/full-0-")
        self.admin.delete("daemonsets", "full-1", NAMESPACE)
        self.measure("pods", "one-more-", lambda: not self.pods("full-1-"))

    def test_a_host_port_that_is_free_before_the_rejection_shows(self):
        port = {"ports": [{"containerPort": 4713, "hostPort": 4713}]}
        self.admin.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ported", "namespace": "default"}, "spec": {
            "nodeName": self.name, "hostNetwork": True, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "dl.test/box:1", "command": ["sleep", "100000"]} | port]}})
        self.cri.wait_running("ported", 40)
        self.apply("porter", **port)
        until(lambda: self.agent.manifests("porter"), 20, "it is tried")
        self.admin.delete("pods", "ported", "default")
        self.measure("host port", "porter-", lambda: not self.pods("ported", "default"))
