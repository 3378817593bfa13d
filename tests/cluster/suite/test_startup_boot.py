"""No workload before its daemons on a machine that boots, with a real scheduler, kubelet and systemd."""

import json
import time
import unittest

from kit import agent as agents
from kit.control_plane import ControlPlane
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until
from suite.test_startup_taint import NAMESPACE
from suite.test_startup_taint import RIGHTS
from suite.test_startup_taint import asking
from suite.test_startup_taint import bound
from suite.test_startup_taint import is_tainted
from suite.test_startup_taint import workload


class Boot(unittest.TestCase):
    """A machine that boots."""

    def test_a_reboot_and_a_loss_of_power_set_it_again_until_the_daemon_is_ready(self):
        lan = Lan()
        cluster = self.enterContext(ControlPlane(GATEWAY))
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agents.grant(cluster)
        cluster.admin.apply(RIGHTS)
        cluster.start_scheduler()
        admin = cluster.admin
        machine = self.enterContext(Machine(cluster, lan, "m1", common_layer(), daemonlet={"node": {"startup-taint": True}}))
        # A Node without a pod network is not ready, and so is nothing on it.
        machine.put("/etc/cni/net.d/10-none.conflist", json.dumps({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}))
        admin.apply(asking("network", terminationGracePeriodSeconds=1))
        machine.power_on()
        machine.wait_up()
        until(lambda: is_tainted(admin, "m1"), 60, "the taint is there")
        self.let(machine, admin, 60)
        machine.power_off()
        self.assertTrue(is_tainted(admin, "m1"), "an agent of a machine that shuts down leaves it")
        workload(admin, "early")
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        machine.cri.wait_running("network-", 90)
        machine.wait_ready()
        never(lambda: bound(admin, "early") or not is_tainted(admin, "m1"), 4, "workload came before the daemon")
        self.let(machine, admin, 60)
        until(lambda: bound(admin, "early") == "m1", 30, "workload is bound")
        # Nobody has set it when the power goes: it comes with the first contact.
        machine.kill()
        self.assertFalse(is_tainted(admin, "m1"))
        time.sleep(3)
        machine.power_on()
        until(lambda: is_tainted(admin, "m1"), 90, "the taint is there", pause=0.05)
        seen = time.monotonic()
        machine.wait_up()
        began = int(machine.run("systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "daemonlet")) / 1e6
        print(f"          after a loss of power the taint is there {seen - began:.1f} s after the agent was started")
        self.let(machine, admin, 90)

    def let(self, machine, admin, seconds):
        """Lets the daemon be Ready, and waits until the taint is gone."""
        daemon = machine.cri.wait_running("network-", seconds)
        machine.cri.execute(daemon[2], "touch", "/tmp/ready")
        until(lambda: not is_tainted(admin, "m1"), 30, "the taint is gone")
