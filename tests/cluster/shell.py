#!/usr/bin/env python3
"""A test cluster to play with by hand.

    shell.py up [--machines N] [--coordinator] [--daemonset-controller] [--scheduler] [--kube-proxy]
                               starts a cluster: one kubelet beside it, or N whole machines
    shell.py k ARGS…           kubectl as its admin, with the plugin: shell.py k daemonlet
    shell.py on NAME CMD…      a command on a machine (n1, n2, …)
    shell.py sh                a shell inside, with KUBECONFIG set
    shell.py do NAME WORD      power_on, power_off, kill, cut or mend a machine; stop, start, freeze or thaw `api`
    shell.py down              ends it; nothing is left

Each machine (and the node) runs the checkout's daemonlet (`cargo build`), with default-mode = "static" for every
namespace. No registry can be reached: the images are dl.test/pause:1, dl.test/box:1, with --kube-proxy the real
kube-proxy's, and those of the file that brings the pod network: the repository's own CNI, or the published one that
MANIFEST names (see kit/networks.py). Apply it by `shell.py k apply -f FILE`.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import agent  # noqa: E402
from kit import coordinator  # noqa: E402
from kit import daemons  # noqa: E402
from kit import networks  # noqa: E402
from kit import preflight  # noqa: E402
from kit import sandbox  # noqa: E402
from kit import tools  # noqa: E402
from kit.control_plane import ControlPlane  # noqa: E402
from kit.kubelet import Node  # noqa: E402
from kit.machine import Machine  # noqa: E402
from kit.machine import common_layer  # noqa: E402
from kit.net import GATEWAY  # noqa: E402
from kit.net import Lan  # noqa: E402

NAME = "dl-shell"
HOME = sandbox.RUNS / NAME
CONFIG = {"default-mode": "static", "policy": {"namespaces": ["*"], "trusted-namespaces": ["*"]}}


def build(stack, options):
    """The cluster, and its parts by the names that `do` and `on` take."""
    lan = Lan() if options.machines else None
    cluster = stack.enter_context(ControlPlane(GATEWAY if options.machines else "127.0.0.1"))
    cluster.start_controllers(options.daemonset_controller)
    if options.scheduler:
        cluster.start_scheduler()
    agent.grant(cluster)
    if options.coordinator:
        coordinator.install(cluster)
        stack.enter_context(coordinator.Coordinator(cluster, "one"))
    extra = [*networks.chosen().images, *([daemons.kube_proxy_image()] if options.kube_proxy else [])]
    parts = {"api": cluster}
    if options.machines:
        common = common_layer(extra)
        for number in range(1, options.machines + 1):
            machine = stack.enter_context(Machine(cluster, lan, f"n{number}", common, daemonlet=CONFIG))
            machine.power_on()
            parts[machine.name] = machine
    else:
        node = stack.enter_context(Node(cluster, pod_images=extra))
        stack.enter_context(agent.Agent(node, **CONFIG))
    return cluster, parts


def kubectl(kubeconfig, plugins, *words):
    """The words that run kubectl: a plugin takes no option in front of its name, so the kubeconfig is a variable."""
    return ["env", f"KUBECONFIG={kubeconfig}", f"PATH={plugins}:{os.environ['PATH']}", tools.program("kubectl"), *words]


def plug_in(folder):
    """Puts `kubectl daemonlet` into `folder`."""
    folder.mkdir()
    (folder / "kubectl-daemonlet").symlink_to(agent.binary())


def keep(options):
    """In the sandbox: builds the cluster and serves orders until it is ended."""
    with ExitStack() as stack:
        cluster, parts = build(stack, options)
        (HOME / "kubeconfig").symlink_to(cluster.admin.kubeconfig)
        plug_in(HOME / "bin")
        os.mkfifo(HOME / "orders")
        (HOME / "up").touch()
        while True:
            with open(HOME / "orders", encoding="ascii") as orders:
                for order in orders:
                    obey(cluster, parts, *order.split())


def obey(cluster, parts, name, word):
    """One order; what goes wrong is said and the cluster goes on."""
    acts = {"stop": lambda: cluster.stop("api"), "start": cluster.start_api, "freeze": cluster.freeze, "thaw": cluster.thaw}
    try:
        act = acts[word] if name == "api" else getattr(parts[name], word)
        act()
        print(f"{name} {word}: done", flush=True)
    except Exception as error:  # noqa: BLE001
        print(f"{name} {word}: {error!r}", flush=True)


def inside():
    """The command prefix that enters the running cluster's namespaces."""
    pid = (HOME / "init").read_text(encoding="ascii") if (HOME / "init").exists() else sys.exit("no cluster: shell.py up")
    return ["nsenter", "--target", pid, "--all", f"--wd={os.getcwd()}"]


def enter(name, *command):
    """In the sandbox: a command on a machine, found by its nspawn (there are no others here)."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"--machine={name}".encode() in (process / "cmdline").read_bytes().split(b"\0"):
                leader = (process / "task" / process.name / "children").read_text(encoding="ascii").split()[0]
                os.execvp("nsenter", ["nsenter", "--target", leader, "--all", "--wd=/", "--", *(command or ["/bin/bash"])])
        except OSError:
            continue
    print(f"{name} is not on", file=sys.stderr)
    return 1


def up(arguments):
    """Starts the keeper in the background and waits until the cluster is up."""
    sandbox.sweep()
    if HOME.exists():
        print("a cluster is up: shell.py down", file=sys.stderr)
        return 1
    os.environ.setdefault("DAEMONLET_BIN", str(tools.target_dir() / "debug" / "daemonlet"))
    try:
        lacks, network = preflight.check(), networks.chosen()
    except (networks.Unusable, FileNotFoundError) as error:
        lacks = [error]
    if lacks:
        print(*lacks, sep="\n", file=sys.stderr)
        return 1
    run = sandbox.Sandbox(NAME)
    log = open(HOME / "log", "wb")  # noqa: SIM115 (the keeper's)
    child = run.start([str(HERE / "shell.py"), "keep", *arguments], survive=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    children_of = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    while not (HOME / "up").exists():
        if child.poll() is not None:
            print((HOME / "log").read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
            run.end()
            return 1
        children = children_of.read_text(encoding="ascii").split()
        if children:
            (HOME / "init").write_text(children[0], encoding="ascii")
            (HOME / "unshare").write_text(str(child.pid), encoding="ascii")
        time.sleep(0.1)
    print(f"up; logs in {HOME}/logs; for a pod network: shell.py k apply -f {network.file}")
    return 0


def parse(words):
    """The options of `up`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--machines", type=int, default=0)
    for flag in ("--coordinator", "--daemonset-controller", "--scheduler", "--kube-proxy"):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(words)


def main():
    """The command."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0
    command, rest = sys.argv[1], sys.argv[2:]
    if command in ("up", "keep"):
        options = parse(rest)
        return keep(options) if command == "keep" else up(rest)
    if command == "k":
        return subprocess.call([*inside(), *kubectl(HOME / "kubeconfig", HOME / "bin", *rest)])
    if command == "sh":
        return subprocess.call([*inside(), "env", f"KUBECONFIG={HOME}/kubeconfig", os.environ.get("SHELL", "/bin/sh")])
    if command == "on":
        return subprocess.call([*inside(), sys.executable, str(HERE / "shell.py"), "enter", *rest])
    if command == "enter":
        return enter(*rest)
    if command == "do":
        (HOME / "orders").open("w", encoding="ascii").write(" ".join(rest) + "\n")
        return 0
    if command == "down":
        if not (HOME / "unshare").exists():
            print("no cluster", file=sys.stderr)
            return 0
        pid = (HOME / "unshare").read_text(encoding="ascii")
        os.kill(int(pid), signal.SIGKILL)
        while Path(f"/proc/{pid}").exists():
            time.sleep(0.05)
        sandbox.sweep()
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
