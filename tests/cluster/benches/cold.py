"""From exec to twenty daemons on disk: a boot without an API server, manifests and data lost, the checkpoint kept."""

import json
import os
import shutil
import subprocess
import time
import uuid
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.wait import until

from benches.figures import median
from benches.figures import told

DAEMONS = 20
TIMES = int(os.environ.get("DAEMONLET_BENCH_COLD", "20"))
BOOT_ID = "/proc/sys/kernel/random/boot_id"
GOAL = 25


def body(number):
    """A daemon that names a ConfigMap, and the ConfigMap, as a file has them."""
    name = f"daemon-{number}"
    volumes = {"volumes": [{"name": "c", "configMap": {"name": name}}], "automountServiceAccountToken": False, "hostNetwork": True}
    daemon = daemonset(name, "kube-system", {"volumeMounts": [{"name": "c", "mountPath": "/c"}]}, **volumes)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": {"settings": "x" * 2000}}
    return {"apiVersion": "v1", "kind": "List", "items": [daemon, config]}


def main():
    """Boots again and again."""
    home = scratch() / "cold"
    node = SimpleNamespace(name="n1", cluster=None, manifests=home / "manifests", root=home / "kubelet", socket=home / "no.sock")
    for folder in (node.manifests, node.root):
        folder.mkdir(parents=True)
    files = lambda: list(node.manifests.glob("[!.]*"))
    with Agent(node, kubeconfig="", runtime_endpoint="", kubelet_endpoint="") as agent:
        for number in range(DAEMONS):
            (agent.folder / f"{number}.json").write_text(json.dumps(body(number)), encoding="utf-8")
        until(lambda: len(files()) == DAEMONS, 30, "all manifests are there")
        time.sleep(3)
        agent.stop()
        took = []
        for _ in range(TIMES):
            names = {file.name for file in files()}
            shutil.rmtree(node.root / "pods")
            for file in files():
                file.unlink()
            boot = scratch() / f"boot-{uuid.uuid4()}"
            boot.write_text(str(uuid.uuid4()), encoding="ascii")
            subprocess.run(["mount", "--bind", str(boot), BOOT_ID], check=True)
            began = time.monotonic()
            agent.start()
            while len(files()) < DAEMONS:
                time.sleep(0.0002)
            took.append(1e3 * (time.monotonic() - began))
            if {file.name for file in files()} != names:
                raise AssertionError("other instances than before")
            time.sleep(2)
            agent.stop()
    half = median(took)
    told(f"exec → {DAEMONS} checkpointed daemons on disk, no API server", f"median {half:.1f} ms, shortest {min(took):.1f}, longest {max(took):.1f} ms, {TIMES} times",
         f"≤ {GOAL} ms", half <= GOAL)
