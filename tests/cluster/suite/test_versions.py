"""Agents, coordinator and NodeDaemons of different versions: a rollout ends, and fields of the other version are kept.

No older program is built: the resource stands for the other version. With a later one, another program may have written
what this one does not know; an earlier one drops what this one writes. An annotation of a later version stands for the
program that knows it: the coordinator here is the older one.
"""

import json
import time

from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

NODES = 2
CRD = "crd/nodedaemons.daemonlet.dev"
LATER_ANNOTATION = "daemonlet.dev/by-building"
LATER = {"later": {"type": "string"}}
# What a first version could do without.
YOUNG = {"approvals": ("overlays", "when"), "daemons": ("overlays", "staged", "pullFailed", "missing", "stockPod", "previous")}


class VersionsTest(Coordinated):
    """One DaemonSet on two hollow nodes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shipped = cls.admin.kubectl("get", CRD, "-o", "json")
        cls.nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.coordinator = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.agents = [cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in cls.nodes]
        cls.enterClassContext(Truth(cls.admin, cls.nodes, "net"))
        cls.roll_out(1)

    @classmethod
    def schema(cls, change):
        """Puts another version of the resource in force: the shipped one after `change`."""
        crd = json.loads(cls.shipped)
        of = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        change(of["spec"]["properties"], of["status"]["properties"])
        crd["metadata"] = {"name": crd["metadata"]["name"]}
        cls.admin.kubectl("replace", "-f", "-", stdin=json.dumps(crd))

    @classmethod
    def change(cls, number, **annotations):
        """Changes the template."""
        net = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        net["metadata"] |= {"namespace": "kube-system", "annotations": annotations}
        net["spec"]["template"]["spec"]["containers"][0]["image"] = f"example.org/net:{number}"
        cls.admin.apply(net)

    @classmethod
    def roll_out(cls, number):
        """Changes the template, and waits until every node has it available."""
        cls.change(number)

        def done():
            found = cls.admin.get("daemonsets", "net", "kube-system")
            status = found.get("status", {})
            counted = [status.get(name) for name in ("updatedNumberScheduled", "numberAvailable")]
            return status.get("observedGeneration") == found["metadata"]["generation"] and counted == [NODES, NODES]
        until(done, 180, f"rollout {number} ends\n{cls.coordinator.process.tail()}", pause=0.2)

    def reports(self):
        """NodeDaemons, by node."""
        return {report["metadata"]["name"]: report for report in self.admin.list("nodedaemons")}

    def instances(self):
        """Pod and revision of each instance, by node."""
        said = {name: [it for daemon in report["status"]["daemons"] for it in daemon["instances"]] for name, report in self.reports().items()}
        return {name: [(it["pod"], it["revision"]) for it in of] for name, of in said.items()}

    def test_1_fields_of_a_later_version_are_kept_by_agents_and_coordinator(self):
        def later(spec, status):
            spec |= LATER
            status |= LATER
        self.schema(later)
        for node in self.nodes:
            for part in ("spec", "status"):
                # The API server serves the new schema some moments after it has taken it.
                def write(name=node.name, part=part):
                    return self.admin.patch("nodedaemons", name, {part: {"later": "kept"}}, sub="status" if part == "status" else None)[part].get("later")
                until(write, 20, "the later resource is served", pause=0.2)
        before = self.reports()
        self.roll_out(2)
        for name, report in self.reports().items():
            self.assertEqual((report["spec"].get("later"), report["status"].get("later")), ("kept", "kept"), name)
            self.assertNotEqual(report["status"]["daemons"], before[name]["status"]["daemons"], "the agent has written")
            self.assertNotEqual(report["metadata"]["generation"], before[name]["metadata"]["generation"], "the coordinator has written")

    def test_2_an_earlier_resource_that_drops_fields_stops_no_rollout_and_no_write_is_repeated_at_once(self):
        def earlier(spec, status):
            for part, of in ((spec, "approvals"), (status, "daemons")):
                for field in YOUNG[of]:
                    del part[of]["items"]["properties"][field]
        self.schema(earlier)
        self.roll_out(3)
        self.assertNotIn("previous", json.dumps(self.reports()), "the resource is the earlier one")
        until(lambda: not any(report["spec"].get("approvals") for report in self.reports().values()), 30, "no approval is open")
        versions = {name: report["metadata"]["resourceVersion"] for name, report in self.reports().items()}
        writes, seen = 0, time.monotonic()
        while time.monotonic() - seen < 15:
            now = {name: report["metadata"]["resourceVersion"] for name, report in self.reports().items()}
            writes += sum(now[name] != versions[name] for name in now)
            versions = now
            time.sleep(0.2)
        # Once after it was taken, and once a minute.
        self.assertLessEqual(writes, 2 * NODES, "the agents insist again and again")

    def test_3_approvals_from_which_the_resource_drops_the_lease_are_not_claimed_until_the_shipped_one_comes_back(self):
        def without_lease(spec, _status):
            del spec["approvals"]["items"]["properties"]["lease"]
        before = self.instances()
        self.schema(without_lease)
        self.change(3.5)
        approved = lambda: [a for report in self.reports().values() for a in report["spec"].get("approvals", [])]
        until(approved, 30, "a node is approved")
        self.assertNotIn("lease", json.dumps(approved()))
        until(lambda: any("does not name the coordinator's Lease" in agent.cli("status").stdout for agent in self.agents), 30,
              "its agent says why it does not claim that")
        never(lambda: self.instances() != before, 5, "a node has changed")
        self.schema(lambda spec, status: None)
        # The API server serves it some moments after it has taken it, and drops the field until then.
        time.sleep(5)
        self.roll_out(4)
        until(lambda: all("previous" in json.dumps(report) for report in self.reports().values()), 90, "what was dropped is said again")

    def test_4_an_older_coordinator_rolls_nothing_out_that_a_later_annotation_may_bound(self):
        def progressing():
            conditions = self.admin.get("daemonsets", "net", "kube-system")["status"]["conditions"]
            return next(it["message"] for it in conditions if it["type"] == "Progressing")
        until(lambda: not any("approvals" in report["spec"] and report["spec"]["approvals"] for report in self.reports().values()), 30, "no approval is open")
        before = self.instances()
        self.assertEqual([len(of) for of in before.values()], [1] * NODES, before)
        self.change(5, **{LATER_ANNOTATION: "one"})
        until(lambda: f"does not know the annotation {LATER_ANNOTATION}" in progressing(), 30, "it says why it rolls nothing out")
        never(lambda: self.instances() != before, 5, "a node has changed")
        self.roll_out(6)
