"""Who makes a rollout is stopped in the middle of it and goes on later: a coordinator, an agent, a whole node. And a window
that closes, and a canary that flaps.

On hollow nodes. Stopped is SIGSTOP: what was sent meanwhile is read on waking, the oldest first.
"""

import subprocess
import time
from contextlib import contextmanager

from kit import agent
from kit.agent import Agent
from kit.budget import Observer
from kit.coordinator import Coordinator
from kit.hollow import crowd
from kit.sandbox import scratch
from kit.truth import Truth
from kit.truth import ready
from kit.wait import never
from kit.wait import until

from .rolled_out import SOON
from .rolled_out import RolledOut

NODES = 4
NET = "kube-system/net"
# So long nothing may happen that an agent or the coordinator would do within a second.
QUIET = 6
# An agent counts as dead after 60 s without a renewal; it renews its Lease every 20 s.
SURELY_ALIVE = 30
HOLD = 20


class InterruptionsTest(RolledOut):
    """One DaemonSet on four nodes, of which one may be unavailable, and two who coordinate."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.names = [node.name for node in cls.nodes]
        cls.one = cls.stack.enter_context(Coordinator(cls.cluster, "one"))
        until(lambda: cls.holder() == "one", SOON, "one coordinates")
        cls.two = cls.stack.enter_context(Coordinator(cls.cluster, "two"))
        cls.agents = {node.name: cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in cls.nodes}
        cls.plugin = scratch() / "kubectl-daemonlet"
        cls.plugin.symlink_to(agent.binary())
        cls.truth = cls.stack.enter_context(Truth(cls.admin, cls.nodes, "net"))
        cls.observer = cls.stack.enter_context(Observer(cls.admin, "net", cls.names))

    @classmethod
    def holder(cls):
        """Who holds the Lease."""
        return cls.admin.get("leases", "daemonlet-coordinator", "kube-system")["spec"].get("holderIdentity", "").split("_")[0]

    @contextmanager
    def stopped(self, *those):
        """They are stopped meanwhile: coordinators, agents, hollow nodes."""
        for one in those:
            one.process.freeze()
        try:
            yield
        finally:
            for one in those:
                one.process.thaw()

    def granted(self):
        """The nodes that have an approval."""
        return sorted(it["metadata"]["name"] for it in self.admin.list("nodedaemons") if it.get("spec", {}).get("approvals"))

    def progressing(self, words):
        """Waits until the condition says so."""
        until(lambda: words in (self.condition("Progressing")[2] or ""), SOON, f"{words}: {self.status()}")

    def dead(self, name):
        """Waits until a node's agent counts as dead."""
        until(lambda: f"agent does not renew its Lease on 1 node: {name}" in self.condition("Degraded")[2], SOON, f"it is reported: {self.status()}")

    def coordinator_sleeps(self, sleeper, other, words, **annotations):
        """Who holds the Lease is stopped until another has it; what the owner writes meanwhile holds also when it wakes."""
        before = self.images()
        with self.stopped(sleeper):
            self.annotate(**annotations)
            until(lambda: self.holder() == other.name, SOON, "another takes over")
            self.progressing(words)
            until(lambda: self.status()["numberAvailable"] == NODES, SOON, "the node that had begun is available")
            self.assertEqual(self.images(), before)
            since = len(sleeper.process.lines)
        sleeper.process.wait_line("does not hold the Lease any more", SOON, since=since)
        never(lambda: self.images() != before, QUIET, "a node takes what its owner holds")
        self.assertEqual((self.holder(), self.granted()), (other.name, []))

    def test_1_a_coordinator_that_sleeps_longer_than_its_lease_wakes_to_what_was_held_meanwhile(self):
        self.create("1")
        # While the holder is stopped the first node becomes available, so that the next would follow.
        self.admin.patch("daemonsets", "net", {"spec": {"minReadySeconds": 4}}, "kube-system")
        self.all_have("1")
        until(lambda: self.status().get("numberAvailable") == NODES, SOON, "all are available")
        self.truth.excuse()
        self.observer.known.wait(10)
        self.observer.expect(1)
        self.change("2")
        until(lambda: len(self.having("2")) == 1, SOON, "the first node")
        self.coordinator_sleeps(self.one, self.two, "kept on the old revision", partition="3")
        self.annotate(partition=None)
        until(lambda: len(self.having("2")) == 2, SOON, "the second node")
        self.coordinator_sleeps(self.two, self.one, "paused", paused="true")
        self.annotate(paused=None)
        self.all_have("2")
        self.assertEqual(self.observer.wrong, [])
        self.truth.excuse(seconds=15)

    def test_2_an_agent_that_stops_on_its_old_revision_holds_no_other_up_once_it_counts_as_dead(self):
        self.observer.expect(1)
        first, sleeper, *others = self.names
        self.truth.excuse(sleeper)
        self.change("3")
        until(lambda: self.having("3") == [first], SOON, "the first node")
        with self.stopped(self.agents[sleeper]):
            until(lambda: self.granted() == [sleeper], SOON, "its turn comes")
            never(lambda: self.having("3") != [first], SURELY_ALIVE, "its slot is given to another")
            until(lambda: self.having("3") == [first, *others], SOON, "the others go on")
            self.dead(sleeper)
            until(lambda: self.released("3") == "Complete", SOON, "it does not count for the release")
            self.assertEqual(self.images()[sleeper], "2")
        self.all_have("3")
        until(lambda: self.condition("Degraded")[1] == "AsExpected", SOON, "it lives")
        self.assertEqual(self.observer.wrong, [])

    def test_3_one_that_stops_between_its_old_and_its_new_instance_keeps_its_slot(self):
        self.observer.expect(1)
        sleeper, *others = self.names
        self.truth.excuse(sleeper)
        self.change("4", minReadySeconds=0)
        until(lambda: not self.agents[sleeper].manifests("net"), SOON, "its old instance is gone")
        with self.stopped(self.agents[sleeper]):
            self.assertEqual(self.agents[sleeper].manifests("net"), {})
            self.dead(sleeper)
            never(lambda: [self.images().get(name) for name in others] != ["3"] * len(others), QUIET, "another node follows")
            self.assertEqual((self.condition("Progressing")[1], self.granted()), ("Held", [sleeper]))
            self.assertIn(sleeper, self.condition("Progressing")[2])
        self.all_have("4")
        self.assertEqual(self.observer.wrong, [])
        self.truth.excuse(sleeper, seconds=15)

    def is_up(self, name):
        """Whether the Node is Ready."""
        return ready(self.admin.get("nodes", name))

    @contextmanager
    def node_sleeps(self, name, unwanted, approve):
        """A node is suspended and approved; what it was approved for is taken back before it wakes."""
        node, its_agent = next(node for node in self.nodes if node.name == name), self.agents[name]
        takes_it = lambda: any(f"example.org/net:{unwanted}" in text for text in its_agent.manifests("net").values())
        with self.stopped(node, its_agent):
            approve()
            until(lambda: self.granted() == [name], SOON, "it is approved")
            yield
            until(lambda: not self.granted(), SOON, "that is taken back")
        until(lambda: takes_it() or self.is_up(name), SOON, "it is Ready")
        never(takes_it, QUIET, f"it takes {unwanted}")

    def test_4_a_suspended_node_wakes_to_what_is_wanted_then(self):
        sleeper = self.names[0]
        self.truth.excuse()
        with self.node_sleeps(sleeper, "5", lambda: self.change("5")):
            self.annotate(paused="true")
            until(lambda: not self.is_up(sleeper), SOON, "it is not Ready")
        with self.node_sleeps(sleeper, "5", lambda: self.annotate(paused=None)):
            self.change("4")
        self.all_have("4")
        with self.node_sleeps(sleeper, "6", lambda: self.change("6")):
            self.annotate(partition=str(NODES))
        self.annotate(partition=None)
        self.all_have("6")
        self.truth.excuse(seconds=15)

    def test_5_a_window_that_closes_takes_back_what_was_not_claimed(self):
        begun, *others = self.names
        clock = lambda seconds: time.strftime("%H:%M", time.gmtime(seconds))
        # To the minute, with time for the first node.
        ends = (time.time() + 25) // 60 * 60 + 60
        self.annotate(window=f"{clock(ends - 7200)}-{clock(ends)}", update="manual")
        self.change("7")
        until(lambda: self.granted() == self.names, SOON, "all nodes are approved")
        self.agents[begun].cli("approve", NET, check=True)
        until(lambda: self.having("7") == [begun], SOON, "the one on which it was approved")
        until(lambda: self.granted() == others, SOON, "its approval is done")
        self.assertLess(time.time(), ends, "the window is open")
        until(lambda: self.granted() != others, ends + SOON - time.time(), "the window closes")
        self.assertGreaterEqual(time.time(), ends)
        self.progressing("outside its window")
        until(lambda: not self.granted(), SOON, "what is not claimed is taken back")
        self.assertEqual(self.agents[others[0]].cli("approve", NET).returncode, 1)
        self.annotate(update=None)
        never(lambda: self.granted() or self.having("7") != [begun], QUIET, "a node follows")
        self.annotate(window=None)
        self.all_have("7")

    def test_6_a_canary_that_flaps_begins_its_hold_anew(self):
        canary, gone, *others = self.names
        for name in (canary, gone):
            self.admin.patch("nodes", name, {"metadata": {"labels": {"pool": "first"}}})
        self.annotate(canary="pool=first", canary_hold=f"{HOLD}s")
        self.change("8")
        until(lambda: self.having("8") == [canary, gone], SOON, "the canary nodes have it")
        until(lambda: self.status()["numberAvailable"] == NODES, SOON, "and are available")
        followed = lambda: [name for name in self.having("8") if name in others]
        never(followed, HOLD / 2, "another node follows at once")
        node = self.nodes[0]
        unknown = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
        self.truth.excuse()
        with self.stopped(node):
            self.admin.patch("nodes", node.name, {"status": unknown}, sub="status")
            self.progressing(f"and are not: {node.name}")
        until(lambda: self.status()["numberAvailable"] == NODES, SOON, "it is back")
        never(followed, HOLD - 4, "the time before it flapped counts")
        self.all_have("8")

    def test_7_promote_ends_the_phase_without_the_canary_that_cannot_take_it(self):
        canary, gone, *others = self.names
        self.annotate(canary_hold="1h")
        self.agents[gone].kill()
        self.change("9")
        until(lambda: self.having("9") == [canary], SOON, "the canary node that is there has it")
        self.dead(gone)
        never(lambda: self.having("9") != [canary], QUIET, "another node follows")
        subprocess.run([self.plugin, "--kubeconfig", self.admin.kubeconfig, "promote", NET], check=True, timeout=30)
        until(lambda: self.having("9") == [canary, *others], SOON, "the others follow")
        self.agents[gone].start()
        self.all_have("9")
        self.truth.excuse(seconds=15)
