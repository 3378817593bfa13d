"""From the watch event of a new DaemonSet to its manifest's rename, in the running agent.

The clock starts when the API server's event reaches a second client on this machine, and stops
with the inotify event of the rename, which is also what wakes a kubelet. On the disk and, for
comparison, in memory. Nothing is deleted while it is measured: ext4 passes over inodes that were deleted
within minutes one by one, which few nodes ever have to. So a few are measured, and then a new node's turn comes.
"""

import os
import subprocess
import time
from pathlib import Path

from benches import figures
from benches.stand import PaperNode
from benches.stand import files_appearing
from benches.stand import objects_appearing
from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset

NAMESPACE = "kube-system"
TIMES = int(os.environ.get("DAEMONLET_BENCH_TIMES", "100"))
# As many daemons stand on the node all the while.
STANDING = 20
# So many are measured with one node.
AT_ONCE = 25


def _plain(name):
    """Nothing but what the file says."""
    return [], daemonset(name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, automountServiceAccountToken=False,
                        terminationGracePeriodSeconds=0)


def _account(name):
    """With the service account that every pod has: token, CA and namespace as files."""
    return [], daemonset(name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, terminationGracePeriodSeconds=0)


def _objects(name):
    """With a ConfigMap and a Secret of its own, which the agent has yet to ask for."""
    objects = [
        ("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"config.yaml": "a: 1\n" * 40, "level": "debug"}}),
        ("secrets", {"metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"password": "correct horse"}})]
    return objects, daemonset(name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, terminationGracePeriodSeconds=0,
                              volumes=[{"name": "config", "configMap": {"name": name}}],
                              container={"volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
                                         "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}}},
                                                 {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": name, "key": "level"}}}]})


SORTS = (("nothing referred to", _plain, True), ("service account", _account, True),
         ("service account, and a ConfigMap and Secret yet to be read", _objects, False))


def _measure(cluster, node, make, config, names):
    """How long each of these takes, on a node where the standing ones run."""
    api = cluster.admin
    times, made = [], []
    with agent.Agent(node, runtime_endpoint="", kubelet_root=str(node.root), **config) as daemonlet:
        for number in range(STANDING):
            daemonlet.wait_manifest(f"_standing-{number}-")
        appeared = files_appearing(node.manifests)
        announced = objects_appearing(cluster, "daemonsets")
        for name in names:
            needed, body = make(name)
            for kind, item in needed:
                api.create(kind, item)
                made.append((kind, name))
            api.create("daemonsets", body)
            made.append(("daemonsets", name))
            times.append(appeared.at(lambda file, name=name: f"_{name}-" in file) - announced.at(name.__eq__))
            # Neither what follows nor this process's own garbage is to be measured with the next one.
            time.sleep(0.06)
    for kind, name in made:
        api.delete(kind, name, NAMESPACE)
    return times


def main():
    """The story."""
    with ControlPlane() as cluster:
        agent.grant(cluster)
        for item in ({"metadata": {"name": NAMESPACE}},):
            if not cluster.admin.get("namespaces", NAMESPACE):
                cluster.admin.create("namespaces", item)
        cluster.admin.create("serviceaccounts", {"metadata": {"name": "default", "namespace": NAMESPACE}})
        cluster.admin.create("configmaps", {"metadata": {"name": "kube-root-ca.crt", "namespace": NAMESPACE}, "data": {"ca.crt": cluster.pki.ca.read_text()}})
        os.makedirs("/run/memory")
        for number in range(STANDING):
            cluster.admin.create("daemonsets", _account(f"standing-{number}")[1])
        for where, memory in (("disk", None), ("tmpfs", Path("/run/memory"))):
            for letter, (sort, make, has_goal) in zip("abc", SORTS):
                times = []
                for first in range(0, TIMES, AT_ONCE):
                    # Whoever asks for a token asks for it to be bound to his Node, so each agent has its own.
                    home = memory and memory / f"{letter}{first}"
                    node = PaperNode(cluster, f"{where}-{letter}{first}", home)
                    config = {"state_dir": str(home / "state"), "run_dir": str(home / "run")} if home else {}
                    names = [f"{where}-{letter}{number}" for number in range(first, min(first + AT_ONCE, TIMES))]
                    times += _measure(cluster, node, make, config, names)
                goals = (2, 10) if has_goal and where == "disk" else (None, None)
                figures.spread(f"watch event → manifest, {where} ({_file_system(node.manifests)}): {sort}", times, *goals)
            if where == "disk":
                figures.spread(f"for comparison, {where}: one small file and one fsync", _one_wait(node.home))


def _one_wait(folder):
    """What the disk takes of it: a small file made and waited for, as each manifest is before its rename."""
    times = []
    for number in range(100):
        began = time.monotonic()
        with open(folder / f"wait-{number}", "wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        times.append(time.monotonic() - began)
        time.sleep(0.02)
    return times


def _file_system(path):
    return subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True).stdout.strip().removesuffix("/ext3").replace("ext2", "ext4")
