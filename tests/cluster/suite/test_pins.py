"""The last good revision's image is kept from the kubelet's image garbage collection, where the runtime can do that."""

import json
import unittest
from types import SimpleNamespace

from kit import agent
from kit import images
from kit import tools
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import until

GOOD, BAD, UNUSED = "dl.test/good:1", "dl.test/bad:1", "dl.test/unused:1"
RISK = "may be lost to image garbage collection"
NEVER = {"exec": {"command": ["false"]}, "periodSeconds": 1}


WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """A control plane."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    WORLD.cluster.start_controllers()
    WORLD.cluster.wait_namespace("kube-system")
    agent.grant(WORLD.cluster)


class Pins(unittest.TestCase):
    """A daemon whose new revision never gets ready."""

    def world(self, name, containerd):
        """A node with that containerd."""
        cluster = WORLD.cluster
        self.addCleanup(cluster.admin.delete, "daemonsets", "kept", "kube-system")
        pictures = [images.Image(name, entrypoint=["/bin/sh"], busybox=True, files={"/mark": name.encode()}) for name in (GOOD, BAD, UNUSED)]
        node = self.enterContext(Node(cluster, name, pod_images=pictures, containerd=containerd))
        return cluster, node, self.enterContext(Agent(node))

    def put(self, cluster, image, **container):
        """The daemon, with this image."""
        cluster.admin.apply(daemonset("kept", "kube-system", {"image": image} | container, {"daemonlet.dev/mode": "static"}, hostNetwork=True))

    def pinned(self, node):
        """The names that carry our pin."""
        return sorted(line.split()[0] for line in node.cri.ctr("images", "ls").splitlines() if "dev.daemonlet.pinned=pinned" in line)

    def go_bad(self, cluster, daemonlet):
        """A good revision, then one that runs and never is ready."""
        self.put(cluster, GOOD)
        good = until(lambda: self.record(daemonlet).get("good"), 60, "the first revision is good")
        self.put(cluster, BAD, readinessProbe=NEVER)
        until(lambda: any(i["revision"] != good["revision"] and i["started"] for i in self.record(daemonlet)["instances"]), 60, "the bad one runs")

    def record(self, daemonlet):
        """What is on disk of the daemon."""
        try:
            return json.loads((daemonlet.home / "state/daemons/kube-system_kept.json").read_text(encoding="utf-8").split("\n", 1)[1])
        except (OSError, ValueError, IndexError):
            return {}

    def used(self, node):
        """The images of which there is a container, running or not."""
        return {line.split()[1] for line in node.cri.ctr("containers", "ls").splitlines()[1:]}

    def present(self, node):
        """The names of the images on the node."""
        return {line.split()[0] for line in node.cri.ctr("images", "ls").splitlines()[1:]}

    def collect(self, node):
        """Has the kubelet take every container and image that no pod needs: too little of its disk is free.

        (It would evict pods, too; static ones are not evicted.)
        """
        node.kubelet.stop()
        node.config = {"evictionHard": {"imagefs.available": "99%", "nodefs.available": "99%"}, "imageMinimumGCAge": "1ms"}
        node.start_kubelet()
        until(lambda: GOOD not in self.used(node), 90, "no container of the good revision is left")

    def next_collection(self, node, since):
        """Waits until the kubelet begins to collect images, from line number `since` of its log on; gives the line behind."""
        node.kubelet.wait_line("Attempting to delete unused images", 60, since)
        return next(number for number, (_, line) in enumerate(node.kubelet.lines) if number >= since and "Attempting to delete unused images" in line) + 1

    def test_a_runtime_that_can_keeps_it_until_it_is_needed_no_longer(self):
        cluster, node, daemonlet = self.world("node-1", tools.newer_containerd())
        self.go_bad(cluster, daemonlet)
        until(lambda: self.pinned(node) == [BAD, GOOD], 20, "both are pinned")
        self.assertNotIn(RISK, daemonlet.cli("status", "--json").stdout, "the runtime does not show the pin")
        self.assertLess({GOOD, BAD, UNUSED, images.BOX}, self.present(node))
        self.collect(node)
        # The next one begins without that container; when another begins, it is over.
        self.next_collection(node, self.next_collection(node, len(node.kubelet.lines)))
        self.assertEqual(self.present(node) & {GOOD, BAD, UNUSED, images.BOX}, {GOOD, BAD})
        self.put(cluster, GOOD)
        until(lambda: GOOD in {node.cri.image(container) for _, _, container, _ in node.cri.of("kept-")}, 60, "the good revision runs again, without a registry")
        until(lambda: self.pinned(node) == [GOOD], 60, "what is needed no longer is let go")

    def test_a_runtime_that_cannot_is_reported(self):
        cluster, node, daemonlet = self.world("node-2", None)
        self.go_bad(cluster, daemonlet)
        until(lambda: RISK in daemonlet.cli("status", "--json").stdout, 20, "status names the risk")
        self.collect(node)
        until(lambda: self.present(node) & {GOOD, BAD} == {BAD}, 60, "the risk is real")


if __name__ == "__main__":
    unittest.main()
