"""One whole machine with systemd, kubelet and agent, on which a daemon has run: what stories of the unit begin with."""

import unittest

from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan


def begin():
    """Gives the network, the cluster and the machine, which last as long as the module; the daemon is called steady."""
    lan = Lan()
    cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    cluster.wait_namespace("kube-system")
    agent.grant(cluster)
    machine = unittest.enterModuleContext(Machine(cluster, lan, "n1", common_layer(), daemonlet={"default-mode": "static"}))
    machine.power_on()
    cluster.admin.apply(daemonset("steady", hostNetwork=True, tolerations=[{"operator": "Exists"}]))
    machine.wait_up()
    machine.cri.wait_running("steady-", 60)
    return lan, cluster, machine
