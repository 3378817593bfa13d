"""The kubelet or containerd restarted in the middle of an update, a surge and a deletion, on a real kubelet.

The agent is stopped before one of its steps on the disk, one of the two ends, the agent goes on for a
moment without it, and it is started again. The end is reached, at no instant are there two instances
(without surge) or none (with it), and no UID is used twice. By default at a few steps that dice choose,
with `DAEMONLET_LONG=1` at each.
"""

import os
import random
import re
import threading
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.shim import STOP
from kit.shim import Shim
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import SEED

NAMESPACE = "kube-system"
# A second between SIGTERM and the end, so that an overlap is there to be seen.
LINGERS = ["sh", "-c", "trap 'sleep 1; exit' TERM; while :; do sleep 3600 & wait; done"]
PATIENCE = 120
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One node; its agent is under the shim."""
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane())
    cluster.start_controllers()
    cluster.wait_namespace(NAMESPACE)
    agent.grant(cluster)
    WORLD.node = unittest.enterModuleContext(Node(cluster))
    WORLD.agent = Agent(WORLD.node, policy={"namespaces": ["*"]})
    WORLD.shim = Shim("restarts", [WORLD.node.manifests, WORLD.node.root, WORLD.agent.home / "state"])
    WORLD.agent.env = WORLD.shim.env
    unittest.enterModuleContext(WORLD.agent)
    cluster.admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"k": "v"}})


def restart_kubelet():
    """The kubelet ends; gives what starts it again."""
    WORLD.node.kubelet.stop()
    return WORLD.node.start_kubelet


def restart_containerd():
    """containerd ends, and what runs under it goes on; gives what starts it again."""
    WORLD.node.containerd.stop()
    return lambda: WORLD.node.start_containerd(load=False)


class Daemon:
    """One daemon: what is changed of it, and what is to be seen."""

    def __init__(self, name, surge):
        self.name, self.surge, self.round = name, surge, 0

    def put(self):
        """Creates it, or changes its template."""
        self.round += 1
        strategy = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}} if self.surge else {}
        body = daemonset(self.name, NAMESPACE, {"command": LINGERS, "volumeMounts": [{"name": "c", "mountPath": "/c"}]}, {"daemonlet.dev/mode": "static"},
                         strategy, hostNetwork=True, automountServiceAccountToken=False, terminationGracePeriodSeconds=3,
                         volumes=[{"name": "c", "configMap": {"name": "settings"}}])
        body["spec"]["template"]["metadata"]["annotations"] = {"round": str(self.round)}
        WORLD.cluster.admin.apply(body)

    def remove(self):
        """Deletes it."""
        WORLD.cluster.admin.delete("daemonsets", self.name, NAMESPACE)

    def uids(self):
        """The pod UIDs of its manifests, by file."""
        return {file: re.search(r"^  uid: (\S+)", text, re.M).group(1) for file, text in WORLD.agent.manifests(f"{self.name}-").items()}

    def runs(self):
        """Whether it runs as it is wanted: one manifest, of this round, and one container, of that pod."""
        pods, manifests = [pod for pod, _, _, _ in WORLD.node.cri.of(f"{self.name}-")], WORLD.agent.manifests(f"{self.name}-")
        if not len(pods) == len(manifests) == 1:
            return False
        (file, text), = manifests.items()
        return re.search(r"^    round: \W?(\d+)", text, re.M).group(1) == str(self.round) and file.startswith(f"{NAMESPACE}_{pods[0].rsplit('-', 2)[0]}")

    def gone(self):
        """Whether nothing of it is left."""
        return not WORLD.agent.manifests(f"{self.name}-") and not WORLD.node.cri.of(f"{self.name}-")


class Eyes:
    """Watch a daemon's manifests and containers from the side, and note what must never be."""

    def __init__(self, daemon):
        self.daemon, self.bad, self.steady = daemon, [], False
        self._uids, self._over = set(), threading.Event()
        self._threads = [threading.Thread(target=look) for look in (self._manifests, self._containers)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _manifests(self):
        present = set()
        while not self._over.wait(0.002):
            try:
                now = self.daemon.uids()
            except AttributeError:
                self.bad.append("a manifest without a UID")
                continue
            again = (set(now.values()) - present) & self._uids
            if again:
                self.bad.append(f"used again: {again}")
            present = set(now.values())
            self._uids |= present
            if len(now) > 1 + self.daemon.surge:
                self.bad.append(f"too many manifests: {now}")

    def _containers(self):
        seen = set()
        while not self._over.wait(0.05):
            steady = self.steady
            try:
                found = WORLD.node.cri.of(f"{self.daemon.name}-")
            except Exception:  # noqa: BLE001  (the runtime does not run, or a container goes while it is looked at)
                continue
            pods = {pod for pod, _, _, _ in found}
            # One that has just started answers before it knows what runs: the kernel knows it.
            seen = {pid for _, _, _, pid in found} or {pid for pid in seen if os.path.exists(f"/proc/{pid}")}
            if len(pods) > 1 + self.daemon.surge:
                self.bad.append(f"too many run: {pods}")
            if steady and self.steady and not seen:
                self.bad.append("none runs")


class Restarts(unittest.TestCase):
    """Each change, with each of the two."""

    def setUp(self):
        self.shim, self.agent = WORLD.shim, WORLD.agent

    def wait(self, check, what):
        """Waits for an end; says what there is instead."""
        try:
            until(check, PATIENCE, what, pause=0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.agent.manifests()}\n{WORLD.node.cri.containers()}\n"
                                 f"{self.agent.cli('status').stdout}\n{self.agent.process.tail(25)}") from None

    def interrupt(self, daemon, change, done, number, end):
        """One change, with a restart before step `number`, if there are so many; gives the number of steps, and whether it was."""
        if not daemon.runs():
            daemon.put()
            self.wait(daemon.runs, "it runs")
        eyes = Eyes(daemon)
        with eyes:
            eyes.steady = daemon.surge and change == daemon.put
            self.shim.arm(number, STOP)
            change()
            self.wait(lambda: self.shim.acted or done(), f"step {number} or the end")
            steps, stopped, step = self.shim.steps, self.shim.acted, self.shim.name(number)
            self.shim.disarm()
            if stopped:
                start = end()
                self.agent.process.thaw()
                # So long it is away, which is no more than most of what the agent does takes.
                time.sleep(0.5)
                start()
            self.wait(done, f"the end after {end.__name__} before step {number} ({step})")
            eyes.steady = False
        self.assertEqual(eyes.bad, [], f"{end.__name__} before step {number} ({step})")
        return steps, stopped

    def story(self, name, surge=False, deletes=False):
        """A change with a restart of each of the two, at one of its steps or at each."""
        daemon = Daemon(name, surge)
        self.addCleanup(self.wait, daemon.gone, "nothing is left")
        self.addCleanup(WORLD.cluster.admin.delete, "daemonsets", name, NAMESPACE)
        change, done = (daemon.remove, daemon.gone) if deletes else (daemon.put, daemon.runs)
        steps, _ = self.interrupt(daemon, change, done, 0, restart_kubelet)
        chance, began, restarts = random.Random(f"{SEED} {name}"), time.monotonic(), 0
        for end in (restart_kubelet, restart_containerd):
            # The last steps may come after the end has been seen.
            numbers = range(1, steps + 1) if LONG else [chance.randint(1, max(1, steps // 2))]
            restarts += sum(self.interrupt(daemon, change, done, number, end)[1] for number in numbers)
        if not daemon.runs():
            daemon.put()
        self.assertGreater(restarts, 0, f"none of {steps} steps came again")
        transitions.report(**{"restarts": restarts, "losses": 0, f"steps, {time.monotonic() - began:.0f} s, seed {SEED}": steps})

    def test_an_update(self):
        self.story("update")

    def test_a_surge(self):
        self.story("surge", surge=True)

    def test_a_deletion(self):
        self.story("delete", deletes=True)


if __name__ == "__main__":
    unittest.main()
