"""No workload before its daemons, with a real scheduler and kubelet."""

import unittest
from types import SimpleNamespace

from kit import agent as agents
from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
ASKS = {"daemonlet.dev/startup-taint": "true"}
KEY = "daemonlet.dev/starting"
OURS = {"key": KEY, "effect": "NoSchedule"}
OTHER = {"key": "example.org/other", "effect": "PreferNoSchedule"}
POLICY = "daemonlet-agent-nodes"
RIGHTS = agents.PACKAGED / "startup-taint.yaml"
POLICIES = agents.PACKAGED / "admission-policies.yaml"
READY = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster with a scheduler, and one node, for all."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.cluster.admin.apply(RIGHTS)
    WORLD.cluster.start_scheduler()
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    made = Agent(WORLD.node, policy={"namespaces": ["*"]})
    made.config["node"] = {"startup-taint": True}
    WORLD.agent = unittest.enterModuleContext(made)
    WORLD.node.wait_ready()


def asking(name, *, timeout=None, **fields):
    """A DaemonSet that keeps workload away; it is Ready once it has a file."""
    made = daemonset(name, namespace=NAMESPACE, labels=MODE, hostNetwork=True, container={"readinessProbe": READY}, **fields)
    made["metadata"]["annotations"] = ASKS | ({"daemonlet.dev/startup-taint-timeout": timeout} if timeout else {})
    return made


def taints(admin, node):
    """The keys and effects of a Node's taints."""
    return [(taint["key"], taint["effect"]) for taint in admin.get("nodes", node)["spec"].get("taints", [])]


def is_tainted(admin, node):
    """Whether workload is kept away."""
    return (KEY, "NoSchedule") in taints(admin, node)


def workload(admin, name, **spec):
    """Creates a pod for any node."""
    return admin.create("pods", {"metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "a", "image": "example.org/none"}]} | spec}, NAMESPACE)


def bound(admin, name):
    """The node that a pod is bound to."""
    return admin.get("pods", name, NAMESPACE)["spec"].get("nodeName")


class StartupTaint(unittest.TestCase):
    """A node that runs."""

    def setUp(self):
        self.cluster, self.admin, self.cri, self.agent, self.name = WORLD.cluster, WORLD.cluster.admin, WORLD.node.cri, WORLD.agent, WORLD.node.name

    def apply(self, daemon):
        """Applies a DaemonSet; deletes it at the end."""
        self.admin.apply(daemon)
        name = daemon["metadata"]["name"]
        self.addCleanup(self.cri.wait_gone, f"{name}-")
        self.addCleanup(self.admin.delete, "daemonsets", name, NAMESPACE)

    def pod(self, name, **spec):
        """Creates workload; deletes it at the end."""
        workload(self.admin, name, **spec)
        self.addCleanup(self.admin.delete, "pods", name, NAMESPACE, gracePeriodSeconds=0)

    def clean(self):
        """Waits until the taint is gone."""
        until(lambda: not is_tainted(self.admin, self.name), 20, f"the taint is gone: {self.agent.process.tail(20)}")

    def test_until_the_daemon_is_ready_the_scheduler_binds_nothing_that_does_not_tolerate_the_taint(self):
        self.clean()
        self.apply(asking("network"))
        until(lambda: is_tainted(self.admin, self.name), 20, f"the taint is there: {self.agent.process.tail(20)}")
        self.pod("workload")
        self.pod("tolerant", tolerations=[{"key": KEY, "operator": "Exists"}])
        until(lambda: bound(self.admin, "tolerant") == self.name, 20, "what tolerates it is bound")
        daemon = self.cri.wait_running("network-", 30)
        never(lambda: bound(self.admin, "workload"), 3, "workload came before the daemon")
        said = self.agent.cli("status").stdout
        self.assertIn(f"the node is to carry {KEY} until it is Ready here", said)
        self.cri.execute(daemon[2], "touch", "/tmp/ready")
        until(lambda: bound(self.admin, "workload") == self.name, 30, f"workload is bound: {self.agent.process.tail(20)}")
        self.assertEqual(taints(self.admin, self.name), [])
        # Neither what happens later in this boot nor an agent that starts again brings it back.
        self.cri.execute(daemon[2], "rm", "/tmp/ready")
        self.agent.restart()
        never(lambda: is_tainted(self.admin, self.name), 4, "it came back in the same boot")

    def test_it_goes_after_the_timeout_and_other_taints_stay(self):
        self.clean()
        self.admin.patch("nodes", self.name, {"spec": {"taints": [OTHER]}})
        self.addCleanup(self.admin.patch, "nodes", self.name, {"spec": {"taints": None}})
        self.apply(asking("slow", timeout="4s"))
        until(lambda: is_tainted(self.admin, self.name), 20, f"the taint is there: {self.agent.process.tail(20)}")
        self.clean()
        self.assertEqual(taints(self.admin, self.name), [(OTHER["key"], OTHER["effect"])])
        self.assertIn("for 4 s (daemonlet.dev/startup-taint-timeout)", self.agent.cli("status").stdout)

    def test_without_the_policy_nothing_is_written_and_that_is_said(self):
        self.clean()
        api = self.cluster.user(agents.user(self.name), [agents.GROUP])
        dry = f"/api/v1/nodes/{self.name}?dryRun=All"
        merge = "application/merge-patch+json"
        change = lambda: api.request("PATCH", dry, {"metadata": {"labels": {"a": "b"}}}, merge)
        self.addCleanup(self.admin.apply, POLICIES)
        self.admin.kubectl("delete", "validatingadmissionpolicybindings", POLICY)
        until(change, 30, "the policy is not in force")
        self.apply(asking("unheld"))
        self.cri.wait_running("unheld-", 30)
        until(lambda: f"the policy {POLICY} does not hold this agent" in self.agent.cli("status").stdout, 20, "it is said")
        self.assertFalse(is_tainted(self.admin, self.name))
        self.admin.apply(daemonset("stock", namespace=NAMESPACE))
        self.addCleanup(self.admin.delete, "daemonsets", "stock", NAMESPACE)
        found = self.agent.cli("doctor").stdout
        self.assertRegex(found, f"not in force for this agent: {POLICY}")
        self.assertRegex(found, f"wait as workload does: {NAMESPACE}/stock")
        self.admin.apply(POLICIES)
        until(lambda: is_tainted(self.admin, self.name), 60, f"the taint is there: {self.agent.process.tail(20)}")

    def test_an_agent_changes_nothing_of_a_node_but_its_own_taint(self):
        self.clean()
        self.agent.stop()
        self.addCleanup(self.agent.start)
        # Every right that RBAC can give on Nodes: what refuses is the policies.
        self.admin.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "too-much"},
                          "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}]},
                         {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "too-much"},
                          "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "too-much"},
                          "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": agents.GROUP}]},
                         {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
        for kind, name in (("clusterrolebindings", "too-much"), ("clusterroles", "too-much"), ("nodes", "other")):
            self.addCleanup(self.admin.delete, kind, name)
        self.admin.patch("nodes", self.name, {"spec": {"taints": [OTHER]}})
        self.addCleanup(self.admin.patch, "nodes", self.name, {"spec": {"taints": None}})
        api, path = self.cluster.user(agents.user(self.name), [agents.GROUP]), f"/api/v1/nodes/{self.name}"
        until(lambda: api.request("GET", "/api/v1/nodes"), 20, "its rights are in force")
        owner = {"apiVersion": "v1", "kind": "Node", "name": "other", "uid": self.admin.get("nodes", "other")["metadata"]["uid"]}

        def patch(name=self.name, sub=None, **body):
            return lambda: api.patch("nodes", name, body, sub=sub)

        attempts = {
            "a label": patch(metadata={"labels": {"node-role.kubernetes.io/control-plane": ""}}),
            "an annotation": patch(metadata={"annotations": {"a": "b"}}),
            "a finalizer": patch(metadata={"finalizers": ["example.org/a"]}),
            "an owner": patch(metadata={"ownerReferences": [owner]}),
            "uncordon or cordon": patch(spec={"unschedulable": True}),
            "its provider's name": patch(spec={"providerID": "cloud://x"}),
            "take another taint away": patch(spec={"taints": None}),
            "another taint in place of one": patch(spec={"taints": [OTHER | {"effect": "NoSchedule"}]}),
            "a second taint": patch(spec={"taints": [OTHER, {"key": "a", "effect": "NoSchedule"}]}),
            "evict by its own taint": patch(spec={"taints": [OTHER, OURS | {"effect": "NoExecute"}]}),
            "its own taint, and a label with it": patch(spec={"taints": [OTHER, OURS]}, metadata={"labels": {"a": "b"}}),
            "the taint of another node": patch("other", spec={"taints": [OURS]}),
            "its status": patch(sub="status", status={"conditions": [{"type": "Ready", "status": "False"}]}),
            "by a JSON patch": lambda: api.request("PATCH", path, [{"op": "add", "path": "/spec/unschedulable", "value": True}], "application/json-patch+json"),
            "by an apply": lambda: api.request("PATCH", f"{path}?fieldManager=x&force=true", {"apiVersion": "v1", "kind": "Node", "metadata": {
                "name": self.name, "labels": {"a": "b"}}}, "application/apply-patch+yaml"),
            "in place of it": lambda: api.request("PUT", path, (found := self.admin.get("nodes", self.name)) | {"metadata": found["metadata"] | {"labels": {}}}),
            "make a Node": lambda: api.request("POST", "/api/v1/nodes", {"metadata": {"name": "third"}}),
            "delete its Node": lambda: api.delete("nodes", self.name),
            "delete another": lambda: api.delete("nodes", "other"),
        }
        for what, attempt in attempts.items():
            with self.subTest(what):
                with self.assertRaises(Refused) as refused:
                    attempt()
                self.assertIn("ValidatingAdmissionPolicy 'daemonlet-agent-", str(refused.exception))
        for wanted in ([OTHER, OURS], [OURS, OTHER], [OTHER]):
            api.patch("nodes", self.name, {"spec": {"taints": wanted}})
        self.assertEqual(taints(self.admin, self.name), [(OTHER["key"], OTHER["effect"])])

    def test_a_teardown_takes_it_away(self):
        self.clean()
        self.admin.apply(asking("torn"))
        self.addCleanup(self.admin.delete, "daemonsets", "torn", NAMESPACE)
        until(lambda: is_tainted(self.admin, self.name), 20, f"the taint is there: {self.agent.process.tail(20)}")
        self.agent.stop()
        self.addCleanup(self.agent.start)
        self.assertIn(f"would take the taint {KEY} off the Node", self.agent.cli("teardown", "--dry-run").stdout)
        done = self.agent.cli("teardown", "--timeout", "25s")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertFalse(is_tainted(self.admin, self.name))
