"""The plug of a whole machine pulled at random moments, while its daemons are installed, changed and deleted.

systemd, containerd and kubelet are real. Each time it boots, nothing half written is there, and at
the end everything runs as it is wanted, once. What was only in the kernel's memory stays there
when such a machine dies: `test_plugs` has disks that lose it.
"""

import os
import random
import time
import unittest

from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import until
from suite import transitions
from suite.transitions import LONG
from suite.transitions import SEED

PLUGS = int(os.environ.get("DAEMONLET_PLUGS", "50" if LONG else "10"))
NAMES = ("one", "two", "three")
MANIFESTS = "etc/kubernetes/manifests"


class Power(unittest.TestCase):
    """One machine."""

    def test_the_plug_is_pulled_at_random_moments(self):
        chance = random.Random(SEED)
        lan = Lan()
        cluster = self.enterContext(ControlPlane(GATEWAY))
        cluster.start_controllers()
        cluster.wait_namespace("kube-system")
        agent.grant(cluster)
        machine = self.enterContext(Machine(cluster, lan, "m1", common_layer(), daemonlet={}))
        machine.power_on()
        machine.wait_up()
        rounds, losses, slowest = dict.fromkeys(NAMES, 0), [], 0.0

        def change():
            name = chance.choice(NAMES)
            rounds[name] += 1
            body = daemonset(name, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True, tolerations=[{"operator": "Exists"}], terminationGracePeriodSeconds=1)
            body["spec"]["template"]["metadata"]["annotations"] = {"round": str(rounds[name])}
            cluster.admin.apply(body)

        for name in NAMES:
            rounds[name] = 0
        for _ in range(9):
            change()
        began = time.monotonic()
        for plug in range(1, PLUGS + 1):
            for _ in range(chance.randint(0, 3)):
                change()
                time.sleep(chance.random() * 0.5)
            time.sleep(chance.random() * 2)
            machine.kill()
            losses += self.half_written(machine, plug)
            machine.power_on()
            until(machine.leader, 20, "it boots")
            time.sleep(chance.random() * 2)
        wanted = {name: str(number) for name, number in rounds.items() if number}
        until(lambda: self.running(machine, cluster) == wanted, 120, f"every daemon runs in its last round, once: {wanted}")
        slowest = time.monotonic() - began
        transitions.report(**{"pulled plugs": PLUGS, "losses": len(losses), "s": f"{slowest:.0f}", "is the seed": SEED})
        self.assertEqual(losses, [])

    def half_written(self, machine, plug):
        """What lies in the manifest folder and cannot be read whole."""
        bad, owners = [], []
        for file in (machine.root / MANIFESTS).glob("[!.]*"):
            text = file.read_text(encoding="utf-8")
            if "daemonlet.dev/daemonset:" not in text or not text.endswith("\n") or "\nspec:" not in text:
                bad.append(f"plug {plug}: {file.name} is not whole: {text[-80:]!r}")
            owners.append(file.name.rsplit("-", 1)[0])
        if len(owners) != len(set(owners)):
            bad.append(f"plug {plug}: two manifests of one daemon: {owners}")
        return bad

    def running(self, machine, cluster):
        """The round of each daemon that runs in exactly one pod."""
        pods = [pod for _, pod, _ in machine.cri.containers()]
        manifests = {file.name: file.read_text(encoding="utf-8") for file in (machine.root / MANIFESTS).glob("[!.]*")}
        found = {}
        for name in NAMES:
            of = [pod for pod in pods if pod.startswith(f"{name}-")]
            texts = [text for file, text in manifests.items() if file.startswith(f"kube-system_{name}-")]
            if len(of) == len(texts) == 1 and of[0].removesuffix("-m1") in next(file for file in manifests if file.startswith(f"kube-system_{name}-")):
                found[name] = next(line.split(":")[1].strip().strip("\"'") for line in texts[0].splitlines() if line.strip().startswith("round:"))
        return found
