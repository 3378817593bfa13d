"""The acts of the showcase: what is done to three machines, said as it happens, with its times.

Owns the story. `suite/test_showcase.py` plays the first act as a test.
"""

import json
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from kit import agent
from kit import coordinator
from kit import daemons
from kit import networks
from kit import packages
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.sandbox import scratch
from kit.wait import until
from suite.pod_network import wait_all_reach_all

NAMES = ("n1", "n2", "n3")
# How long the stock machines are watched without an API server.
PATIENCE = 40


def play(act):
    """One act; its times are left in the run's scratch folder."""
    network = networks.example() if act == "example" else networks.chosen()
    with ExitStack() as stack:
        times = {"daemonlet": Daemonlet, "example": Example, "stock": Stock}[act](stack, network).play()
    (scratch() / "showcase.json").write_text(json.dumps(times), encoding="utf-8")


class Act:
    """A cluster with three machines, switched off, and a clock."""

    def __init__(self, stack, network):
        self.stack, self.times, self.began = stack, {}, time.monotonic()
        self.network_file = network
        self.namespace, self.name = network.daemons[0]
        self.prefix = f"{self.name}-"
        self.lan = Lan()
        self.cluster = stack.enter_context(ControlPlane(GATEWAY))
        self.admin = self.cluster.admin
        self.machines = []

    def say(self, text, proves=""):
        """One line on the screen, and what it proves below it."""
        print(f"  {time.monotonic() - self.began:6.1f} s  {text}", flush=True)
        if proves:
            print(f"{'':12}→ {proves}", flush=True)

    def kubectl(self, *args):
        """Runs kubectl and shows the command."""
        self.say("$ kubectl " + " ".join(arg.name if isinstance(arg, Path) else str(arg) for arg in args))
        return self.admin.kubectl(*args)

    def prepare(self, pod_images):
        """The machines, switched off."""
        common = common_layer(pod_images)
        self.machines = [self.stack.enter_context(Machine(self.cluster, self.lan, name, common)) for name in NAMES]
        self.bake()

    def bake(self):
        """What is put on each machine before its first boot."""

    def power_on_one_after_the_other(self):
        """Switches the machines on; says when the agent, the daemon and the Node were ready."""
        for machine in self.machines:
            machine.power_on()
            self.say(f"{machine.name}: power on")
            self.note_ready(machine)
            until(lambda machine=machine: machine.cri.created(self.prefix, machine.powered_wall), 60, f"{self.name} is created on {machine.name}", pause=0.1)
            self.longest("container", self.first_container(machine))
            self.say(f"{machine.name}: its first container runs {self.first_container(machine):.2f} s after power-on")
            machine.wait_ready()
            self.longest("node", time.clock_gettime(time.CLOCK_BOOTTIME) - machine.powered)
            self.say(f"{machine.name}: Node Ready")

    def note_ready(self, machine):
        """Notes when the agent was ready, where there is one."""

    def first_container(self, machine):
        """Seconds from power-on to the daemon's first container."""
        return machine.cri.created(self.prefix, machine.powered_wall)[0][0]

    def container(self):
        """The name of the daemon's first container."""
        return self.admin.get("daemonsets", self.name, self.namespace)["spec"]["template"]["spec"]["containers"][0]["name"]

    def longest(self, key, seconds):
        """Notes the longest of several times."""
        self.times[key] = max(self.times.get(key, 0), seconds)

    def network(self, key, since, proves=""):
        """Waits until pods of all nodes reach each other."""
        wait_all_reach_all(self.machines, 120)
        self.times[key] = time.monotonic() - since
        self.say(f"pods of all nodes reach each other, {self.times[key]:.1f} s after", proves)

    def update(self):
        """A rolling update by kubectl."""
        began = time.monotonic()
        self.kubectl("-n", self.namespace, "set", "env", f"ds/{self.name}", "-c", self.container(), "SHOW=two")
        last_line = self.admin.kubectl("-n", self.namespace, "rollout", "status", f"ds/{self.name}", "--timeout=180s").strip().splitlines()[-1]
        self.times["update"] = time.monotonic() - began
        self.say(f"{last_line}, {self.times['update']:.1f} s")

    def pull_plugs(self):
        """Power fails on all machines, and comes back."""
        for machine in self.machines:
            machine.kill()
        self.say("power is lost on all three, and comes back")
        for machine in self.machines:
            machine.power_on()


class Daemonlet(Act):
    """No scheduler, no DaemonSet controller; the machines are baked with the .deb and one file."""

    def bake(self):
        name = self.network_file.file.name
        deb, _ = packages.build("0.1.0")
        for machine in self.machines:
            root = machine.root
            shutil.copy(deb, root / "root" / deb.name)
            subprocess.run(["chroot", root, "dpkg", "-i", f"/root/{deb.name}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            machine.put(f"/usr/lib/daemonlet/daemonsets.d/{name}", self.network_file.file.read_text(encoding="utf-8"))
            machine.put("/etc/daemonlet/kubeconfig", agent.kubeconfig(self.cluster, machine.name).read_text(encoding="utf-8"))
            (root / "etc/daemonlet/kubeconfig").chmod(0o600)
            machine.put("/etc/daemonlet/daemonlet.toml", agent.toml(self.config()))
        self.say(f"three machines are baked: {deb.name}, {name} in /usr/lib/daemonlet/daemonsets.d, one configuration file")

    def config(self):
        """The one configuration file."""
        return {"kubeconfig": "/etc/daemonlet/kubeconfig", "default-mode": "static",
                "policy": {"namespaces": self.network_file.namespaces, "trusted-namespaces": self.network_file.namespaces}}

    def play(self):
        """The act."""
        print("\ndaemonlet: no scheduler, no DaemonSet controller", flush=True)
        self.cluster.start_controllers()
        agent.grant(self.cluster)
        coordinator.install(self.cluster)
        self.stack.enter_context(Coordinator(self.cluster, "one", default_mode="static", policy=self.config()["policy"]))
        self.prepare(self.network_file.images)
        self.kubectl("apply", "-f", self.network_file.file)
        self.admin.apply(daemons.probe())
        self.power_on_one_after_the_other()
        self.network("network", time.monotonic() - self.since_last_power_on(), "nodes come up and get their pod network without a scheduler")
        self.update()
        self.bad_update()
        self.lan.swallow(self.cluster.PORT)
        self.say("the API server is cut off: its packets vanish")
        self.pull_plugs()
        for machine in self.machines:
            until(lambda machine=machine: machine.cri.created(self.prefix, machine.powered_wall), 60, f"{self.name} is created again", pause=0.1)
            self.longest("cold", self.first_container(machine))
        self.say(f"daemons run again {self.times['cold']:.2f} s after power-on", "a cold boot needs no API server; the boot guard refuses in its stead, so that the kubelet does not wait")
        self.lan.answer()
        self.say("packets come through again")
        self.network("back", time.monotonic(), "a daemon that asks the API at its start is not left in its back-off")
        return self.times

    def since_last_power_on(self):
        """Seconds since the last machine was switched on."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - max(machine.powered for machine in self.machines)

    def note_ready(self, machine):
        def ready():
            stamp = machine.run("systemctl", "show", "--value", "--property=ActiveEnterTimestampMonotonic", "daemonlet.service", check=False).strip()
            return int(stamp or 0) / 1e6
        at = until(ready, 30, f"the agent of {machine.name} is ready", pause=0.1)
        offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        self.longest("ready", at + offset - machine.powered)
        self.say(f"{machine.name}: agent ready {at + offset - machine.powered:.2f} s after power-on")

    def bad_update(self):
        """A revision that cannot run."""
        namespace, name, container = self.namespace, self.name, self.container()
        notes = ("daemonlet.dev/rollback=auto", "daemonlet.dev/progress-deadline=15s", "daemonlet.dev/max-failed=0")
        self.kubectl("-n", namespace, "annotate", f"ds/{name}", *notes)
        before = self.images_and_commands()
        began = time.monotonic()
        self.say(f"a bad update: the command of {container} becomes `false`")
        patch = {"spec": {"template": {"spec": {"containers": [{"name": container, "command": ["false"]}]}}}}
        self.admin.kubectl("-n", namespace, "patch", f"ds/{name}", "--type=strategic", "-p", json.dumps(patch))
        until(lambda: ["false"] in self.images_and_commands().values(), 60, "the bad revision is tried", pause=0.2)
        tried = max(list(self.images_and_commands().values()).count(["false"]), 1)
        self.say(f"{tried} of {len(NAMES)} nodes tries it; the others keep what runs")
        until(lambda: self.degraded() and self.images_and_commands() == before, 120, "it is taken back everywhere", pause=0.2)
        self.times["bad"] = time.monotonic() - began
        self.say(f"halted and taken back, {self.times['bad']:.1f} s: {self.degraded()}", "one node is the most that a bad revision gets")
        self.kubectl("-n", namespace, "rollout", "undo", f"ds/{name}")
        self.admin.kubectl("-n", namespace, "rollout", "status", f"ds/{name}", "--timeout=120s")

    def images_and_commands(self):
        """The command of the daemon on each node."""
        pods = [pod for pod in self.admin.list("pods", self.namespace) if pod["metadata"]["name"].startswith(self.prefix)]
        return {p["spec"]["nodeName"]: p["spec"]["containers"][0].get("command") for p in pods if "deletionTimestamp" not in p["metadata"]}

    def degraded(self):
        """The message of the condition Degraded, while it is True."""
        status = self.admin.get("daemonsets", self.name, self.namespace).get("status", {})
        found = [c for c in status.get("conditions", []) if c["type"] == "Degraded" and c["status"] == "True"]
        return found[0]["message"] if found else None


class Example(Daemonlet):
    """The repository's example CNI, which keeps its subnet on the node."""

    def config(self):
        return {"kubeconfig": "/etc/daemonlet/kubeconfig"}

    def play(self):
        print("\nexample CNI: the pod network comes back with no API server", flush=True)
        self.cluster.start_controllers()
        agent.grant(self.cluster)
        self.prepare(self.network_file.images)
        self.admin.apply(self.network_file.file, daemons.EXAMPLE_CNI / "probe.yaml")
        self.power_on_one_after_the_other()
        self.network("network", time.monotonic() - self.since_last_power_on())
        self.cluster.stop("api")
        self.say("the API server is stopped")
        self.pull_plugs()
        self.network("alone", time.monotonic() - self.since_last_power_on(), "where a CNI keeps on the node what it needs, a cold boot without an API server has a pod network")
        return self.times


class Stock(Act):
    """Scheduler and DaemonSet controller; machines without daemonlet."""

    def play(self):
        """The act."""
        print("\nstock: DaemonSet controller and scheduler", flush=True)
        self.cluster.start_controllers(daemonset_controller=True)
        self.cluster.start_scheduler()
        self.prepare([*self.network_file.images, daemons.kube_proxy_image()])
        self.say("kube-proxy too: without it a CNI does not find the API server, whose Service's address it is given")
        self.admin.apply(*daemons.kube_proxy(self.cluster.url))
        self.kubectl("apply", "-f", self.network_file.file)
        self.admin.apply(daemons.probe())
        self.power_on_one_after_the_other()
        powered = max(machine.powered for machine in self.machines)
        self.network("network", time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - powered))
        self.update()
        self.lan.swallow(self.cluster.PORT)
        self.say("the API server is cut off: its packets vanish")
        self.pull_plugs()
        runs = lambda: all(machine.cri.created(self.prefix, machine.powered_wall) for machine in self.machines)
        try:
            until(runs, PATIENCE, f"{self.name} is created again", pause=0.5)
            self.times["cold"] = max(map(self.first_container, self.machines))
        except AssertionError:
            self.times["cold"] = "not at all"
        self.say(f"daemons run again: {self.times['cold']}")
        self.lan.answer()
        self.say("packets come through again")
        self.network("back", time.monotonic())
        return self.times


