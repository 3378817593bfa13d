"""Approvals that stand until a node is drained, an operator triggers it there, or it boots.

On hollow nodes, which do not boot: what a boot does is in test_staged.py.
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

NODES = 3
SOON = 90
QUIET = 5
OURS = "daemonlet.dev/"
NET = "kube-system/net"


class TriggersTest(Coordinated):
    """One DaemonSet on three nodes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.agents = {}
        nodes = crowd(cls.cluster, NODES, cls.stack)
        for node in nodes:
            cls.agents[node.name] = cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.plugin = scratch() / "kubectl-daemonlet"
        cls.plugin.symlink_to(agent.binary())
        cls.number = 0
        cls.enterClassContext(Truth(cls.admin, nodes, "net"))
        cls.change()
        cls.all_have()

    @classmethod
    def change(cls, **annotations):
        """A new image, with these annotations alone; gives the image's number."""
        cls.number += 1
        cls.annotate(**annotations)
        return cls.number

    @classmethod
    def annotate(cls, **annotations):
        """The same image, with these annotations alone."""
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        written = {OURS + key.replace("_", "-"): value for key, value in annotations.items()}
        it["metadata"] |= {"annotations": {OURS + "pre-pull": "0s"} | written}
        it["spec"]["template"]["spec"]["containers"][0]["image"] = f"example.org/net:{cls.number}"
        cls.admin.apply(it)

    @classmethod
    def having(cls, number):
        """The nodes with that image."""
        pods = [p for p in cls.admin.list("pods", "kube-system", labels="app=net") if "deletionTimestamp" not in p["metadata"]]
        return sorted(p["spec"]["nodeName"] for p in pods if p["spec"]["containers"][0]["image"] == f"example.org/net:{number}")

    @classmethod
    def condition(cls, kind):
        """Reason and message of a condition."""
        found = cls.admin.get("daemonsets", "net", "kube-system").get("status", {}).get("conditions", [])
        return next(((c["reason"], c.get("message", "")) for c in found if c["type"] == kind), (None, ""))

    @classmethod
    def all_have(cls):
        """Waits until the newest revision is released."""
        until(lambda: cls.having(cls.number) == sorted(cls.agents), SOON, f"{cls.number} on all nodes")
        until(lambda: cls.condition("Released")[0] == "Complete", SOON, "it is released")

    def granted(self):
        """What the approval on each node waits for."""
        found = {}
        for it in self.admin.list("nodedaemons"):
            for approval in it.get("spec", {}).get("approvals", []):
                found[it["metadata"]["name"]] = approval.get("when")
        return found

    def staged(self):
        """The nodes that replace at their next boot."""
        return sorted(it["metadata"]["name"] for it in self.admin.list("nodedaemons")
                      if any(daemon.get("staged") for daemon in it.get("status", {}).get("daemons", [])))

    def overview(self):
        """What the plugin prints."""
        done = subprocess.run([self.plugin, "--kubeconfig", self.admin.kubeconfig], capture_output=True, text=True, check=False, timeout=30)
        return done.stdout + done.stderr

    def cordon(self, node, on=True):
        """Cordons a node, or lets it go."""
        self.kubectl("cordon" if on else "uncordon", node)

    def test_1_a_node_takes_it_while_it_is_cordoned_and_a_pause_withdraws_it(self):
        number = self.change(update="drain")
        until(lambda: self.granted() == dict.fromkeys(self.agents, "drain"), SOON, "all nodes are approved")
        until(lambda: self.condition("Progressing") == ("RollingOut", "3 of 3 nodes are left: 3 nodes wait until they are drained"), SOON,
              "it is reported")
        never(lambda: self.having(number), QUIET, "a node takes it before it is drained")
        self.assertIn("the node has to be drained or cordoned first", self.overview())
        self.assertIn("kubectl drain hollow-1 --ignore-daemonsets --delete-emptydir-data",
                      self.agents["hollow-1"].cli("explain", NET).stdout)
        self.cordon("hollow-1")
        until(lambda: self.having(number) == ["hollow-1"], SOON, "the one that is cordoned")
        until(lambda: sorted(self.granted()) == ["hollow-0", "hollow-2"], SOON, "its approval is done")
        self.cordon("hollow-1", on=False)
        self.annotate(update="drain", paused="true")
        until(lambda: not self.granted(), SOON, "a pause withdraws what is not claimed")
        self.cordon("hollow-0")
        never(lambda: self.having(number) != ["hollow-1"], QUIET, "a node takes what is paused")
        self.annotate(update="drain")
        until(lambda: self.having(number) == ["hollow-0", "hollow-1"], SOON, "it goes on")
        self.cordon("hollow-0", on=False)

    def test_2_a_word_on_the_node_lets_it_start_once_it_is_approved(self):
        number = self.change(update="manual", paused="true")
        until(lambda: self.condition("Progressing")[0] == "Held", SOON, "it is paused")
        refused = self.agents["hollow-0"].cli("approve", NET)
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("kube-system/net is not approved: ", refused.stderr)
        self.annotate(update="manual")
        until(lambda: self.granted() == dict.fromkeys(self.agents, "manual"), SOON, "all nodes are approved")
        until(lambda: "daemonlet approve" in self.agents["hollow-2"].cli("status").stdout, SOON, "the node says what to do")
        never(lambda: self.having(number), QUIET, "a node takes it by itself")
        said = self.agents["hollow-2"].cli("approve", NET)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"^kube-system/net: revision \w+ is approved on hollow-2\n")
        until(lambda: self.having(number) == ["hollow-2"], SOON, "it starts there")
        again = self.agents["hollow-2"].cli("approve", NET)
        self.assertEqual(again.returncode, 1)
        # What is not understood holds.
        self.annotate(update="later")
        until(lambda: not self.granted(), SOON, "nothing is approved")
        until(lambda: 'the annotation daemonlet.dev/update is not understood: "later"' in self.condition("Progressing")[1], SOON, "it is reported")
        self.annotate()
        self.all_have()

    def test_3_steps_bound_how_many_are_staged_and_a_template_takes_it_back(self):
        number = self.change(update="boot", steps="2, 1h; 100%")
        until(lambda: len(self.staged()) == 2, SOON, "two nodes have claimed it")
        never(lambda: len(self.staged()) != 2 or self.having(number), QUIET, "a node takes it without a boot, or a third is staged")
        first = self.staged()[0]
        self.assertIn("it starts at the next boot of the node (daemonlet.dev/update: boot); its images are on the node", self.overview())
        self.agents[first].restart()
        never(lambda: self.having(number) or first not in self.staged(), QUIET, "another process of the agent is no boot")
        self.annotate(update="boot", steps="2, 1h; 100%", paused="true")
        until(lambda: not self.staged() and not self.granted(), SOON, "a pause takes it back")
        self.annotate(update="boot")
        until(lambda: len(self.staged()) == 3, SOON, "all nodes have claimed it")
        number = self.change()
        self.all_have()
        self.assertEqual((self.having(number), self.staged()), (sorted(self.agents), []))
