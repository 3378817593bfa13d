"""Rollouts keep their budget at every instant that an observer sees, whatever happens to those who make them.

On hollow nodes: a revision that fails is one that never gets ready, or that the kubelet rejects.
`DAEMONLET_LONG=1` throws dice for fifty rollouts, else for three; `DAEMONLET_SEED` throws the same ones again.
"""

import os
import random
import time

from kit.agent import Agent
from kit.budget import Observer
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

NODES = 5
SOON = 180
ROLLOUTS = 50 if os.environ.get("DAEMONLET_LONG") else 3
LEASE = "daemonlet-coordinator"
# A gate that is never opened, and more than the node has.
NEVER_READY = {"gates": [{"conditionType": "example.org/never"}]}
TOO_LARGE = {"container": {"resources": {"requests": {"cpu": "4000"}}}}


class BudgetTest(Coordinated):
    """One DaemonSet on five nodes, and two who coordinate."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.names = [node.name for node in cls.nodes]
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        until(lambda: cls.holder() == "one", 20, "one coordinates")
        cls.two = cls.enterClassContext(Coordinator(cls.cluster, "two"))
        cls.agents = [cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in cls.nodes]
        cls.number = 0
        cls.admin.apply(cls.net(max_unavailable=1))
        cls.all_have()
        cls.observer = cls.enterClassContext(Observer(cls.admin, "net", cls.names))
        cls.observer.known.wait(10)
        # Who coordinates is killed and stopped: another takes over within twenty seconds.
        cls.truth = cls.enterClassContext(Truth(cls.admin, cls.nodes, "net", late=45, in_a_row=30))

    @classmethod
    def holder(cls):
        """Who holds the Lease."""
        found = cls.admin.get("leases", LEASE, "kube-system")
        return found["spec"].get("holderIdentity", "").split("_")[0]

    @classmethod
    def net(cls, container=None, gates=None, max_unavailable=0, max_surge=0):
        """The DaemonSet with another image than before."""
        cls.number += 1
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"]["namespace"] = "kube-system"
        it["metadata"]["annotations"] = {"daemonlet.dev/max-failed": "5"}
        it["spec"]["template"]["spec"]["containers"][0] |= {"image": f"example.org/net:{cls.number}"} | (container or {})
        it["spec"]["template"]["spec"]["readinessGates"] = gates or []
        rolling = {"maxUnavailable": max_unavailable, "maxSurge": max_surge}
        it["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
        return it

    @classmethod
    def status(cls):
        """The DaemonSet and its status."""
        found = cls.admin.get("daemonsets", "net", "kube-system")
        return found, found.get("status", {})

    @classmethod
    def all_have(cls, within=SOON):
        """Waits until every node has the newest revision, available."""
        def done():
            found, status = cls.status()
            counted = [status.get(name) for name in ("updatedNumberScheduled", "numberAvailable")]
            return status.get("observedGeneration") == found["metadata"]["generation"] and counted == [NODES, NODES]
        try:
            until(done, within, "the rollout ends", pause=0.2)
        except AssertionError as error:
            reports = [(r["metadata"]["name"], r["spec"], r["status"].get("daemons")) for r in cls.admin.list("nodedaemons")]
            raise AssertionError(f"{error}\n{cls.status()[1]}\n{reports}\n{cls.one.process.tail()}\n{cls.two.process.tail()}") from None

    def images(self):
        """How many nodes have each image, pods that end left out."""
        pods = self.admin.list("pods", "kube-system", labels="app=net")
        found = [p["spec"]["containers"][0]["image"] for p in pods if "deletionTimestamp" not in p["metadata"]]
        return {image: found.count(image) for image in found}

    def tried(self):
        """Whether any node has an instance of the newest revision; one that the kubelet rejects has no pod in the API."""
        newest = max(self.admin.list("controllerrevisions", "kube-system", labels="app=net"), key=lambda r: r["revision"])
        if not newest["data"]["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{self.number}"):
            return False
        reported = [d for r in self.admin.list("nodedaemons") for d in r["status"].get("daemons", [])]
        return any(i["revision"] == newest["metadata"]["labels"]["controller-revision-hash"] for d in reported for i in d["instances"])

    def test_1_a_holder_that_was_stopped_and_wakes_after_another_took_over_does_no_harm(self):
        self.observer.expect(1)
        self.admin.apply(self.net(max_unavailable=1))
        until(lambda: self.images().get(f"example.org/net:{self.number}"), 60, "the rollout has begun", pause=0.1)
        self.one.process.freeze()
        try:
            until(lambda: self.holder() == "two", 30, "another takes over")
            until(lambda: self.images().get(f"example.org/net:{self.number}", 0) >= 2, 60, "the rollout goes on", pause=0.1)
        finally:
            before = len(self.one.process.lines)
            self.one.process.thaw()
        self.all_have()
        self.one.process.wait_line("does not hold the Lease any more", 20, since=before)
        self.assertEqual(self.holder(), "two")
        self.assertEqual(self.observer.wrong, [])
        print(f"  {self.observer.instants} instants, at most {self.observer.most} unavailable")

    def approve(self, node, transitions):
        """Approves the newest revision for a node, as a coordinator that held the Lease by that many transitions."""
        newest = max(self.admin.list("controllerrevisions", "kube-system", labels="app=net"), key=lambda r: r["revision"])
        lease = self.admin.get("leases", LEASE, "kube-system")["metadata"]
        by = {name: lease[name] for name in ("namespace", "name", "uid")} | {"transitions": transitions}
        it = {"namespace": "kube-system", "name": "net", "uid": self.status()[0]["metadata"]["uid"], "lease": by}
        it |= {"revision": newest["metadata"]["labels"]["controller-revision-hash"], "approvedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.admin.patch("nodedaemons", node, {"spec": {"approvals": [it]}})

    def test_2_what_an_earlier_holder_approved_is_not_claimed(self):
        self.observer.expect(1)
        held = self.net(max_unavailable=1)
        held["metadata"]["annotations"]["daemonlet.dev/paused"] = "true"
        self.admin.apply(held)
        image = f"example.org/net:{self.number}"
        made = lambda: [r for r in self.admin.list("controllerrevisions", "kube-system", labels="app=net")
                        if r["data"]["spec"]["template"]["spec"]["containers"][0]["image"] == image]
        until(made, SOON, "its revision is there")
        node = self.names[0]
        claimed = lambda: [d for d in self.admin.get("nodedaemons", node)["status"].get("daemons", []) if d.get("replacing")]
        self.truth.excuse()
        for one in (self.one, self.two):
            one.process.freeze()
        try:
            transitions = self.admin.get("leases", LEASE, "kube-system")["spec"]["leaseTransitions"]
            held["metadata"]["annotations"].pop("daemonlet.dev/paused")
            self.admin.apply(held)
            self.approve(node, transitions - 1)
            never(lambda: claimed() or self.images().get(image), 6, "an approval of an earlier holder is claimed")
            self.approve(node, transitions)
            until(lambda: self.images().get(image), SOON, "that of the present one is")
        finally:
            for one in (self.one, self.two):
                one.process.thaw()
        self.all_have()
        self.truth.excuse(seconds=0)
        self.assertEqual(self.observer.wrong, [])

    def flap(self, node):
        """The Node counts as silent for a while: the kubelet's next look puts it right."""
        self.observer.flaps(node)
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "flaps"}
        self.admin.patch("nodes", node, {"status": {"conditions": [condition]}}, sub="status")

    def disturb(self, dice):
        """One thing that goes wrong."""
        what = dice.choice(["coordinator", "node", "agent", "nothing"])
        if what == "coordinator":
            one = {"one": self.one, "two": self.two}[self.holder()]
            one.kill()
            time.sleep(dice.uniform(0, 2))
            one.start()
        elif what == "node":
            node = dice.choice(self.names)
            self.flap(node)
            what = f"node {node}"
        elif what == "agent":
            one = dice.choice(self.agents)
            one.kill()
            time.sleep(dice.uniform(0, 2))
            one.start()
        return what

    def test_3_dice(self):
        seed = int(os.environ.get("DAEMONLET_SEED") or random.randrange(1_000_000))
        dice = random.Random(seed)
        print(f"  DAEMONLET_SEED={seed}")
        for number in range(ROLLOUTS):
            surge = dice.random() < 0.25
            budget = dice.choice([1, 1, 2, 3])
            written = dice.choice([budget, f"{budget * 20}%"])
            bad = dice.random() < 0.4
            began = time.monotonic()
            self.observer.expect(0 if surge else budget)
            broken = dice.choice([NEVER_READY, TOO_LARGE]) if bad else {}
            self.admin.apply(self.net(**broken, **{"max_surge" if surge else "max_unavailable": written}))
            time.sleep(dice.uniform(0, 4))
            disturbed = [self.disturb(dice)]
            if bad:
                # It gets as far as its budget lets it, and there it stays.
                until(self.tried, SOON, "the bad revision is tried", pause=0.2)
                time.sleep(dice.uniform(1, 4))
                disturbed.append(self.disturb(dice))
            else:
                self.all_have()
            print(f"  {number}: {'surge' if surge else 'unavailable'} {written}, {next(iter(broken), 'good')}, {', '.join(disturbed)}: "
                  f"at most {self.observer.most} unavailable, {time.monotonic() - began:.0f} s")
            self.assertEqual(self.observer.wrong, [], f"DAEMONLET_SEED={seed}")
        # However it ended: what is right gets through.
        self.observer.expect(2)
        self.admin.apply(self.net(max_unavailable=2))
        self.all_have()
        self.assertEqual(self.observer.wrong, [], f"DAEMONLET_SEED={seed}")
        self.assertGreater(self.observer.instants, 20 * ROLLOUTS, "it has seen something")
        print(f"  {ROLLOUTS + 1} rollouts, {self.observer.instants} instants")
