"""What an agent costs that has 100 daemons, each with a ConfigMap of its own, and nothing to do; and with a Secret each, too.

The node is a hollow one: the real kubelet's code makes and follows the 100 mirror pods.
"""

import json
import os
import signal
import time
from pathlib import Path

from benches import figures
from kit import agent
from kit import tools
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.hollow import HollowNode
from kit.wait import until

NAMESPACE = "kube-system"
COUNT = 100
IDLE = float(os.environ.get("DAEMONLET_BENCH_IDLE", "60"))
PASSES = int(os.environ.get("DAEMONLET_BENCH_PASSES", "30"))


def _create(api, secrets):
    for number in range(COUNT):
        name = f"daemon-{number:03}"
        api.create("configmaps", {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"config.yaml": f"number: {number}\n" + "key: value\n" * 90}})
        env = []
        if secrets:
            api.create("secrets", {"metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"password": f"secret {number}"}})
            env = [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": name, "key": "password"}}}]
        api.create("daemonsets", daemonset(
            name, NAMESPACE, labels={"daemonlet.dev/mode": "static"}, tolerations=[{"operator": "Exists"}],
            volumes=[{"name": "config", "configMap": {"name": name}}], hostNetwork=True,
            container={"volumeMounts": [{"name": "config", "mountPath": "/etc/config"}], "env": env}))


def _delete(api):
    for number in range(COUNT):
        for kind in ("daemonsets", "configmaps"):
            api.delete(kind, f"daemon-{number:03}", NAMESPACE)


def _memory(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM", "RssAnon", "RssFile"))}


def _cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(daemonlet):
    return json.loads(daemonlet.cli("status", "--json").stdout)


def main():
    """The story."""
    # The memory is to be that of the agent as its unit runs it.
    for line in (tools.REPO / "systemd/daemonlet.service").read_text(encoding="utf-8").splitlines():
        if line.startswith("Environment="):
            os.environ.update(setting.split("=", 1) for setting in line.removeprefix("Environment=").split())
    with ControlPlane() as cluster:
        cluster.start_controllers()
        cluster.wait_namespace(NAMESPACE)
        agent.grant(cluster)
        for secrets in (False, True):
            with HollowNode(cluster, f"hundred-{'secrets' if secrets else 'plain'}", 0) as node:
                node.socket = ""
                with agent.Agent(node, runtime_endpoint="", kubelet_root=str(node.root)) as daemonlet:
                    _story(cluster.admin, node, daemonlet, secrets)


def _story(api, node, daemonlet, secrets):
    pid = daemonlet.process.pid
    empty = until(lambda: _status(daemonlet)["agent"]["api"] == "connected" and _memory(pid), 20, "the agent is connected")
    _create(api, secrets)
    # Not by asking the agent: in production it is not asked every second.
    running = lambda: sum(p["status"]["phase"] == "Running" for p in api.list("pods", NAMESPACE) if p["spec"]["nodeName"] == node.name)  # noqa: E731
    until(lambda: running() == COUNT, 120, f"{COUNT} daemons run", pause=1)
    time.sleep(40)  # the last statuses come, the checkpoint is written, and 30 s after its start each daemon counts as good
    if secrets:
        _show_memory(f"{COUNT} daemons, {COUNT} ConfigMaps, {COUNT} Secrets: ", _memory(pid), empty)
    else:
        _show(daemonlet, pid, empty)
    _delete(api)


def _show_memory(what, now, empty, most=None):
    figures.show(what + "resident memory", f"{now['VmRSS']:.1f} MiB (own {now['RssAnon']:.1f}, program {now['RssFile']:.1f}; "
                 f"highest {now['VmHWM']:.1f}, without daemons {empty['VmRSS']:.1f})", f"≤ {most} MiB" if most else "", now["VmRSS"] <= most if most else None)


def _show(daemonlet, pid, empty):
    settled = _memory(pid)
    what = f"{COUNT} daemons, {COUNT} ConfigMaps: "
    before, cpu, began = _status(daemonlet)["agent"], _cpu(pid), time.monotonic()
    time.sleep(IDLE)
    after, busy = _status(daemonlet)["agent"], (_cpu(pid) - cpu) / (time.monotonic() - began)
    use = after["apiUse"]
    _show_memory(what, settled, empty, 16)
    figures.show(what + f"CPU over {IDLE:.0f} s", f"{100 * busy:.3f} % of a core, {after['passes']['count'] - before['passes']['count']} passes", "< 0.1 %", busy < 0.001)
    figures.show(what + "to the API server", f"{use['connections']} connections, {use['streams']} streams open; {use['requests']} requests since the start, "
                 f"{use['requests'] - before['apiUse']['requests']} in {IDLE:.0f} s")
    took = []
    for _ in range(PASSES):
        count = _status(daemonlet)["agent"]["passes"]["count"]
        os.kill(pid, signal.SIGHUP)
        passes = until(lambda count=count: (p := _status(daemonlet)["agent"]["passes"])["count"] > count and p, 5, "a pass")
        took.append(passes["lastMicros"] / 1e3)
    figures.show("a whole pass over them, with nothing to do", f"median {figures.median(took):.2f} ms, shortest {min(took):.2f} ms, longest {max(took):.2f} ms, {PASSES} times",
                 "≤ 2 ms", figures.median(took) <= 2)
