"""A machine that boots: a container waits for other daemons at its gate, with a real kubelet and systemd."""

import json
import time
import unittest

from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until

NAMESPACE = "kube-system"
ALONE = "two seconds from Ready to a container"


def named(name, after=None, **fields):
    """A DaemonSet that starts after another."""
    made = daemonset(name, namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True, **fields)
    made["metadata"]["annotations"] = {"daemonlet.dev/after": after, "daemonlet.dev/after-timeout": "20m"} if after else {}
    return made


class Boot(unittest.TestCase):
    """A machine that boots."""

    def test_at_a_boot_a_container_waits_at_its_gate_and_starts_at_its_turn(self):
        lan = Lan()
        cluster = self.enterContext(ControlPlane(GATEWAY))
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        machine = self.enterContext(Machine(cluster, lan, "m1", common_layer(), daemonlet={}))
        # A Node without a pod network is not ready, and so is nothing on it.
        machine.put("/etc/cni/net.d/10-none.conflist", json.dumps({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}))
        machine.power_on()
        machine.wait_up()
        probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
        everywhere = {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1}
        cluster.admin.apply(named("network", container={"readinessProbe": probe}, **everywhere))
        cluster.admin.apply(named("dns", after=f"{NAMESPACE}/network", **everywhere))
        network = machine.cri.wait_running("network-", 60)
        machine.cri.execute(network[2], "touch", "/tmp/ready")
        machine.cri.wait_running("dns-", 30)
        manifest = self.manifest(machine)
        self.assertIn("daemonlet-gate", manifest[0][1])
        machine.power_off()
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        network = machine.cri.wait_running("network-", 90)
        never(lambda: machine.cri.of("dns-"), 8, "it did not wait")
        self.assertEqual(self.manifest(machine), manifest, "the manifest is another one")
        self.assertIn("waits until kube-system/network is Ready here", machine.run("daemonlet", "status"))
        machine.cri.execute(network[2], "touch", "/tmp/ready")
        until(lambda: self.is_ready(cluster, "network-"), 15, "it is Ready", pause=0.01)
        began = time.monotonic()
        machine.cri.wait_running("dns-", 30)
        self.assertLess(time.monotonic() - began, 2)
        # It has one more annotation for a second, so that the kubelet tries again.
        until(lambda: self.manifest(machine) == manifest, 10, "the manifest is as before")
        # Without an agent nothing waits.
        machine.power_off()
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        machine.cri.wait_running("network-", 90)
        never(lambda: machine.cri.of("dns-"), 3, "it did not wait")
        machine.run("systemctl", "stop", "daemonlet")
        machine.cri.wait_running("dns-", 60)

    def manifest(self, machine):
        """Name and text of the manifest of the one that waits."""
        found = sorted((machine.root / "etc/kubernetes/manifests").glob("kube-system_dns-*"))
        return [(file.name, file.read_text(encoding="utf-8")) for file in found]

    def is_ready(self, cluster, prefix):
        """Whether the pod of that prefix is Ready in the API."""
        pods = [pod for pod in cluster.admin.list("pods", NAMESPACE) if pod["metadata"]["name"].startswith(prefix)]
        conditions = [condition for pod in pods for condition in pod["status"].get("conditions", [])]
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
