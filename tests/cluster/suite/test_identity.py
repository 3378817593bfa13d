"""Who an agent is and what it may: enrolment, renewal, and every way out of a node that was thought of."""

import base64
import json
import re
import ssl
import subprocess
import time

from kit import agent as agents
from kit import coordinator
from kit import tools
from kit.agent import Agent
from kit.agent import toml
from kit.api import Api
from kit.api import Refused
from kit.api import path_of
from kit.control_plane import ControlPlane
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.shim import Shim
from kit.wait import never
from kit.wait import until

from .bare import BareNode
from .bare import STATIC
from .story import Story

SOON = 30
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
TOKEN = "abcdef.0123456789abcdef"
OTHER_TOKEN = "fedcba.0123456789abcdef"
GROUP = "system:bootstrappers:daemonlet"


def bootstrap_token(token, *groups):
    """The Secret of a bootstrap token."""
    ident, secret = token.split(".")
    return {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": f"bootstrap-token-{ident}", "namespace": "kube-system"},
            "stringData": {"token-id": ident, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": ",".join(groups)}}


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


class IdentityTest(Story):
    """One cluster with a coordinator that approves, and nodes that enrol."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane(extra=[
            "--enable-bootstrap-token-auth", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]))
        cls.cluster.start_controllers(extra=["--cluster-signing-duration=1h"])
        cls.admin = cls.cluster.admin
        agents.grant(cls.cluster, wide=False)
        coordinator.install(cls.cluster)
        # With the rights to dry runs and to a taint, too: every attempt is made by an agent that has all that is packaged for one.
        cls.admin.apply(tools.REPO / "packaging/k8s/rbac-dry-run.yaml", tools.REPO / "packaging/k8s/startup-taint.yaml")
        cls.admin.apply(tools.REPO / "packaging/k8s/approver-rbac.yaml", bootstrap_token(TOKEN, GROUP),
                        bootstrap_token(OTHER_TOKEN, "system:bootstrappers:worker"))
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one", coordinator={"approve-nodes": True}))
        cls.nodes = [cls.enterClassContext(BareNode(cls.cluster, name)) for name in ("n1", "n2")]
        cls.agents = {}

    def new_agent(self, node):
        """An agent that has a configuration and no identity."""
        made = Agent(node, kubeconfig=str(scratch() / f"{node.name}.kubeconfig"))
        made.folder.mkdir(parents=True, exist_ok=True)
        made.config_file.write_text(toml(made.config), encoding="utf-8")
        return made

    def enroll(self, made, *more, source=None):
        """`daemonlet enroll`."""
        return made.cli("enroll", *more, "--from", source or self.kubelet(made.node.name))

    def kubelet(self, node):
        """A kubelet's kubeconfig."""
        return self.cluster.kubeconfig(f"system:node:{node}", ["system:nodes"])

    def by_token(self, token):
        """A bootstrap kubeconfig."""
        config = json.loads(self.kubelet("n1").read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        path = scratch() / f"{token[:6]}.kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        path.chmod(0o600)
        return path

    def pem(self, made):
        """Certificate and key of an agent."""
        return (made.home / "state/identity/client.pem").read_text(encoding="ascii")

    def api(self, made):
        """The API as an agent sees it."""
        both = base64.b64encode(self.pem(made).encode()).decode()
        config = json.loads(self.kubelet("n1").read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"client-certificate-data": both, "client-key-data": both}
        path = scratch() / f"{made.node.name}-inline.kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        path.chmod(0o600)
        return Api(path)

    def identity(self, made):
        """What `status` says of the identity."""
        return json.loads(made.cli("status", "--json").stdout)["agent"].get("identity")

    def run_agent(self, made):
        """Starts an enrolled agent for the rest of the file."""
        made.start()
        self.addClassCleanup(made.stop)
        self.agents[made.node.name] = made
        until(lambda: json.loads(made.cli("status", "--json").stdout)["agent"]["api"] == "connected", SOON, f"connected: {made.process.tail(20)}")

    def test_1_from_a_kubelets_certificate(self):
        made = self.new_agent(self.nodes[0])
        done = self.enroll(made)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.one.process.tail(10)}")
        self.assertRegex(done.stdout, r"^daemonlet:node:n1 is enrolled, until \d{4}-\S+Z; kubeconfig /\S+\n$")
        for file in ("identity/client.pem", "../../n1.kubeconfig"):
            self.assertEqual((made.home / "state" / file).stat().st_mode & 0o777, 0o600, file)
        self.assertFalse((made.home / "state/identity/pending.pem").exists())
        again = self.enroll(made)
        self.assertRegex(again.stdout, "is enrolled already")
        self.run_agent(made)
        self.assertEqual(self.identity(made)["user"], "daemonlet:node:n1")
        self.assertNotIn("PRIVATE", json.dumps(self.admin.request("GET", REQUESTS)))

    def test_2_from_a_bootstrap_token(self):
        made = self.new_agent(self.nodes[1])
        done = self.enroll(made, source=self.by_token(TOKEN))
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.one.process.tail(10)}")
        self.run_agent(made)

    def test_3_what_is_not_approved(self):
        made = self.new_agent(BareNode(self.cluster, "n3"))
        done = self.enroll(made, "--timeout", "2s", source=self.kubelet("n2"))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"(?s)is not approved after 2 s\n.*kubectl certificate approve daemonlet-")
        until(lambda: "system:node:n2 may not ask for daemonlet:node:n3" in self.one.process.tail(50), SOON, "it is reported")
        (made.home / "state/identity/pending.pem").unlink()
        refused = self.enroll(made, "--timeout", "2s", source=self.by_token(OTHER_TOKEN))
        self.assertRegex(refused.stderr, "cannot (get|create) resource .certificatesigningrequests")
        self.assertEqual(refused.returncode, 1)
        pending = self.enroll(made, "--timeout", "2s")
        self.assertEqual(pending.returncode, 1, "there is no Node n3")
        until(lambda: "there is no Node n3" in self.one.process.tail(50), SOON, "it is reported")
        with made.node:
            self.assertEqual(self.enroll(made).returncode, 0, "the same request is approved once the Node is there")
        others = signing_request("another-user", "/O=somebody/CN=else")
        self.admin.request("POST", REQUESTS, others)
        never(lambda: self.admin.request("GET", f"{REQUESTS}/another-user").get("status"), 1, "another's request was touched")

    def test_4_renewal_by_the_running_agent(self):
        made = self.agents["n1"]
        old = self.pem(made)
        shim = Shim("n1-identity", [made.home])
        made.env = shim.env
        shim.shift(51 * 60)
        made.restart()
        until(lambda: self.pem(made) != old, SOON, f"another certificate: {made.process.tail(20)}")
        new = self.pem(made)
        self.assertNotEqual(*(re.search("BEGIN PRIVATE KEY.*", text, re.S).group() for text in (old, new)), "another key, too")
        ssl.create_default_context().load_cert_chain(made.home / "state/identity/client.pem")
        shim.shift(-51 * 60)
        made.env = {}
        made.restart()
        until(lambda: json.loads(made.cli("status", "--json").stdout)["agent"]["api"] == "connected", SOON, "connected with the new one")

    def test_5_a_renewal_that_is_denied_is_said(self):
        made = self.agents["n2"]
        self.one.process.stop(5)
        old = self.pem(made)
        shim = Shim("n2-identity", [made.home])
        made.env = shim.env
        shim.shift(51 * 60)
        made.restart()
        self.addCleanup(made.restart)
        self.addCleanup(made.env.clear)
        until(lambda: "waits for approval" in (self.identity(made) or {}).get("renewal", ""), SOON, f"it waits: {made.process.tail(20)}")
        request = re.search(r"daemonlet-\w+", self.identity(made)["renewal"]).group()
        self.admin.kubectl("certificate", "deny", request)
        until(lambda: re.search(rf"problem: identity: the certificate of daemonlet:node:n2 expires at .*{request} was denied", made.cli("status").stdout),
              SOON, "it is told")
        self.assertEqual(self.pem(made), old, "the old one stays")
        self.one.start()

    def test_6_what_an_agent_may(self):
        self.world()
        n1 = self.n1
        legitimate = {
            "NodeDaemons: made, empty and owned by the Node": lambda: self.remake(n1, "n1"),
            "NodeDaemons: its status": lambda: n1.patch("nodedaemons", "n1", {"status": {"ready": "0/0"}}, sub="status"),
            "NodeDaemons: a claim, on the version that was read": lambda: n1.patch(
                "nodedaemons", "n1", {"metadata": {"resourceVersion": n1.get("nodedaemons", "n1")["metadata"]["resourceVersion"]},
                                      "status": {"daemons": [{"namespace": "kube-system", "name": "net", "uid": "", "replacing": "abc"}]}}, sub="status"),
            "mirror pod: its revision's labels": lambda: n1.patch("pods", "net-n1", {"metadata": {"labels": {"controller-revision-hash": "abc"}}}, "kube-system"),
            "mirror pod: owned by its DaemonSet": lambda: n1.patch("pods", "net-n1", {"metadata": {"ownerReferences": [self.owner("net")]}}, "kube-system"),
            "mirror pod: deleted": lambda: n1.delete("pods", "net-n1", "kube-system", gracePeriodSeconds=1),
            "event about its DaemonSet": lambda: n1.create("events", self.event("legitimate")),
            "event about its Node": lambda: n1.create("events", self.event("of-node", regarding=self.node_ref("n1")) | {"metadata": {"name": "of-node", "namespace": "default"}}),
            "event: a series": lambda: n1.patch("events", "legitimate", {"series": {"count": 2, "lastObservedTime": "2026-11-21T12:00:00.000000Z"}}, "kube-system"),
            "token of a daemon's account, bound to its Node": lambda: self.token(n1, "net", self.node_ref("n1")),
            "the same, for a day": lambda: self.token(n1, "net", self.node_ref("n1"), 86400),
            "request for a new certificate of its own": lambda: n1.request("POST", REQUESTS, signing_request("own", "/O=daemonlet:nodes/CN=daemonlet:node:n1")),
            "Secret that a DaemonSet names": lambda: n1.get("secrets", "keys", "kube-system")["data"],
            "the same, watched by its name": lambda: n1.list("secrets", "kube-system", fields="metadata.name=keys"),
            "ConfigMap that a DaemonSet names": lambda: n1.get("configmaps", "settings", "kube-system")["data"],
            "dry run of a pod of a DaemonSet for its node": lambda: n1.request("POST", path_of("pods", "kube-system") + "?dryRun=All", self.pod_of("net", "n1")),
            "its Node": lambda: n1.get("nodes", "n1")["metadata"],
        }
        print()
        for what, attempt in legitimate.items():
            with self.subTest(what):
                self.assertTrue(attempt())
                print(f"          may      {what}")
        until(lambda: self.admin.request("GET", f"{REQUESTS}/own").get("status", {}).get("certificate"), SOON, "its own request is approved")

    def test_7_what_an_agent_may_not(self):
        self.world()
        rows = {what: [self.outcome(attempt)] for what, attempt in self.attempts().items()}
        # Even with every right in the cluster: what RBAC gives by mistake, the policies hold.
        self.admin.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "by-mistake"},
                          "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                          "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "daemonlet:node:n1"}]})
        until(lambda: self.n1.list("secrets"), SOON, "it has every right")
        for what, attempt in self.attempts().items():
            rows[what].append(self.outcome(attempt))
        self.admin.delete("clusterrolebindings", "by-mistake")
        print(f"\n          {len(rows)} attempts with the credentials of node n1's agent: as packaged; as cluster-admin besides")
        for what, (packaged, besides) in rows.items():
            print(f"          {packaged:8} {besides:8} {what}")
        self.assertGreaterEqual(len(rows), 20)
        self.assertEqual({what: row for what, row in rows.items() if row[0] != "refused"}, {})
        # Reading, being somebody else, and policies (which no policy covers) are RBAC's alone to refuse.
        alone = {what for what in rows if what.startswith(("read: ", "be: "))}
        self.assertEqual({what for what, row in rows.items() if row[1] != "refused"}, alone)

    def test_8_a_certificate_for_another_stays_unapproved(self):
        for name, subject in (("other-node", "/O=daemonlet:nodes/CN=daemonlet:node:n2"), ("coordinator", "/O=daemonlet:coordinators/CN=daemonlet:coordinator"),
                              ("both", "/O=daemonlet:nodes/O=daemonlet:coordinators/CN=daemonlet:node:n1")):
            self.n1.request("POST", REQUESTS, signing_request(name, subject))
        until(lambda: self.one.process.tail(80).count("is left alone") >= 3, SOON, f"they are reported: {self.one.process.tail(20)}")
        for name in ("other-node", "coordinator", "both"):
            self.assertFalse(self.admin.request("GET", f"{REQUESTS}/{name}").get("status"), name)

    def test_8_who_has_a_bootstrap_token_is_a_node_that_exists_and_nobody_else(self):
        kubectl = [tools.program("kubectl"), "--kubeconfig", self.by_token(TOKEN)]

        def may(*words, stdin=None):
            return subprocess.run([*kubectl, *words], input=stdin, capture_output=True, text=True, check=False, timeout=30).returncode == 0

        def ask(name, subject, *more, **spec):
            body = signing_request(name, "/CN=x")
            body["spec"] |= {"request": certificate_request(subject, *more)} | spec
            return may("create", "-f", "-", stdin=json.dumps(body))

        node, of = "/O=daemonlet:nodes/CN=daemonlet:node:n1", "/O=daemonlet:nodes/CN=daemonlet:node:"
        strange = {
            "two-names": (f"{node}/CN=daemonlet:node:n2",), "two-names-of-one-part": (f"{node}+CN=daemonlet:node:n2", "-multivalue-rdn"),
            "masters": (f"/O=system:masters{node}",), "nobody": (f"{of}nobody",), "capitals": (f"{of}N1",), "a-blank": (f"{of}n1 ",), "no-name": (of,),
            "a-path": (f"{of}n1\\/..\\/n2",), "a-kubelet": ("/O=system:nodes/CN=system:node:n1",), "without-group": ("/CN=daemonlet:node:n1",),
            "coordinators": ("/O=daemonlet:coordinators/CN=daemonlet:node:n1",), "an-account": ("/CN=system:serviceaccount:kube-system:daemonlet-coordinator",),
            "another-host": (node, "-addext", "subjectAltName=DNS:kubernetes.default"), "an-authority": (node, "-addext", "basicConstraints=CA:TRUE"),
        }
        for name, request in strange.items():
            # system:masters is refused by the API server itself.
            self.assertEqual(ask(f"token-{name}", *request), name != "masters", name)
        ask("token-server", node, usages=["digital signature", "server auth"])
        ask("token-serving", node, signerName="kubernetes.io/kubelet-serving", usages=["digital signature", "server auth"])
        for words in (("get", "nodes"), ("get", "secrets", "-A"), ("get", "csr"), ("get", "ds", "-A"), ("get", "nodedaemons"), ("certificate", "approve", "token-nobody"),
                      ("delete", "csr", "token-nobody"), ("get", "node", "n1", "--as", "admin"), ("annotate", "csr", "token-nobody", "a=b"), ("create", "token", "default")):
            self.assertFalse(may(*words), words)
        # What came before it was looked at when this one is approved.
        self.assertTrue(ask("token-n1", node))
        until(lambda: self.admin.request("GET", f"{REQUESTS}/token-n1").get("status", {}).get("certificate"), SOON, f"a node's is approved: {self.one.process.tail(20)}")
        given = [one["metadata"]["name"] for one in self.admin.request("GET", REQUESTS)["items"] if one["metadata"]["name"].startswith("token-") and one.get("status")]
        self.assertEqual(given, ["token-n1"])

    def test_9_the_deployments_account_approves_nodes_and_nobody_else(self):
        self.admin.kubectl("apply", "-f", str(tools.REPO / "packaging/k8s/coordinator-deployment.yaml"))
        account = self.by_token(self.admin.kubectl("create", "token", "daemonlet-coordinator", "-n", "kube-system").strip())
        self.one.process.stop(5)
        self.addCleanup(self.one.start)
        made = self.new_agent(BareNode(self.cluster, "n4"))
        with made.node, Coordinator(self.cluster, "deployed", coordinator={"approve-nodes": True, "kubeconfig": str(account)}) as deployed:
            self.assertEqual(self.enroll(made).returncode, 0, deployed.process.tail(20))
        # What the program would not do, the policy refuses, too.
        self.admin.request("POST", REQUESTS, signing_request("of-an-admin", "/O=daemonlet:nodes/CN=daemonlet:node:n1"))
        Api(self.kubelet("n1")).request("POST", REQUESTS, signing_request("of-a-kubelet", "/O=daemonlet:nodes/CN=daemonlet:node:n1"))
        # A certificate with the account's name: the same user to RBAC and to policies.
        by_name = Api(self.cluster.kubeconfig("system:serviceaccount:kube-system:daemonlet-coordinator", ["system:serviceaccounts"]))
        def approve(name):
            found = by_name.request("GET", f"{REQUESTS}/{name}")
            found["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "x"}]}
            by_name.request("PUT", f"{REQUESTS}/{name}/approval", found)
        with self.assertRaises(Refused) as refused:
            approve("of-an-admin")
        self.assertIn("a coordinator approves requests of nodes, agents and the bootstrap tokens of daemonlet only", str(refused.exception))
        approve("of-a-kubelet")

    @staticmethod
    def outcome(attempt):
        """How an attempt ends."""
        try:
            attempt()
        except Refused as refused:
            return "refused" if refused.code == 403 else f"{refused}"
        return "PASSES"

    def world(self):
        """What there is to attack; n1's agent is down, so that nobody else writes in its name."""
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
            "give its mirror pod to nobody": patch_pod(ownerReferences=None),
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
            "dry run of a pod of nobody": post(f"{path_of('pods', system)}?dryRun=All", **self.pod_of("", "n1") | {"metadata": {"name": "evil"}}),
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
            "be: somebody else, by impersonation": impersonate,
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
