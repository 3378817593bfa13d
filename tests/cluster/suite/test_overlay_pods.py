"""Overlays on a real kubelet: what a patched pod runs with, and what becomes of it.

One node whose size changes, and a Node object to compare it with; no coordinator. Asks as an operator would.
"""

import subprocess

from kit import agent
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.sandbox import scratch
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Story

SOON = 60
QUIET = 6
NAMESPACE = "kube-system"
TENANT = "tenant"
OVERLAYS = "daemonlet.dev/overlays"
# A container that says what it was started with.
SHOWS = ["sh", "-c", 'echo "$LEVEL $MEMORY $*" > /tmp/started; trap exit TERM; while :; do sleep 3600 & wait; done', "main"]
ENV = [{"name": "LEVEL", "value": "none"},
       {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}]
LIMITS = {"limits": {"memory": "32Mi", "cpu": "100m"}, "requests": {"memory": "8Mi", "cpu": "10m"}}


def overlays(level, namespace=NAMESPACE, **spec):
    """A ConfigMap with one patch for large nodes."""
    container = {"name": "main", "env": [{"name": "LEVEL", "value": level}], "args": ["patched"], "resources": {"limits": {"memory": "48Mi"}}}
    entry = f"- nodes: {{matchLabels: {{size: big}}}}\n  patch: {{spec: {({'containers': [container]} | spec)}}}\n"
    metadata = {"name": "sizes", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overlays.yaml": entry}}


def sized(namespace=NAMESPACE, **fields):
    """The DaemonSet, whose template knows nothing of sizes."""
    container = {"command": SHOWS, "args": ["plain"], "env": ENV, "resources": LIMITS,
                 "securityContext": {"allowPrivilegeEscalation": False}} | fields
    made = daemonset("sized", namespace=namespace, labels=STATIC, terminationGracePeriodSeconds=1, automountServiceAccountToken=False,
                     container=container)
    made["metadata"]["annotations"] = {OVERLAYS: "sizes"}
    return made


class OverlayPods(Story):
    """A node that is small at first."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers()
        cls.cluster.wait_namespace(NAMESPACE)
        agent.grant(cls.cluster)
        cls.admin = cls.cluster.admin
        cls.node = cls.enterClassContext(Node(cls.cluster, labels={"size": "small"}))
        # A Node of which only the labels matter.
        cls.admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "large", "labels": {"size": "big"}}})
        cls.agent = cls.enterClassContext(Agent(cls.node, policy={"namespaces": [NAMESPACE, TENANT], "trusted-namespaces": [NAMESPACE]}))
        cls.node.wait_ready()
        cls.plugin = scratch() / "kubectl-daemonlet"
        cls.plugin.symlink_to(agent.binary())

    def pod(self):
        """The one pod that runs and what its container was started with."""
        found = self.node.cri.of("sized-", NAMESPACE)
        said = self.node.cri.execute(found[0][2], "cat", "/tmp/started", check=False).strip() if len(found) == 1 else None
        return (found[0][0], said) if said else None

    def wait_started(self, words):
        """Waits until the container that runs was started with that."""
        until(lambda: self.pod()[1] == words, SOON, f"it was started with {words!r}\n{self.agent.process.tail(20)}")

    def says(self, words, command="status", *args):
        """Waits until a command says something."""
        until(lambda: words in self.agent.cli(command, *args).stdout, SOON, f"{command} says {words!r}")

    def explain(self):
        """What `explain` says."""
        return self.agent.cli("explain", f"{NAMESPACE}/sized").stdout

    def diff(self, check=True):
        """What `kubectl daemonlet diff` says of the node and the large one."""
        argv = [self.plugin, "--kubeconfig", self.admin.kubeconfig, "diff", self.node.name, "large"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=check)
        return done.stdout + done.stderr

    def resize(self, size):
        """Changes the label of the node."""
        self.admin.patch("nodes", self.node.name, {"metadata": {"labels": {"size": size}}})

    def test_1_a_node_that_no_patch_is_for_runs_the_template(self):
        self.admin.apply(overlays("a"), sized())
        self.wait_started("none 32 plain")
        self.assertIn(f"none of ConfigMap {NAMESPACE}/sizes applies to this node", self.explain())
        said = self.diff()
        self.assertRegex(said, r'spec\.containers\[main\]\.args +\["plain"\] +\["patched"\]')
        self.assertRegex(said, r"spec\.containers\[main\]\.env\[LEVEL\]\.value +none +a")

    def test_2_a_label_of_the_node_brings_the_patch_into_the_container(self):
        before = self.pod()
        self.resize("big")
        self.wait_started("a 48 patched")
        self.assertNotEqual(self.pod()[0], before[0], "it is another pod")
        explained = self.explain()
        for field in ("env[LEVEL]", "args", "resources.limits"):
            self.assertIn(f"spec.containers[main].{field}", explained)
        self.assertIn("no difference", self.diff())
        mirror = next(pod for pod in self.admin.list("pods", NAMESPACE) if pod["metadata"]["name"].startswith("sized-"))
        self.assertEqual(mirror["spec"]["containers"][0]["resources"]["limits"], {"cpu": "100m", "memory": "48Mi"})

    def test_3_a_changed_list_is_rolled_out_and_the_template_with_it(self):
        self.admin.apply(overlays("b"))
        self.wait_started("b 48 patched")
        self.admin.apply(sized(env=[*ENV, {"name": "MORE", "value": "1"}]))
        until(lambda: "MORE=1" in self.node.cri.execute(self.node.cri.of("sized-")[0][2], "env"), SOON, "the new template runs")
        self.wait_started("b 48 patched")

    def test_4_what_is_lost_or_refused_leaves_what_runs(self):
        before = self.pod()
        self.admin.apply(overlays("c", containers=[{"name": "other", "args": []}]))
        self.says("the template has no container other")
        self.assertIn("the template has no container other", self.diff(check=False))
        self.admin.apply(overlays("c", hostNetwork="yes"))
        self.says("hostNetwork")
        self.admin.apply(overlays("b"))
        self.admin.delete("configmaps", "sizes", NAMESPACE)
        self.says("it does not exist", "explain", f"{NAMESPACE}/sized")
        never(lambda: self.pod() != before, QUIET, "something changes")
        self.assertIn(f"ConfigMap {NAMESPACE}/sizes does not exist", self.diff(check=False))
        # Another template takes along what applied last.
        self.admin.apply(sized(env=ENV, args=["plain", "again"]))
        until(lambda: self.pod()[0] != before[0], SOON, "the new template runs")
        self.wait_started("b 48 patched")

    def test_5_offline_what_is_remembered_applies(self):
        self.admin.apply(overlays("d"))
        self.wait_started("d 48 patched")
        before = self.pod()
        self.agent.stop()
        self.cluster.stop("api")
        self.agent.start()
        until(lambda: self.agent.cli("restart", f"{NAMESPACE}/sized").returncode == 0, SOON, "the agent takes the order")
        until(lambda: self.pod()[0] != before[0], SOON, "another pod runs")
        self.wait_started("d 48 patched")
        self.assertIn("spec.containers[main].args", self.explain())
        self.cluster.start_api()
        never(lambda: self.pod()[1] != "d 48 patched", QUIET, "something changes")

    def test_6_policy_judges_the_patched_pod(self):
        self.admin.create("namespaces", {"metadata": {"name": TENANT}})
        self.cluster.wait_namespace(TENANT)
        confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
        daemon = sized(TENANT, command=["sleep", "100000"], args=[], securityContext=confined)
        del daemon["spec"]["template"]["spec"]["containers"][0]["args"]
        self.admin.apply(overlays("a", TENANT, hostNetwork=True), daemon)
        self.says("hostNetwork")
        never(lambda: self.node.cri.of("sized-", TENANT), QUIET, "it runs on the host's network")
        self.admin.apply(overlays("a", TENANT, containers=[{"name": "main", "command": ["sleep", "99999"]}]))
        pod = self.node.cri.wait_running("sized-", SOON, TENANT)
        self.admin.apply(overlays("a", TENANT, hostNetwork=True))
        self.says("hostNetwork")
        never(lambda: self.node.cri.of("sized-", TENANT) != [pod], QUIET, "what ran has changed")
