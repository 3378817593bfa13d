"""Nodes without a kubelet: the agent alone with its folders, against a real API server.

Owns what stories about rules share. A stand-in says in the runtime's place what runs; there are no
mirror pods.
"""

import json
import re
import unittest
from dataclasses import dataclass
from types import SimpleNamespace

from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.standin import Runtime
from kit.wait import never
from kit.wait import until

STATIC = {"daemonlet.dev/mode": "static"}
# Two seconds pass between an instance's end and the next one's start; the machine may be busy.
SOON = 20


@dataclass(frozen=True)
class Instance:
    """An instance, as its manifest has it."""

    file: str
    text: str

    def _find(self, pattern):
        return re.search(pattern, self.text, re.M).group(1).strip("\"'")

    @property
    def uid(self):
        """The pod's UID."""
        return self._find(r"^  uid: (\S+)$")

    @property
    def revision(self):
        """The revision's hash."""
        return self._find(r"^ +controller-revision-hash: (\S+)$")

    @property
    def number(self):
        """The incarnation."""
        return int(self._find(r"^ +daemonlet.dev/incarnation: (\S+)$"))

    @property
    def owner(self):
        """The DaemonSet's namespace and name."""
        return self._find(r"^ +daemonlet.dev/daemonset: (\S+)$")

    @property
    def image(self):
        """The first container's image."""
        return self._find(r"^ +(?:- )?image: (\S+)$")


class BareNode:
    """`with BareNode(cluster, "n1") as node:`; a Node object, folders, and who says that pods run and end."""

    def __init__(self, cluster, name, labels=None, version="v1.36.2"):
        self.cluster, self.name, self.labels, self.version = cluster, name, labels or {}, version
        self.home = scratch() / "bare" / name
        self.manifests, self.root = self.home / "manifests", self.home / "kubelet"
        self.runtime = Runtime(name, self.home, self.manifests, self.root)
        self.socket = self.runtime.socket

    def __enter__(self):
        for folder in (self.manifests, self.root):
            folder.mkdir(parents=True)
        self.register()
        self.runtime.start()
        return self

    def __exit__(self, *_):
        self.runtime.stop()
        try:
            self.cluster.admin.delete("nodes", self.name)
        except (OSError, Refused):
            pass

    def register(self):
        """Makes the Node object, and takes away the taint that a Node without a kubelet gets."""
        self.cluster.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self.labels}})
        self.cluster.admin.patch("nodes", self.name, {"spec": {"taints": None}})
        if self.version:
            self.report_version(self.version)

    def report_version(self, version):
        """Writes the kubelet's version into the Node's status."""
        self.cluster.admin.patch("nodes", self.name, {"status": {"nodeInfo": {"kubeletVersion": version}}}, sub="status")

    def label(self, **labels):
        """Sets labels of the Node, None removes."""
        self.cluster.admin.patch("nodes", self.name, {"metadata": {"labels": labels}})

    def data(self, instance, volume, *path):
        """The text of a file in a volume of an instance, None when there is none."""
        file = self.root.joinpath("pods", instance.uid, "volumes", "kubernetes.io~empty-dir", volume, *path)
        return file.read_text(encoding="utf-8") if file.exists() else None


def template(name, **pod):
    """The pod of a daemon that needs nothing from the cluster."""
    return {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False} | pod


WORLD = SimpleNamespace(cluster=None, number=0)


class Story(unittest.TestCase):
    """Each story has a namespace of its own, and its agents look at no other."""

    def setUp(self):
        WORLD.number += 1
        self.cluster, self.admin = WORLD.cluster, WORLD.cluster.admin
        self.namespace = f"story-{WORLD.number}"
        self.make_namespace(self.namespace)

    def make_namespace(self, name):
        """A namespace with what its controllers would put into it."""
        self.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.admin.create("serviceaccounts", {"metadata": {"name": "default", "namespace": name}})
        self.admin.create("configmaps", {"metadata": {"name": "kube-root-ca.crt", "namespace": name},
                                         "data": {"ca.crt": self.cluster.pki.ca.read_text(encoding="ascii")}})

    def node(self, suffix="", **fields):
        """A node for this story."""
        return self.enterContext(BareNode(self.cluster, f"{self.namespace}{suffix}", **fields))

    def start_agent(self, node=None, **config):
        """An agent of this story's namespace."""
        base = {"policy": {"namespaces": [self.namespace]}}
        return self.enterContext(Agent(node or self.node(), **base | config))

    def daemon(self, name, container=None, labels=STATIC, spec=None, annotations=None, **pod):
        """A DaemonSet of this story's namespace."""
        body = daemonset(name, self.namespace, container, dict(labels), spec, **template(name, **pod))
        if annotations:
            body["metadata"]["annotations"] = annotations
        return body

    def put(self, body):
        """Creates a DaemonSet; gives it as the API has it."""
        return self.admin.create("daemonsets", body)

    def config(self, name, **data):
        """Creates a ConfigMap."""
        return self.admin.create("configmaps", {"metadata": {"name": name, "namespace": self.namespace}, "data": data})

    def change(self, name, image):
        """Changes a DaemonSet's template."""
        self.admin.patch("daemonsets", name, {"spec": {"template": {"metadata": {"annotations": {"image": image}}}}}, self.namespace)

    def remove(self, name, **options):
        """Deletes a DaemonSet."""
        self.admin.delete("daemonsets", name, self.namespace, **options)

    def instances(self, agent, name):
        """The daemon's instances, by their manifests."""
        return [Instance(file, text) for file, text in agent.manifests(f"_{name}-").items()]

    def instance(self, agent, name, other_than=None, seconds=SOON):
        """Waits for the daemon's one instance (another one than given)."""
        def one():
            found = self.instances(agent, name)
            return found[0] if len(found) == 1 and found[0].uid != (other_than and other_than.uid) else None
        try:
            return until(one, seconds, f"an instance of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status(agent, name)}\n{agent.process.tail(25)}") from None

    def wait_gone(self, agent, name, seconds=SOON):
        """Waits until the daemon has no manifest."""
        try:
            until(lambda: not self.instances(agent, name), seconds, f"no instance of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status(agent, name)}\n{agent.process.tail(25)}") from None

    def keeps(self, agent, instance, name, seconds=2):
        """Asserts that the daemon's one instance stays the same."""
        never(lambda: [found.uid for found in self.instances(agent, name)] != [instance.uid], seconds, f"{name} did not stay as it was")

    def report(self, agent):
        """`status --json`."""
        return json.loads(agent.cli("status", "--json").stdout)

    def status(self, agent, name):
        """The daemon's line of `status --json`, None when there is none."""
        return next((daemon for daemon in self.report(agent)["daemons"] if daemon["name"] == name), None)

    def says(self, agent, words, seconds=SOON):
        """Waits until `status`, as a person reads it, says `words`."""
        try:
            return until(lambda: re.search(words, agent.cli("status").stdout), seconds, f"status says {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.cli('status').stdout}\n{agent.process.tail(25)}") from None

    def settled(self, agent, seconds=SOON):
        """Waits until the agent is connected and has nothing to do."""
        try:
            until(lambda: self.report(agent)["agent"]["api"] == "connected" and json.loads(agent.cli("plan", "--json").stdout)["changes"] == [], seconds, "nothing is left to do")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{agent.cli('plan').stdout}\n{agent.cli('status').stdout}\n{agent.process.tail(25)}") from None
