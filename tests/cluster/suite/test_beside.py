"""Beside the DaemonSet controller and the scheduler: both modes, and a DaemonSet that both sides run."""

import json
import os
import re
import time

from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .mirror_world import BOOTSTRAP
from .mirror_world import GATE
from .mirror_world import NAMESPACE
from .mirror_world import SOON
from .mirror_world import World
from .mirror_world import body
from .mirror_world import is_mirror
from .mirror_world import owner
from .story import Story

# How long nothing may be restarted.
BESIDE = 300 if os.environ.get("DAEMONLET_LONG") else 40


class Beside(Story):
    """Who has what."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(1, daemonset_controller=True))
        cls.admin, cls.kubectl = cls.world.admin, cls.world.kubectl

    def test_1_both_modes_are_left_in_peace(self):
        """Nothing is restarted: neither ours by the controller, nor the controller's by us."""
        cri = self.world.node.cri
        self.admin.apply(body("gated", STATIC, nodeSelector=GATE), body("bridge", BOOTSTRAP))
        self.world.owned("gated", "Node")
        until(lambda: len(cri.of("bridge-")) == 1 and not self.world.agent.manifests("_bridge-"), SOON, "the stock pod took over")
        until(lambda: len(self.world.pods("bridge")) == 2 and not any(map(is_mirror, self.world.pods("bridge"))), SOON, "the mirror pods are gone")
        stock = lambda: [pod["metadata"]["name"] for pod in self.world.pods("bridge") if pod["spec"].get("nodeName") == self.world.node.name]
        until(lambda: len(cri.of("gated-")) == 1 and [c[0] for c in cri.of("bridge-")] == stock(), SOON, "the gated one and the stock pod run")
        before = cri.of("gated-"), cri.of("bridge-")
        uids = {name: sorted(pod["metadata"]["uid"] for pod in self.world.pods(name)) for name in ("gated", "bridge")}
        began = time.monotonic()
        never(lambda: (cri.of("gated-"), cri.of("bridge-")) != before, BESIDE, "one was restarted")
        self.assertEqual({name: sorted(pod["metadata"]["uid"] for pod in self.world.pods(name)) for name in uids}, uids)
        restarts = [s["restartCount"] for name in uids for pod in self.world.pods(name) for s in pod["status"]["containerStatuses"]]
        self.assertEqual(set(restarts), {0})
        print(f"          both modes beside the DaemonSet controller: {len(restarts)} pods, 0 restarts in {time.monotonic() - began:.0f} s")
        # The counters of both are the controller's.
        status = {name: self.admin.get("daemonsets", name, NAMESPACE)["status"] for name in uids}
        self.assertEqual([status[name]["desiredNumberScheduled"] for name in ("gated", "bridge")], [0, 2])
        self.assertNotIn("conditions", status["bridge"])

    def test_2_a_controller_that_acts_is_reported(self):
        self.admin.apply(body("fought", STATIC))
        degraded = lambda: self.world.conditions("fought").get("Degraded", {})
        until(lambda: degraded().get("reason") == "Conflict", SOON, "the condition says it")
        self.assertEqual(degraded()["status"], "True")
        self.assertRegex(degraded()["message"], r'pod fought-\w+ of a DaemonSet controller is on node \S+.*daemonlet\.dev/static: "true"')
        events = lambda: self.kubectl("events", "--for", "ds/fought")
        until(lambda: "StockController" in events(), SOON, "an event says it")
        words = r"fought .*running.*pod fought-\w+ of a DaemonSet controller is here too"
        until(lambda: re.search(words, self.world.agent.cli("status").stdout), SOON, "status says it")
        self.assertIn('daemonlet.dev/static: "true"', self.world.agent.cli("explain", f"{NAMESPACE}/fought").stdout)
        pods = self.world.pods("fought")
        self.assertEqual({owner(pod) for pod in pods if is_mirror(pod)}, {"Node"}, "ours are not given to it")
        uids = lambda: sorted(pod["metadata"]["uid"] for pod in self.world.pods("fought"))
        until(lambda: len(uids()) == 4, SOON, "both nodes have both pods")
        before = uids()
        never(lambda: uids() != before, 5, "they fight")

    def test_3_the_fix_that_is_named_mends_it(self):
        self.kubectl("patch", "ds/fought", "--type=merge", "-p", json.dumps({"spec": {"template": {"spec": {"nodeSelector": GATE}}}}))
        until(lambda: [is_mirror(pod) for pod in self.world.pods("fought")] == [True, True], SOON, "only ours are left")
        until(lambda: self.world.conditions("fought").get("Degraded", {}).get("status") == "False", SOON, "the condition is gone")
        self.kubectl("delete", "ds", "--all")
