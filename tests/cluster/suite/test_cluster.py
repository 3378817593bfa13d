"""The test cluster itself: what the other stories stand on, shown with plain static pods.

A control: when one of these fails, the machine or the harness is at fault, not daemonlet.
"""

import json
import unittest
from contextlib import ExitStack

from kit import images
from kit.control_plane import ControlPlane
from kit.hollow import crowd
from kit.kubelet import Node
from kit.kubelet import is_ready
from kit.wait import never


def static_pod(name, **spec):
    """A plain static pod of one sleeping container."""
    container = {"name": "main", "image": images.BOX, "command": ["sh", "-c", "trap exit TERM; sleep 100000 & wait"]}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                       "spec": {"containers": [container]} | spec})


class OneNode(unittest.TestCase):
    """One node, no scheduler, no DaemonSet controller."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers()
        cls.node = cls.enterClassContext(Node(cls.cluster))

    def test_the_node_turns_ready(self):
        self.node.wait_ready()

    def test_a_static_pod_runs_and_shows_in_the_api(self):
        (self.node.manifests / "pod.json").write_text(static_pod("plain"), encoding="utf-8")
        self.node.cri.wait_running("plain-")
        self.cluster.admin.wait("pods", lambda seen: is_ready(seen.get(("default", "plain-node-1"))), 20, "the mirror pod is Ready")

    def test_it_stays_through_every_trouble_of_the_api(self):
        before = self.node.cri.wait_running("plain-")
        self.cluster.freeze()
        never(lambda: self.node.cri.of("plain-") != [before], 2, "the pod changed while the API server hung")
        self.cluster.thaw()
        self.cluster.stop("api")
        never(lambda: self.node.cri.of("plain-") != [before], 2, "the pod changed while the API server was gone")
        self.cluster.start_api()
        self.assertEqual(self.node.cri.of("plain-"), [before])

    def test_it_goes_with_its_file(self):
        self.node.cri.wait_running("plain-")
        (self.node.manifests / "pod.json").unlink()
        self.node.cri.wait_gone("plain-")
        never(lambda: self.node.cri.of("plain-"), 1, "the pod came back")

    def test_a_user_without_rights_is_refused(self):
        without_rights = self.cluster.user("nobody")
        with self.assertRaisesRegex(AssertionError, "403"):
            without_rights.list("daemonsets")

    def test_hollow_nodes_take_static_pods_too(self):
        with ExitStack() as stack:
            for hollow in crowd(self.cluster, 2, stack):
                (hollow.manifests / "pod.json").write_text(static_pod("hollow"), encoding="utf-8")
                self.cluster.admin.wait("pods", lambda seen, name=hollow.name: ("default", f"hollow-{name}") in seen, 30, "its mirror pod")


if __name__ == "__main__":
    unittest.main()
