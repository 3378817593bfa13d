"""One real kubelet: a daemon starts after those that it names."""

import unittest
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
AFTER = "daemonlet.dev/after"
TIMEOUT = "daemonlet.dev/after-timeout"
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, with an agent beside the kubelet."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))
    WORLD.node.wait_ready()


def named(name, after=None, timeout=None, **fields):
    """A DaemonSet that starts after others."""
    made = daemonset(name, namespace=NAMESPACE, labels=MODE, hostNetwork=True, **fields)
    orders = {AFTER: after, TIMEOUT: timeout}
    made["metadata"]["annotations"] = {key: value for key, value in orders.items() if value}
    return made


class StartOrder(unittest.TestCase):
    """First starts."""

    def setUp(self):
        self.admin, self.cri, self.agent = WORLD.cluster.admin, WORLD.node.cri, WORLD.agent

    def apply(self, *daemons):
        """Applies DaemonSets together; deletes them at the end."""
        self.admin.apply(*daemons)
        for daemon in daemons:
            name = daemon["metadata"]["name"]
            self.addCleanup(self.cri.wait_gone, f"{name}-")
            self.addCleanup(self.admin.delete, "daemonsets", name, NAMESPACE)

    def says(self, words):
        """Waits until `status` says something."""
        until(lambda: words in self.agent.cli("status").stdout, 15, words)

    def test_a_daemon_starts_once_the_other_is_ready_and_says_meanwhile_for_whom_it_waits(self):
        ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}}
        first = named("network", container={"readinessProbe": ready | {"periodSeconds": 1}})
        self.apply(first, named("dns", after=f"{NAMESPACE}/network", timeout="10m"))
        daemon = self.cri.wait_running("network-", 30)
        self.says(f"waits until {NAMESPACE}/network is Ready here ({AFTER})")
        never(lambda: self.agent.manifests("dns"), 3, "it started before the other was Ready")
        plan = self.agent.cli("plan")
        self.assertIn(f"{NAMESPACE}/dns: nothing yet: ", plan.stdout)
        explained = self.agent.cli("explain", f"{NAMESPACE}/dns").stdout
        self.assertIn(f"{NAMESPACE}/network is Ready here", explained)
        self.cri.execute(daemon[2], "touch", "/tmp/ready")
        until(lambda: self.ready(daemon[0]), 15, "the first is Ready", pause=0.01)
        self.cri.wait_running("dns-", 10)

    def ready(self, name):
        """Whether a pod of that name is Ready in the API."""
        pods = [pod for pod in self.admin.list("pods", NAMESPACE) if pod["metadata"]["name"].startswith(name)]
        conditions = [condition for pod in pods for condition in pod["status"].get("conditions", [])]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def test_it_starts_after_its_timeout_and_after_what_is_refused_or_unknown_at_once(self):
        never_ready = {"exec": {"command": ["false"]}, "periodSeconds": 1}
        self.apply(named("slow", container={"readinessProbe": never_ready}))
        self.cri.wait_running("slow-", 30)
        self.apply(named("late", after=f"{NAMESPACE}/slow", timeout="4s"))
        never(lambda: self.agent.manifests("late"), 2, "it started at once")
        self.cri.wait_running("late-", 15)
        self.assertIn(f"{NAMESPACE}/slow is not Ready here after 4 s ({TIMEOUT})", self.agent.process.tail(200))
        self.apply(named("eager", after=f"{NAMESPACE}/nowhere"))
        self.cri.wait_running("eager-", 15)
        self.says(f"this node knows no DaemonSet {NAMESPACE}/nowhere")

    def test_a_circle_is_said_and_both_start(self):
        self.apply(named("hen", after=f"{NAMESPACE}/egg"), named("egg", after=f"{NAMESPACE}/hen"))
        self.cri.wait_running("egg-", 30)
        self.cri.wait_running("hen-", 30)
        self.says(f"{AFTER} makes a circle of {NAMESPACE}/egg, {NAMESPACE}/hen")

    def test_what_ran_in_this_boot_does_not_wait_again(self):
        self.apply(named("base"), named("upper", after=f"{NAMESPACE}/base", timeout="10m"))
        self.cri.wait_running("upper-", 30)
        old = self.cri.of("upper-")[0]
        self.admin.delete("daemonsets", "base", NAMESPACE)
        self.cri.wait_gone("base-")
        self.admin.apply(named("base", container={"readinessProbe": {"exec": {"command": ["false"]}}}))
        self.agent.restart()
        self.assertEqual([item[2] for item in self.cri.of("upper-")], [old[2]], "it was restarted")
        self.admin.delete("pods", old[0], NAMESPACE)
        until(lambda: [item for item in self.cri.of("upper-") if item[0] != old[0]], 30, "it came back at once")
