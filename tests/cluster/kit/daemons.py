"""Daemons for the stories: flannel's file with stand-ins under its image names, kube-proxy, probes.

Owns images and manifests only; what they do once they run is in the programs themselves.
"""

import glob
import json
import os
from pathlib import Path

from . import images
from . import tools
from .control_plane import PODS

CORPUS = tools.REPO.parent / "shared" / "corpus"
EXAMPLE_CNI = tools.REPO / "examples" / "cni"
FLANNEL = Path(os.environ.get("DAEMONLET_FLANNEL") or CORPUS / "flannel.yaml")
KUBE_PROXY_IMAGE = f"registry.k8s.io/kube-proxy:v{tools.KUBERNETES}"
# A container that runs until it gets SIGTERM, and ends at once then.
SLEEP = ["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"]

_INSTALL_CONF = b"""#!/bin/sh
# As flannel's own: the file appears whole, or not at all.
set -e
cp "$1" "$2.new"
mv "$2.new" "$2"
"""


def images_of(manifest):
    """The image names that a manifest's text names."""
    found = []
    for line in manifest.splitlines():
        key, _, value = line.strip().removeprefix("- ").partition(":")
        name = value.split(" #")[0].strip().strip("\"'")
        if key == "image" and name and name not in found:
            found.append(name)
    return found


def flannel_images(path=FLANNEL):
    """Images under the names of flannel's published file, with the stand-ins in them."""
    names = images_of(path.read_text(encoding="utf-8"))
    plugin = [name for name in names if "cni-plugin" in name]
    daemon = [name for name in names if "cni-plugin" not in name]
    return [
        images.Image(*plugin, files={"/flannel": tools.program("flannelcni")}, busybox=True),
        images.Image(*daemon, files={"/opt/bin/flanneld": tools.program("flanneld"), "/opt/bin/install-conf": _INSTALL_CONF}, busybox=True),
    ]


def kube_proxy_image():
    """The real kube-proxy, with the iptables that it calls."""
    multi = "/usr/sbin/xtables-nft-multi"
    files = {"/usr/local/bin/kube-proxy": tools.program("kube-proxy")} | images.libraries(multi)
    for extension in glob.glob("/usr/lib/*/xtables/*.so"):
        files |= images.libraries(extension)
    commands = [f"{family}{command}" for family in ("iptables", "ip6tables") for command in ("", "-save", "-restore")]
    return images.Image(KUBE_PROXY_IMAGE, files=files, links={f"/usr/sbin/{command}": multi for command in commands}, busybox=True)


def kube_proxy(server):
    """What kubeadm applies for kube-proxy: account, role, configuration, DaemonSet."""
    kubeconfig = {
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{"name": "default", "cluster": {"server": server, "certificate-authority": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}}],
        "users": [{"name": "default", "user": {"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    }
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "clusterCIDR": PODS,
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        # These limits belong to the whole machine, not to a namespace of it.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    labels = {"k8s-app": "kube-proxy"}
    name = {"name": "kube-proxy", "namespace": "kube-system"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "kubeadm:node-proxier"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"},
         "subjects": [{"kind": "ServiceAccount", **name}]},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": {"kubeconfig.conf": json.dumps(kubeconfig), "config.conf": json.dumps(config)}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": name | {"labels": labels}, "spec": {
            "selector": {"matchLabels": labels}, "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {
                "priorityClassName": "system-node-critical", "hostNetwork": True, "serviceAccountName": "kube-proxy",
                "tolerations": [{"operator": "Exists"}], "nodeSelector": {"kubernetes.io/os": "linux"},
                "containers": [{
                    "name": "kube-proxy", "image": KUBE_PROXY_IMAGE, "imagePullPolicy": "IfNotPresent",
                    "command": ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"],
                    "securityContext": {"privileged": True},
                    "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    "volumeMounts": [{"name": "kube-proxy", "mountPath": "/var/lib/kube-proxy"},
                                     {"name": "xtables-lock", "mountPath": "/run/xtables.lock"},
                                     {"name": "lib-modules", "mountPath": "/lib/modules", "readOnly": True}]}],
                "volumes": [{"name": "kube-proxy", "configMap": {"name": "kube-proxy"}},
                            {"name": "xtables-lock", "hostPath": {"path": "/run/xtables.lock", "type": "FileOrCreate"}},
                            {"name": "lib-modules", "hostPath": {"path": "/lib/modules"}}]}}}},
    ]


def daemonset(name, namespace="kube-system", container=None, labels=None, spec=None, **pod):
    """A DaemonSet of one container; `container`, `spec` (of the DaemonSet) and pod fields add and override."""
    selector = {"app": name}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "spec": {
        "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": selector}, "spec": {
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": images.BOX, "command": SLEEP} | (container or {})]} | pod}} | (spec or {})}


def probe(name="probe", namespace="kube-system"):
    """Pods on the pod network that serve their node's name on port 8080."""
    serve = 'mkdir -p /tmp/www; echo "$NODE" > /tmp/www/index.html; trap exit TERM; httpd -f -p 8080 -h /tmp/www & wait'
    return daemonset(name, namespace, tolerations=[{"operator": "Exists"}], container={
        "command": ["sh", "-c", serve], "ports": [{"containerPort": 8080}],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]})


def service(name="probe", namespace="kube-system"):
    """A Service over the probe pods."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}}


def example_cni():
    """The folder and the image of the repository's example CNI DaemonSet: a shell, curl, jq, the plugins."""
    files = images.libraries("/usr/bin/curl", "/usr/bin/jq")
    files |= {f"/plugins/{name}": f"/usr/lib/cni/{name}" for name in ("bridge", "host-local", "loopback", "portmap")}
    return EXAMPLE_CNI, images.Image("example.invalid/cni:1", files=files, busybox=True)
