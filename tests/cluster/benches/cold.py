"""From exec to twenty daemons on disk: a boot without an API server, manifests and data lost, the checkpoint kept.

inotify reports the renames: one who lists the folder again and again wakes the agent's own watch of it each time.
What is lost is moved away, not deleted: ext4 passes over inodes that were deleted within minutes, one by one, and that
would be three quarters of what is measured.
"""

import json
import os
import subprocess
import tempfile
import time
import uuid
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.wait import until

from benches.figures import median
from benches.figures import show
from benches.stand import events

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


def processor(pid):
    """How long the threads of a process have been on a processor, in milliseconds."""
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


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
        took, worked, renamed = [], [], events(node.manifests)
        for _ in range(TIMES):
            names = {file.name for file in files()}
            away = Path(tempfile.mkdtemp(dir=home))
            (node.root / "pods").rename(away / "pods")
            for file in files():
                file.rename(away / file.name)
            boot = scratch() / f"boot-{uuid.uuid4()}"
            boot.write_text(str(uuid.uuid4()), encoding="ascii")
            subprocess.run(["mount", "--bind", str(boot), BOOT_ID], check=True)
            began = time.monotonic()
            agent.start()
            last = max(when for _, when in islice(renamed, DAEMONS))
            took.append(1e3 * (last - began))
            worked.append(processor(agent.process.pid))
            if {file.name for file in files()} != names:
                raise AssertionError("other instances than before")
            time.sleep(2)
            agent.stop()
    half = median(took)
    show(f"exec → {DAEMONS} checkpointed daemons on disk, no API server", f"median {half:.1f} ms, shortest {min(took):.1f}, longest {max(took):.1f} ms, {TIMES} times; on a processor {median(worked):.1f} ms",
         f"≤ {GOAL} ms", half <= GOAL)
