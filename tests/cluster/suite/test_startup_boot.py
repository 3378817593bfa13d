"""No workload before its daemons on a machine that boots, with a real scheduler, kubelet and systemd."""

import json
import re
import threading
import time
import unittest

from kit import agent as agents
from kit.control_plane import ControlPlane
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.tools import REPO
from kit.wait import never
from kit.wait import until
from suite.test_startup_taint import KEY
from suite.test_startup_taint import NAMESPACE
from suite.test_startup_taint import RIGHTS
from suite.test_startup_taint import asking
from suite.test_startup_taint import bound
from suite.test_startup_taint import is_tainted
from suite.test_startup_taint import workload

# They say with which flag the kubelet is started.
PAGES = [REPO / "docs" / page for page in ("startup-taint.md", "recipes/startup-taint.md")]


class Seen:
    """Which taints a Node had and which pods were bound, one after the other, as watches show it."""

    def __init__(self, admin, node):
        self.admin, self.node, self.events = admin, node, []
        for kind in ("nodes", "pods"):
            threading.Thread(target=self._follow, args=(kind,), daemon=True).start()

    def _follow(self, kind):
        known = set()
        for event, item in self.admin.watch(kind, seconds=600):
            if event == "DELETED":
                continue
            if kind == "nodes" and item["metadata"]["name"] == self.node:
                keys = [taint["key"] for taint in item["spec"].get("taints", [])]
                self.events.append((time.monotonic(), "tainted" if KEY in keys else "clean"))
            elif kind == "pods" and item["spec"].get("nodeName") == self.node and item["metadata"]["name"].startswith("work-"):
                # Later events of a pod are of its status.
                if item["metadata"]["name"] not in known:
                    known.add(item["metadata"]["name"])
                    self.events.append((time.monotonic(), item["metadata"]["name"]))

    def what(self):
        """What was seen so far."""
        return [what for _, what in self.events]


def register_with_taint(machine):
    """Gives the machine's kubelet the flag that the docs say."""
    (flag,) = {flag for page in PAGES for flag in re.findall(r"--register-with-taints=[^`\s]+", page.read_text(encoding="utf-8"))}
    unit = "/etc/systemd/system/kubelet.service"
    text = (machine.root / unit.lstrip("/")).read_text(encoding="utf-8")
    machine.put(unit, re.sub("(?m)^ExecStart=.*$", lambda start: f"{start.group()} {flag}", text))


class Boot(unittest.TestCase):
    """A machine that boots."""

    @classmethod
    def setUpClass(cls):
        cls.lan, cls.layer = Lan(), common_layer()

    def set_up(self, name):
        """A cluster with a scheduler and a machine that is off; gives the API and the machine."""
        cluster = self.enterContext(ControlPlane(GATEWAY))
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agents.grant(cluster)
        cluster.admin.apply(RIGHTS)
        cluster.start_scheduler()
        machine = self.enterContext(Machine(cluster, self.lan, name, self.layer, daemonlet={"node": {"startup-taint": True}}))
        # A Node without a pod network is not ready, and so is nothing on it.
        machine.put("/etc/cni/net.d/10-none.conflist", json.dumps({"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}))
        return cluster.admin, machine

    def test_at_the_first_start_and_at_a_reboot_no_pod_is_bound_before_the_daemon_is_ready(self):
        admin, machine = self.set_up("m1")
        register_with_taint(machine)
        seen = Seen(admin, "m1")
        admin.apply(asking("network", terminationGracePeriodSeconds=1))
        workload(admin, "work-first")
        machine.power_on()
        machine.wait_up()
        machine.cri.wait_running("network-", 60)
        machine.wait_ready()
        never(lambda: bound(admin, "work-first"), 4, "workload came before the daemon")
        self.assertEqual(set(seen.what()), {"tainted"}, "the Node had the taint from its first moment on")
        self.let(machine, admin, 60)
        until(lambda: "work-first" in seen.what(), 30, "workload is bound")
        # A pod comes every moment while the machine shuts down and boots.
        before = len(seen.events)
        stop = threading.Event()
        stream = threading.Thread(target=self.stream, args=(admin, stop))
        stream.start()
        self.addCleanup(stop.set)
        machine.power_off()
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        machine.cri.wait_running("network-", 90)
        machine.wait_ready()
        never(lambda: not is_tainted(admin, "m1"), 4, "the taint went before the daemon was Ready")
        stop.set()
        stream.join()
        events = seen.events[before:]
        began = next((when for when, what in events if what == "tainted"), None)
        self.assertIsNotNone(began, f"the taint was set at the shutdown: {events}")
        self.assertNotIn("clean", [what for when, what in events if when > began])
        # What the scheduler had decided when the taint came is bound just after it.
        self.assertEqual([what for when, what in events if when > began + 2 and what != "tainted"], [], "bound after the taint was there")
        self.let(machine, admin, 60)

    def stream(self, admin, stop):
        """Creates workload all the time."""
        number = 0
        while not stop.wait(0.5):
            workload(admin, f"work-{number}")
            number += 1

    def test_a_reboot_and_a_loss_of_power_set_it_again_until_the_daemon_is_ready(self):
        admin, machine = self.set_up("m2")
        admin.apply(asking("network", terminationGracePeriodSeconds=1))
        machine.power_on()
        machine.wait_up()
        until(lambda: is_tainted(admin, "m2"), 60, "the taint is there")
        self.let(machine, admin, 60)
        machine.power_off()
        self.assertTrue(is_tainted(admin, "m2"), "an agent of a machine that shuts down leaves it")
        workload(admin, "early")
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        machine.power_on()
        machine.wait_up()
        machine.cri.wait_running("network-", 90)
        machine.wait_ready()
        never(lambda: bound(admin, "early") or not is_tainted(admin, "m2"), 4, "workload came before the daemon")
        self.let(machine, admin, 60)
        until(lambda: bound(admin, "early") == "m2", 30, "workload is bound")
        # It is not set when the power goes: it comes with the first contact.
        machine.kill()
        self.assertFalse(is_tainted(admin, "m2"))
        time.sleep(3)
        machine.power_on()
        until(lambda: is_tainted(admin, "m2"), 90, "the taint is there", pause=0.05)
        seen = time.monotonic()
        machine.wait_up()
        began = int(machine.run("systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "daemonlet")) / 1e6
        print(f"          after a loss of power the taint is there {seen - began:.1f} s after the agent was started")
        self.let(machine, admin, 90)

    def let(self, machine, admin, seconds):
        """Lets the daemon be Ready, and waits until the taint is gone."""
        daemon = machine.cri.wait_running("network-", seconds)
        machine.cri.execute(daemon[2], "touch", "/tmp/ready")
        until(lambda: not is_tainted(admin, machine.name), 30, "the taint is gone")
