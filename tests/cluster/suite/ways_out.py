"""Every way out of a node that was thought of, as attempts with its agent's credentials (no tests of its own)."""

import base64
import json
import subprocess
import time

from kit import agent as agents
from kit import tools
from kit.api import Refused
from kit.api import path_of
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.wait import until

from .bare import STATIC
from .story import Story

SOON = 30
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def certificate_request(subject, *more):
    """A certificate request with a key of its own, base64 as the API wants it."""
    made = subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                           scratch() / "any.key", "-subj", subject, *more], check=True, capture_output=True)
    return base64.b64encode(made.stdout).decode()


def long_annotation(request):
    """The request with more text beside it than an agent has."""
    return request | {"metadata": request["metadata"] | {"annotations": {"x": "x" * 100_000}}}


def long_request(request):
    """The request with a certificate request that is longer than an agent's: white space behind it does not make it invalid."""
    text = base64.b64decode(request["spec"]["request"]) + b"\n" * 10_000
    return request | {"spec": request["spec"] | {"request": base64.b64encode(text).decode()}}


def signing_request(name, subject, signer="kubernetes.io/kube-apiserver-client"):
    """A CertificateSigningRequest."""
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": certificate_request(subject), "signerName": signer, "usages": ["digital signature", "client auth"]}}


class WaysOut(Story):
    """What there is to attack, and the attempts. `agents` are those of the nodes, by name; a story says how one reaches the API."""

    agents = {}

    @staticmethod
    def outcome(attempt):
        """How an attempt ends."""
        try:
            attempt()
        except Refused as refused:
            return "refused" if refused.code == 403 else f"{refused}"
        return "PASSES"

    def world(self):
        """What there is to attack; n1's agent is down, so that no agent writes in its name."""
        if self.agents["n1"].process.alive:
            self.agents["n1"].stop()
        type(self).n1 = self.api(self.agents["n1"])
        body = daemonset("net", "kube-system", {"envFrom": [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "settings"}}]}, dict(STATIC), {},
                         serviceAccountName="net")
        self.admin.apply(body, daemonset("other", "kube-system", {}, {}, {}),
                         {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "net", "namespace": "kube-system"}},
                         {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin", "namespace": "kube-system"}},
                         {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "kube-system"}, "data": {"a": "b"}},
                         {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "kube-system"}, "stringData": {"a": "b"}},
                         {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "not-named", "namespace": "kube-system"}, "stringData": {"a": "b"}})
        file = scratch() / "net.yaml"
        file.write_text(json.dumps(body), encoding="utf-8")
        printed = subprocess.run([agents.binary(), "generate", "rbac", "-f", file], check=True, capture_output=True, text=True).stdout
        self.admin.apply(printed)
        for node in ("n1", "n2"):
            self.mirror(node)
            if not self.admin.get("nodedaemons", node):
                self.admin.create("nodedaemons", {"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": node}, "spec": {}})
        if not self.admin.get("pods", "ordinary", "kube-system"):
            self.admin.create("pods", {"metadata": {"name": "ordinary", "namespace": "kube-system"}, "spec": {
                "nodeName": "n1", "serviceAccountName": "net", "containers": [{"name": "a", "image": "example.org/a"}]}})
        until(lambda: self.n1.get("secrets", "keys", "kube-system"), SOON, "its rights are in force")

    def mirror(self, node):
        """A daemon's mirror pod, made as a kubelet makes it."""
        there = self.admin.get("pods", f"net-{node}", "kube-system")
        if there and "deletionTimestamp" not in there["metadata"]:
            return
        if there:
            # No kubelet lets it go.
            self.admin.delete("pods", f"net-{node}", "kube-system", gracePeriodSeconds=0)
        self.cluster.user(f"system:node:{node}", ["system:nodes"]).create("pods", {
            "metadata": {"name": f"net-{node}", "namespace": "kube-system", "labels": {"app": "net"}, "annotations": {
                "kubernetes.io/config.mirror": "1", "kubernetes.io/config.hash": "1", "kubernetes.io/config.source": "file",
                "daemonlet.dev/daemonset": "kube-system/net"},
                "ownerReferences": [self.node_ref(node) | {"controller": True}]},
            "spec": {"nodeName": node, "containers": [{"name": "a", "image": "example.org/a"}], "tolerations": [{"operator": "Exists"}]}})

    def node_ref(self, node):
        """A reference to a Node."""
        return {"apiVersion": "v1", "kind": "Node", "name": node, "uid": self.admin.get("nodes", node)["metadata"]["uid"]}

    def owner(self, name, **more):
        """A DaemonSet as an owner."""
        uid = self.admin.get("daemonsets", name, "kube-system")["metadata"]["uid"]
        return {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid, "controller": True} | more

    def event(self, name, **more):
        """An event as the agent of n1 writes it."""
        regarding = {key: value for key, value in self.owner("net").items() if key != "controller"} | {"namespace": "kube-system"}
        return {"metadata": {"name": name, "namespace": "kube-system"}, "eventTime": "2026-11-21T12:00:00.000000Z", "reportingController": "daemonlet",
                "reportingInstance": "n1", "type": "Warning", "reason": "Refused", "action": "Render", "note": "-", "regarding": regarding} | more

    @staticmethod
    def token(api, account, bound=None, seconds=600):
        """A token request."""
        return api.create("serviceaccounts", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                                              "spec": {"expirationSeconds": seconds} | ({"boundObjectRef": bound} if bound else {})}, "kube-system", account, "token")

    def pod_of(self, name, node, **more):
        """A pod of a DaemonSet for a node, as the DaemonSet controller makes it."""
        affinity = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{name}-", "ownerReferences": [self.owner(name)] if name else []},
                "spec": {"serviceAccountName": "net", "containers": [{"name": "a", "image": "example.org/a"}],
                         "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}} | more}

    def remake(self, api, name, node=None, **spec):
        """Makes a NodeDaemons anew as `api`."""
        if self.admin.get("nodedaemons", name):
            self.admin.delete("nodedaemons", name)
        return api.create("nodedaemons", {"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "spec": spec, "metadata": {
            "name": name, "ownerReferences": [self.node_ref(node or name)]}})

    def attempts(self):
        """Ways out: what, and the attempt."""
        n1, system = self.n1, "kube-system"
        approval = {"approvals": [{"namespace": system, "name": "net", "uid": "u", "revision": "r", "approvedAt": "2026-11-21T12:00:00Z"}]}
        pod = f"{path_of('pods', system)}/net-n1"
        lease = path_of("leases", system, "daemonlet-coordinator")
        merge = "application/merge-patch+json"

        def patch_pod(name="net-n1", spec=None, **metadata):
            return lambda: n1.patch("pods", name, {"metadata": metadata} | ({"spec": spec} if spec else {}), system)

        def post(path, **body):
            return lambda: n1.request("POST", path, body)

        def binding():
            return n1.request("POST", f"{RBAC}/clusterrolebindings", {
                "metadata": {"name": "mine"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "daemonlet:node:n1"}]})

        def impersonate():
            done = subprocess.run([tools.program("kubectl"), "--kubeconfig", n1.kubeconfig, "--as", "admin", "--as-group", "system:masters", "get", "nodes"],
                                  capture_output=True, text=True, check=False, timeout=30)
            if done.returncode:
                raise Refused(403 if "cannot impersonate" in done.stderr else 0, done.stderr)

        return {
            "take the coordinator's Lease": lambda: n1.request("PATCH", lease, {"spec": {"holderIdentity": "n1"}}, merge),
            "make a Lease": post(path_of("leases", system), metadata={"name": f"l{time.monotonic_ns()}"}, spec={}),
            "make the Lease of another agent": post(path_of("leases", "daemonlet-node-lease"), metadata={"name": f"l{time.monotonic_ns()}"}, spec={}),
            "approve a rollout in its own NodeDaemons": lambda: n1.patch("nodedaemons", self.there("n1"), {"spec": approval}),
            "make its NodeDaemons with an approval in it": lambda: self.remake(n1, "n1", **approval),
            "make NodeDaemons of another name": lambda: self.remake(n1, "n9", "n1"),
            "make the NodeDaemons of another node": lambda: self.remake(n1, "n2"),
            "write another node's status": lambda: n1.patch("nodedaemons", self.there("n2"), {"status": {"ready": "9/9"}}, sub="status"),
            "delete NodeDaemons": lambda: n1.delete("nodedaemons", self.there("n2")),
            "approve a certificate": lambda: n1.request("PATCH", f"{REQUESTS}/another-user/approval", {"status": {"conditions": [
                {"type": "Approved", "status": "True", "reason": "x", "message": "x"}]}}, merge),
            "sign a certificate": lambda: n1.request("PATCH", f"{REQUESTS}/another-user/status", {"status": {"certificate": base64.b64encode(self.pem(self.agents["n1"]).split("-----BEGIN PRIVATE")[0].encode()).decode()}}, merge),
            "ask for a certificate of system:masters": post(REQUESTS, **signing_request("masters", "/O=system:masters/CN=daemonlet:node:n1")),
            "ask for a kubelet's certificate": post(REQUESTS, **signing_request("kubelet", "/O=system:nodes/CN=system:node:n2", "kubernetes.io/kube-apiserver-client-kubelet")),
            "ask for a certificate with a long annotation": post(REQUESTS, **long_annotation(signing_request("long", "/O=daemonlet:nodes/CN=daemonlet:node:n1"))),
            "ask for a certificate with a long request": post(REQUESTS, **long_request(signing_request("large", "/O=daemonlet:nodes/CN=daemonlet:node:n1"))),
            "ask for a serving certificate": post(REQUESTS, **signing_request("serving", "/O=system:nodes/CN=system:node:n1", "kubernetes.io/kubelet-serving")),
            "a token bound to another Node": lambda: self.token(n1, "net", self.node_ref("n2")),
            "a token bound to its Node by name only": lambda: self.token(n1, "net", {"apiVersion": "v1", "kind": "Node", "name": "n1"}),
            "a token bound to nothing": lambda: self.token(n1, "net"),
            "a token for more than a day": lambda: self.token(n1, "net", self.node_ref("n1"), 86401),
            "a token bound to a Pod": lambda: self.token(n1, "net", {"apiVersion": "v1", "kind": "Pod", "name": "ordinary",
                                                                     "uid": self.admin.get("pods", "ordinary", system)["metadata"]["uid"]}),
            "be: an account that no daemon uses, by a token": lambda: self.token(n1, "admin", self.node_ref("n1")),
            "label another node's mirror pod": patch_pod("net-n2", labels={"controller-revision-hash": "x"}),
            "delete another node's mirror pod": lambda: n1.delete("pods", "net-n2", system),
            "change its mirror pod's image": patch_pod(spec={"containers": [{"name": "a", "image": "example.org/evil"}]}),
            "give its mirror pod to another DaemonSet": patch_pod(ownerReferences=[self.owner("other")]),
            "give its mirror pod to a blocking owner": patch_pod(ownerReferences=[self.owner("net", blockOwnerDeletion=True)]),
            "take the owner from its mirror pod": patch_pod(ownerReferences=None),
            "put its mirror pod behind another Service": patch_pod(labels={"app": "victim"}),
            "take a label off its mirror pod": patch_pod(labels={"app": None}),
            "annotate its mirror pod": patch_pod(annotations={"daemonlet.dev/daemonset": "kube-system/other"}),
            "put a finalizer on its mirror pod": patch_pod(finalizers=["example.org/stay"]),
            "label an ordinary pod of its node": patch_pod("ordinary", labels={"controller-revision-hash": "x"}),
            "delete an ordinary pod of its node": lambda: n1.delete("pods", "ordinary", system),
            "write a pod's status": lambda: n1.patch("pods", "ordinary", {"status": {"phase": "Failed"}}, system, "status"),
            "make a pod": post(path_of("pods", system), metadata={"name": "evil"}, spec={"containers": [{"name": "a", "image": "a"}]}),
            "make a pod of its DaemonSet for its node": post(path_of("pods", system), **self.pod_of("net", "n1")),
            "make a pod that is bound to its node": post(path_of("pods", system), **self.pod_of("net", "n1", nodeName="n1")),
            "dry run of a pod for another node": post(f"{path_of('pods', system)}?dryRun=All", **self.pod_of("net", "n2")),
            "dry run of a pod that is bound": post(f"{path_of('pods', system)}?dryRun=All", **self.pod_of("net", "n1", nodeName="n1")),
            "dry run of a pod for any node": post(f"{path_of('pods', system)}?dryRun=All", **self.pod_of("net", "n1", affinity=None)),
            "dry run of a pod of no DaemonSet": post(f"{path_of('pods', system)}?dryRun=All", **self.pod_of("", "n1") | {"metadata": {"name": "evil"}}),
            "bind a pod": post(f"{path_of('pods', system)}/ordinary/binding", metadata={"name": "ordinary"}, target={"kind": "Node", "name": "n1"}),
            "evict a pod": post(f"{path_of('pods', system)}/ordinary/eviction", apiVersion="policy/v1", kind="Eviction", metadata={"name": "ordinary"}),
            "exec into a pod": lambda: n1.request("POST", f"{pod}/exec?command=sh&stdout=true"),
            "the kubelet's API, by the API server": lambda: n1.request("GET", "/api/v1/nodes/n1/proxy/pods"),
            "read: a Secret that no daemon names": lambda: n1.request("GET", path_of("secrets", system, "not-named")),
            "read: the list of a namespace's Secrets": lambda: n1.list("secrets", system),
            "read: the list of all Secrets": lambda: n1.list("secrets"),
            "read: a ConfigMap that no daemon names": lambda: n1.request("GET", path_of("configmaps", system, "extension-apiserver-authentication")),
            "read: the Services": lambda: n1.list("services", system),
            "an event in the name of another node": lambda: n1.create("events", self.event("e1", reportingInstance="n2")),
            "an event in the kubelet's name": lambda: n1.create("events", self.event("e2", reportingController="kubelet")),
            "an event about another Node": lambda: n1.create("events", self.event("e5", regarding=self.node_ref("n2")) | {"metadata": {"name": "e5", "namespace": "default"}}),
            "an event about a Secret": lambda: n1.create("events", self.event("e3", regarding={"apiVersion": "v1", "kind": "Secret", "name": "keys", "namespace": system})),
            "an event of the old API": post(f"/api/v1/namespaces/{system}/events", metadata={"name": "e4"}, involvedObject={"namespace": system}),
            "change a DaemonSet": lambda: n1.patch("daemonsets", "net", {"metadata": {"labels": {"x": "y"}}}, system),
            "write a DaemonSet's status": lambda: n1.patch("daemonsets", "net", {"status": {"numberReady": 9}}, system, "status"),
            "delete a DaemonSet": lambda: n1.delete("daemonsets", "net", system),
            "make a ControllerRevision": post(path_of("controllerrevisions", system), metadata={"name": "r"}, revision=1, data={}),
            "label its own Node": lambda: n1.patch("nodes", "n1", {"metadata": {"labels": {"x": "y"}}}),
            "taint its own Node": lambda: n1.patch("nodes", "n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            "taint another Node": lambda: n1.patch("nodes", "n2", {"spec": {"taints": [{"key": "daemonlet.dev/starting", "effect": "NoSchedule"}]}}),
            "write its Node's status": lambda: n1.patch("nodes", "n1", {"status": {"phase": "Running"}}, sub="status"),
            "be: another identity, by impersonation": impersonate,
            "bind itself to cluster-admin": binding,
            "widen its own role": lambda: n1.patch("clusterroles", agents.ROLE, {"rules": []}),
            "make a ServiceAccount": post(path_of("serviceaccounts", system), metadata={"name": "evil"}),
            "write a ConfigMap": post(path_of("configmaps", system), metadata={"name": "evil"}),
            "write a Secret": post(path_of("secrets", system), metadata={"name": "evil"}),
            "change the resource NodeDaemons": lambda: n1.request(
                "PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodedaemons.daemonlet.dev", {"metadata": {"labels": {"x": "y"}}}, merge),
            # The last: what comes after it would be held no more.
            "be: without the policy that holds it": lambda: n1.request(
                "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/daemonlet-agent-writes"),
        }

    def there(self, name):
        """The name of a NodeDaemons that exists."""
        try:
            self.admin.create("nodedaemons", {"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": name}, "spec": {}})
        except Refused as refused:
            # It is there, or its own agent was quicker.
            if refused.code != 409:
                raise
        return name
