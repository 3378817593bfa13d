"""What a coordinator costs on 5,000 nodes with 20 daemons each: its process against a real API server.

Nodes and their reports are made up, in the size that they have (a Node has its labels, conditions and 30 images);
DaemonSets and revisions are real, and the coordinator is the one that works them out.
"""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benches import figures
from benches import rollout
from kit import coordinator
from kit.api import Api
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.wait import until

NODES = int(os.environ.get("DAEMONLET_BENCH_NODES", "5000"))
DAEMONS = 20
LARGEST = 250
NOW = "2026-01-01T00:00:00Z"


def _node(number):
    labels = {f"example.com/label-{label}": f"value-{label}" for label in range(15)} | {"kubernetes.io/os": "linux"}
    images = [{"names": [f"registry.example.com/image-{image}@sha256:{image:064}", f"registry.example.com/image-{image}:v1"],
               "sizeBytes": 1} for image in range(30)]
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    conditions = [{"type": kind, "status": str(kind == "Ready"), "reason": "Made", "message": "up", "lastHeartbeatTime": NOW,
                   "lastTransitionTime": NOW} for kind in kinds]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number:04}", "labels": labels},
            "status": {"conditions": conditions, "images": images, "nodeInfo": {"kubeletVersion": "v1.36.2"}}}


def _report(number, daemons):
    reported = [{"namespace": "kube-system", "name": name, "uid": uid, "mode": "static", "phase": "running", "instances": [
        {"pod": f"{name}-abcde-node-{number:04}", "revision": revision, "created": NOW, "readySince": NOW}]}
        for name, uid, revision in daemons]
    return {"status": {"agentVersion": "0.1.0", "ready": f"{DAEMONS}/{DAEMONS}", "worst": "", "daemons": reported}}


def _memory(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM"))}


def main():
    """The story."""
    with ControlPlane() as cluster:
        coordinator.install(cluster)
        cluster.admin.request("GET", "/api/v1/namespaces/kube-system")
        with Coordinator(cluster, "first") as first:
            for number in range(DAEMONS):
                cluster.admin.create("daemonsets", daemonset(f"daemon-{number}", labels={"daemonlet.dev/mode": "static"}))
            revisions = until(lambda: len(cluster.admin.list("controllerrevisions", "kube-system")) == DAEMONS
                              and cluster.admin.list("controllerrevisions", "kube-system"), 60, "each has a revision")
            first.kill()
        owner = {r["metadata"]["ownerReferences"][0]["name"]: r["metadata"]["labels"]["controller-revision-hash"] for r in revisions}
        daemons = [(d["metadata"]["name"], d["metadata"]["uid"], owner[d["metadata"]["name"]])
                   for d in cluster.admin.list("daemonsets", "kube-system")]
        local = threading.local()

        def make(number):
            local.api = getattr(local, "api", None) or Api(cluster.admin.kubeconfig)
            name = f"node-{number:04}"
            local.api.create("nodes", _node(number))
            local.api.patch("nodes", name, {"status": _node(number)["status"], "spec": {"taints": None}}, sub="status")
            local.api.patch("nodes", name, {"spec": {"taints": None}})
            local.api.create("nodedaemons", {"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": name}})
            local.api.patch("nodedaemons", name, _report(number, daemons), sub="status")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(NODES)))
        size = len(json.dumps(cluster.admin.get("nodedaemons", "node-0000")))
        with Coordinator(cluster, "second") as second:
            began = time.monotonic()

            def counted():
                seen = cluster.admin.list("daemonsets", "kube-system")
                return all(d.get("status", {}).get("numberReady") == NODES for d in seen)
            until(counted, 300, "every status is right", pause=0.5)
            took = time.monotonic() - began
            time.sleep(5)
            memory = _memory(second.process.pid)
            figures.show(f"a coordinator's memory, {NODES} nodes x {DAEMONS} daemons",
                         f"{memory['VmRSS']:.0f} MiB resident, {memory['VmHWM']:.0f} MiB at most", f"≤ {LARGEST} MiB", memory["VmHWM"] <= LARGEST)
            figures.show("from its start to the last status (the former Lease expires first)", f"{took:.1f} s; a report has {size} bytes")
            rollout.measure(cluster, second, NODES, DAEMONS)
