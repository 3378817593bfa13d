"""From the watch event of a new DaemonSet to its manifest's rename, in the running agent.

The clock starts when the API server's event reaches a second client on this machine, and stops
with the inotify event of the rename, which is also what wakes a kubelet. On the disk and, for
comparison, in memory.
"""

import os
import subprocess
import time

from benches import figures
from benches.stand import PaperNode
from benches.stand import files_appearing
from benches.stand import objects_appearing
from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset

NAMESPACE = "kube-system"
TIMES = int(os.environ.get("DAEMONLET_BENCH_TIMES", "200"))
# As many daemons stand on the node all the while.
STANDING = 20
# So many names take turns; each has long ended when its turn comes again.
NAMES = 50


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


def _measure(cluster, node, where):
    api = cluster.admin
    appeared = files_appearing(node.manifests)
    announced = objects_appearing(cluster, "daemonsets")
    for letter, (sort, make, has_goal) in zip("abc", SORTS):
        times = []
        for number in range(TIMES):
            # The same few come and go: what has once run on a node is remembered.
            name = f"{where.split()[0]}-{letter}{number % NAMES}"
            needed, body = make(name)
            if number >= NAMES:
                for kind, item in needed:
                    api.delete(kind, name, NAMESPACE)
                appeared.forget()
                announced.forget()
            for kind, item in needed:
                api.create(kind, item)
            api.create("daemonsets", body)
            times.append(appeared.at(lambda file, name=name: f"-{name}-" in file) - announced.at(name.__eq__))
            api.delete("daemonsets", name, NAMESPACE, propagationPolicy="Background")
            # Neither its end nor this process's own garbage is to be measured with the next one.
            time.sleep(0.06)
        goals = (2, 10) if has_goal and "disk" in where else (None, None)
        figures.spread(f"watch event → manifest, {where}: {sort}", times, *goals)


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
        for where, home in (("disk", None), ("tmpfs", "/run/memory")):
            node = PaperNode(cluster, f"{where}-node", home and f"{home}/node")
            # Whoever asks for a token asks for it to be bound to his Node, so each agent has its own.
            config = {"runtime_endpoint": "", "kubelet_root": str(node.root)}
            if home:
                config |= {"state_dir": f"{home}/state", "run_dir": f"{home}/run"}
            with agent.Agent(node, **config) as daemonlet:
                for number in range(STANDING):
                    cluster.admin.create("daemonsets", _account(f"{where}-standing-{number}")[1])
                try:
                    daemonlet.wait_manifest(f"{where}-standing-{STANDING - 1}-")
                except AssertionError:
                    print(daemonlet.cli("status").stdout, daemonlet.process.tail(60))
                    raise
                name = "disk (" + _file_system(node.manifests) + ")" if where == "disk" else "tmpfs"
                _measure(cluster, node, name)
                if where == "disk":
                    figures.spread(f"for comparison, {name}: one small file and one fsync", _one_wait(node.home))
                for number in range(STANDING):
                    cluster.admin.delete("daemonsets", f"{where}-standing-{number}", NAMESPACE)


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
