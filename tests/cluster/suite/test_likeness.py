"""The same things done to a DaemonSet of the DaemonSet controller and scheduler, and to one of ours: what users see is the same.

One script, two control planes, one after the other. At each point of rest the status, the revisions and, at the
end, the events are compared; what may differ is listed here, and printed. Then revisions that the DaemonSet controller
left are taken over, and back.
"""

import json
import unittest
from contextlib import ExitStack

from kit import agent
from kit import coordinator
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import HollowNode
from kit.wait import never
from kit.wait import until

from .bare import STATIC

NODES = 2
SOON = 90
COUNTERS = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
            "numberUnavailable", "numberMisscheduled", "observedGeneration", "collisionCount")
# What differs, and why; nothing else may.
DIFFERENCES = {
    "conditions": "the DaemonSet controller writes none; ours are Progressing, Available, Degraded",
    "hash": "revisions have another name and hash: upstream's is one of Go's memory layout",
    "events": "pods are not created and deleted through the API: on the DaemonSet there are warnings only",
}


class World:
    """A cluster with two hollow nodes and one DaemonSet, `net`; ours or the DaemonSet controller's."""

    def __init__(self, kind, ours):
        self.kind, self.ours = kind, ours
        self.rests = {}

    def __enter__(self):
        self.stack = ExitStack()
        self.cluster = self.stack.enter_context(ControlPlane())
        self.admin = self.cluster.admin
        self.cluster.start_controllers(daemonset_controller=not self.ours)
        self.cluster.wait_namespace("kube-system")
        if not self.ours:
            self.cluster.start_scheduler()
        self.nodes = [self.stack.enter_context(HollowNode(self.cluster, f"{self.kind}-{number}", number, {"run": "yes"}))
                      for number in range(NODES)]
        self.admin.wait("nodes", lambda seen: len(seen) == NODES, 60, "the nodes are registered")
        if self.ours:
            self.start_ours()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def start_ours(self):
        """The resource, a coordinator, agents."""
        agent.grant(self.cluster)
        coordinator.install(self.cluster)
        self.ours_now = self.stack.enter_context(ExitStack())
        self.ours_now.enter_context(Coordinator(self.cluster, self.kind))
        self.agents = [self.ours_now.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in self.nodes]

    def kubectl(self, *args):
        """Output of kubectl."""
        return self.admin.kubectl("-n", "kube-system", *args)

    def found(self):
        """The DaemonSet."""
        return self.admin.get("daemonsets", "net", "kube-system")

    def pods(self):
        """The daemon's pods that do not end: name and image by node."""
        seen = self.admin.list("pods", "kube-system", labels="app=net")
        return {p["spec"]["nodeName"]: (p["metadata"]["name"], p["spec"]["containers"][0]["image"]) for p in seen
                if "deletionTimestamp" not in p["metadata"] and p["spec"].get("nodeName")}

    def revisions(self):
        """The history: number, data, labels and annotations of each, without what depends on a hash and our own mark of what was released."""
        history = []
        for item in self.admin.list("controllerrevisions", "kube-system", labels="app=net"):
            meta = item["metadata"]
            labels = {**meta["labels"], "controller-revision-hash": meta["name"] == "net-" + meta["labels"]["controller-revision-hash"]}
            owner = [{key: ref.get(key) for key in ("apiVersion", "kind", "name", "controller", "blockOwnerDeletion")}
                     for ref in meta["ownerReferences"]]
            annotations = {name: text for name, text in meta.get("annotations", {}).items() if name != "daemonlet.dev/released"}
            history.append((item["revision"], json.dumps(item["data"], sort_keys=True), labels, annotations, owner))
        return sorted(history, key=lambda revision: revision[0])

    def rest(self, what, updated=NODES, desired=NODES):
        """Waits until nothing is left to do, and notes what a user sees then."""
        def settled():
            it, status = self.found(), self.found().get("status", {})
            counted = (status.get("observedGeneration"), status.get("desiredNumberScheduled"), status.get("updatedNumberScheduled", 0),
                       status.get("numberAvailable", 0), status.get("numberMisscheduled"), len(self.pods()))
            return counted == (it["metadata"]["generation"], desired, updated, desired, 0, desired)
        try:
            until(settled, SOON, f"{self.kind}: {what}", pause=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.found().get('status')}\n{self.pods()}") from None
        status = self.found()["status"]
        unknown = set(status) - set(COUNTERS) - {"conditions"}
        self.rests[what] = {"status": [status.get(name) for name in COUNTERS], "unknown": sorted(unknown), "history": self.revisions(),
                            "images": sorted(image for _, image in self.pods().values()), "undo": self.kubectl("rollout", "history", "ds/net")}

    def net(self):
        """The DaemonSet; annotations and quoted characters are there to be kept."""
        it = daemonset("net", labels=STATIC if self.ours else {}, nodeSelector={"run": "yes"}, terminationGracePeriodSeconds=0,
                       automountServiceAccountToken=False, container={"image": "example.org/net:1", "env": [{"name": "A", "value": "<a> & \u2028b"}]})
        it["metadata"] |= {"namespace": "kube-system", "annotations": {"kubernetes.io/change-cause": "made"}}
        it["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}}
        it["spec"]["revisionHistoryLimit"] = 2
        return it

    def image(self, number):
        """Another image."""
        self.kubectl("set", "image", "ds/net", f"main=example.org/net:{number}")

    def spec(self, **fields):
        """Merges into the DaemonSet's spec."""
        self.admin.patch("daemonsets", "net", {"spec": fields}, "kube-system")

    def label(self, value):
        """The label of the last node."""
        self.admin.patch("nodes", self.nodes[-1].name, {"metadata": {"labels": {"run": value}}})

    def play(self):
        """The script."""
        self.admin.create("daemonsets", self.net())
        self.rest("created")
        self.image(2)
        self.rest("another image")
        self.kubectl("annotate", "ds/net", "kubernetes.io/change-cause=undone", "--overwrite")
        self.kubectl("rollout", "undo", "ds/net")
        self.rest("undone")
        self.label("no")
        self.rest("a node less", updated=NODES - 1, desired=NODES - 1)
        self.label("yes")
        self.rest("a node more")
        self.spec(updateStrategy={"type": "OnDelete", "rollingUpdate": None})
        self.image(3)
        self.rest("on delete", updated=0)
        self.admin.delete("pods", self.pods()[self.nodes[0].name][0], "kube-system")
        self.rest("one deleted", updated=1)
        self.spec(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}})
        self.rest("rolling again")
        self.image(4)
        self.rest("a fourth image")
        self.spec(minReadySeconds=1)
        self.rest("no change of the template")
        events = self.admin.list("events", "kube-system")
        self.events = {(event["type"], event["reason"]) for event in events if event["regarding"]["kind"] == "DaemonSet"}
        self.kubectl("delete", "ds/net")
        until(lambda: not self.pods() and not self.revisions() and not self.found(), SOON, f"{self.kind}: nothing is left of it")


class LikenessTest(unittest.TestCase):
    """Two worlds, and one that goes from hand to hand."""

    def test_1_one_script_two_clusters(self):
        with World("stock", ours=False) as stock:
            stock.play()
        with World("ours", ours=True) as ours:
            ours.play()
        self.assertEqual(list(stock.rests), list(ours.rests))
        for what, seen in stock.rests.items():
            for part, value in seen.items():
                self.assertEqual(ours.rests[what][part], value, f"{what}: {part} (ours first)")
        self.assertEqual(stock.events, {("Normal", "SuccessfulCreate"), ("Normal", "SuccessfulDelete")})
        self.assertFalse(ours.events)
        print(f"  {len(stock.rests)} points of rest: status, history and images are the same; what differs:")
        for what, why in DIFFERENCES.items():
            print(f"    {what}: {why}")
        print(f"    reasons of events: {sorted(reason for _, reason in stock.events)} / none")

    def test_2_revisions_are_taken_over_without_a_rollout_and_back(self):
        with World("hands", ours=False) as world:
            admin = world.admin
            admin.create("daemonsets", world.net())
            world.rest("created")
            world.image(2)
            world.rest("another image")

            def names():
                found = admin.list("controllerrevisions", "kube-system", labels="app=net")
                return sorted((r["revision"], r["metadata"]["name"], r["metadata"]["uid"], json.dumps(r["data"])) for r in found)
            left, generation = names(), world.found()["metadata"]["generation"]
            for part in ("scheduler", "controllers"):
                world.cluster.stop(part)
            world.cluster.start_controllers()
            # Its pods go, as when a cluster changes hands; ours come in their place.
            world.kubectl("delete", "pods", "-l", "app=net")
            world.kubectl("label", "ds/net", "daemonlet.dev/mode=static")
            world.start_ours()
            world.rest("taken over")
            self.assertEqual(names(), left)
            pods = world.pods()
            never(lambda: world.pods() != pods or names() != left, 3, "something was rolled out")
            owners = lambda: [ref["kind"] for pod in admin.list("pods", "kube-system", labels="app=net") for ref in pod["metadata"].get("ownerReferences", [])]
            until(lambda: owners() == ["DaemonSet"] * NODES, 30, "the mirror pods are the DaemonSet's")
            # And back: agents and coordinator are gone, what they wrote is there.
            world.ours_now.close()
            world.cluster.stop("controllers")
            world.cluster.start_controllers(daemonset_controller=True)
            world.cluster.start_scheduler()
            never(lambda: names() != left or world.pods() != pods, 8, f"the DaemonSet controller rolls out: {pods}, {world.pods()}")
            found = world.found()
            self.assertEqual((found["metadata"]["generation"], found["status"]["updatedNumberScheduled"]), (generation, NODES))
