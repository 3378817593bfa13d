"""What 10,000 DaemonSets of 900 KB cost that are not selected: the agent and the coordinator, against a stand-in that
streams them.

    python3 tests/cluster/bench.py foreign

`foreign.go` is the stand-in: an API server with nothing but them. `DAEMONLET_BENCH_FOREIGN` is another number.
"""

import os
import subprocess
import threading
import time
from pathlib import Path

from benches import figures
from kit import tools
from kit.agent import binary
from kit.agent import toml
from kit.sandbox import scratch
from kit.wait import until

COUNT = int(os.environ.get("DAEMONLET_BENCH_FOREIGN", "10000"))
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: k, cluster: {{server: "http://{}"}}}}]
users: [{{name: u, user: {{token: abc}}}}]
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
"""


def _memory(pid):
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmRSS", "VmHWM", "RssAnon"))}


def _server(home):
    program = home / "foreign"
    subprocess.run(["go", "build", "-o", program, Path(__file__).with_suffix(".go")], check=True)
    process = subprocess.Popen([program, "-count", str(COUNT)], stdout=subprocess.PIPE, text=True)
    (home / "kubeconfig").write_text(KUBECONFIG.format(process.stdout.readline().strip()), encoding="ascii")
    lines = []
    threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True).start()
    return process, lines


def _measure(command, config, most):
    home = scratch() / f"foreign-{command}"
    for folder in ("manifests", "kubelet", "daemonsets.d"):
        (home / folder).mkdir(parents=True)
    server, lines = _server(home)
    own = {"node-name": "n1", "kubeconfig": str(home / "kubeconfig"), "manifest-dir": str(home / "manifests"),
           "kubelet-root": str(home / "kubelet"), "state-dir": str(home / "state"), "run-dir": str(home / "run"),
           "runtime-endpoint": "", "folders": [str(home / "daemonsets.d")]} | config(home)
    (home / "daemonlet.toml").write_text(toml(own), encoding="ascii")
    with open(home / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([binary(), command, "--config", home / "daemonlet.toml"], stderr=log, env={"DAEMONLET_LOG": "info"} | os.environ)
    try:
        began = time.monotonic()
        until(lambda: lines.count("watched\n"), 1800, "the list is complete", pause=0.5)
        took = time.monotonic() - began
        time.sleep(5)
        now = _memory(process.pid)
        figures.show(f"{command} beside {COUNT} foreign DaemonSets of 900 KB: resident memory",
                     f"{now['VmRSS']:.1f} MiB (own {now['RssAnon']:.1f}, highest {now['VmHWM']:.1f}), listed in {took:.0f} s", f"≤ {most} MiB", now["VmHWM"] <= most)
    finally:
        process.kill()
        server.kill()


def main():
    """The story."""
    # The memory is to be that of the programs as their units run them.
    for line in (tools.REPO / "systemd/daemonlet.service").read_text(encoding="utf-8").splitlines():
        if line.startswith("Environment="):
            os.environ.update(setting.split("=", 1) for setting in line.removeprefix("Environment=").split())
    _measure("run", lambda home: {}, 20)
    _measure("coordinator", lambda home: {"coordinator": {"kubeconfig": str(home / "kubeconfig")}}, 128)
