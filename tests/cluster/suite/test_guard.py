"""The boot guard on a whole machine: five faces of an API server, and nothing left behind."""

import json
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace

from kit import agent
from kit import faces
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until

WORLD = SimpleNamespace()
GOAL = 1.5
# A busy machine takes its time for everything, so that the bound counts from the kubelet's start:
# what the guard saves comes after that, and is more than three seconds with every face.
BOUND = 3.5
BOOTS = int(os.environ.get("DAEMONLET_GUARD_BOOTS", "2"))
UNIT = "daemonlet-boot-guard.service"
TABLE = "daemonlet-boot-guard"
NAME = "api.example"
CONFIG = {"default-mode": "static"}


def setUpModule():  # noqa: N802 (unittest's name)
    """One machine with a daemon that has volumes and has run."""
    lan = Lan()
    WORLD.lan = lan
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    cluster.wait_namespace("kube-system")
    agent.grant(cluster)
    WORLD.machine = machine = unittest.enterModuleContext(Machine(cluster, lan, "n1", common_layer(), daemonlet=CONFIG))
    machine.power_on()
    cluster.admin.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "steady", "namespace": "kube-system"}, "data": {"greeting": "hello"}},
        daemonset("steady", hostNetwork=True, tolerations=[{"operator": "Exists"}], volumes=[{"name": "config", "configMap": {"name": "steady"}}],
                  container={"command": ["sh", "-c", "cat /etc/config/greeting; echo; trap exit TERM; while :; do sleep 3600 & wait; done"],
                             "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}]}))
    machine.wait_up()
    machine.cri.wait_running("steady-", 60)


class Base(unittest.TestCase):
    """What the stories share."""

    def setUp(self):
        self.machine, self.cluster, self.lan = WORLD.machine, WORLD.cluster, WORLD.lan

    def table(self):
        """The guard's table on the machine, as nft lists it; empty where there is none."""
        return self.machine.run("nft", "list", "table", "inet", TABLE, check=False)

    def unit(self, name):
        """A property of the guard's unit."""
        return self.machine.run("systemctl", "show", "--value", f"--property={name}", UNIT).strip()

    def said(self):
        """What the guard has written into this boot's journal."""
        # By what it says of itself: the journal may look at a process that ends at once too late to know its unit.
        return [entry["MESSAGE"] for entry in self.machine.journal("--identifier=daemonlet") if str(entry["MESSAGE"]).startswith("boot guard: ")]

    def power_cycle(self):
        """Pulls the plug and switches on again; gives the seconds until the daemon spoke, with its volume there, and since the kubelet's start."""
        self.machine.kill()
        self.machine.power_on()
        after, text = until(lambda: self.machine.first_output("steady-", "main"), 60, "the daemon says something", pause=0.05)
        self.assertEqual(text, "hello")
        kubelet = self.machine.run("systemctl", "show", "--value", "--property=MainPID", "kubelet.service").strip()
        return after, after - self.machine.started(kubelet)

    def boot_silent(self):
        """A cold boot whose API server swallows packets; ends with the rule in place."""
        self.power_cycle()
        until(lambda: "reject with tcp reset" in self.table(), 10, "the rule is there")


class Faces(Base):
    """Power-on to a daemon with volumes, whatever face the API server shows."""

    def hold(self, face):
        """Cold boots with that face; asserts on the quickest and prints them all."""
        took = [self.power_cycle() for _ in range(BOOTS)]
        print(f"          {face}: {', '.join(f'{seconds:.2f}' for seconds, _ in took)} s (goal {GOAL} s), "
              f"after the kubelet's start {', '.join(f'{seconds:.2f}' for _, seconds in took)} s")
        self.assertLess(min(seconds for _, seconds in took), BOUND)

    def test_the_api_server_is_up(self):
        self.hold("up")
        until(lambda: self.unit("SubState") == "exited", 10, "the guard has ended")
        self.assertEqual(self.table(), "")

    def test_it_refuses(self):
        with faces.refusing(self.cluster, self.lan):
            self.hold("refuses")
            self.assertEqual(self.table(), "")
            self.assertEqual(self.unit("SubState"), "running", "it may fall silent yet")
        until(lambda: self.unit("SubState") == "exited", 10, "the guard ends when the API server answers")

    def test_packets_are_swallowed(self):
        with faces.swallowing(self.cluster, self.lan):
            self.hold("swallows")
            self.assertIn("reject with tcp reset", self.table())
        until(lambda: self.unit("SubState") == "exited", 10, "the guard ends when the API server answers")
        self.assertEqual(self.table(), "")

    def test_its_host_is_gone(self):
        with faces.gone(self.cluster, self.lan):
            self.hold("gone")
            self.assertIn("reject with tcp reset", self.table())
        until(lambda: self.unit("SubState") == "exited", 15, "the guard ends when the API server answers")

    def test_a_load_balancer_is_silent(self):
        with faces.silent(self.cluster, self.lan):
            self.hold("silent")
            self.assertIn("reject with tcp reset", self.table())
        until(lambda: self.unit("SubState") == "exited", 10, "the guard ends when the API server answers")
        self.assertEqual(self.table(), "")


class Bounds(Base):
    """When it acts, and what is left of it."""

    def on_machine(self, program):
        """Starts a Python program in the machine's network."""
        return subprocess.Popen(["ip", "netns", "exec", self.machine.name, sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)

    def connect(self, then=""):
        """A connection from the machine to the API server; gives a process that says how it ended and after how many seconds."""
        return self.on_machine(
            "import socket, time\nbegan = time.monotonic()\nword = 'open'\ntry:\n"
            f"    line = socket.create_connection(('{self.cluster.address}', {self.cluster.PORT}), 20)\n    {then or 'pass'}\n"
            "except OSError as error: word = error.strerror\nprint(word, time.monotonic() - began, sep='|', flush=True)")

    def ended(self, process):
        """How a `connect` ended: (word, seconds)."""
        word, seconds = process.communicate(timeout=30)[0].split("|")
        return word, float(seconds)

    def test_kill_9_leaves_nothing_behind(self):
        with faces.swallowing(self.cluster, self.lan):
            self.boot_silent()
            self.assertEqual(self.ended(self.connect())[0], "Connection refused")
            pid = self.unit("MainPID")
            self.machine.run("kill", "-9", pid)
            until(lambda: self.table() == "", 2, "the rule is gone with its process")
            never(lambda: self.table() or self.unit("MainPID") != "0", 2, "a killed guard came back")

    def test_a_stop_takes_the_rule_away_and_a_later_start_does_nothing(self):
        with faces.swallowing(self.cluster, self.lan):
            self.boot_silent()
            self.machine.run("systemctl", "stop", UNIT)
            self.assertEqual(self.table(), "")
            self.machine.run("systemctl", "start", UNIT)
            until(lambda: self.unit("SubState") == "exited", 5, "it ends at once")
            self.assertEqual(self.table(), "")
            until(lambda: "boot guard: does nothing: it has been started before in this boot" in self.said(), 15, "it says why")
            # A mark can be lost; the kubelet is there to be seen.
            self.machine.run("rm", "/run/daemonlet/boot-guard")
            self.machine.run("systemctl", "restart", UNIT)
            until(lambda: self.unit("SubState") == "exited", 5, "it ends at once")
            until(lambda: "boot guard: does nothing: the kubelet runs already" in self.said(), 15, "it says why")

    def test_a_leftover_is_removed(self):
        self.machine.run("nft", "add", "table", "inet", TABLE)
        self.machine.run("nft", "add", "table", "inet", "somebody-elses")
        self.machine.run("daemonlet", "boot-guard", "--clean")
        self.assertEqual(self.table(), "")
        self.assertIn("somebody-elses", self.machine.run("nft", "list", "tables"))
        self.machine.run("nft", "delete", "table", "inet", "somebody-elses")

    def test_it_ends_in_time(self):
        self.machine.configure(**CONFIG | {"boot-guard-max": "6s"})
        self.addCleanup(self.machine.configure, **CONFIG)
        with faces.swallowing(self.cluster, self.lan):
            self.power_cycle()
            until(lambda: self.unit("SubState") == "exited", 30, "it ends")
            self.assertEqual(self.table(), "")
            until(lambda: self.said()[-1:] == ["boot guard: boot-guard-max is over, nothing is refused any more"], 15, "it says that its time is up")
            self.assertIn(f"boot guard: refusing in the stead of {self.cluster.address}:{self.cluster.PORT}", self.said())

    def test_it_can_be_switched_off(self):
        self.machine.configure(**CONFIG | {"boot": {"guard": False}})
        self.addCleanup(self.machine.configure, **CONFIG)
        with faces.swallowing(self.cluster, self.lan):
            self.machine.kill()
            self.machine.power_on()
            self.machine.wait_up()
            self.assertEqual(self.unit("SubState"), "exited")
            self.assertEqual(self.table(), "")
            until(lambda: "boot guard: does nothing: boot.guard is false" in self.said(), 15, "it says why")

    def by_name(self):
        """Has the guard look at a kubeconfig with a name that does not resolve; gives a function that lets it stand for addresses."""
        hosts = (self.machine.root / "etc/hosts").read_text(encoding="utf-8")
        self.machine.configure(**CONFIG | {"boot": {"kubeconfig": ["/etc/kubernetes/named.conf"]}})
        self.addCleanup(self.machine.configure, **CONFIG)
        self.addCleanup(self.machine.put, "/etc/hosts", hosts)
        kubeconfig = json.loads((self.machine.root / "etc/kubernetes/kubelet.conf").read_text(encoding="utf-8"))
        kubeconfig["clusters"][0]["cluster"]["server"] = f"https://{NAME}:{self.cluster.PORT}"
        self.machine.put("/etc/kubernetes/named.conf", json.dumps(kubeconfig))
        return lambda *addresses: self.machine.put("/etc/hosts", hosts + "".join(f"{address} {NAME}\n" for address in addresses))

    def test_a_name_that_resolves_late_is_guarded_then_and_ends_connections_from_before(self):
        stand_for = self.by_name()
        with faces.silent(self.cluster, self.lan):
            self.machine.kill()
            self.machine.power_on()
            self.machine.wait_up()
            until(lambda: any(f"{NAME} does not resolve" in line for line in self.said()), 10, "the guard says what is missing")
            self.assertEqual(self.table(), "")
            before = self.connect(then="line.recv(1)")
            never(lambda: before.poll() is not None, 1, "the connection ended by itself")
            stand_for(self.cluster.address)
            until(lambda: self.table(), 5, "the rule comes with the address")
            word, seconds = self.ended(before)
            self.assertEqual(word, "Software caused connection abort", f"after {seconds} s")
            self.assertEqual(self.ended(self.connect())[0], "Connection refused")

    def test_several_addresses_are_judged_one_by_one(self):
        stand_for = self.by_name()
        stand_for("10.88.0.250", self.cluster.address, "fd00:88::1")
        with faces.swallowing(self.cluster, self.lan):
            self.boot_silent()
            rules = [line.strip() for line in self.table().splitlines() if "reject" in line]
            for address, rule in zip((f"ip daddr {self.cluster.address}", "ip daddr 10.88.0.250", "ip6 daddr fd00:88::1"), rules, strict=True):
                self.assertEqual(rule, f"{address} tcp dport {self.cluster.PORT} meta mark != 0x00003037 reject with tcp reset")
        until(lambda: self.table() and self.cluster.address not in self.table(), 10, "the one that answers is left alone")
        self.assertIn("10.88.0.250", self.table())

    def test_it_is_in_place_before_the_kubelet_and_holds_nothing_up(self):
        with faces.swallowing(self.cluster, self.lan):
            self.boot_silent()
        stamps = {unit: {name: int(self.machine.run("systemctl", "show", "--value", f"--property={name}TimestampMonotonic", unit).strip()) / 1e6
                         for name in ("ExecMainStart", "ActiveEnter")} for unit in (UNIT, "kubelet.service")}
        took = stamps[UNIT]["ActiveEnter"] - stamps[UNIT]["ExecMainStart"]
        print(f"          the rule was in place {1000 * took:.0f} ms after exec")
        self.assertGreaterEqual(stamps["kubelet.service"]["ExecMainStart"], stamps[UNIT]["ActiveEnter"])
        self.assertLess(took, 1.5, "a busy machine's tenfold of what it takes")

    def test_it_has_one_right_and_the_agent_has_not_that_one(self):
        def rights(unit):
            return self.machine.run("systemctl", "show", "--value", "--property=CapabilityBoundingSet", unit).split()
        self.assertEqual(rights(UNIT), ["cap_net_admin"])
        self.assertNotIn("cap_net_admin", rights("daemonlet.service"))


if __name__ == "__main__":
    unittest.main()
