"""A full machine that boots: everything on it starts at once, and its daemons get their room."""

import json
import time
import unittest

from kit import agent as agents
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import until

NAMESPACE = "kube-system"
MOST_PODS = 4
PORT = {"ports": [{"containerPort": 4714, "hostPort": 4714}]}


def ordinary(name, **container):
    """A pod without an owner, bound to the machine."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "nodeName": "m1", "hostNetwork": True, "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "dl.test/box:1", "command": ["sleep", "100000"]} | container]}}


def daemon(name, **container):
    """A DaemonSet of the machine's own network."""
    return daemonset(name, namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True,
                     terminationGracePeriodSeconds=1, tolerations=[{"operator": "Exists"}], container=container)


class Boot(unittest.TestCase):
    """A machine that boots."""

    def test_after_a_loss_of_power_every_daemon_runs_on_a_full_node(self):
        lan = Lan()
        cluster = self.enterContext(ControlPlane(GATEWAY))
        cluster.start_controllers()
        for namespace in (NAMESPACE, "default"):
            cluster.wait_namespace(namespace)
        agents.grant(cluster)
        admin = cluster.admin
        machine = self.enterContext(Machine(cluster, lan, "m1", common_layer(), daemonlet={}))
        machine.put("/etc/cni/net.d/10-none.conflist", json.dumps({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}))
        config = machine.home / "kubelet/config.yaml"
        config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | {"maxPods": MOST_PODS}), encoding="utf-8")
        machine.power_on()
        machine.wait_up()
        machine.wait_ready()
        admin.apply(daemon("one"), daemon("two"), ordinary("ported", **PORT), ordinary("plain"))
        for prefix in ("one-", "two-", "ported", "plain"):
            machine.cri.wait_running(prefix, 60)
        admin.apply(daemon("wants-port", **PORT))
        status = lambda: machine.run("daemonlet", "status", check=False)
        until(lambda: "host port TCP 4714 is held by pod default/ported" in status(), 40, f"status names the holder: {status()}")
        machine.kill()
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        for prefix in ("one-", "two-", "wants-port-"):
            machine.cri.wait_running(prefix, 60)
        print(f"          every daemon of a full node runs {time.clock_gettime(time.CLOCK_BOOTTIME) - machine.powered:.1f} s after power-on")
        self.assertEqual(machine.cri.of("ported", "default"), [], "what holds the port no longer is no daemon")
        until(lambda: all(line.split()[4] == "running" for line in status().splitlines() if line.startswith(NAMESPACE)), 60, f"all is well: {status()}")
        self.assertLessEqual(len({pod for _, pod, _ in machine.cri.containers()}), MOST_PODS)
