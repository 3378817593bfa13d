"""Power-on to running daemons with their volumes, on a whole machine.

First one of them, whatever face the API server shows; then twenty, with daemonlet and without it, by turns:
their manifests and data lie where they were, so that the kubelet alone starts them, too.
"""

import os
import shutil
from pathlib import Path

from benches import figures
from kit import agent
from kit import faces
from kit import tools
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import until

NAMESPACE = "kube-system"
TIMES = int(os.environ.get("DAEMONLET_BENCH_BOOTS", "5"))
# Boots with daemonlet, and as many without.
TURNS = int(os.environ.get("DAEMONLET_BENCH_TURNS", "12"))
DAEMONS = 20
ADDS_AT_MOST = 50


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


def _many():
    """Twenty daemons, each with a ConfigMap of its own; each says a word when it runs."""
    for number in range(DAEMONS):
        name = f"many-{number}"
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": {"greeting": "hello"}}
        yield daemonset(name, NAMESPACE, hostNetwork=True, tolerations=[{"operator": "Exists"}], volumes=[{"name": "config", "configMap": {"name": name}}],
                        container={"command": ["sh", "-c", "cat /etc/config/greeting; echo; trap exit TERM; while :; do sleep 3600 & wait; done"],
                                   "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}]})


def _boot_all(machine, daemonlet):
    """A power failure; gives the seconds to the kubelet's start and to the last daemon's first word, and daemonlet's CPU time by then."""
    machine.kill()
    machine.enable_daemonlet(daemonlet)
    machine.power_on()
    said = lambda: [machine.first_output(f"many-{number}-", "main") for number in range(DAEMONS)]
    words = until(lambda: all(found := said()) and found, 180, "every daemon says something", pause=0.2)
    if {text for _, text in words} != {"hello"}:
        raise AssertionError(f"their volumes are not what they were: {words}")
    pid = machine.run("systemctl", "show", "--value", "--property=MainPID", "daemonlet.service").strip()
    if (pid != "0") != daemonlet:
        raise AssertionError(f"daemonlet is process {pid}, wanted: {daemonlet}")
    worked = machine.run("sh", "-c", f"cat /proc/{pid}/task/*/schedstat") if daemonlet else ""
    machine.wait_up()
    if machine.run("systemctl", "show", "--value", "--property=NRestarts", "kubelet.service").strip() != "0":
        raise AssertionError("the kubelet was started twice: its time is not the kubelet's own")
    kubelet = machine.run("systemctl", "show", "--value", "--property=MainPID", "kubelet.service").strip()
    return machine.started(kubelet), max(after for after, _ in words), sum(int(line.split()[0]) for line in worked.splitlines()) / 1e6


def _with_and_without(cluster, lan, machine):
    """Boots by turns, and what daemonlet adds."""
    # An older one says that it is ready before it answers the kubelet, which then ends and is started again a
    # second later, unless something holds its start up a little: daemonlet would be the faster way.
    for program in Path(tools.newer_containerd()).iterdir():
        shutil.copy(program, machine.root / "usr/bin" / program.name)
    machine.power_on()
    cluster.admin.apply(*_many())
    until(lambda: len(machine.cri.of("many-")) == DAEMONS, 180, "all of them run")
    _boot_all(machine, True)
    # Where it is up it takes its share of this machine's cores, and has more to do for daemonlet.
    for face in ("refusing", "up"):
        boots = {True: [], False: []}
        with faces.ALL[face](cluster, lan):
            for turn in range(2 * TURNS):
                boots[turn % 2 == 0].append(_boot_all(machine, turn % 2 == 0))
        _compare(face, boots)
    machine.enable_daemonlet(True)


def _compare(face, boots):
    """Shows the boots with and without daemonlet, and the difference."""
    middle = {}
    for daemonlet, took in boots.items():
        kubelet, running, worked = zip(*took)
        middle[daemonlet] = figures.median(running)
        figures.show(f"power-on → {DAEMONS} daemons running, {'with' if daemonlet else 'without'} daemonlet, API server {face}",
                     f"median {middle[daemonlet]:.2f} s, {min(running):.2f} to {max(running):.2f} s, {TURNS} boots; kubelet started after {figures.median(kubelet):.2f} s"
                     + (f"; daemonlet's CPU time by then {figures.median(worked):.0f} ms" if daemonlet else ""))
    adds = 1e3 * (middle[True] - middle[False])
    pairs = sorted(1e3 * (one[1] - other[1]) for one, other in zip(boots[True], boots[False]))
    quarter = len(pairs) // 4
    figures.show(f"what daemonlet adds to it, API server {face}",
                 f"{adds:+.0f} ms between the medians (middle half of the pairs of boots {pairs[quarter]:+.0f} to {pairs[-1 - quarter]:+.0f} ms, load {os.getloadavg()[0]:.1f})",
                 f"≤ {ADDS_AT_MOST} ms", adds <= ADDS_AT_MOST)


def main():
    """The story."""
    lan = Lan()
    with ControlPlane(GATEWAY) as cluster:
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        common = common_layer()
        with Machine(cluster, lan, "n1", common, daemonlet={"default-mode": "static"}) as machine:
            machine.power_on()
            cluster.admin.apply(*_daemon())
            machine.wait_up()
            machine.cri.wait_running("steady-", 60)
            for face, show in faces.ALL.items():
                with show(cluster, lan):
                    times = _boots(machine)
                goal = 1.3 if face == "refusing" else 1.5
                figures.show(f"power-on → daemon with volumes running, API server {face}", f"median {figures.median(times):.2f} s, "
                             f"longest {max(times):.2f} s, {TIMES} boots", f"≤ {goal} s", figures.median(times) <= goal)
            cluster.admin.delete("daemonsets", "steady", NAMESPACE)
        with Machine(cluster, lan, "n2", common, daemonlet={"default-mode": "static"}) as machine:
            _with_and_without(cluster, lan, machine)
