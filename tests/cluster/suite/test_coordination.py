"""What was decided of a rollout stays decided: CRD and coordinator lost, nodes that join and go, a halt, an outage.

On hollow nodes; the DaemonSet controller and the scheduler do not run.
"""

import json
import subprocess

from kit import agent
from kit import coordinator
from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.hollow import HollowNode
from kit.hollow import crowd
from kit.sandbox import scratch
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .rolled_out import SOON
from .rolled_out import RolledOut

NODES = 3
# So long nothing may happen that an agent or the coordinator would do within a second.
QUIET = 6


class CoordinationTest(RolledOut):
    """One DaemonSet on three nodes, and nodes that join."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one = cls.stack.enter_context(Coordinator(cls.cluster, "one"))
        cls.agents = {}
        nodes = crowd(cls.cluster, NODES, cls.stack)
        for node in nodes:
            cls.agents[node.name] = cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        cls.truth = cls.stack.enter_context(Truth(cls.admin, nodes, "net"))
        cls.joined = NODES

    def join(self):
        """A node joins; gives its name."""
        node = self.stack.enter_context(HollowNode(self.cluster, f"hollow-{self.joined}", self.joined))
        type(self).joined += 1
        self.truth.joins(node)
        self.agents[node.name] = self.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        return node.name

    def ask(self, *arguments, check):
        """Runs the plugin."""
        plugin = scratch() / "kubectl-daemonlet"
        if not plugin.exists():
            plugin.symlink_to(agent.binary())
        return subprocess.run([plugin, "--kubeconfig", self.admin.kubeconfig, *arguments], capture_output=True, text=True, check=check, timeout=30)

    def test_1_a_revision_that_all_nodes_have_is_released(self):
        self.create("1")
        self.all_have("1")
        before = self.admin.get("daemonsets", "net", "kube-system")["metadata"]["resourceVersion"]
        never(lambda: self.admin.get("daemonsets", "net", "kube-system")["metadata"]["resourceVersion"] != before, QUIET,
              "a healthy idle DaemonSet is written")

    def test_2_a_pause_outlives_the_resource_and_a_node_that_joins_has_the_released_revision(self):
        before = self.images()
        self.annotate(paused="true")
        self.change("2")
        until(lambda: self.released("1") == "Held", SOON, "the pause is shown")
        self.truth.excuse()
        expected = {"desiredNumberScheduled": NODES, "updatedNumberScheduled": 0, "numberReady": NODES, "numberAvailable": NODES}
        self.kubectl("delete", "crd", "nodedaemons.daemonlet.dev")
        self.annotate(paused=None)
        for one in self.agents.values():
            one.process.wait_line("changed templates wait until the coordinator's approvals can be", SOON)
        counters = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable")
        never(lambda: self.images() != before or {field: self.status().get(field, 0) for field in counters} != expected, QUIET,
              "a node changes without an approval, or an outage is shown that is none")
        self.annotate(paused="true")
        name = self.join()
        until(lambda: self.images() == before | {name: "1"}, SOON, "the node that joins has the released revision")
        self.agents[name].kill()
        self.agents[name].start()
        coordinator.install(self.cluster)
        until(lambda: len(self.admin.list("nodedaemons")) == len(self.agents), SOON, "the nodes report again")
        self.truth.excuse(seconds=10)
        never(lambda: self.images() != before | {name: "1"}, QUIET, "a node changes while it is paused")
        self.annotate(paused=None)
        self.all_have("2")

    def test_3_the_owner_ends_that_it_is_coordinated(self):
        self.truth.excuse()
        self.kubectl("delete", "crd", "nodedaemons.daemonlet.dev")
        self.annotate(coordination="none")
        self.change("3")
        until(lambda: set(self.images().values()) == {"3"}, SOON, "each node changes by itself")
        self.annotate(coordination=None)
        coordinator.install(self.cluster)
        self.all_have("3")
        self.truth.excuse(seconds=0)

    def test_4_a_halt_outlives_the_node_on_which_it_failed_and_the_coordinator(self):
        self.annotate(max_failed="0")
        self.change("4")
        until(lambda: "4" in self.images().values(), SOON, "the first node has it")
        bad = next(name for name, image in self.images().items() if image == "4")
        # Nothing fails on a hollow node by itself: its agent's word, in its stead.
        self.truth.excuse(bad)
        self.agents[bad].stop()
        daemons = self.admin.get("nodedaemons", bad)["status"]["daemons"]
        daemons[0]["failed"] = {"revision": self.hash_of("4"), "cause": "image", "message": "no such image"}
        self.admin.patch("nodedaemons", bad, {"status": {"daemons": daemons}}, sub="status")
        until(lambda: self.condition("Halted")[0] == "True", SOON, "it halts")
        self.assertIn(bad, self.condition("Halted")[2])
        warned = lambda reason: [e for e in self.admin.list("events", "kube-system")
                                 if e["reason"] == reason and e["reportingController"] == "daemonlet.dev/coordinator"]
        until(lambda: warned("RolloutHalted"), SOON, "an event says so")
        # The coordinator dies, and the node is replaced by another.
        self.truth.excuse()
        self.one.kill()
        self.agents[bad].node.process.stop(5)
        del self.agents[bad]
        self.admin.delete("nodes", bad)
        self.admin.kubectl("delete", "nodedaemons", bad, "--ignore-not-found")
        name = self.join()
        until(lambda: name in self.images(), SOON, "the node that joins has an instance")
        before = {node: image for node, image in self.images().items() if node in self.agents}
        self.assertEqual(before[name], "3", "of the released revision")
        self.one.start()
        until(lambda: self.status().get("desiredNumberScheduled") == len(self.agents), SOON, "the coordinator counts the node")
        self.truth.leaves(bad)
        self.truth.excuse(bad, "", seconds=40)
        never(lambda: {node: image for node, image in self.images().items() if node in self.agents} != before, QUIET, "the halted revision spreads")
        self.assertEqual(self.condition("Halted")[0], "True")
        self.assertEqual(self.released("3"), "Held")
        # What works rolls out, and coming back to what is halted finds it halted.
        self.change("5")
        self.all_have("5")
        self.assertEqual(self.condition("Halted"), (None, None, None))
        self.change("4")
        until(lambda: self.condition("Halted")[0] == "True", SOON, "it is halted still")
        never(lambda: "4" in self.images().values(), QUIET, "it spreads")
        done = self.ask("retry", "kube-system/net", check=True)
        self.assertRegex(done.stdout, r"^kube-system/net: revision net-\w+ was halted since \S+: .*; the halt is ended\n$")
        self.all_have("4")
        notes = [e["note"] for e in warned("RolloutHalted")]
        self.assertEqual([note.split(":")[0] for note in notes], [f"revision {self.hash_of('4')}"], "one for all nodes and times")

    def test_5_a_node_without_an_agent_holds_no_other_up_for_ever(self):
        silent = self.stack.enter_context(HollowNode(self.cluster, "hollow-silent", 20))
        self.admin.wait("nodes", lambda seen: ("", silent.name) in seen, SOON, "it is registered")
        self.truth.joins(silent)
        # An agent has a minute to report.
        self.truth.excuse(silent.name, seconds=90)
        self.change("6")
        until(lambda: self.images() == dict.fromkeys(self.agents, "6"), 2 * SOON, "the others have it")
        until(lambda: self.condition("Degraded")[2] == f"no agent on 1 node: {silent.name}", SOON, "and it is named")
        until(lambda: self.released("6") == "Complete", SOON, "it cannot take it, so it does not count")

    def test_6_a_dead_agent_is_not_believed_and_its_mirror_pod_is(self):
        lease = lambda name: self.admin.get("leases", name, "daemonlet-node-lease")["spec"]["renewTime"]
        name = next(iter(self.agents))
        first = until(lambda: lease(name), SOON, "it has a Lease")
        until(lambda: lease(name) != first, SOON, "which is renewed")
        self.admin.delete("nodes", "hollow-silent")
        until(lambda: self.status().get("numberReady") == len(self.agents), SOON, "all are ready")
        self.truth.excuse(name)
        self.agents[name].kill()
        until(lambda: self.condition("Degraded")[2] == f"agent does not renew its Lease on 1 node: {name}", 100, "the dead agent is reported")
        until(lambda: self.status()["numberReady"] == len(self.agents), SOON, "its mirror pod says that it is ready")
        until(lambda: self.is_shown_silent(name), SOON, "the plugin shows it, too")

    def is_shown_silent(self, name):
        """Whether `kubectl daemonlet` says that the agent of one node is silent, and that its daemon is ready."""
        asked = self.ask("-o", "json", check=False)
        nodes = json.loads(asked.stdout)["daemonSets"][0]["nodes"]
        return [(node["node"], node["ready"]) for node in nodes if node.get("isSilent")] == [(name, True)]

    def test_7_a_node_that_breaks_and_is_deleted_counts_also_for_another_coordinator(self):
        next(iter(self.agents.values())).start()
        victim = self.join()
        until(lambda: self.images().get(victim) == "6", SOON, "it has an instance")
        self.annotate(canary=f"kubernetes.io/hostname={victim}", canary_hold="1h")
        self.change("7")
        until(lambda: "the canary nodes have to be available" in (self.condition("Progressing")[2] or ""), SOON, "the others wait")
        until(lambda: self.images().get(victim) == "7", SOON, "it has the new revision")
        until(lambda: self.status().get("numberReady") == len(self.agents), SOON, "it is ready")
        self.truth.excuse()
        self.agents[victim].kill()
        self.agents[victim].node.process.stop(5)
        del self.agents[victim]
        unknown = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
        self.admin.patch("nodes", victim, {"status": unknown}, sub="status")
        until(lambda: self.status().get("numberReady") == len(self.agents), SOON, "it is not ready")
        # As a machine health check does.
        self.admin.delete("nodes", victim)
        self.admin.kubectl("delete", "nodedaemons", victim, "--ignore-not-found")
        until(lambda: self.condition("Halted")[0] == "True", SOON, f"it halts: {self.status()}")
        self.assertIn(f"the revision failed on 1 node, 1 of them deleted: {victim}", self.condition("Halted")[2])
        self.assertIn(victim, self.condition("Degraded")[2])
        revision = f"net-{self.hash_of('7')}"
        noted = lambda: "daemonlet.dev/broken" in self.admin.get("controllerrevisions", revision, "kube-system")["metadata"]["annotations"]
        until(noted, SOON, "the node is on the ControllerRevision")
        self.one.kill()
        self.annotate(canary=None, canary_hold=None)
        self.one.start()
        others = lambda image: [node for node, has in self.images().items() if has == image and node in self.agents]
        never(lambda: others("7"), QUIET, "it spreads")
        self.assertTrue(noted(), "the node is still on the ControllerRevision")
        # What the halt is made from is enough without it.
        self.kubectl("annotate", "controllerrevision", revision, "daemonlet.dev/halted-")
        until(lambda: "daemonlet.dev/halted" in self.admin.get("controllerrevisions", revision, "kube-system")["metadata"]["annotations"], SOON,
              "another coordinator counts it")
        never(lambda: others("7"), QUIET, "it spreads")
        subprocess.run([scratch() / "kubectl-daemonlet", "--kubeconfig", self.admin.kubeconfig, "retry", "kube-system/net"], check=True, timeout=30)
        until(lambda: len(others("7")) == len(self.agents), SOON, "all others have it")
        until(lambda: self.released("7") == "Complete", SOON, "it is released")
        self.assertFalse(noted())
