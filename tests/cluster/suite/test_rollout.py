"""History, status and rollouts with the DaemonSet controller and the scheduler switched off: kubectl is the client."""

import json
import time

from kit import coordinator
from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

NODES = 5
SOON = 60


class RolloutTest(Coordinated):
    """One DaemonSet's life on five nodes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        cls.agents = [cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in nodes]
        cls.truth = cls.enterClassContext(Truth(cls.admin, nodes, "net"))

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

        def over():
            objects = self.admin.list("nodedaemons")
            seen.append(sum(any(d.get("replacing") for d in o.get("status", {}).get("daemons", [])) for o in objects))
            return sorted(self.images().values()) == ["example.org/net:2"] * NODES

        until(over, SOON, "all have the second", pause=0.02)
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
        until(lambda: conditions().get("Progressing", {}).get("message", "").endswith("paused"), SOON, "the pause is reported")
        self.assertEqual(sorted(self.images().values()), ["example.org/net:1"] * NODES)
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": {"daemonlet.dev/paused": None}}}, "kube-system")
        self.all_have("example.org/net:3")

    def test_5_another_coordinator_takes_over_within_fifteen_seconds(self):
        with Coordinator(self.cluster, "two"):
            self.truth.excuse(seconds=40)
            self.one.kill()
            began = time.monotonic()
            self.kubectl("set", "image", "ds/net", "*=example.org/net:4")
            until(lambda: "example.org/net:4" in self.images().values(), 30, "the rollout goes on")
            print(f"  hand-over and first replacement after {time.monotonic() - began:.1f} s")
            self.all_have("example.org/net:4")
            self.one.start()

    def annotate(self, **annotations):
        """Sets annotations of the DaemonSet, `_` for `-`; None removes."""
        found = {f"daemonlet.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": found}}, "kube-system")

    def change(self, image, **spec):
        """Changes the image, and the DaemonSet's spec."""
        container = {"name": "main", "image": f"example.org/net:{image}"} | spec.pop("container", {})
        patch = {"spec": spec | {"template": {"spec": {"containers": [container]}}}}
        self.kubectl("patch", "ds/net", "--type=strategic", "-p", json.dumps(patch))

    def of(self, image):
        """Nodes with that image."""
        return sorted(node for node, has in self.images().items() if has == f"example.org/net:{image}")

    def condition(self, kind):
        """A condition as status, reason, message."""
        found = next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})
        return tuple(found.get(field) for field in ("status", "reason", "message"))

    def rolling(self, unavailable, surge=0):
        """A strategy."""
        return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}

    def test_6_canaries_go_first_and_a_partition_stays(self):
        self.admin.patch("nodes", "hollow-3", {"metadata": {"labels": {"goes": "first"}}})
        self.annotate(canary="goes=first", canary_hold="15s", partition="2")
        self.change("5", updateStrategy=self.rolling(5))
        until(lambda: self.of("5") == ["hollow-3"], SOON, "the canary goes first")
        until(lambda: self.condition("Progressing")[1] == "Held", SOON, "the hold is reported")
        self.assertRegex(self.condition("Progressing")[2], "canary nodes")
        until(lambda: len(self.of("5")) > 1, SOON, "the others follow")
        created = {r["metadata"]["name"]: i["readySince"] for r in self.admin.list("nodedaemons")
                   for d in r["status"]["daemons"] for i in d["instances"] if "readySince" in i}
        followers = [p["metadata"]["creationTimestamp"] for p in self.admin.list("pods", "kube-system", labels="app=net")
                     if p["spec"]["nodeName"] != "hollow-3" and p["spec"]["containers"][0]["image"].endswith(":5")]
        self.assertGreater(min(followers), created["hollow-3"], "no other was made before the canary was available")
        until(lambda: self.of("5") == ["hollow-0", "hollow-1", "hollow-3"], SOON, "two nodes are kept")
        until(lambda: "2 nodes are kept on the old revision" in (self.condition("Progressing")[2] or ""), SOON, "and it is reported")
        until(lambda: self.status()["updatedNumberScheduled"] == 3, SOON, "the three are counted")
        self.annotate(canary=None, canary_hold=None, partition=None)
        self.all_have("example.org/net:5")

    def test_7_a_revision_that_fails_on_more_nodes_than_may_is_taken_back_everywhere(self):
        self.annotate(rollback="auto", partition="2")
        before = self.revisions()
        self.change("6", updateStrategy=self.rolling(3))
        until(lambda: self.status()["updatedNumberScheduled"] == 3 and self.status()["numberAvailable"] == NODES, SOON,
              "it works on three nodes")
        # The other two say that it failed there: in their agents' stead, as nothing fails on a hollow node alone.
        hash_of = self.revisions()[max(before) + 1]["metadata"]["labels"]["controller-revision-hash"]
        failing = self.agents[3:]
        names = [one.node.name for one in failing]
        self.truth.excuse(*names)
        for one in failing:
            one.kill()
        for one in failing:
            daemons = self.admin.get("nodedaemons", one.node.name)["status"]["daemons"]
            daemons[0]["failed"] = {"revision": hash_of, "cause": "image", "message": "no such image"}
            self.admin.patch("nodedaemons", one.node.name, {"status": {"daemons": daemons}}, sub="status")
        until(lambda: self.condition("Progressing")[1] == "RolledBack", SOON, "it is taken back")
        until(lambda: len(self.of("5")) == NODES and self.status()["numberAvailable"] == NODES, SOON, "every node is back")
        self.assertEqual(self.condition("Degraded")[2], "image on 2 nodes: hollow-3, hollow-4")
        found = self.admin.get("daemonsets", "net", "kube-system")
        self.assertEqual(found["spec"]["template"]["spec"]["containers"][0]["image"], "example.org/net:6", "what people wrote stays")
        self.assertEqual(sorted(self.revisions()), [*sorted(before), max(before) + 1], "and the history has it")
        never(lambda: self.of("6"), 2, "it is tried again")
        self.annotate(rollback=None, partition=None)
        for one in failing:
            one.start()
        self.truth.excuse(*names, seconds=75)
        self.change("7")
        self.all_have("example.org/net:7")
        until(lambda: self.condition("Degraded")[0] == "False", SOON, "nothing is wrong any more")

    def test_8_a_surge_has_new_pods_beside_the_old_ones_for_min_ready_seconds(self):
        self.change("8", updateStrategy=self.rolling(0, 5), minReadySeconds=3)
        both, fewest = 0, NODES

        def over():
            nonlocal both, fewest
            pods = [p for p in self.admin.list("pods", "kube-system", labels="app=net") if "deletionTimestamp" not in p["metadata"]]
            nodes = [p["spec"]["nodeName"] for p in pods]
            both = max(both, len(nodes) - len(set(nodes)))
            fewest = min(fewest, len({p["spec"]["nodeName"] for p in pods
                                      if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", []))}))
            return len(self.of("8")) == NODES and not self.of("7")

        until(over, SOON, "all have the eighth", pause=0.02)
        self.all_have("example.org/net:8")
        self.assertGreaterEqual(both, 2, "old and new are there together")
        self.assertEqual(fewest, NODES, "no node is ever without a ready pod")

    def test_9_on_delete_changes_what_is_deleted_or_fails(self):
        self.change("9", updateStrategy={"type": "OnDelete", "rollingUpdate": None}, minReadySeconds=0)
        until(lambda: self.condition("Progressing")[1:] == ("Held", "5 of 5 nodes are left: the update strategy is OnDelete"), SOON,
              "it waits")
        pods = {p["spec"]["nodeName"]: p["metadata"]["name"] for p in self.admin.list("pods", "kube-system", labels="app=net")
                if "deletionTimestamp" not in p["metadata"] and p["spec"]["containers"][0]["image"].endswith(":8")}
        self.admin.delete("pods", pods["hollow-1"], "kube-system")
        self.admin.patch("pods", pods["hollow-2"], {"status": {"phase": "Failed"}}, "kube-system", sub="status")
        until(lambda: self.of("9") == ["hollow-1", "hollow-2"], SOON, "the two have the new revision")
        until(lambda: self.status()["updatedNumberScheduled"] == 2, SOON, "and are counted")
        self.admin.patch("daemonsets", "net", {"spec": {"updateStrategy": self.rolling(3), "revisionHistoryLimit": 1}}, "kube-system")
        self.all_have("example.org/net:9")
        until(lambda: len(self.revisions()) == 2, SOON, f"the limit of the history holds: {sorted(self.revisions())}")

    def test_a_foreign_conditions_stay_and_foreign_counters_go(self):
        foreign = {"type": "Foreign", "status": "True", "reason": "Test", "message": "stays"}
        conditions = [*self.status()["conditions"], foreign]
        self.admin.patch("daemonsets", "net", {"status": {"conditions": conditions, "numberReady": 99}}, "kube-system", sub="status")
        until(lambda: self.status()["numberReady"] == NODES, SOON, "the counters are put right")
        self.assertIn("Foreign", [c["type"] for c in self.status()["conditions"]])

    def test_b_without_any_node_there_are_revisions_and_a_status(self):
        nowhere = self.net("example.org/nowhere:1")
        nowhere["metadata"]["name"] = "nowhere"
        nowhere["spec"]["template"]["spec"]["nodeSelector"] = {"no": "node"}
        for labels in (nowhere["spec"]["selector"]["matchLabels"], nowhere["spec"]["template"]["metadata"]["labels"]):
            labels["app"] = "nowhere"
        self.admin.apply(nowhere)
        self.kubectl("rollout", "status", "ds/nowhere", "--timeout=20s")
        self.kubectl("rollout", "restart", "ds/nowhere")
        until(lambda: len([r for r in self.admin.list("controllerrevisions", "kube-system", labels="app=nowhere")]) == 2, SOON, "two revisions")
        self.assertRegex(self.kubectl("rollout", "history", "ds/nowhere"), r"(?m)^1 .*\n2 ")

    def test_c_describe_counts_and_the_report_is_shown(self):
        reports = self.admin.list("nodedaemons")
        self.assertEqual([r["status"]["ready"] for r in reports], ["1/1"] * NODES, json.dumps(reports)[:2000])
        self.assertEqual({r["metadata"]["ownerReferences"][0]["kind"] for r in reports}, {"Node"})
        table = self.kubectl("get", "nodedaemons")
        self.assertRegex(table, r"hollow-0 +1/1")

    def test_d_one_that_is_stopped_gives_its_lease_back(self):
        lease = lambda: self.admin.get("leases", "daemonlet-coordinator", "kube-system")["spec"]
        until(lambda: lease()["holderIdentity"].startswith("one_"), SOON, "it holds the Lease")
        self.truth.excuse(seconds=60)
        self.one.process.stop(10)
        self.assertEqual(lease()["holderIdentity"], "")
        # One beside an agent does, too. An agent that crashes leaves it to expire.
        beside = self.agents[0]
        beside.stop()
        beside.config["coordinator"] = {"kubeconfig": str(self.cluster.kubeconfig("daemonlet:coordinator:beside", [coordinator.GROUP]))}
        beside.start()
        until(lambda: lease()["holderIdentity"].startswith(f"{beside.node.name}_"), SOON, "the agent's coordinator holds the Lease")
        self.assertEqual(beside.stop(), 0)
        self.assertEqual(lease()["holderIdentity"], "")
        transitions = lease()["leaseTransitions"]
        del beside.config["coordinator"]
        beside.start()
        self.one.start()
        until(lambda: lease()["holderIdentity"].startswith("one_"), SOON, "the next one holds the Lease")
        self.assertEqual(lease()["leaseTransitions"], transitions + 1)

    def test_e_changed_data_gives_new_instances_without_an_approval(self):
        configured = self.net("example.org/configured:1")
        configured["metadata"] |= {"name": "configured", "annotations": {"daemonlet.dev/restart-on": "config"}}
        for labels in (configured["spec"]["selector"]["matchLabels"], configured["spec"]["template"]["metadata"]["labels"]):
            labels["app"] = "configured"
        pod = configured["spec"]["template"]["spec"]
        pod["volumes"] = [*pod.get("volumes", []), {"name": "settings", "configMap": {"name": "settings"}}]
        pod["containers"][0].setdefault("volumeMounts", []).append({"name": "settings", "mountPath": "/settings"})
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "kube-system"}, "data": {"level": "one"}}
        self.admin.apply(settings)
        self.admin.apply(configured)

        def pods():
            found = self.admin.list("pods", "kube-system", labels="app=configured")
            return {p["spec"]["nodeName"]: p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]}

        available = lambda: self.admin.get("daemonsets", "configured", "kube-system").get("status", {}).get("numberAvailable")
        until(lambda: len(pods()) == NODES and available() == NODES, SOON, "it runs on all nodes")
        before = pods()
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, "kube-system")
        until(lambda: len(pods()) == NODES and not set(pods().values()) & set(before.values()), SOON, "every node has a new instance")
        until(lambda: available() == NODES, SOON, "and they are counted")
        self.assertEqual(len(self.admin.list("controllerrevisions", "kube-system", labels="app=configured")), 1, "it is no other revision")

    def test_f_what_is_undone_before_it_starts_starts_nowhere(self):
        undone = self.net("example.org/undone:1", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": NODES}})
        undone["metadata"]["name"] = "undone"
        # Without a runtime, the node waits for as long before the next one starts.
        undone["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 8
        undone["spec"]["selector"]["matchLabels"] = undone["spec"]["template"]["metadata"]["labels"] = {"app": "undone"}
        self.admin.apply(undone)
        released = lambda: [c for c in self.admin.get("daemonsets", "undone", "kube-system").get("status", {}).get("conditions", []) if c["type"] == "Released"]
        until(released, SOON, "it is released")
        having = lambda image: {a.node.name for a in self.agents if any(image in text for text in a.manifests("_undone-").values())}
        self.kubectl("set", "image", "ds/undone", "*=example.org/undone:2")
        until(lambda: len(having("example.org/undone:")) < NODES, SOON, "an old instance has ended", pause=0.02)
        self.kubectl("rollout", "undo", "ds/undone")
        nothing = {a.node.name for a in self.agents} - having("example.org/undone:")
        never(lambda: having("example.org/undone:2") & nothing, 12, "a node that has nothing starts what was undone", pause=0.1)
        until(lambda: len(having("example.org/undone:1")) == NODES, SOON, "all nodes have what they had")
