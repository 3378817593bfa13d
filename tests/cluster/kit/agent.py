"""daemonlet beside the test: one agent for one node, from a configuration file to its end.

Owns the configuration and the rights of the agent under test. Asks it as a user would: by the
command line and by the files it writes.
"""

import json
import os
import subprocess
from pathlib import Path

from . import tools
from .process import Process
from .sandbox import scratch
from .wait import until

ROLE = "daemonlet-agent"
GROUP = "daemonlet:nodes"
PACKAGED = tools.REPO / "packaging/k8s"


def binary():
    """The daemonlet under test."""
    path = Path(os.environ.get("DAEMONLET_BIN") or tools.target_dir() / "debug" / "daemonlet")
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built: run `cargo build`")
    return path


def grant(cluster, wide=True):
    """Gives the agents of a cluster their rights, held to their nodes by the packaged policies.

    `wide`: also every ConfigMap, Secret, ServiceAccount and token, added to the one role that tests change.
    """
    cluster.admin.apply(PACKAGED / "rbac.yaml", PACKAGED / "admission-policies.yaml")
    if wide:
        text = cluster.admin.kubectl("create", "--dry-run=client", "-o", "json", "-f", PACKAGED / "rbac-wide.yaml")
        more, _ = json.JSONDecoder().raw_decode(text)
        role = cluster.admin.get("clusterroles", ROLE)
        cluster.admin.patch("clusterroles", ROLE, {"rules": role["rules"] + more["rules"]})


def user(node):
    """The name of a node's agent."""
    return f"daemonlet:node:{node}"


def kubeconfig(cluster, node):
    """The kubeconfig of a node's agent."""
    return cluster.kubeconfig(user(node), [GROUP])


def toml(values, path=()):
    """TOML of a dict: scalars and lists first, tables after."""
    flat = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict)]
    tables = [f"\n[{'.'.join((*path, key))}]\n{toml(value, (*path, key))}" for key, value in values.items() if isinstance(value, dict)]
    return "\n".join(flat + tables) + "\n"


class Agent:
    """`with Agent(node, **config) as agent:`; keys as in the configuration, `_` for `-`."""

    def __init__(self, node, name="agent", **config):
        self.node = node
        self.home = scratch() / f"{node.name}-{name}"
        self.folder = self.home / "daemonsets.d"
        self.config_file = self.home / "daemonlet.toml"
        self.process = None
        # What it is started with besides: variables, and a program in front of it.
        self.env, self.prefix = {}, []
        self.config = {
            "node-name": node.name, "kubeconfig": str(kubeconfig(node.cluster, node.name)) if node.cluster else "",
            "manifest-dir": str(node.manifests), "kubelet-root": str(node.root), "state-dir": str(self.home / "state"),
            "run-dir": str(self.home / "run"), "runtime-endpoint": f"unix://{node.socket}",
            "folders": [str(self.folder)], "update-jitter": "0s",
        } | {key.replace("_", "-"): value for key, value in config.items()}
        if "policy" in self.config:
            # Whoever opens namespaces wants what is in them to run, unless the test is about just that.
            self.config["policy"] = {"trusted-namespaces": ["*"]} | self.config["policy"]

    def __enter__(self):
        self.folder.mkdir(parents=True)
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Writes the configuration and starts the agent."""
        self.config_file.write_text(toml(self.config), encoding="utf-8")
        logs = scratch() / "logs"
        logs.mkdir(exist_ok=True)
        self.process = Process("daemonlet", [*self.prefix, binary(), "run", "--config", self.config_file], logs / f"{self.home.name}.log",
                               env={"DAEMONLET_LOG": "info,daemonlet=debug", "RUST_BACKTRACE": "1"} | os.environ | self.env)

    def stop(self):
        """Stops the agent in order; gives its exit status."""
        return self.process.stop(10)

    def kill(self):
        """Ends the agent as a crash would."""
        self.process.kill()

    def restart(self):
        """Stops and starts it."""
        self.stop()
        self.start()

    def cli(self, command, *args, check=False):
        """A command of the CLI with the agent's configuration; gives the finished process."""
        return subprocess.run([binary(), command, "--config", self.config_file, *args], capture_output=True, text=True, check=check, timeout=30)

    def manifests(self, daemonset=""):
        """The manifests in the folder whose names carry the daemon's: {file name: text}."""
        found = {}
        for file in sorted(self.node.manifests.glob("*")):
            if file.is_file() and not file.name.startswith(".") and daemonset in file.name:
                try:
                    found[file.name] = file.read_text(encoding="utf-8")
                except FileNotFoundError:
                    pass  # removed since it was listed
        return found

    def wait_manifest(self, daemonset, seconds=15):
        """Waits for the daemon's one manifest; gives (file name, text)."""
        return until(lambda: next(iter(self.manifests(daemonset).items()), None), seconds, f"a manifest of {daemonset}\n{self.process.tail()}")
