"""The flagship: an unmodified published CNI DaemonSet on whole machines, without a scheduler.

Three machines, an API server, controllers without the DaemonSet controller, no scheduler. The
nodes are NotReady because there is no pod network, and nothing that needs one could bring it.
"""

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
from kit.wait import until
from suite.pod_network import fetch
from suite.pod_network import pod_address
from suite.pod_network import wait_all_reach_all
from suite.story import Story

ALONE = "three machines that boot, and ten seconds to a container"

WORLD = SimpleNamespace()
NAMES = ("n1", "n2", "n3")


def setUpModule():  # noqa: N802 (unittest's name)
    """Three machines, switched on and registered."""
    if not daemons.FLANNEL.exists():
        raise unittest.SkipTest(f"no {daemons.FLANNEL}: DAEMONLET_FLANNEL names flannel's published file, kube-flannel.yml")
    WORLD.lan = lan = Lan()
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    agent.grant(cluster)
    common = common_layer([*daemons.flannel_images(), daemons.kube_proxy_image()])
    config = {"default-mode": "static", "policy": {"namespaces": ["kube-flannel", "kube-system"], "trusted-namespaces": ["kube-flannel", "kube-system"]}}
    WORLD.machines = [unittest.enterModuleContext(Machine(cluster, lan, name, common, daemonlet=config)) for name in NAMES]
    for machine in WORLD.machines:
        machine.power_on()
    cluster.admin.wait("nodes", lambda seen: len(seen) == len(NAMES), 60, "all nodes are registered")


class Flannel(Story):
    """The flagship."""

    def setUp(self):
        self.cluster, self.machines, self.lan = WORLD.cluster, WORLD.machines, WORLD.lan
        self.admin = self.cluster.admin

    def test_1_nodes_without_a_pod_network_are_not_ready(self):
        never(lambda: [node for node in self.admin.list("nodes") if is_ready(node)], 1, "a node is Ready without a pod network")

    def test_2_the_unmodified_file_makes_them_ready(self):
        self.admin.apply(daemons.FLANNEL)
        self.admin.wait("nodes", lambda seen: len(seen) == len(NAMES) and all(map(is_ready, seen.values())), 60, "all nodes are Ready")

    def test_3_pods_of_all_nodes_reach_each_other(self):
        self.admin.apply(daemons.probe())
        wait_all_reach_all(self.machines, 60)

    def test_4_kube_proxy_makes_a_service_answer(self):
        self.admin.apply(daemons.service(), *daemons.kube_proxy(self.cluster.url))
        address = self.admin.get("services", "probe", "kube-system")["spec"]["clusterIP"]
        machine = self.machines[0]
        container, _ = pod_address(machine, "probe-")
        answer = until(lambda: fetch(machine, container, f"http://{address}/"), 60, "the Service answers")
        self.assertIn(answer, NAMES)

    def test_5_power_fails_without_an_api_server_and_flannel_is_back(self):
        self.cluster.stop("api")
        for machine in self.machines:
            machine.kill()
        for machine in self.machines:
            flanneld, output = self.cold_boot(machine)
            self.assertLess(flanneld, 10, "something waited for the API server")
            # It got as far as asking the API server: so it had its configuration, token, CA and environment.
            self.assertRegex(output, r"error retrieving pod spec: Get .*/api/v1/namespaces/kube-flannel/pods/kube-flannel-ds-\w{5}-n\d.*refused")

    def cold_boot(self, machine):
        """Switches a machine on; gives the seconds to flannel's first container and to flanneld, and flanneld's first words."""
        machine.power_on()
        flanneld, output = until(lambda: machine.first_output("kube-flannel-ds-", "kube-flannel"), 30, f"flanneld says something on {machine.name}")
        first, name = machine.cri.created("kube-flannel-ds-", machine.powered_wall)[0]
        print(f"          power-on of {machine.name} to flannel's first container ({name}): {first:.2f} s, to flanneld: {flanneld:.2f} s")
        return flanneld, output

    def test_6_pods_reach_each_other_ten_seconds_after_the_api_is_back(self):
        self.cluster.start_api()
        began = time.monotonic()
        wait_all_reach_all(self.machines, 60)
        took = time.monotonic() - began
        print(f"          API server back to pods reaching each other: {took:.1f} s")
        self.assertLess(took, 10)

    def test_7_power_fails_while_packets_vanish_and_the_boot_guard_refuses(self):
        self.lan.swallow(self.cluster.PORT)
        for machine in self.machines:
            machine.kill()
        for machine in self.machines:
            flanneld, output = self.cold_boot(machine)
            self.assertLess(flanneld, 10, "the kubelet alone would have waited for half a minute")
            self.assertRegex(output, "error retrieving pod spec: .*refused")
        # Fast refusals put flanneld into crash back-off, which is to end with the outage.
        for machine in self.machines:
            until(lambda machine=machine: "back-off 20s restarting failed container=kube-flannel" in machine.run(
                "journalctl", "--boot", "--unit=kubelet", "--output=cat"), 60, f"flanneld on {machine.name} is in back-off", pause=0.5)

    def test_8_pods_reach_each_other_ten_seconds_after_packets_come_through_again(self):
        self.lan.answer()
        began = time.monotonic()
        wait_all_reach_all(self.machines, 60)
        took = time.monotonic() - began
        print(f"          packets through again to pods reaching each other: {took:.1f} s")
        self.assertLess(took, 10)


if __name__ == "__main__":
    unittest.main()
