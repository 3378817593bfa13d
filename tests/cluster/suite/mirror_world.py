"""A cluster for stories about mirror pods: one real kubelet, hollow ones, agents, a coordinator (no tests of its own)."""

from contextlib import ExitStack

from kit import agent
from kit import coordinator
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import SLEEP
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.kubelet import Node
from kit.wait import until

NAMESPACE = "kube-system"
BOOTSTRAP = {"daemonlet.dev/mode": "bootstrap"}
GATE = {"daemonlet.dev/static": "true"}
SOON = 60


def owner(pod):
    """Kind of a pod's controller; empty if it has none."""
    return next((o["kind"] for o in pod["metadata"].get("ownerReferences", []) if o.get("controller")), "")


def is_mirror(pod):
    """Whether the kubelet made it for a manifest."""
    return "kubernetes.io/config.mirror" in pod["metadata"].get("annotations", {})


class World:
    """A cluster with one real kubelet and hollow ones, an agent on each, and a coordinator."""

    def __init__(self, hollow, **controllers):
        self.hollow, self.controllers = hollow, controllers

    def __enter__(self):
        self.stack = ExitStack()
        self.cluster = self.stack.enter_context(ControlPlane())
        self.admin = self.cluster.admin
        self.cluster.start_controllers(**self.controllers)
        if self.controllers:
            self.cluster.start_scheduler()
        self.cluster.wait_namespace(NAMESPACE)
        agent.grant(self.cluster)
        coordinator.install(self.cluster)
        self.node = self.stack.enter_context(Node(self.cluster))
        nodes = crowd(self.cluster, self.hollow, self.stack)
        self.stack.enter_context(Coordinator(self.cluster, "one"))
        policy = {"policy": {"namespaces": ["*"]}}
        self.agent = self.stack.enter_context(Agent(self.node, **policy))
        self.agents = [self.agent, *(self.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="", **policy)) for node in nodes)]
        self.node.wait_ready()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def kubectl(self, *args, **options):
        """Output of kubectl in the daemons' namespace."""
        return self.admin.kubectl("-n", NAMESPACE, *args, **options)

    def pods(self, name):
        """The pods with a daemon's label."""
        return self.admin.list("pods", NAMESPACE, labels=f"app={name}")

    def owned(self, name, kind, count=None):
        """Waits until all of a daemon's pods, or so many, have an owner of that kind; gives them."""
        def all_owned():
            pods = [pod for pod in self.pods(name) if is_mirror(pod)]
            return pods if len(pods) == (count or len(self.agents)) and all(owner(pod) == kind for pod in pods) else None
        try:
            return until(all_owned, SOON, f"mirror pods of {name} belong to a {kind}")
        except AssertionError as error:
            seen = [(pod["metadata"]["name"], owner(pod)) for pod in self.pods(name)]
            raise AssertionError(f"{error}\n{seen}\n{self.agent.cli('status').stdout}\n{self.agent.process.tail(25)}") from None

    def conditions(self, name):
        """The DaemonSet's conditions by type."""
        found = self.admin.get("daemonsets", name, NAMESPACE)
        return {c["type"]: c for c in found.get("status", {}).get("conditions", [])}


def body(name, labels, container=None, **pod):
    """A DaemonSet of these tests."""
    fields = {"hostNetwork": True, "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": False} | pod
    return daemonset(name, NAMESPACE, {"command": SLEEP} | (container or {}), labels, **fields)
