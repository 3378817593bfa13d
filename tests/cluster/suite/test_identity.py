"""Who an agent is and what it may: enrolment, renewal, and every way out of a node that was thought of."""

import base64
import json
import re
import ssl
import subprocess

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
from kit.sandbox import scratch
from kit.shim import Shim
from kit.wait import never
from kit.wait import until

from .bare import BareNode
from .ways_out import REQUESTS
from .ways_out import WaysOut
from .ways_out import certificate_request
from .ways_out import signing_request

SOON = 30
TOKEN = "abcdef.0123456789abcdef"
OTHER_TOKEN = "fedcba.0123456789abcdef"
GROUP = "system:bootstrappers:daemonlet"


def bootstrap_token(token, *groups):
    """The Secret of a bootstrap token."""
    ident, secret = token.split(".")
    return {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": f"bootstrap-token-{ident}", "namespace": "kube-system"},
            "stringData": {"token-id": ident, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": ",".join(groups)}}


class IdentityTest(WaysOut):
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
              SOON, "it is reported")
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
        # Reading, being another identity, and policies (which no policy covers) are RBAC's alone to refuse.
        alone = {what for what in rows if what.startswith(("read: ", "be: "))}
        self.assertEqual({what for what, row in rows.items() if row[1] != "refused"}, alone)

    def test_8_a_certificate_for_another_stays_unapproved(self):
        for name, subject in (("other-node", "/O=daemonlet:nodes/CN=daemonlet:node:n2"), ("coordinator", "/O=daemonlet:coordinators/CN=daemonlet:coordinator"),
                              ("both", "/O=daemonlet:nodes/O=daemonlet:coordinators/CN=daemonlet:node:n1")):
            self.n1.request("POST", REQUESTS, signing_request(name, subject))
        until(lambda: self.one.process.tail(80).count("is left alone") >= 3, SOON, f"they are reported: {self.one.process.tail(20)}")
        for name in ("other-node", "coordinator", "both"):
            self.assertFalse(self.admin.request("GET", f"{REQUESTS}/{name}").get("status"), name)

    def test_8_who_has_a_bootstrap_token_is_a_node_that_exists_and_no_other_identity(self):
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

    def test_9_the_deployments_account_approves_nodes_and_no_other_identity(self):
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
