"""What is held stays held, whatever is taken from the coordinator: the resource not served, rights gone, nodes out of reach.

On hollow nodes; the DaemonSet controller and the scheduler do not run.
"""

import json

from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.hollow import crowd
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .rolled_out import SOON
from .rolled_out import RolledOut

NODES = 6
CRD = "nodedaemons.daemonlet.dev"
ROLE = "daemonlet-coordinator"
# So long nothing may happen that an agent or the coordinator would do within a second.
QUIET = 6


class HoldsTest(RolledOut):
    """One DaemonSet on six nodes, of which two may be unavailable."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one = cls.stack.enter_context(Coordinator(cls.cluster, "one"))
        cls.nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.agents = {node.name: cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in cls.nodes}
        cls.truth = cls.stack.enter_context(Truth(cls.admin, cls.nodes, "net"))

    def served(self, is_served):
        """Serves NodeDaemons, or does not."""
        patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": is_served}]
        self.admin.kubectl("patch", "crd", CRD, "--type=json", "-p", json.dumps(patch))

        def is_so():
            return self.admin.kubectl("get", CRD, check=False).count("hollow-") == (NODES if is_served else 0)
        until(is_so, SOON, f"NodeDaemons are served: {is_served}")

    def holds(self, image, count, before, words):
        """Waits until so many nodes have the image and the rollout is held with these words; gives what runs then."""
        until(lambda: len(self.having(image)) == count, SOON, f"{count} nodes have {image}, before {before}")
        until(lambda: words in (self.condition("Progressing")[2] or ""), SOON, f"{words}: {self.status()}")
        until(lambda: self.status().get("numberAvailable") == NODES, SOON, "all are available")
        return self.images()

    def outlives(self, image, count, words):
        """What is held stays so while NodeDaemons are not served, with another coordinator, and when they are served again."""
        images = self.holds(image, count, self.images(), words)
        self.truth.excuse()
        self.served(False)
        self.one.kill()
        self.one.start()
        never(lambda: self.images() != images, QUIET, f"a node changes while NodeDaemons are not served ({words})")
        self.served(True)
        never(lambda: self.images() != images, QUIET, f"a node changes when they are served again ({words})")
        until(lambda: words in self.condition("Progressing")[2], SOON, f"{words}: {self.status()}")
        self.truth.excuse(seconds=15)

    def test_1_a_partition_outlives_a_resource_that_is_not_served(self):
        self.create("1", budget=2)
        self.all_have("1")
        self.annotate(partition="5")
        self.change("2")
        self.outlives("2", 1, "5 nodes are kept on the old revision")
        self.annotate(partition=None)
        self.all_have("2")

    def test_2_so_does_a_canary_phase(self):
        self.annotate(canary="kubernetes.io/hostname=hollow-3", canary_hold="1h")
        self.change("3")
        self.outlives("3", 1, "the canary nodes have to be available for a while")
        self.assertEqual(self.having("3"), ["hollow-3"])
        self.annotate(canary=None, canary_hold=None)
        self.all_have("3")

    def test_3_so_do_a_step_and_what_is_not_understood(self):
        self.annotate(steps="2, 1h; 100%")
        self.change("4")
        self.outlives("4", 2, "step 1 of 2 (2 of 6 nodes) holds until")
        self.annotate(steps="all at once")
        until(lambda: 'daemonlet.dev/steps is not understood: "all at once"' in self.condition("Progressing")[2], SOON, "it is reported")
        self.annotate(steps=None, partition="50 %")
        until(lambda: 'daemonlet.dev/partition is not understood: "50 %"' in self.condition("Progressing")[2], SOON, "it is reported")
        self.annotate(partition=None, paused="yes")
        until(lambda: 'daemonlet.dev/paused is not understood: "yes"' in self.condition("Progressing")[2], SOON, "it is reported")
        never(lambda: len(self.having("4")) != 2, QUIET, "a node follows")
        self.annotate(paused=None)
        self.all_have("4")

    def test_4_so_does_a_halt_also_without_the_right_to_read(self):
        self.annotate(partition="5")
        self.change("5")
        self.holds("5", 1, self.images(), "5 nodes are kept on the old revision")
        revision = next(r["metadata"]["name"] for r in self.admin.list("controllerrevisions", "kube-system", labels="app=net")
                        if r["data"]["spec"]["template"]["spec"]["containers"][0]["image"].endswith(":5"))
        self.kubectl("annotate", "controllerrevision", revision, "daemonlet.dev/halted=by hand")
        until(lambda: self.condition("Halted")[0] == "True", SOON, "it is halted")
        self.annotate(partition=None)
        self.outlives("5", 1, "halted: by hand")
        # Without its rights a coordinator that starts decides nothing; nor does one that has them again go on with what is halted.
        rules = self.admin.get("clusterroles", ROLE)["rules"]
        for resource in ("nodes", "nodedaemons", "controllerrevisions", "daemonsets"):
            taken = [rule | {"resources": [one for one in rule["resources"] if one != resource]} for rule in rules]
            self.truth.excuse()
            images = self.images()
            self.admin.patch("clusterroles", ROLE, {"rules": [rule for rule in taken if rule["resources"]]})
            self.one.kill()
            self.one.start()
            never(lambda images=images: self.images() != images, QUIET, f"a node changes without the right to read {resource}")
            self.admin.patch("clusterroles", ROLE, {"rules": rules})
        until(lambda: "halted: by hand" in self.condition("Progressing")[2], SOON, "it is reported")
        never(lambda: self.having("5") != self.having("5")[:1], QUIET, "the halted revision spreads")
        self.kubectl("annotate", "controllerrevision", revision, "daemonlet.dev/halted-")
        self.all_have("5")
        self.truth.excuse(seconds=15)

    def test_5_in_a_large_outage_nothing_more_is_approved(self):
        away = self.nodes[:3]
        self.truth.excuse()
        self.annotate(max_unreachable="50%")
        for node in away:
            self.agents[node.name].kill()
            node.process.stop(5)
            unknown = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
            self.admin.patch("nodes", node.name, {"status": unknown}, sub="status")
        until(lambda: self.status().get("numberReady") == 3, SOON, "they are not ready")
        self.change("6")
        until(lambda: "3 of 6 nodes are unreachable" in self.condition("Progressing")[2], SOON, f"it is reported: {self.status()}")
        never(lambda: self.having("6"), QUIET, "a node follows")
        self.annotate(max_unreachable="51%")
        here = sorted(node.name for node in self.nodes[3:])
        until(lambda: self.having("6") == here, SOON, "those that are there follow")
