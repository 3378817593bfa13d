"""One real kubelet: who deletes a pod gets a new one, what the kubelet rejects is tried again, and the API server shows what ends."""

import json
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit.agent import Agent
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import never
from kit.wait import until

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
NODE = "node-1"
# Says when it gets SIGTERM, and takes its time.
SLOW = ["sh", "-c", 'trap "sleep 4; exit 0" TERM; sleep 100000 & wait; wait']
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, with the real EndpointSlice controller, and an agent beside the kubelet."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    WORLD.cluster.start_controllers()
    WORLD.cluster.wait_namespace(NAMESPACE)
    WORLD.cluster.wait_namespace("default")
    agent.grant(WORLD.cluster)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))
    WORLD.node.wait_ready()


class Orders(unittest.TestCase):
    """What the stories share."""

    def setUp(self):
        self.cluster, self.node, self.agent = WORLD.cluster, WORLD.node, WORLD.agent
        self.admin, self.cri = self.cluster.admin, self.node.cri

    def run_daemon(self, name, **fields):
        """Applies a DaemonSet and waits for its container; deletes it at the end."""
        self.apply_daemon(name, **fields)
        return self.running(name)

    def apply_daemon(self, name, **fields):
        """Applies a DaemonSet; deletes it at the end."""
        self.admin.apply(daemonset(name, **({"namespace": NAMESPACE, "labels": MODE, "hostNetwork": True} | fields)))
        self.addCleanup(self.delete_daemon, name)

    def running(self, name, other_than=None, seconds=40):
        """Waits until exactly one instance runs, and not that one; gives (pod, container, id, pid)."""
        def one():
            found = self.cri.of(f"{name}-")
            return found[0] if len(found) == 1 and (other_than is None or found[0][0] != other_than[0]) else None
        try:
            return until(one, seconds, f"one new instance of {name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- agent\n{self.agent.process.tail(25)}") from None

    def delete_daemon(self, name):
        """Deletes a DaemonSet and waits until nothing of it runs."""
        try:
            self.admin.delete("daemonsets", name, NAMESPACE)
        except Refused:
            pass
        self.cri.wait_gone(f"{name}-")
        until(lambda: not self.agent.manifests(f"{name}-"), 20, f"no manifest of {name}")

    def mirror(self, pod, check=lambda item: True, seconds=30):
        """Waits for the mirror pod of that name, looking so."""
        return self.admin.wait("pods", lambda seen: next((item for key, item in seen.items() if key[1] == pod and check(item)), None),
                               seconds, f"the mirror pod {pod}", NAMESPACE)

    def status(self, name):
        """What the agent says of a daemon."""
        status = json.loads(self.agent.cli("status", "--json").stdout)
        return next((d for d in status["daemons"] if d["name"] == name), {})

    def unchanged(self, daemon, seconds, why):
        """Asserts that a daemon stays the very same container."""
        never(lambda: self.cri.of(daemon[0]) != [daemon], seconds, why)


class Restarts(Orders):
    """What gives a new instance, and what does not."""

    def test_a_deleted_pod_is_a_new_pod(self):
        first = self.run_daemon("deleted")
        old = self.mirror(first[0])
        self.admin.kubectl("delete", "pod", first[0], "-n", NAMESPACE, "--wait=false")
        second = self.running("deleted", first)
        new = self.mirror(second[0])
        hashes = [pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] for pod in (old, new)]
        self.assertNotEqual(*hashes)
        self.unchanged(second, 3, "it was restarted twice")

    def test_a_pod_deleted_by_force_while_the_agent_was_down_is_a_new_pod(self):
        first = self.run_daemon("forced")
        uid = self.mirror(first[0])["metadata"]["uid"]
        until(lambda: uid in (self.agent.home / "state/daemons" / f"{NAMESPACE}_forced.json").read_text(encoding="utf-8"), 10, "the agent saw it")
        self.agent.stop()
        self.admin.delete("pods", first[0], NAMESPACE, gracePeriodSeconds=0)
        self.mirror(first[0], lambda item: item["metadata"]["uid"] != uid)
        self.agent.start()
        self.running("forced", first)

    def test_a_failed_pod_is_a_new_pod(self):
        first = self.run_daemon("failed")
        self.mirror(first[0], lambda item: item["status"].get("phase") == "Running")
        self.admin.patch("pods", first[0], {"status": {"phase": "Failed", "reason": "Test", "message": "a controller says so"}}, NAMESPACE, sub="status")
        self.running("failed", first)

    def test_a_restart_by_hand_needs_no_api(self):
        first = self.run_daemon("byhand")
        done = self.agent.cli("restart", f"{NAMESPACE}/byhand")
        self.assertEqual(done.returncode, 0, done.stderr)
        second = self.running("byhand", first)
        self.assertIn(second[0].removesuffix(f"-{NODE}"), done.stdout)
        self.assertIn(first[0].removesuffix(f"-{NODE}"), done.stdout)
        self.cluster.stop("api")
        self.addCleanup(lambda: self.cluster.alive("api") or self.cluster.start_api())
        done = self.agent.cli("restart", f"{NAMESPACE}/byhand")
        self.assertEqual(done.returncode, 0, done.stderr)
        third = self.running("byhand", second)
        self.cluster.start_api()
        self.unchanged(third, 3, "it was restarted when the API came back")
        refused = self.agent.cli("restart", f"{NAMESPACE}/nobody")
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("no such daemon has run on this node", refused.stderr)

    def test_a_node_deleted_and_made_again_restarts_nothing(self):
        daemon = self.run_daemon("stays")
        uid = self.mirror(daemon[0])["metadata"]["uid"]
        self.admin.delete("nodes", NODE)
        self.admin.wait("pods", lambda seen: (NAMESPACE, daemon[0]) not in seen, 120, "its mirror pod went with the Node", NAMESPACE)
        self.node.kubelet.stop()
        self.node.start_kubelet()
        self.mirror(daemon[0], lambda item: item["metadata"]["uid"] != uid, 60)
        self.unchanged(daemon, 4, "the Node's deletion restarted it")
        self.node.wait_ready(60)


class Rejected(Orders):
    """What the kubelet does not take."""

    def pod(self, name, **fields):
        """A pod without an owner on the node."""
        container = {"name": "main", "image": "dl.test/box:1", "command": ["sleep", "100000"]} | fields.pop("container", {})
        self.admin.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                          "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]} | fields})
        self.addCleanup(lambda: self.admin.kubectl("delete", "pod", name, "--force", "--ignore-not-found"))
        self.admin.wait("pods", lambda seen: seen.get(("default", name), {}).get("status", {}).get("phase") == "Running", 30, f"{name} runs", "default")

    def test_a_taken_host_port_is_tried_again_when_it_is_free(self):
        port = {"ports": [{"containerPort": 4711, "hostPort": 4711}]}
        self.pod("holder", hostNetwork=True, container=port)
        self.apply_daemon("ported", container=port)
        status = until(lambda: (s := self.status("ported")) and "NodePorts" in s["reason"] and s, 40, "the kubelet's reason shows")
        self.assertEqual(status["state"], "failing")
        until(lambda: "host port TCP 4711 is held by pod default/holder" in self.status("ported").get("notes", []), 20, "status names who holds it")
        first = self.agent.manifests("ported")
        until(lambda: self.agent.manifests("ported") not in ({}, first), 40, "it is tried again under a new name")
        self.assertEqual(len(self.agent.manifests("ported")), 1)
        began = time.monotonic()
        self.admin.kubectl("delete", "pod", "holder", "--wait=false")
        self.running("ported", seconds=30)
        print(f"          host port free to running: {time.monotonic() - began:.1f} s")

    def test_a_daemon_gets_its_room_on_a_full_node(self):
        # The kubelet leaves in place what a Node's owner says of a resource that it does not know.
        dongles = {"example.org/dongle": "1"}
        self.admin.patch("nodes", NODE, {"status": {"capacity": dongles, "allocatable": dongles}}, sub="status")
        there = self.admin.get("nodes", NODE)["status"]["allocatable"]
        mebi = lambda quantity: int(quantity.removesuffix("Ki")) // 1024 if quantity.endswith("Ki") else int(quantity) // 1048576
        full = {"cpu": (f"{int(there['cpu']) * 1000 - 100}m", "500m"), "memory": (f"{mebi(there['memory']) - 64}Mi", "256Mi"),
                "ephemeral-storage": (f"{mebi(there['ephemeral-storage']) - 64}Mi", "256Mi"), "example.org/dongle": ("1", "1")}
        for resource, (used, needed) in full.items():
            with self.subTest(resource):
                name = resource.split("/")[-1]
                requests = lambda quantity: {"resources": {"requests": {resource: quantity}, "limits": {resource: quantity} if "/" in resource else {}}}
                self.pod(f"lesser-{name}", hostNetwork=True, container=requests(used))
                self.run_daemon(f"roomy-{name}", container=requests(needed))
                notes = until(lambda: [n for n in self.status(f"roomy-{name}").get("notes", []) if "preempted" in n], 30, "status names the preempted pod")
                self.assertEqual(notes, [f"the kubelet preempted default/lesser-{name} to make room for it"])
                self.admin.delete("daemonsets", f"roomy-{name}", NAMESPACE)
                self.cri.wait_gone(f"roomy-{name}-")

    def test_a_daemon_that_fits_no_node_says_so(self):
        self.apply_daemon("giant", container={"resources": {"requests": {"cpu": "5000"}}})
        status = until(lambda: (s := self.status("giant")) and "reclaim resources" in s["reason"] and s, 40, "the kubelet's reason shows")
        self.assertIn("UnexpectedAdmissionError", status["reason"])


class Endings(Orders):
    """What others see of a pod that ends."""

    def test_traffic_stops_when_a_pod_begins_to_end(self):
        self.admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "served", "namespace": NAMESPACE},
                          "spec": {"clusterIP": "None", "selector": {"app": "served"}, "ports": [{"port": 80}]}})
        # On the pod network: no EndpointSlice takes a loopback address, which is the node's here.
        first = self.run_daemon("served", hostNetwork=False, terminationGracePeriodSeconds=20, container={"command": SLOW})

        def endpoints(seen):
            return [e for item in seen.values() if item["metadata"]["labels"].get("kubernetes.io/service-name") == "served"
                    for e in item.get("endpoints") or [] if e["targetRef"]["name"] == first[0]]

        def wait(check, what):
            return self.admin.wait("endpointslices", lambda seen: check(endpoints(seen)), 30, what, NAMESPACE)
        wait(lambda found: found and found[0]["conditions"]["ready"], "it gets traffic")
        self.admin.patch("daemonsets", "served", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)
        wait(lambda found: found and not found[0]["conditions"]["ready"] and found[0]["conditions"]["terminating"], "it is terminating")
        self.assertEqual(self.cri.of(first[0]), [first], "it ends after the API server shows it, not before")
        self.running("served", first)

    def test_a_kubelet_that_has_never_reached_an_api_server_ends_nothing_but_we_do(self):
        manifest = daemonset("deaf", NAMESPACE, hostNetwork=True, container={"command": SLOW}, terminationGracePeriodSeconds=20)
        file = self.agent.folder / "deaf.json"
        file.write_text(json.dumps(manifest), encoding="utf-8")
        first = self.running("deaf")
        self.cluster.stop("api")
        self.addCleanup(lambda: self.cluster.alive("api") or self.cluster.start_api())
        time.sleep(0.5)  # the agent has to notice before the kubelet starts
        self.node.kubelet.kill()
        self.node.start_kubelet()
        time.sleep(2)
        manifest["spec"]["template"]["metadata"]["annotations"] = {"round": "two"}
        file.write_text(json.dumps(manifest), encoding="utf-8")
        began, most = time.monotonic(), []

        def replaced():
            found = self.cri.of("deaf-")
            most.append(len(found))
            return len(found) == 1 and found[0][0] != first[0]
        until(replaced, 60, "the new instance runs")
        took = time.monotonic() - began
        print(f"          replaced with a deaf kubelet: {took:.1f} s")
        self.assertGreater(took, 4, "it was given its grace period")
        self.assertLessEqual(max(most), 1, "two instances ran at once")
        self.cluster.start_api()
        self.node.wait_ready(60)
        file.unlink()
        self.cri.wait_gone("deaf-")


if __name__ == "__main__":
    unittest.main()
