"""The coordinator beside the test: `daemonlet coordinator` with an identity of its own."""

from . import tools
from .agent import binary
from .agent import toml
from .process import Process
from .sandbox import scratch

CRD = tools.REPO / "packaging" / "k8s" / "nodedaemons.yaml"
RIGHTS = tools.REPO / "packaging" / "k8s" / "coordinator-rbac.yaml"
GROUP = "daemonlet:coordinators"


def install(cluster):
    """What the cluster side needs: the resource, and the coordinator's rights."""
    for file in (CRD, RIGHTS):
        cluster.admin.kubectl("apply", "-f", str(file))
    cluster.admin.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/nodedaemons.daemonlet.dev")


class Coordinator:
    """`with Coordinator(cluster, "one", **config) as one:`; keys as in the configuration, `_` for `-`."""

    def __init__(self, cluster, name, **config):
        self.name = name
        self.home = scratch() / f"coordinator-{name}"
        self.config_file = self.home / "daemonlet.toml"
        self.process = None
        self.config = {"node-name": name, "kubeconfig": ""} | {k.replace("_", "-"): v for k, v in config.items()} | {
            "coordinator": {"kubeconfig": str(cluster.kubeconfig(f"daemonlet:coordinator:{name}", [GROUP]))} | config.get("coordinator", {})}

    def __enter__(self):
        self.home.mkdir(parents=True)
        self.start()
        return self

    def __exit__(self, *_):
        self.process.stop(5)

    def start(self):
        """Starts it."""
        self.config_file.write_text(toml(self.config), encoding="utf-8")
        logs = scratch() / "logs"
        logs.mkdir(exist_ok=True)
        self.process = Process(f"coordinator {self.name}", [binary(), "coordinator", "--config", self.config_file],
                               logs / f"{self.home.name}.log", env={"DAEMONLET_LOG": "info,daemonlet=debug", "RUST_BACKTRACE": "1"})

    def kill(self):
        """Ends it as a crash would: its Lease stays until it expires."""
        self.process.kill()
