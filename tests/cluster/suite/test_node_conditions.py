"""Conditions of a Node that say whether its daemons are Ready, with a real kubelet; and what the policy lets through."""

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
KIND = "daemonlet.dev/NetworkReady"
POLICY = "daemonlet-agent-node-status"
RIGHTS = agents.PACKAGED / "node-conditions.yaml"
POLICIES = agents.PACKAGED / "admission-policies.yaml"
READY = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, whose agent may write conditions."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.cluster.admin.apply(RIGHTS)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    made = Agent(WORLD.node, policy={"namespaces": ["*"]})
    made.config["node"] = {"conditions": True}
    WORLD.agent = unittest.enterModuleContext(made)
    WORLD.node.wait_ready()


class NodeConditions(unittest.TestCase):
    """A node that runs."""

    def setUp(self):
        self.cluster, self.admin, self.cri, self.agent, self.name = WORLD.cluster, WORLD.cluster.admin, WORLD.node.cri, WORLD.agent, WORLD.node.name

    def apply(self, name):
        """Applies a DaemonSet with a condition; it is Ready once it has a file."""
        made = daemonset(name, namespace=NAMESPACE, labels=MODE, hostNetwork=True, terminationGracePeriodSeconds=1, container={"readinessProbe": READY})
        made["metadata"]["annotations"] = {"daemonlet.dev/node-condition": "NetworkReady"}
        self.admin.apply(made)
        self.addCleanup(self.cri.wait_gone, f"{name}-")
        self.addCleanup(lambda: self.admin.kubectl("-n", NAMESPACE, "delete", "daemonset", name, "--ignore-not-found"))

    def conditions(self):
        """Status and message of each condition of the Node."""
        return {condition["type"]: condition for condition in self.admin.get("nodes", self.name)["status"]["conditions"]}

    def has(self, status, words=""):
        """Waits for the condition."""
        found = lambda: self.conditions().get(KIND, {"status": None, "message": ""})
        until(lambda: found()["status"] == status and words in found()["message"], 20, f"{status}, not {found()}\n{self.agent.process.tail(20)}")

    def is_refused(self, attempt):
        """Whether an agent's policy refuses it; what it is refused for else is an error."""
        try:
            attempt()
        except Refused as refused:
            self.assertIn("ValidatingAdmissionPolicy 'daemonlet-agent-", str(refused))
            return True
        return False

    def test_the_condition_follows_the_daemon_and_goes_with_it(self):
        self.apply("network")
        self.has("False", f"{NAMESPACE}/network: not Ready here")
        daemon = self.cri.wait_running("network-", 30)
        self.cri.execute(daemon[2], "touch", "/tmp/ready")
        self.has("True", f"{NAMESPACE}/network: Ready here")
        since = self.conditions()[KIND]["lastTransitionTime"]
        self.agent.restart()
        never(lambda: self.conditions()[KIND]["lastTransitionTime"] != since, 5, "an agent that starts changes it")
        self.apply("second")
        self.has("False", f"{NAMESPACE}/second: not Ready here")
        self.cri.execute(self.cri.wait_running("second-", 30)[2], "touch", "/tmp/ready")
        self.has("True", f"{NAMESPACE}/network, {NAMESPACE}/second: Ready here")
        self.cri.execute(daemon[2], "rm", "/tmp/ready")
        self.has("False", f"{NAMESPACE}/network: not Ready here")
        for name in ("network", "second"):
            self.admin.delete("daemonsets", name, NAMESPACE)
        self.has(None)
        self.assertEqual(self.conditions()["Ready"]["status"], "True", "conditions of the kubelet are left")

    def test_a_teardown_takes_it_away(self):
        self.addCleanup(self.agent.restart)  # once the DaemonSet is deleted
        self.apply("torn")
        self.has("False")
        self.agent.stop()
        done = self.agent.cli("teardown", "--timeout", "25s")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        until(lambda: KIND not in self.conditions(), 5, "the condition is gone")

    def test_without_the_policy_nothing_is_written_and_that_is_said(self):
        api = self.cluster.user(agents.user(self.name), [agents.GROUP])
        change = lambda: api.request("PATCH", f"/api/v1/nodes/{self.name}/status?dryRun=All", {"status": {"phase": "Running"}}, "application/merge-patch+json")
        self.has(None)
        self.addCleanup(self.admin.apply, POLICIES)
        self.admin.kubectl("delete", "validatingadmissionpolicybindings", POLICY)
        until(change, 30, "the policy is not in force")
        self.apply("unheld")
        self.cri.wait_running("unheld-", 30)
        until(lambda: f"the policy {POLICY} does not hold this agent" in self.agent.cli("status").stdout, 20, "it is said")
        self.assertNotIn(KIND, self.conditions())
        self.admin.apply(POLICIES)
        self.has("False")

    def test_an_agent_changes_nothing_of_a_status_but_its_own_conditions(self):
        self.agent.stop()
        self.addCleanup(self.agent.start)
        self.admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "other"}})
        self.addCleanup(self.admin.delete, "nodes", "other")
        api = self.cluster.user(agents.user(self.name), [agents.GROUP])
        strategic = "application/strategic-merge-patch+json"

        def patch(body, name=self.name, content=strategic, dry=False):
            query = "?dryRun=All" if dry else ""
            return lambda: api.request("PATCH", f"/api/v1/nodes/{name}/status{query}", body, content)

        def conditions(*made):
            return {"status": {"conditions": list(made)}}

        ours = {"type": KIND, "status": "True"}
        until(patch(conditions(ours), dry=True), 30, "its rights are in force")
        until(lambda: self.is_refused(patch({"status": {"phase": "Terminated"}}, dry=True)), 30, "the policy is in force")
        status = self.admin.get("nodes", self.name)["status"]
        attempts = {
            "say that it is Ready": patch(conditions({"type": "Ready", "status": "False"})),
            "take a condition away": patch(conditions({"type": "MemoryPressure", "$patch": "delete"})),
            "a condition of others": patch(conditions({"type": "example.org/Ready", "status": "True"})),
            "its own, and another with it": patch(conditions(ours, {"type": "Ready", "status": "False"})),
            "all conditions": patch(conditions(ours), content="application/merge-patch+json"),
            "a condition of another Node": patch(conditions(ours), name="other"),
            "more capacity": patch({"status": {"capacity": {"example.org/gpu": "8"}}}),
            "less to allocate": patch({"status": {"allocatable": {"cpu": "1"}}}),
            "another address": patch({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
            "another kubelet port": patch({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}),
            "another version": patch({"status": {"nodeInfo": status["nodeInfo"] | {"kubeletVersion": "v9"}}}),
            "another phase": patch({"status": {"phase": "Terminated"}}),
            "images": patch({"status": {"images": [{"names": ["example.org/a"]}]}}, content="application/merge-patch+json"),
            "attached volumes": patch({"status": {"volumesAttached": [{"name": "a", "devicePath": "b"}]}}, content="application/merge-patch+json"),
            "volumes in use": patch({"status": {"volumesInUse": ["a"]}}, content="application/merge-patch+json"),
            "features": patch({"status": {"features": {"supplementalGroupsPolicy": not status.get("features", {}).get("supplementalGroupsPolicy")}}}),
            "a label by way of the status": patch({"metadata": {"labels": {"a": "b"}}} | conditions(ours)),
            "an annotation by way of the status": patch({"metadata": {"annotations": {"a": "b"}}}),
        }
        for what, attempt in attempts.items():
            with self.subTest(what):
                self.assertTrue(self.is_refused(attempt))
        patch(conditions(ours))()
        self.assertEqual(self.conditions()[KIND]["status"], "True")
        patch(conditions({"type": KIND, "$patch": "delete"}))()
        self.assertNotIn(KIND, self.conditions())
