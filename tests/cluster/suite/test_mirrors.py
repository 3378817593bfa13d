"""Mirror pods belong to their DaemonSet: kubectl is the client, on one real kubelet and hollow nodes.

Two clusters, one after the other: without the DaemonSet controller, where mirror pods are re-owned, and
beside it, where they must not be.
"""

import json
import os
import time
import unittest
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
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Story

NAMESPACE = "kube-system"
BOOTSTRAP = {"daemonlet.dev/mode": "bootstrap"}
GATE = {"daemonlet.dev/static": "true"}
SOON = 60
# How long nothing may be restarted beside a stock controller.
BESIDE = 300 if os.environ.get("DAEMONLET_LONG") else 40
TALKS = ["sh", "-c", "echo told; trap exit TERM; while :; do sleep 3600 & wait; done"]


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


class Owned(Story):
    """Without the DaemonSet controller."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(2))
        cls.admin, cls.kubectl = cls.world.admin, cls.world.kubectl

    def test_01_mirror_pods_belong_to_their_daemon_set(self):
        self.admin.apply(body("net", STATIC, {"command": TALKS}))
        pods = self.world.owned("net", "DaemonSet")
        uid = self.admin.get("daemonsets", "net", NAMESPACE)["metadata"]["uid"]
        self.assertEqual({ref["uid"] for pod in pods for ref in pod["metadata"]["ownerReferences"]}, {uid})
        self.assertEqual([len(pod["metadata"]["ownerReferences"]) for pod in pods], [1, 1, 1])

    def test_02_describe_counts_them(self):
        until(lambda: "3 Running / 0 Waiting / 0 Succeeded / 0 Failed" in self.kubectl("describe", "ds/net"), SOON,
              "describe counts")
        self.assertIn("successfully rolled out", self.kubectl("rollout", "status", "ds/net", "--timeout=20s"))

    def test_03_logs_are_had_by_the_daemon_set(self):
        # All pods but the real node's are hollow: theirs have no logs.
        real = next(pod for pod in self.world.pods("net") if pod["spec"]["nodeName"] == self.world.node.name)
        self.assertEqual(self.kubectl("logs", real["metadata"]["name"]), "told\n")
        told = self.kubectl("logs", "ds/net", "--all-pods=true", "--prefix", "--ignore-errors", check=False)
        self.assertRegex(told, rf"\[pod/{real['metadata']['name']}/\S+\] told")

    def test_04_services_select_them(self):
        self.admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
                          "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}},
                         body("web", STATIC, hostNetwork=False))
        self.world.owned("web", "DaemonSet")

        def ready(seen):
            return {e["nodeName"] for item in seen.values() if item["metadata"]["labels"].get("kubernetes.io/service-name") == "web"
                    for e in item.get("endpoints") or [] if e["conditions"]["ready"]}
        self.admin.wait("endpointslices", lambda seen: self.world.node.name in ready(seen), SOON, "it gets traffic", NAMESPACE)
        self.kubectl("delete", "ds/web", "svc/web")

    def test_05_a_recreated_mirror_pod_is_given_back_to_it(self):
        before = self.world.owned("net", "DaemonSet")
        hollow = next(pod for pod in before if pod["spec"]["nodeName"].startswith("hollow"))
        self.kubectl("delete", "pod", hollow["metadata"]["name"], "--wait=false")
        def new():
            names = {pod["metadata"]["name"] for pod in self.world.owned("net", "DaemonSet")}
            return hollow["metadata"]["name"] not in names
        until(new, SOON, "a new instance belongs to the DaemonSet")

    def test_06_drain_asks_for_ignore_daemonsets(self):
        # As for pods of the stock controller.
        name = self.world.node.name
        before = self.world.node.cri.of("net-")
        with self.assertRaisesRegex(AssertionError, "cannot delete DaemonSet-managed Pods"):
            self.kubectl("drain", name, "--timeout=10s")
        self.kubectl("drain", name, "--ignore-daemonsets", "--timeout=20s")
        never(lambda: self.world.node.cri.of("net-") != before, 3, "drain touched it")
        self.kubectl("uncordon", name)

    def test_07_one_known_from_a_folder_alone_is_the_nodes(self):
        file = self.world.agent.folder / "plain.json"
        file.write_text(json.dumps(body("plain", {})), encoding="utf-8")
        self.addCleanup(file.unlink)
        self.world.owned("plain", "Node", 1)
        never(lambda: [owner(pod) for pod in self.world.pods("plain")] != ["Node"], 3, "it was given away")

    def test_08_another_mode_gives_them_back_to_the_node(self):
        uids = {pod["metadata"]["uid"] for pod in self.world.owned("net", "DaemonSet")}
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=bootstrap", "--overwrite")
        given = {pod["metadata"]["uid"] for pod in self.world.owned("net", "Node")}
        self.assertEqual(given, uids, "in place")
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=static", "--overwrite")
        self.world.owned("net", "DaemonSet")

    def test_09_a_gate_keeps_them_the_nodes(self):
        self.admin.apply(body("gated", STATIC, nodeSelector=GATE))
        self.world.owned("gated", "Node")
        never(lambda: {owner(pod) for pod in self.world.pods("gated")} != {"Node"}, 3, "they were given away")
        conditions = until(lambda: self.world.conditions("gated"), SOON, "conditions are written")
        self.assertEqual(sorted(conditions), ["Available", "Degraded", "Progressing"])
        status = self.admin.get("daemonsets", "gated", NAMESPACE)["status"]
        self.assertNotIn("observedGeneration", status, "the counters are the stock controller's")
        self.kubectl("delete", "ds/gated")

    def test_10_an_agent_that_may_not_patch_says_so(self):
        file = agent.ROLE
        role = self.admin.get("clusterroles", file)
        rules = [rule if rule["resources"] != ["pods"] else rule | {"verbs": ["get", "list", "watch"]} for rule in role["rules"]]
        self.admin.patch("clusterroles", file, {"rules": rules})
        self.addCleanup(self.admin.patch, "clusterroles", file, {"rules": role["rules"]})
        self.admin.apply(body("poor", STATIC))
        until(lambda: "cannot be given to their DaemonSets" in self.world.agent.cli("status").stdout, SOON, "status says what is missing")
        self.assertIn("packaging/k8s/rbac.yaml", self.world.agent.cli("status").stdout)
        self.kubectl("delete", "ds/poor")


class Beside(Story):
    """Beside the DaemonSet controller and the scheduler."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(1, daemonset_controller=True))
        cls.admin, cls.kubectl = cls.world.admin, cls.world.kubectl

    def test_1_both_modes_are_left_in_peace(self):
        """Nothing is restarted: neither ours by the controller, nor the controller's by us."""
        cri = self.world.node.cri
        self.admin.apply(body("gated", STATIC, nodeSelector=GATE), body("bridge", BOOTSTRAP))
        self.world.owned("gated", "Node")
        until(lambda: len(cri.of("bridge-")) == 1 and not self.world.agent.manifests("-bridge-"), SOON, "the stock pod took over")
        until(lambda: len(self.world.pods("bridge")) == 2 and not any(map(is_mirror, self.world.pods("bridge"))), SOON, "the mirror pods are gone")
        until(lambda: len(cri.of("gated-")) == 1, SOON, "the gated one runs")
        before = cri.of("gated-"), cri.of("bridge-")
        uids = {name: sorted(pod["metadata"]["uid"] for pod in self.world.pods(name)) for name in ("gated", "bridge")}
        began = time.monotonic()
        never(lambda: (cri.of("gated-"), cri.of("bridge-")) != before, BESIDE, "one was restarted")
        self.assertEqual({name: sorted(pod["metadata"]["uid"] for pod in self.world.pods(name)) for name in uids}, uids)
        restarts = [s["restartCount"] for name in uids for pod in self.world.pods(name) for s in pod["status"]["containerStatuses"]]
        self.assertEqual(set(restarts), {0})
        print(f"          both modes beside the stock controller: {len(restarts)} pods, 0 restarts in {time.monotonic() - began:.0f} s")
        # The counters of both are the controller's.
        status = {name: self.admin.get("daemonsets", name, NAMESPACE)["status"] for name in uids}
        self.assertEqual([status[name]["desiredNumberScheduled"] for name in ("gated", "bridge")], [0, 2])
        self.assertNotIn("conditions", status["bridge"])

    def test_2_a_controller_that_acts_is_told(self):
        self.admin.apply(body("fought", STATIC))
        degraded = lambda: self.world.conditions("fought").get("Degraded", {})
        until(lambda: degraded().get("reason") == "Conflict", SOON, "the condition says it")
        self.assertEqual(degraded()["status"], "True")
        self.assertRegex(degraded()["message"], r'pod fought-\w+ of a DaemonSet controller is on node \S+.*daemonlet\.dev/static: "true"')
        events = lambda: self.kubectl("events", "--for", "ds/fought")
        until(lambda: "StockController" in events(), SOON, "an event says it")
        self.assertIn("daemonlet.dev/static", self.world.agent.cli("status").stdout)
        pods = self.world.pods("fought")
        self.assertEqual({owner(pod) for pod in pods if is_mirror(pod)}, {"Node"}, "ours are not given to it")
        uids = lambda: sorted(pod["metadata"]["uid"] for pod in self.world.pods("fought"))
        before = uids()
        never(lambda: uids() != before, 5, "they fight")

    def test_3_the_fix_that_is_named_mends_it(self):
        self.kubectl("patch", "ds/fought", "--type=merge", "-p", json.dumps({"spec": {"template": {"spec": {"nodeSelector": GATE}}}}))
        until(lambda: [is_mirror(pod) for pod in self.world.pods("fought")] == [True, True], SOON, "only ours are left")
        until(lambda: self.world.conditions("fought").get("Degraded", {}).get("status") == "False", SOON, "the condition is gone")
        self.kubectl("delete", "ds", "--all")


if __name__ == "__main__":
    unittest.main()
