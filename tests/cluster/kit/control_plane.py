"""The control plane: etcd and an API server, controllers and scheduler as a test wants them.

Owns the cluster's authority. A test can take each part away the way the world does: refuse
(stopped), fall silent (frozen), swallow packets (`net.Lan.cut`), forbid (RBAC).
"""

import os
import shutil
import socket

from . import tools
from .api import Api
from .pki import Authority
from .process import Process
from .sandbox import scratch
from .wait import until

SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/16"


class ControlPlane:
    """`with ControlPlane() as cluster:`; etcd and the API server run, nothing else does yet."""

    PORT = 6443

    def __init__(self, address="127.0.0.1", extra=()):
        self.address = address
        self.url = f"https://{address}:{self.PORT}"
        self.home = scratch() / "control-plane"
        self.home.mkdir()
        self.pki = Authority(self.home / "pki")
        self.extra = list(extra)
        self.parts = {}
        self.admin = Api(self.kubeconfig("admin", ["system:masters"]))

    def __enter__(self):
        self.start_etcd()
        self.start_api()
        return self

    def __exit__(self, *_):
        for part in reversed(list(self.parts)):
            self.stop(part)
        shutil.rmtree(self.home, ignore_errors=True)

    def kubeconfig(self, user, groups=(), names=()):
        """The path of a kubeconfig for a user with a certificate of this cluster."""
        return self.pki.kubeconfig(self.url, user, groups, names)

    def user(self, name, groups=()):
        """That user's view of the API."""
        return Api(self.kubeconfig(name, groups))

    def _start(self, part, *argv):
        log = scratch() / "logs" / f"{part}.log"
        log.parent.mkdir(exist_ok=True)
        self.parts[part] = Process(part, [tools.program(argv[0]), *argv[1:]], log, env=os.environ | {"GOGC": "200"})
        return self.parts[part]

    def start_etcd(self):
        """Starts etcd, without syncing: what it holds need not outlive the machine."""
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self._start("etcd", "etcd", "--data-dir", self.home / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
                    "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                    "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}")

    def start_api(self, ready=60):
        """Starts the API server and waits until it is ready (`ready=0`: does not wait)."""
        pki = self.pki
        cert, key = pki.certificate("kube-apiserver", names=[
            f"IP:{self.address}", "IP:127.0.0.1", "IP:10.96.0.1", "DNS:localhost", "DNS:kubernetes.default.svc"])
        client, client_key = pki.certificate("kube-apiserver-kubelet-client", ["system:masters"])
        self._start(
            "api", "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", f"--secure-port={self.PORT}",
            f"--bind-address={self.address}", f"--advertise-address={self.address}", "--endpoint-reconciler-type=master-count",
            f"--tls-cert-file={cert}", f"--tls-private-key-file={key}", f"--client-ca-file={pki.ca}",
            f"--service-account-key-file={pki.tokens_public}", f"--service-account-signing-key-file={pki.tokens_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={client}", f"--kubelet-client-key={client_key}",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--service-cluster-ip-range={SERVICES}", "--allow-privileged=true", "--profiling=false", *self.extra)
        if ready:
            until(lambda: self.admin.request("GET", "/readyz", seconds=2) == "ok" and self.alive("api"), ready, "the API server is ready")

    def start_controllers(self, daemonset_controller=False, extra=()):
        """Starts the controller manager, by default without the DaemonSet controller, and waits for its first fruits."""
        config = self.kubeconfig("system:kube-controller-manager")
        self._start("controllers", "kube-controller-manager", f"--kubeconfig={config}", "--leader-elect=false",
                    f"--service-account-private-key-file={self.pki.tokens_key}", f"--root-ca-file={self.pki.ca}",
                    f"--cluster-signing-cert-file={self.pki.ca}", f"--cluster-signing-key-file={self.pki.ca_key}",
                    "--use-service-account-credentials", "--allocate-node-cidrs", f"--cluster-cidr={PODS}",
                    f"--controllers=*{'' if daemonset_controller else ',-daemonset-controller'}",
                    "--bind-address=127.0.0.1", "--secure-port=10257", "--node-monitor-grace-period=20s", *extra)
        self.wait_namespace("default")

    def wait_namespace(self, name):
        """Waits until pods can be made in a namespace: its root CA and its default service account are there."""
        self.admin.wait("configmaps", lambda seen: (name, "kube-root-ca.crt") in seen, 30, f"the root CA in {name}", namespace=name)
        self.admin.wait("serviceaccounts", lambda seen: (name, "default") in seen, 30, f"the service account of {name}", namespace=name)

    def start_scheduler(self):
        """Starts the scheduler."""
        config = self.kubeconfig("system:kube-scheduler")
        self._start("scheduler", "kube-scheduler", f"--kubeconfig={config}", "--leader-elect=false",
                    "--bind-address=127.0.0.1", "--secure-port=10259")

    def alive(self, part):
        """Whether a part (`etcd`, `api`, `controllers`, `scheduler`) runs."""
        return part in self.parts and self.parts[part].alive

    def stop(self, part):
        """Stops a part; the API server's address then refuses."""
        process = self.parts.pop(part)
        process.kill() if part == "api" else process.stop()
        if part == "api":
            until(self.refuses, 5, "the API server's address refuses")

    def refuses(self):
        """Whether the API server's address refuses connections."""
        try:
            socket.create_connection((self.address, self.PORT), 1).close()
            return False
        except ConnectionRefusedError:
            return True

    def freeze(self, part="api"):
        """Freezes a part: it accepts connections and never answers."""
        self.parts[part].freeze()

    def thaw(self, part="api"):
        """Lets a frozen part go on."""
        self.parts[part].thaw()
