"""What an agent's memory is whose daemons use 100 ConfigMaps of 1 MB: while they come, when all change, and after a start.

The node is a hollow one; the agent has the allocator's settings of its unit. With DAEMONLET_BENCH_ROLLBACK=auto the data
before a change is kept until the new data has proved good.
"""

import os
import random
import time
from pathlib import Path

from benches import figures
from benches.hundred import _memory
from kit import agent
from kit import tools
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.hollow import HollowNode
from kit.wait import until

NAMESPACE = "kube-system"
COUNT = int(os.environ.get("DAEMONLET_BENCH_HEAVY", "100"))
BYTES = 1_000_000
ROLLBACK = os.environ.get("DAEMONLET_BENCH_ROLLBACK", "off")
MOST = 256


def _body(name, round_):
    chance = random.Random(f"{name} {round_}")
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"config": chance.randbytes(BYTES // 2).hex()}}


def main():
    """The story."""
    for line in (tools.REPO / "systemd/daemonlet.service").read_text(encoding="utf-8").splitlines():
        if line.startswith("Environment="):
            os.environ.update(setting.split("=", 1) for setting in line.removeprefix("Environment=").split())
    with ControlPlane() as cluster:
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        with HollowNode(cluster, "heavy", 0) as node:
            node.socket = ""
            with agent.Agent(node, runtime_endpoint="", kubelet_root=str(node.root)) as daemonlet:
                _story(cluster, node, daemonlet)


def _written(node, round_):
    """How many volumes have the data of a round."""
    wanted = {_body(f"heavy-{number:03}", round_)["data"]["config"][:40] for number in range(COUNT)}
    files = Path(node.root).glob("pods/*/volumes/kubernetes.io~empty-dir/*/config")
    return sum(file.read_text(encoding="ascii")[:40] in wanted for file in files)


def _show_memory(what, daemonlet):
    now = _memory(daemonlet.process.pid)
    figures.show(f"{COUNT} ConfigMaps of 1 MB in use, {what}", f"{now['VmRSS']:.0f} MiB (own {now['RssAnon']:.0f}, highest {now['VmHWM']:.0f})",
                 f"≤ {MOST} MiB", now["VmHWM"] <= MOST)


def _change(api, round_):
    for number in range(COUNT):
        api.patch("configmaps", f"heavy-{number:03}", {"data": _body(f"heavy-{number:03}", round_)["data"]}, NAMESPACE)


def _settle(node, daemonlet, round_, what):
    began = time.monotonic()
    until(lambda: _written(node, round_) == COUNT, 240, f"{what}: all have the new data", pause=1)
    seconds = time.monotonic() - began
    time.sleep(20)
    _show_memory(f"{what}; data on disk {seconds:.0f} s later", daemonlet)
    _reset(daemonlet)


def _reset(daemonlet):
    Path(f"/proc/{daemonlet.process.pid}/clear_refs").write_text("5", encoding="ascii")


def _story(cluster, node, daemonlet):
    api = cluster.admin
    for number in range(COUNT):
        name = f"heavy-{number:03}"
        api.create("configmaps", _body(name, 0))
        daemon = daemonset(
            name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, tolerations=[{"operator": "Exists"}], hostNetwork=True,
            volumes=[{"name": "config", "configMap": {"name": name}}], container={"volumeMounts": [{"name": "config", "mountPath": "/etc/config"}]})
        daemon["metadata"]["annotations"] = {"daemonlet.dev/rollback": ROLLBACK}
        api.create("daemonsets", daemon)
    until(lambda: _written(node, 0) == COUNT, 120, "all have their data", pause=1)
    _show_memory("as they come", daemonlet)
    time.sleep(40)
    _show_memory("40 s later", daemonlet)
    _reset(daemonlet)
    _change(api, 1)
    _settle(node, daemonlet, 1, "all changed one after the other")
    daemonlet.process.freeze()
    _change(api, 2)
    daemonlet.process.thaw()
    _settle(node, daemonlet, 2, "all changed while the agent was stopped")
    cluster.stop("api")
    cluster.start_api()
    _change(api, 3)
    _settle(node, daemonlet, 3, "all changed after a start of the API server")
    daemonlet.kill()
    daemonlet.start()
    time.sleep(30)
    _show_memory("30 s after a start", daemonlet)
    daemonlet.kill()
    _change(api, 4)
    daemonlet.start()
    _settle(node, daemonlet, 4, "all changed while there was no agent")
