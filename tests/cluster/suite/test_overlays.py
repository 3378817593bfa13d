"""One DaemonSet whose pods differ by node: overlays in a ConfigMap, rolled out by a coordinator.

On hollow nodes, with the plugin as an operator runs it.
"""

import subprocess

from kit import agent
from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.sandbox import scratch
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

SOON = 90
QUIET = 5
NAMESPACE = "kube-system"
OVERLAYS = "daemonlet.dev/overlays"
SIZES = {"hollow-0": "small", "hollow-1": "big", "hollow-2": "small", "hollow-3": "big"}
BIG = sorted(node for node, size in SIZES.items() if size == "big")


def overlays(argument, container="main", **more):
    """A ConfigMap with one patch for large nodes."""
    patch = {"spec": {"containers": [{"name": container, "args": [argument]}], **more}}
    entry = f"- nodes: {{matchLabels: {{size: big}}}}\n  patch: {patch}\n"
    metadata = {"name": "sizes", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"overlays.yaml": entry}}


class OverlaysTest(Coordinated):
    """One DaemonSet on two small nodes and two large ones."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nodes = crowd(cls.cluster, len(SIZES), cls.stack)
        cls.agents = {}
        for node in cls.nodes:
            cls.admin.patch("nodes", node.name, {"metadata": {"labels": {"size": SIZES[node.name]}}})
            cls.agents[node.name] = cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.enterClassContext(Truth(cls.admin, cls.nodes, "net"))
        cls.plugin = scratch() / "kubectl-daemonlet"
        cls.plugin.symlink_to(agent.binary())

    @classmethod
    def change(cls, image, annotations=None):
        """Applies the DaemonSet with this image."""
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"] |= {"namespace": NAMESPACE, "annotations": {OVERLAYS: "sizes"} if annotations is None else annotations}
        container = it["spec"]["template"]["spec"]["containers"][0]
        container |= {"name": "main", "image": f"example.org/net:{image}"}
        it["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
        cls.admin.apply(it)

    @classmethod
    def pods(cls):
        """Name, image and first argument on each node, pods that end left out."""
        found = {}
        for pod in cls.admin.list("pods", NAMESPACE, labels="app=net"):
            if "deletionTimestamp" not in pod["metadata"]:
                container = pod["spec"]["containers"][0]
                image = container["image"].split(":")[1]
                found[pod["spec"]["nodeName"]] = (pod["metadata"]["name"], image, (container.get("args") or [None])[0])
        return found

    @classmethod
    def patched(cls, argument):
        """The nodes whose pods have that argument."""
        return sorted(node for node, (_, _, has) in cls.pods().items() if has == argument)

    def revisions(self):
        """The ControllerRevisions of the DaemonSet."""
        return [r["metadata"]["name"] for r in self.admin.list("controllerrevisions", NAMESPACE)]

    def status(self):
        """The DaemonSet's counters."""
        return self.admin.get("daemonsets", "net", NAMESPACE).get("status", {})

    def settled(self):
        """Whether all nodes run it."""
        return len(self.pods()) == len(SIZES) and self.status().get("numberAvailable") == len(SIZES)

    def test_1_first_instances_wait_for_their_overlays(self):
        self.change("1")
        words = f"waits for ConfigMap {NAMESPACE}/sizes"
        until(lambda: words in self.agents["hollow-0"].cli("status").stdout, SOON, words)
        self.assertEqual(self.pods(), {})
        self.admin.apply(overlays("a"))
        until(self.settled, SOON, "it runs everywhere")
        self.assertEqual(self.patched("a"), BIG)

    def test_2_changed_overlays_replace_within_the_budget_what_they_apply_to(self):
        before = self.pods()
        revisions = self.revisions()
        self.admin.apply(overlays("b"))
        until(lambda: self.patched("b") == BIG, SOON, "the large nodes have the new ones")
        after = self.pods()
        for node, size in SIZES.items():
            self.assertEqual(before[node] == after[node], size == "small", f"{node}: {before[node]} {after[node]}")
        self.assertEqual(self.revisions(), revisions, "overlays are no revision")
        until(self.settled, SOON, "it is available")
        self.assertEqual(self.status()["updatedNumberScheduled"], len(SIZES))
        explained = self.agents[BIG[0]].cli("explain", f"{NAMESPACE}/net").stdout
        self.assertIn(f"ConfigMap {NAMESPACE}/sizes: overlays.yaml[0] patches spec.containers[main].args", explained)
        done = [self.plugin, "--kubeconfig", self.admin.kubeconfig, "diff", "hollow-0", "hollow-1"]
        shown = subprocess.run(done, capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertRegex(shown, r'spec\.containers\[main\]\.args +- +\["b"\]')

    def test_3_a_label_of_a_node_that_changes_what_applies_is_a_change(self):
        self.admin.patch("nodes", "hollow-0", {"metadata": {"labels": {"size": "big"}}})
        until(lambda: self.patched("b") == ["hollow-0", *BIG], SOON, "it has become large")
        self.admin.patch("nodes", "hollow-0", {"metadata": {"labels": {"size": "small"}}})
        until(lambda: self.patched("b") == BIG and self.settled(), SOON, "and small again")

    def test_4_what_is_refused_or_gone_changes_nothing(self):
        before = self.pods()
        self.admin.apply(overlays("c", container="other"))
        words = "the template has no container other"
        until(lambda: words in self.agents[BIG[0]].cli("status").stdout, SOON, words)
        never(lambda: self.pods() != before, QUIET, "something changes")
        self.admin.apply(overlays("b"))
        self.admin.delete("configmaps", "sizes", NAMESPACE)
        never(lambda: self.pods() != before, QUIET, "something changes")

    def test_5_an_undone_rollout_leaves_overlays_alone(self):
        self.change("2")
        until(lambda: {image for _, image, _ in self.pods().values()} == {"2"}, SOON, "the new image, with what applied last")
        until(lambda: self.patched("b") == BIG, SOON, "the overlays that applied last")
        self.admin.apply(overlays("d"))
        until(lambda: self.patched("d") == BIG and self.settled(), SOON, "new overlays")
        self.change("1")
        until(lambda: {image for _, image, _ in self.pods().values()} == {"1"} and self.settled(), SOON, "the old image")
        self.assertEqual(self.patched("d"), BIG)

    def test_6_without_the_annotation_patched_pods_are_replaced_within_the_budget_and_rollouts_go_on(self):
        small = {node: pod for node, pod in self.pods().items() if node not in BIG}
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {OVERLAYS: None}}}, NAMESPACE)
        until(lambda: not self.patched("d") and self.settled(), SOON, "no pod is patched")
        self.assertEqual({node: pod for node, pod in self.pods().items() if node not in BIG}, small)
        self.change("3", annotations={})
        until(lambda: {image for _, image, _ in self.pods().values()} == {"3"} and self.settled(), SOON, "the next image")
