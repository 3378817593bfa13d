"""Rollouts in steps, by zones and racks, within windows, and what people say in the middle of one.

On hollow nodes, with the plugin as an operator runs it.
"""

import json
import subprocess
import time

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
OURS = "daemonlet.dev/"
ZONES = {"hollow-0": "a", "hollow-1": "b", "hollow-2": "a", "hollow-3": "b"}


class StagesTest(Coordinated):
    """One DaemonSet on four nodes in two zones."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nodes = crowd(cls.cluster, len(ZONES), cls.stack)
        for node in cls.nodes:
            cls.admin.patch("nodes", node.name, {"metadata": {"labels": {"zone": ZONES[node.name]}}})
            cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.plugin = scratch() / "kubectl-daemonlet"
        cls.plugin.symlink_to(agent.binary())
        cls.number = 0
        cls.enterClassContext(Truth(cls.admin, cls.nodes, "net"))
        cls.change()
        cls.all_have()

    @classmethod
    def change(cls, needs=None, **annotations):
        """A new image, with these annotations alone, which may need a ConfigMap; gives the image's number."""
        cls.number += 1
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"] |= {"namespace": "kube-system", "annotations": {OURS + k.replace("_", "-"): v for k, v in annotations.items()}}
        it["spec"]["template"]["spec"]["containers"][0]["image"] = f"example.org/net:{cls.number}"
        if needs:
            it["spec"]["template"]["spec"]["volumes"] = [{"name": "config", "configMap": {"name": needs}}]
        it["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 4}}
        cls.admin.apply(it)
        return cls.number

    @classmethod
    def images(cls):
        """The image's number on each node, pods that end left out."""
        pods = [p for p in cls.admin.list("pods", "kube-system", labels="app=net") if "deletionTimestamp" not in p["metadata"]]
        return {p["spec"]["nodeName"]: int(p["spec"]["containers"][0]["image"].split(":")[1]) for p in pods}

    @classmethod
    def having(cls, number):
        """The nodes with that image."""
        return sorted(node for node, image in cls.images().items() if image == number)

    @classmethod
    def condition(cls, kind):
        """Reason and message of a condition."""
        found = cls.admin.get("daemonsets", "net", "kube-system").get("status", {}).get("conditions", [])
        return next(((c["reason"], c.get("message", "")) for c in found if c["type"] == kind), (None, None))

    @classmethod
    def all_have(cls):
        """Waits until the newest revision is released."""
        until(lambda: cls.having(cls.number) == sorted(ZONES), SOON, f"{cls.number} on all nodes")
        until(lambda: cls.condition("Released")[0] == "Complete", SOON, "it is released")

    def steps(self, text):
        """Writes other steps."""
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {OURS + "steps": text}}}, "kube-system")

    def daemonlet(self, *words, code=0):
        """What the plugin prints."""
        done = subprocess.run([self.plugin, "--kubeconfig", self.admin.kubeconfig, *words], capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_1_steps_hold_until_they_are_promoted_and_survive_the_coordinator(self):
        number = self.change(steps="1, 1h; 50%, 1h; 100%", spread_key="zone")
        until(lambda: len(self.having(number)) == 1, SOON, "the first step")
        until(lambda: "step 1 of 3 (1 of 4 nodes) holds until" in self.condition("Progressing")[1], SOON, "it holds")
        self.assertEqual(self.condition("Released")[0], "Held")
        self.one.kill()
        self.one.start()
        never(lambda: len(self.having(number)) != 1, QUIET, "another coordinator goes on by itself")
        self.assertRegex(self.daemonlet("promote", "kube-system/net"), r"^kube-system/net: step 1 \(1\) of revision net-\w+ holds no longer")
        until(lambda: len(self.having(number)) == 2, SOON, "the second step")
        self.assertEqual(sorted(ZONES[node] for node in self.having(number)), ["a", "b"], "one of each zone")
        until(lambda: "step 2 of 3 (2 of 4 nodes) holds until" in self.condition("Progressing")[1], SOON, "it holds")
        never(lambda: len(self.having(number)) != 2, QUIET, "the promotion of the first step counts for the second")
        # Nor does it count for another step that gets its number.
        self.steps("2, 1h; 50%, 1h; 100%")
        until(lambda: 'daemonlet.dev/promoted names "1/1", which is none of these steps' in self.condition("Progressing")[1], SOON, "it is void")
        never(lambda: len(self.having(number)) != 2, QUIET, "the promotion of a step that is edited counts")
        self.steps("1, 1h; 50%, 1h; 100%")
        until(lambda: "step 2 of 3 (2 of 4 nodes) holds until" in self.condition("Progressing")[1], SOON, "it holds")
        self.assertIn("step 2 of 3", self.daemonlet(code=0))
        self.daemonlet("promote", "kube-system/net")
        self.all_have()
        self.assertIn("there is no rollout to abort", self.daemonlet("abort", "kube-system/net", code=1))
        # What was promoted is void for the next revision.
        promoted = self.admin.get("daemonsets", "net", "kube-system")["metadata"]["annotations"][OURS + "promoted"]
        number = self.change(steps="1, 1h; 100%", promoted=promoted)
        until(lambda: "step 1 of 2" in self.condition("Progressing")[1], SOON, "it holds")
        never(lambda: len(self.having(number)) != 1, QUIET, "it goes on")

    def test_2_an_abort_takes_it_back_and_a_retry_rolls_it_out_again(self):
        number = self.number
        self.assertEqual(len(self.having(number)), 1)
        out = self.daemonlet("abort", "kube-system/net")
        self.assertRegex(out, r"^kube-system/net: the rollout of revision (net-\w+) is aborted \(daemonlet.dev/aborted=\1\); nodes that have it go back")
        until(lambda: set(self.images().values()) == {number - 1}, SOON, "the node goes back")
        until(lambda: self.condition("Progressing")[0] == "RolledBack", SOON, "that is reported")
        never(lambda: self.having(number), QUIET, "it comes back")
        self.assertIn("was aborted; it is rolled out again", self.daemonlet("retry", "kube-system/net"))
        until(lambda: len(self.having(number)) == 1, SOON, "its first step")
        # The way back by the template has no steps.
        back = self.admin.get("daemonsets", "net", "kube-system")["spec"]["template"]
        back["spec"]["containers"][0]["image"] = f"example.org/net:{number - 1}"
        self.admin.patch("daemonsets", "net", {"spec": {"template": back}}, "kube-system")
        until(lambda: set(self.images().values()) == {number - 1}, SOON, "it goes back at once")
        until(lambda: self.condition("Released")[0] == "Complete", SOON, "it is released")

    def test_3_one_zone_after_the_other(self):
        number = self.change(topology_key="zone", canary="zone in (a)", canary_hold="0s")
        self.all_have()
        number = self.change(topology_key="zone")
        seen = []
        def note():
            now = [ZONES[node] for node in self.having(number)]
            if now and (not seen or seen[-1] != now):
                seen.append(now)
            return len(now) == len(ZONES)
        until(note, SOON, "all nodes have it", pause=0.01)
        for zones in seen:
            self.assertTrue(set(zones) in ({"a"}, {"b"}) or min(zones.count("a"), zones.count("b")) < 2 or len(zones) == 4, seen)
            self.assertTrue(len(set(zones)) == 1 or zones.count(seen[0][0]) == 2, f"a zone begins before the other is done: {seen}")
        self.all_have()

    def test_4_outside_its_window_nothing_is_approved_and_what_is_wrong_holds(self):
        today, later = time.gmtime(), time.gmtime(time.time() + 2 * 86400)
        number = self.change(window=time.strftime("%a", later))
        until(lambda: self.condition("Progressing")[0] == "Held", SOON, "it is held")
        self.assertIn("outside its window", self.condition("Progressing")[1])
        never(lambda: self.having(number), QUIET, "a node follows")
        annotations = lambda **found: self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {OURS + k: v for k, v in found.items()}}}, "kube-system")
        annotations(window="Mon Europe/Nowhere")
        until(lambda: "Europe/Nowhere is no time zone" in self.condition("Progressing")[1], SOON, "it is reported")
        annotations(window=None, steps="1; 1")
        until(lambda: 'daemonlet.dev/steps is not understood: "1; 1"' in self.condition("Progressing")[1], SOON, "it is reported")
        annotations(steps="1; 100%", partition="1")
        until(lambda: "excludes daemonlet.dev/partition" in self.condition("Progressing")[1], SOON, "it is reported")
        never(lambda: self.having(number), QUIET, "a node follows")
        annotations(steps=None, partition=None, window=f"{time.strftime('%a', today)}-{time.strftime('%a', later)} Europe/Berlin")
        self.all_have()
        print(json.dumps(self.condition("Released")))

    def test_5_a_first_install_starts_so_many_nodes_at_a_time_with_the_coordinators_word(self):
        def first(name, **annotations):
            it = daemonset(name, labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
            it["metadata"] |= {"namespace": "kube-system", "annotations": {OURS + k.replace("_", "-"): v for k, v in annotations.items()}}
            return it
        def on():
            return {p["spec"]["nodeName"] for p in self.admin.list("pods", "kube-system", labels="app=first") if "deletionTimestamp" not in p["metadata"]}
        def messages():
            of = [(n["metadata"]["name"], d) for n in self.admin.list("nodedaemons") for d in n.get("status", {}).get("daemons", [])]
            return {node: d.get("message", "") for node, d in of if d["name"] == "first"}
        waits = lambda: sum("waits for the coordinator's approval (daemonlet.dev/first-install)" in m for m in messages().values())
        self.one.kill()
        self.admin.apply(first("first", first_install="1", paused="true"))
        until(lambda: waits() == len(ZONES), SOON, "all nodes wait without a coordinator")
        self.one.start()
        never(on, QUIET, "a node starts while it is paused")
        # Each that starts is available after a while.
        self.admin.patch("daemonsets", "first", {"metadata": {"annotations": {OURS + "paused": None}}, "spec": {"minReadySeconds": 12}}, "kube-system")
        until(lambda: len(on()) == 1, SOON, "the first node")
        never(lambda: len(on()) > 1, QUIET, "a second one before it is available")
        self.assertEqual(waits(), len(ZONES) - 1)
        until(lambda: len(on()) == 2, SOON, "the second node")
        self.admin.patch("daemonsets", "first", {"spec": {"minReadySeconds": 0}}, "kube-system")
        released = lambda: [c for c in self.admin.get("daemonsets", "first", "kube-system").get("status", {}).get("conditions", []) if c["type"] == "Released"]
        until(lambda: len(on()) == len(ZONES) and released(), SOON, "all have it, and it is released")
        # One that takes the name while the last instances end has run nowhere.
        files = lambda: [file for node in self.nodes for file in node.manifests.glob("kube-system_first-*")]
        self.admin.delete("daemonsets", "first", "kube-system")
        until(lambda: not files(), SOON, "it ends")
        self.admin.apply(first("first", first_install="1", paused="true"))
        until(lambda: waits() == len(ZONES), SOON, "all nodes wait again")
        never(files, QUIET, "a node starts what is new to it")
        self.admin.delete("daemonsets", "first", "kube-system")
        until(lambda: not on(), SOON, "nothing is left")

    def test_6_an_abort_takes_nothing_from_nodes_that_never_had_it(self):
        released = self.change()
        self.all_have()
        never_released = self.change(partition="1")
        until(lambda: len(self.having(never_released)) == 3, SOON, "all but one have it")
        self.assertEqual(self.condition("Released")[0], "Held")
        aborted = self.change(steps="1, 1h; 100%")
        until(lambda: len(self.having(aborted)) == 1, SOON, "the first step")
        node, = self.having(aborted)
        others = {name: image for name, image in self.images().items() if name != node}
        self.assertIn(never_released, others.values())
        self.daemonlet("abort", "kube-system/net")
        until(lambda: self.images() == others | {node: released}, SOON, "the node goes back")
        until(lambda: self.condition("Progressing")[0] == "RolledBack", SOON, "that is reported")
        self.assertRegex(self.condition("Progressing")[1], r"^it was aborted: no node has it any more; \d nodes? with an older revision than it keep that$")
        never(lambda: self.images() != others | {node: released}, QUIET, "another node changes")

    def test_7_a_template_that_needs_an_object_which_does_not_exist_waits_for_it(self):
        self.change()
        self.all_have()
        approved = lambda: [n for n in self.admin.list("nodedaemons") if n["spec"].get("approvals")]
        written = lambda: {n["metadata"]["name"]: n["metadata"]["generation"] for n in self.admin.list("nodedaemons")}
        until(lambda: not approved(), SOON, "approvals of before are done")
        never(approved, QUIET, "a node is approved though nothing changes")
        before, generations = self.images(), written()
        self.change(needs="later", pre_pull="4s")
        cause = "needs an object that does not exist (ConfigMap kube-system/later) on 4 nodes: hollow-0, hollow-1, hollow-2, hollow-3"
        until(lambda: self.condition("Degraded") == ("Failing", cause), SOON, f"it is named: {self.condition('Degraded')}")
        until(lambda: self.condition("Progressing") == ("Held", "4 of 4 nodes are left: 4 nodes cannot take it"), SOON, "it is held")
        until(lambda: not approved(), SOON, "approvals are withdrawn")
        never(approved, QUIET, "a node is approved")
        more = {node: generation - generations[node] for node, generation in written().items()}
        self.assertLessEqual(max(more.values()), 2, f"each is approved once at most: {more}")
        self.assertEqual(self.images(), before, "no node changes")
        self.assertEqual(self.condition("Released")[0], "RollingOut")
        output = self.daemonlet(code=1)
        self.assertIn(cause, output)
        self.assertIn("it needs an object that does not exist (ConfigMap kube-system/later)", output)
        self.admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later", "namespace": "kube-system"}})
        began = time.monotonic()
        self.all_have()
        self.assertLess(time.monotonic() - began, 30)
        until(lambda: self.condition("Degraded")[0] == "AsExpected", SOON, "nothing is missing")
