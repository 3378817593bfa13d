"""A machine that boots into the revision that was staged for it: no API server is asked, and the old one never runs again."""

import json
import time
import unittest

from kit import agent
from kit import coordinator
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until

NAMESPACE = "kube-system"
MANIFESTS = "etc/kubernetes/manifests"


class Staged(unittest.TestCase):
    """One machine, with a real kubelet and systemd."""

    def setUp(self):
        lan = Lan()
        self.cluster = self.enterContext(ControlPlane(GATEWAY))
        self.cluster.start_controllers()
        self.cluster.wait_namespace(NAMESPACE)
        agent.grant(self.cluster)
        coordinator.install(self.cluster)
        self.enterContext(Coordinator(self.cluster, "one"))
        self.machine = self.enterContext(Machine(self.cluster, lan, "m1", common_layer(), daemonlet={}))
        # A Node without a pod network is not ready, and so is nothing on it.
        network = {"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}
        self.machine.put("/etc/cni/net.d/10-none.conflist", json.dumps(network))

    def change(self, number):
        """The DaemonSet in this round."""
        body = daemonset("net", labels={"daemonlet.dev/mode": "static"}, hostNetwork=True, tolerations=[{"operator": "Exists"}],
                         terminationGracePeriodSeconds=1, automountServiceAccountToken=False)
        body["metadata"]["annotations"] = {"daemonlet.dev/update": "boot", "daemonlet.dev/pre-pull": "0s"}
        body["spec"]["template"]["metadata"]["annotations"] = {"round": str(number)}
        self.cluster.admin.apply(body)

    def rounds(self):
        """The round of each manifest of the daemon."""
        texts = [file.read_text(encoding="utf-8") for file in (self.machine.root / MANIFESTS).glob(f"{NAMESPACE}_net-*")]
        return [line.split(":")[1].strip().strip("\"'") for text in texts for line in text.splitlines() if line.strip().startswith("round:")]

    def report(self):
        """What the agent says of the daemon."""
        found = self.cluster.admin.get("nodedaemons", "m1").get("status", {}).get("daemons", [])
        return next((daemon for daemon in found if daemon["name"] == "net"), {})

    def released(self):
        """What nodes that join do."""
        found = self.cluster.admin.get("daemonsets", "net", NAMESPACE).get("status", {}).get("conditions", [])
        return next((c["reason"] for c in found if c["type"] == "Released"), None)

    def test_a_boot_without_an_api_server_runs_the_staged_revision_alone(self):
        self.machine.power_on()
        self.machine.wait_up()
        self.change(1)
        old = self.machine.cri.wait_running("net-", 90)[0]
        until(lambda: self.released() == "Complete", 60, "the first revision is released")
        self.change(2)
        until(lambda: self.report().get("staged"), 60, "the second one is staged")
        never(lambda: self.rounds() != ["1"], 5, "it is replaced before the boot")
        self.assertIn("it starts at the next boot of the node", self.machine.run("daemonlet", "status"))
        self.machine.power_off()
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        self.machine.cut()
        self.machine.power_on()
        self.machine.wait_up(120)
        self.assertEqual(self.rounds(), ["2"])
        new = self.machine.cri.wait_running("net-", 90)[0]
        self.assertNotEqual(new, old)
        sandboxes = self.machine.run("journalctl", "--boot", "--unit=containerd", "--no-pager", "--grep=RunPodSandbox")
        self.assertIn(new, sandboxes)
        self.assertNotIn(old, sandboxes, "the old one began in this boot")
        self.machine.mend()
        until(lambda: self.released() == "Complete" and not self.report().get("staged"), 120, f"it is released: {self.report()}")
        never(lambda: self.rounds() != ["2"], 5, "it stays")
