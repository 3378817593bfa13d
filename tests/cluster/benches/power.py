"""Power-on to a running daemon with its volumes, on a whole machine, whatever face the API server shows."""

import os

from benches import figures
from kit import agent
from kit import faces
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import until

NAMESPACE = "kube-system"
TIMES = int(os.environ.get("DAEMONLET_BENCH_BOOTS", "5"))


def _daemon():
    says = 'echo "$(cat /etc/config/greeting) $PASSWORD $(wc -c < /var/run/secrets/kubernetes.io/serviceaccount/token)"; trap exit TERM; while :; do sleep 3600 & wait; done'
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "steady", "namespace": NAMESPACE}, "data": {"greeting": "hello"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "steady", "namespace": NAMESPACE}, "stringData": {"password": "sesame"}},
        daemonset("steady", NAMESPACE, hostNetwork=True, tolerations=[{"operator": "Exists"}],
                  volumes=[{"name": "config", "configMap": {"name": "steady"}}],
                  container={"command": ["sh", "-c", says], "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
                             "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "steady", "key": "password"}}}]})]


def _boots(machine):
    """Power failures, one after the other; gives the seconds to the daemon's first words for each."""
    times = []
    for _ in range(TIMES):
        machine.kill()
        machine.power_on()
        after, text = until(lambda: machine.first_output("steady-", "main"), 60, "the daemon says something")
        words = text.split()
        if words[:2] != ["hello", "sesame"] or int(words[2]) < 100:
            raise AssertionError(f"its volumes are not what they were: {text}")
        times.append(after)
        machine.wait_up()
    return times


def main():
    """The story."""
    lan = Lan()
    with ControlPlane(GATEWAY) as cluster:
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        with Machine(cluster, lan, "n1", common_layer(), daemonlet={"default-mode": "static"}) as machine:
            machine.power_on()
            cluster.admin.apply(*_daemon())
            machine.wait_up()
            machine.cri.wait_running("steady-", 60)
            for face, show in faces.ALL.items():
                with show(cluster, lan):
                    times = _boots(machine)
                goal = 1.3 if face == "refusing" else 1.5
                figures.told(f"power-on → daemon with volumes running, API server {face}", f"median {figures.median(times):.2f} s, "
                             f"longest {max(times):.2f} s, {TIMES} boots", f"≤ {goal} s", figures.median(times) <= goal)
