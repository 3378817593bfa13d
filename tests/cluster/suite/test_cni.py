"""A cold boot without an API server keeps a pod network: the repository's own example CNI DaemonSet."""

import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit import daemons
from kit.control_plane import ControlPlane
from kit.kubelet import is_ready
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from suite.pod_network import wait_all_reach_all
from suite.story import Story

WORLD = SimpleNamespace()
NAMES = ("n1", "n2")


def setUpModule():  # noqa: N802 (unittest's name)
    """Two machines, switched on and registered; no scheduler, no DaemonSet controller."""
    lan = Lan()
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    agent.grant(cluster)
    WORLD.files, image = daemons.example_cni()
    common = common_layer([image])
    WORLD.machines = [unittest.enterModuleContext(Machine(cluster, lan, name, common, daemonlet={})) for name in NAMES]
    for machine in WORLD.machines:
        machine.power_on()
    cluster.admin.wait("nodes", lambda seen: len(seen) == len(NAMES), 60, "all nodes are registered")


class ExampleCni(Story):
    """The example."""

    def setUp(self):
        self.cluster, self.machines = WORLD.cluster, WORLD.machines

    def test_1_it_makes_the_nodes_ready_and_their_pods_reach_each_other(self):
        self.cluster.admin.apply(WORLD.files / "cni.yaml", WORLD.files / "probe.yaml")
        self.cluster.admin.wait("nodes", lambda seen: all(map(is_ready, seen.values())), 60, "all nodes are Ready")
        wait_all_reach_all(self.machines, 60)

    def test_2_after_a_power_failure_they_do_with_no_api_server_at_all(self):
        self.cluster.stop("api")
        for machine in self.machines:
            machine.kill()
        began = time.monotonic()
        for machine in self.machines:
            machine.power_on()
        wait_all_reach_all(self.machines, 60)
        print(f"          power-on of all to pods reaching each other: {time.monotonic() - began:.2f} s")
        self.assertTrue(self.cluster.refuses())

    def test_3_nothing_restarts_when_the_api_server_comes_back(self):
        before = {machine.name: machine.cri.containers() for machine in self.machines}
        self.cluster.start_api()
        for machine in self.machines:
            machine.wait_ready()
        never(lambda: {machine.name: machine.cri.containers() for machine in self.machines} != before, 5, "something restarted")
        wait_all_reach_all(self.machines, 20)


if __name__ == "__main__":
    unittest.main()
