"""The last good revision's image is kept from image garbage collection, where the runtime can do that."""

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

GOOD, BAD, NEXT = "dl.test/good:1", "dl.test/bad:1", "dl.test/next:1"
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
        pictures = [images.Image(name, entrypoint=["/bin/sh"], busybox=True, files={"/mark": name.encode()}) for name in (GOOD, BAD, NEXT)]
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

    def test_a_runtime_that_can_keeps_it_until_it_is_needed_no_longer(self):
        cluster, node, daemonlet = self.world("node-1", tools.newer_containerd())
        self.go_bad(cluster, daemonlet)
        until(lambda: self.pinned(node) == [BAD, GOOD], 20, "both are pinned")
        self.assertNotIn(RISK, daemonlet.cli("status", "--json").stdout, "the runtime does not show the pin")
        self.put(cluster, NEXT)
        until(lambda: self.pinned(node) == [NEXT], 60, "what is needed no longer is let go")

    def test_a_runtime_that_cannot_is_told(self):
        cluster, _, daemonlet = self.world("node-2", None)
        self.go_bad(cluster, daemonlet)
        until(lambda: RISK in daemonlet.cli("status", "--json").stdout, 20, "status names the risk")


if __name__ == "__main__":
    unittest.main()
