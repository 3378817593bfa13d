"""History, status and rollouts with the DaemonSet controller and the scheduler switched off: kubectl is the client."""

import json
import time

from kit import agent
from kit import coordinator
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.wait import until

from .bare import STATIC
from .story import Story

NODES = 5
SOON = 60


class RolloutTest(Story):
    """One DaemonSet's life on five nodes."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers()
        cls.admin = cls.cluster.admin
        agent.grant(cls.cluster)
        coordinator.install(cls.cluster)
        nodes = crowd(cls.cluster, NODES, cls.stack())
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.agents = [cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in nodes]

    @classmethod
    def stack(cls):
        from contextlib import ExitStack
        return cls.enterClassContext(ExitStack())

    def kubectl(self, *args):
        """Output of kubectl in the daemon's namespace."""
        return self.admin.kubectl("-n", "kube-system", *args)

    def status(self):
        """The DaemonSet's status."""
        return self.admin.get("daemonsets", "net", "kube-system").get("status", {})

    def revisions(self):
        """ControllerRevisions by number."""
        found = self.admin.list("controllerrevisions", "kube-system")
        return {item["revision"]: item for item in found}

    def images(self):
        """Image of each mirror pod that does not end, by node."""
        pods = self.admin.list("pods", "kube-system")
        return {p["spec"]["nodeName"]: p["spec"]["containers"][0]["image"] for p in pods
                if "deletionTimestamp" not in p["metadata"]}

    def all_have(self, image):
        """Waits until every node runs the image and the status says so."""
        until(lambda: sorted(self.images().values()) == [image] * NODES and self.status().get("numberAvailable") == NODES
              and self.status().get("updatedNumberScheduled") == NODES, SOON, f"{image} on all nodes: {self.status()}")

    def net(self, image, **spec):
        """The DaemonSet."""
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"]["namespace"] = "kube-system"
        it["spec"]["template"]["spec"]["containers"][0]["image"] = image
        it["spec"] |= spec
        return it

    def test_1_a_new_daemon_set_gets_a_revision_and_its_status(self):
        self.admin.apply(self.net("example.org/net:1"))
        self.all_have("example.org/net:1")
        one = self.revisions()[1]
        self.assertEqual(one["metadata"]["ownerReferences"][0]["kind"], "DaemonSet")
        self.assertEqual(one["data"]["spec"]["template"]["$patch"], "replace")
        self.assertIn("successfully rolled out", self.kubectl("rollout", "status", "ds/net", "--timeout=20s"))
        self.assertEqual(self.status()["observedGeneration"], 1)

    def test_2_a_rolling_update_keeps_its_budget(self):
        seen = []
        self.kubectl("set", "image", "ds/net", "*=example.org/net:2")
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline and sorted(self.images().values()) != ["example.org/net:2"] * NODES:
            objects = self.admin.list("nodedaemons")
            replacing = [o for o in objects if any(d.get("replacing") for d in o.get("status", {}).get("daemons", []))]
            seen.append(len(replacing))
        self.all_have("example.org/net:2")
        self.assertLessEqual(max(seen), 1, "maxUnavailable is 1")
        self.assertIn("successfully rolled out", self.kubectl("rollout", "status", "ds/net", "--timeout=20s"))
        self.assertEqual(sorted(self.revisions()), [1, 2])

    def test_3_history_and_undo(self):
        history = self.kubectl("rollout", "history", "ds/net")
        self.assertRegex(history, r"(?m)^1 .*\n2 ")
        self.kubectl("rollout", "undo", "ds/net")
        self.all_have("example.org/net:1")
        self.assertEqual(sorted(self.revisions()), [2, 3], "the first revision is the newest again")

    def test_4_on_delete_and_pause(self):
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {"daemonlet.dev/paused": "true"}}}, "kube-system")
        self.kubectl("set", "image", "ds/net", "*=example.org/net:3")
        until(lambda: self.status().get("observedGeneration") == 4 or len(self.revisions()) == 3, SOON, "the change is seen")
        conditions = lambda: {c["type"]: c for c in self.status().get("conditions", [])}
        until(lambda: conditions().get("Progressing", {}).get("message", "").endswith("paused"), SOON, "the pause is told")
        self.assertEqual(sorted(self.images().values()), ["example.org/net:1"] * NODES)
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {"daemonlet.dev/paused": None}}}, "kube-system")
        self.all_have("example.org/net:3")

    def test_5_another_coordinator_takes_over_within_fifteen_seconds(self):
        with Coordinator(self.cluster, "two"):
            self.one.kill()
            began = time.monotonic()
            self.kubectl("set", "image", "ds/net", "*=example.org/net:4")
            until(lambda: "example.org/net:4" in self.images().values(), 30, "the rollout goes on")
            print(f"  hand-over and first replacement after {time.monotonic() - began:.1f} s")
            self.all_have("example.org/net:4")

    def test_6_describe_counts_and_the_report_is_told(self):
        reports = self.admin.list("nodedaemons")
        self.assertEqual([r["status"]["ready"] for r in reports], ["1/1"] * NODES, json.dumps(reports)[:2000])
        self.assertEqual({r["metadata"]["ownerReferences"][0]["kind"] for r in reports}, {"Node"})
        table = self.kubectl("get", "nodedaemons")
        self.assertRegex(table, r"hollow-0 +1/1")
