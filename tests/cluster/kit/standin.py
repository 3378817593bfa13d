"""A node that only pretends to run pods, and watches daemonlet meanwhile (`k8s/standin`).

Owns the node's folders and the program that stands in for kubelet and container runtime. Starting
and ending a pod takes it milliseconds, so that hundreds of transitions fit a test. What must never
be, it sees on the spot: `check` raises it.
"""

import json
import socket
import subprocess

from . import tools
from .process import Process
from .sandbox import scratch
from .wait import until


class Runtime:
    """What stands in for kubelet and runtime of a node that has none: pods run, end, and have no mirror pods."""

    def __init__(self, name, home, manifests, root):
        self.name, self.home, self.manifests, self.root = name, home, manifests, root
        self.socket, self._control = home / "cri.sock", home / "control.sock"
        self.process = None

    def start(self, *more):
        """Starts it; `more` are further arguments."""
        logs, state = scratch() / "logs", self.home / "unwatched"
        logs.mkdir(exist_ok=True)
        state.mkdir(exist_ok=True)
        self.process = Process(f"{self.name}-standin", [
            tools.program("standin"), "-manifests", self.manifests, "-root", self.root, "-state", state,
            "-cri", self.socket, "-control", self._control, *more], logs / f"{self.name}-standin.log")
        until(lambda: self.ask(), 10, "the stand-in answers")
        self.ask("watch")

    def stop(self):
        """Ends it."""
        self.process.kill()

    def ask(self, op="state", **more):
        """One request of the control socket."""
        return _ask(self._control, self.name, {"op": op} | more)


class StandIn:
    """`with StandIn(cluster, "n1") as node:`; for an `Agent`, with its state in `node.state`.

    `cluster` may be None: then there is no API server, and there are no mirror pods.
    """

    def __init__(self, cluster, name, labels=None):
        self.cluster, self.name, self.labels = cluster, name, labels or {}
        self.home = scratch() / "standin" / name
        self.disk = self.home / "disk"
        self.manifests, self.root, self.state = (self.disk / part for part in ("manifests", "kubelet", "state"))
        self.socket, self._control = self.home / "cri.sock", self.home / "control.sock"
        self.process = None

    def __enter__(self):
        self.disk.mkdir(parents=True)
        self.mount()
        self.make_folders()
        if self.cluster:
            self.cluster.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": self.labels}})
            self.cluster.admin.patch("nodes", self.name, {"spec": {"taints": None}})
            status = {"nodeInfo": {"kubeletVersion": f"v{tools.KUBERNETES}"}, "conditions": [{"type": "Ready", "status": "True"}]}
            self.cluster.admin.patch("nodes", self.name, {"status": status}, sub="status")
        logs = scratch() / "logs"
        logs.mkdir(exist_ok=True)
        mirrors = ["-kubeconfig", self.cluster.admin.kubeconfig, "-node", self.name] if self.cluster else []
        self.process = Process(f"{self.name}-standin", [
            tools.program("standin"), "-manifests", self.manifests, "-root", self.root, "-state", self.state,
            "-cri", self.socket, "-control", self._control, *mirrors], logs / f"{self.name}-standin.log")
        until(lambda: self.ask(), 10, "the stand-in answers")
        self.watch()
        return self

    def __exit__(self, *_):
        self.process.kill()
        subprocess.run(["umount", "-l", self.disk], check=False)

    def mount(self):
        """The node's disk: memory, where a sync costs nothing."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.disk], check=True)

    def make_folders(self):
        """The folders that a node has."""
        for folder in (self.manifests, self.root, self.state):
            folder.mkdir(mode=0o700, exist_ok=True)
        subprocess.run(["sync", "--file-system", self.disk], check=True)

    def ask(self, op="state", **more):
        """One request of the control socket."""
        return _ask(self._control, self.name, {"op": op} | more)

    def watch(self):
        """Looks at the folders that are there now, and watches them."""
        return self.ask("watch")

    def reboot(self):
        """Everything that ran is dead; `watch` is the power button."""
        return self.ask("reboot")

    def pods(self, owner):
        """What runs of a daemon (namespace/name), and what still ends."""
        return [pod for pod in self.ask()["pods"] if pod["owner"] == owner]

    def bad(self):
        """What was seen that must never be."""
        return self.ask()["bad"]

    def record(self, namespace, name):
        """The agent's record of a daemon, None when there is none."""
        try:
            text = (self.state / "daemons" / f"{namespace}_{name}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return json.loads(text.split("\n", 1)[1])


def _ask(control, name, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(control))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as answer:
            reply = json.loads(answer.readline())
    if reply.get("error"):
        raise AssertionError(f"{name}: {reply['error']}")
    return {key: value or [] if key in ("pods", "files", "bad") else value for key, value in reply.items()}
