"""`kubectl apply` of a DaemonSet to its first container's first instruction, beside the DaemonSet controller and scheduler.

One cluster with both, one real node, by turns. The gate keeps the DaemonSet controller from ours, the
missing label keeps us from its own.
"""

import json
import os
import subprocess
import time

from benches import figures
from benches.stand import files_appearing
from benches.stand import files_written
from benches.stand import objects_appearing
from kit import agent
from kit import tools
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.sandbox import scratch

NAMESPACE = "kube-system"
TIMES = int(os.environ.get("DAEMONLET_BENCH_APPLIES", "30"))


def _daemon(name, out, ours):
    says = 'touch "/out/$NAME"; trap exit TERM; while :; do sleep 3600 & wait; done'
    gate = {"labels": {"daemonlet.dev/mode": "static"}, "nodeSelector": {"daemonlet.dev/static": "true"}} if ours else {}
    return daemonset(name, NAMESPACE, hostNetwork=True, terminationGracePeriodSeconds=1, tolerations=[{"operator": "Exists"}],
                     volumes=[{"name": "out", "hostPath": {"path": str(out)}}],
                     container={"imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", says], "env": [{"name": "NAME", "value": name}],
                                "volumeMounts": [{"name": "out", "mountPath": "/out"}]}, **gate)


def _apply(cluster, body):
    began = time.monotonic()
    subprocess.run([tools.program("kubectl"), "--kubeconfig", cluster.admin.kubeconfig, "apply", "-f", "-"],
                   input=json.dumps(body), text=True, check=True, capture_output=True)
    return began


def main():
    """The story."""
    out = scratch() / "out"
    out.mkdir()
    with ControlPlane() as cluster:
        cluster.start_controllers(daemonset_controller=True)
        cluster.start_scheduler()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        with Node(cluster) as node, agent.Agent(node):
            node.wait_ready()
            announced = objects_appearing(cluster, "daemonsets")
            started, written = files_written(out), files_appearing(node.manifests)
            whole, inner, own = {True: [], False: []}, {True: [], False: []}, []
            for number in range(TIMES + 1):
                for ours in ((True, False) if number % 2 else (False, True)):
                    name = f"{'ours' if ours else 'stock'}-{number}"
                    began = _apply(cluster, _daemon(name, out, ours))
                    ran = started.at(name.__eq__, 60)
                    if number:  # the first of each warms up what all share
                        whole[ours].append(ran - began)
                        inner[ours].append(ran - announced.at(name.__eq__))
                        if ours:
                            own.append(written.at(lambda file, name=name: f"_{name}-" in file) - announced.at(name.__eq__))
                    cluster.admin.delete("daemonsets", name, NAMESPACE)
                    node.cri.wait_gone(f"{name}-")
    _show("`kubectl apply` → container running", whole)
    _show("the same from the DaemonSet's watch event", inner)
    figures.spread("of that, watch event → manifest", own)


def _show(what, times):
    ours, stock = figures.median(times[True]), figures.median(times[False])
    figures.show(what, f"median {1e3 * ours:.0f} ms, DaemonSet controller and scheduler {1e3 * stock:.0f} ms, {TIMES} times each by turns",
                 "≤ stock", ours <= stock)
