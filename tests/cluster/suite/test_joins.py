"""Nodes that join, and nodes that are made anew, while others are kept on the released revision: what they start, and what
is reported where that revision cannot be had.

On hollow nodes; the DaemonSet controller and the scheduler do not run.
"""

import json
import shutil

from kit.agent import Agent
from kit.coordinator import Coordinator
from kit.hollow import HollowNode
from kit.hollow import crowd
from kit.truth import Truth
from kit.wait import never
from kit.wait import until

from .rolled_out import SOON
from .rolled_out import RolledOut

NODES = 2
# So long nothing may happen that an agent or the coordinator would do within a second.
QUIET = 4


class JoinsTest(RolledOut):
    """One DaemonSet on two nodes, of which all may be unavailable at one time, and nodes that join."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.one = cls.stack.enter_context(Coordinator(cls.cluster, "one"))
        nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.agents = {node.name: cls.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint="")) for node in nodes}
        cls.truth = cls.stack.enter_context(Truth(cls.admin, nodes, "net"))

    def join(self):
        """A node joins; gives its name."""
        node = self.stack.enter_context(HollowNode(self.cluster, f"hollow-{len(self.agents)}", len(self.agents)))
        self.truth.joins(node)
        self.agents[node.name] = self.stack.enter_context(Agent(node, runtime_endpoint="", kubelet_endpoint=""))
        return node.name

    def reinstall(self, name):
        """A node is made anew: manifests and state are gone."""
        one = self.agents[name]
        self.truth.excuse(name, seconds=60)
        one.kill()
        for file in one.node.manifests.glob("*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        shutil.rmtree(one.home / "state")
        until(lambda: name not in self.images(), SOON, "what ran there has ended")
        one.start()

    def needs(self, image, config):
        """Changes the image, and which ConfigMap the pod needs."""
        volumes = [{"$patch": "replace"}] + ([{"name": "config", "configMap": {"name": config}}] if config else [])
        pod = {"containers": [{"name": "main", "image": f"example.org/net:{image}"}], "volumes": volumes}
        self.kubectl("patch", "ds/net", "--type=strategic", "-p", json.dumps({"spec": {"template": {"spec": pod}}}))

    def has(self, name, image):
        """Waits until a node runs the image."""
        until(lambda: self.images().get(name) == image, SOON, f"{image} runs on {name}: {self.images()}")

    def test_1_in_a_canary_phase_also_a_canary_node_starts_with_the_released_revision_and_takes_the_newest_by_approval(self):
        self.create("1", budget="100%")
        self.all_have("1")
        self.annotate(canary="kubernetes.io/hostname in (hollow-0,hollow-1)", canary_hold="1h")
        self.change("2")
        until(lambda: self.having("2") == ["hollow-0", "hollow-1"], SOON, "the canary nodes have it")
        until(lambda: self.released("1") == "Held", SOON, "the others are held")
        self.one.kill()
        self.truth.excuse()
        self.reinstall("hollow-1")
        name = self.join()
        # What was approved just before the coordinator went may be claimed at once.
        until(lambda: self.images().get("hollow-1") in ("1", "2"), SOON, "hollow-1 has an instance")
        self.has(name, "1")
        self.one.start()
        self.has("hollow-1", "2")
        self.truth.excuse("", seconds=15)
        never(lambda: self.having("2") != ["hollow-0", "hollow-1"], QUIET, "it spreads")
        self.annotate(canary=None, canary_hold=None)
        self.all_have("2")

    def keeps_others(self, image, released, **holds):
        """One node has the image; one that is made anew and one that joins start with the released revision."""
        self.annotate(**holds)
        self.change(image)
        until(lambda: len(self.having(image)) == 1, SOON, f"the first node has {image}")
        until(lambda: self.released(released) == "Held", SOON, "the others are held")
        first = self.having(image)
        anew = next(name for name in self.agents if name not in first)
        self.reinstall(anew)
        self.has(self.join(), released)
        self.has(anew, released)
        never(lambda: self.having(image) != first, QUIET, f"{image} spreads")

    def test_2_under_a_partition_and_in_a_step_too(self):
        self.keeps_others("3", "2", partition="2")
        self.annotate(partition=None)
        self.all_have("3")
        self.keeps_others("4", "3", steps="1, 1h; 100%")

    def test_3_after_an_abort_too_and_a_node_that_has_nothing_is_not_back(self):
        self.annotate(aborted=f"net-{self.hash_of('4')}")
        until(lambda: not self.having("4"), SOON, "it is taken back")
        until(lambda: "every node is on revision" in self.condition("Progressing")[2], SOON, "all are back")
        self.admin.delete("controllerrevisions", f"net-{self.hash_of('3')}", "kube-system")
        before = self.images()
        name = self.join()
        words = f"cannot start the released revision, and NodeDaemons says why, on 1 node: {name}"
        until(lambda: words in self.condition("Degraded")[2], SOON, f"it is named: {self.status()}")
        until(lambda: self.condition("Progressing")[2].endswith("; nothing runs on 1 node"), SOON, f"it is not back: {self.status()}")
        self.assertEqual(self.images(), before)
        report = self.admin.get("nodedaemons", name)["status"]["daemons"][0]
        self.assertRegex(report["message"], "the released one, ControllerRevision net-.*, is gone")
        self.annotate(aborted=None, steps=None)
        self.all_have("4")

    def test_4_without_an_object_of_the_released_revision_the_newest_starts_unless_it_is_paused(self):
        self.admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "kube-system"}})
        self.needs("5", "old")
        self.all_have("5")
        self.annotate(paused="true")
        self.needs("6", None)
        until(lambda: self.released("5") == "Held", SOON, "it is held")
        self.admin.delete("configmaps", "old", "kube-system")
        name = self.join()
        reported = lambda: (self.admin.get("nodedaemons", name) or {}).get("status", {}).get("daemons", [])
        until(lambda: "ConfigMap kube-system/old" in json.dumps(reported()), SOON, f"its report names the object: {reported()}")
        never(lambda: name in self.images(), QUIET, "it starts what is paused")
        self.annotate(paused=None, partition="20")
        self.has(name, "6")
        self.assertEqual(self.having("6"), [name])
        self.annotate(partition=None)
        self.all_have("6")
