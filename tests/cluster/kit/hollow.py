"""Hollow nodes: the kubelet's own code over a runtime that only pretends. For tests with many nodes.

A hollow node takes manifests, registers its Node and makes mirror pods as a real one does; images
and containers are always there at once. About 75 MB each.
"""

import os

from . import tools
from .process import Process
from .sandbox import scratch
from .wait import until

_FIRST_PORT = 11000


class HollowNode:
    """`with HollowNode(cluster, "hollow-0", 0) as node:`; `number` keeps the ports of nodes apart."""

    def __init__(self, cluster, name, number, labels=None):
        self.cluster, self.name, self.number = cluster, name, number
        self.labels = labels or {}
        self.home = scratch() / "hollow" / name
        self.root = self.manifests = self.process = None
        # Its runtime cannot be asked from outside.
        self.socket = self.home / "no-runtime.sock"

    def __enter__(self):
        self.home.mkdir(parents=True)
        logs = scratch() / "logs"
        logs.mkdir(exist_ok=True)
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        self.process = Process(self.name, [
            tools.program("kubemark"), "--morph=kubelet", f"--name={self.name}",
            f"--kubeconfig={self.cluster.kubeconfig(f'system:node:{self.name}', ['system:nodes'])}",
            f"--kubelet-port={_FIRST_PORT + self.number}", "--kubelet-read-only-port=0", "--kube-api-qps=50", "--kube-api-burst=100",
            # The real kubelet's image service would need a real runtime.
            "--use-host-image-service=false", *([f"--node-labels={labels}"] if labels else [])],
            logs / f"{self.name}.log", env=os.environ | {"TMPDIR": str(self.home)})
        _, found = self.process.wait_line(r"Using (\S+) as root dir", 20)
        self.root = self.home.__class__(found.group(1))
        self.manifests = until(lambda: next(self.root.glob("static-pods*"), None), 10, f"the manifest folder of {self.name}")
        return self

    def __exit__(self, *_):
        self.process.stop(5)


def crowd(cluster, count, stack):
    """Starts `count` hollow nodes, ended with the ExitStack `stack`; waits until all are registered."""
    nodes = [stack.enter_context(HollowNode(cluster, f"hollow-{number}", number)) for number in range(count)]
    cluster.admin.wait("nodes", lambda seen: all(("", node.name) in seen for node in nodes), 60, f"{count} hollow nodes are registered")
    return nodes
