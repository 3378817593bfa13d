"""Objects of one tenant as hostile as the API server lets them be: what runs of others stays, and all are still served."""

import itertools
import json
import re
import subprocess
import threading

from kit.agent import Agent
from kit.agent import binary
from kit.api import Refused
from kit.api import path_of
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.sandbox import scratch
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

# An API server, a coordinator and an agent that may be built for debugging share two cores.
SOON = 300
ALONE = "objects that fill every bound: it takes all processors"
BOUNDED = {"resources": {"limits": {"memory": "16Mi"}}, "securityContext": {"readOnlyRootFilesystem": True}}
# What has to be refused among the attempts, and with which words.
REFUSED = {
    "a device by NRI": "container runtimes or their plugins obey it", "a device by CRI-O": "container runtimes or their plugins obey it",
    "a device by CDI": "container runtimes or their plugins obey it", "a property of its scope": "container runtimes or their plugins obey it",
    "a hypervisor of its choice": "container runtimes or their plugins obey it", "an end in ten years": "policy.max-grace-period",
    "a probe that ends it in ten years": "policy.max-grace-period", "60 lines that unfold": "with what stands for each $(NAME)",
    "600 tolerations": "at most 64", "an exabyte": "policy.max-requests", "cpu without end": "policy.max-requests",
}
TRUSTED, TENANT, OTHER = "trusted", "tenant", "other"
OURS = "daemonlet.dev/"
# Every annotation of a DaemonSet that something is read from.
ANNOTATIONS = [
    "restart-on", "progress-deadline", "rollback", "paused", "partition", "canary", "canary-hold", "steps", "first-install", "topology-key", "spread-key",
    "window", "update", "promoted", "aborted", "retry", "pre-pull", "after", "after-timeout", "startup-taint", "startup-taint-timeout", "node-condition",
    "overlays", "overlays-digest", "max-unreachable", "coordination", "max-failed", "daemonset", "incarnation", "waiting-containers", "override", "restart",
]
VALUES = {
    "nothing": "", "a negative number": "-1", "more than 64 bits": "9" * 40, "an exponent": "1e999999999", "no number": "NaN", "a share": "101%",
    "a duration": "9223372036854775807h", "a day of every year": "* * * * * Mon..Sun 00:00-23:59 +999999h", "another's name": "trusted/net,kube-system/net",
    "a path": "../../../../etc/passwd", "control characters": "\x1b[2J\x1b]0;x\x07\r\n\u202e\u0000".replace("\u0000", ""), "a list in a list": "[" * 5000,
    "a bomb": "&a [*a,*a]", "30,000 names": ",".join(f"n{number}" for number in range(4000)), "64 KiB": "x" * 65536,
    "a revision": "trusted/net@1", "a digest": "sha256:" + "f" * 64, "truth": "true", "a step of none": "0,0%,100%,100%",
}


def tenant(name, container=None, namespace=TENANT, **pod):
    """A DaemonSet that obeys every rule but for what is given."""
    return daemonset(name, namespace, BOUNDED | (container or {}), dict(STATIC), None,
                     **{"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False} | pod)


class Hostile(Coordinated):
    """An agent and a coordinator that trust one namespace; two others run daemons of theirs."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in (TRUSTED, TENANT, OTHER):
            cls.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        policy = {"namespaces": [TRUSTED, TENANT, OTHER], "trusted-namespaces": [TRUSTED], "max-requests": "100%"}
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one", policy=policy))
        cls.node = crowd(cls.cluster, 1, cls.stack)[0]
        cls.agent = cls.enterClassContext(Agent(cls.node, runtime_endpoint="", kubelet_endpoint="", policy=policy))
        cls.pids = cls.agent.process.pid, cls.one.process.pid
        for namespace in (TRUSTED, OTHER):
            cls.admin.create("daemonsets", tenant("net", namespace=namespace))
        cls.known = {name: cls.only(name) for name in (TRUSTED, OTHER)}
        cls.version = 0

    @classmethod
    def uids(cls, namespace):
        """The UIDs of the instances of `net` of a namespace."""
        return re.findall(r"^  uid: (\S+)$", "\n".join(cls.agent.manifests(f"{namespace}_net-").values()), re.M)

    @classmethod
    def only(cls, namespace, other_than=None):
        """Waits for one instance of `net` of a namespace (another than given)."""
        one = lambda: next((uid for uid in cls.uids(namespace) if uid != other_than and len(cls.uids(namespace)) == 1), None)
        try:
            return until(one, SOON, f"an instance in {namespace}", pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{cls.agent.cli('status').stdout}\n{cls.agent.process.tail(25)}\n{cls.one.process.tail(25)}") from None

    def shown(self, name):
        """What `status` has of a DaemonSet of the tenant."""
        daemons = json.loads(self.agent.cli("status", "--json").stdout)["daemons"]
        return next((one for one in daemons if (one["namespace"], one["name"]) == (TENANT, name)), {"state": "", "reason": ""})

    def others_are_served(self):
        """No process fell over, nothing of others changed; and a new version of the trusted daemon goes all its way."""
        self.assertEqual((self.agent.process.pid, self.one.process.pid), self.pids)
        self.assertTrue(self.agent.process.alive and self.one.process.alive, f"{self.agent.process.tail(40)}\n{self.one.process.tail(40)}")
        for namespace, uid in self.known.items():
            self.assertEqual(self.uids(namespace), [uid], namespace)
        type(self).version += 1
        self.admin.patch("daemonsets", "net", {"spec": {"template": {"metadata": {"annotations": {"image": str(self.version)}}}}}, TRUSTED)
        self.known[TRUSTED] = self.only(TRUSTED, self.known[TRUSTED])
        output = self.agent.cli("status").stdout + self.agent.process.tail(2000) + self.one.process.tail(2000)
        self.assertEqual(set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", output)), set())
        self.assertNotIn("panicked", output)

    def attempt(self, what, write):
        """Makes an attempt; whether the API server let it through."""
        try:
            write()
        except Refused as refused:
            self.assertIn(refused.code, (400, 413, 422, 500), f"{what}: {refused}")
            return False
        return True

    def test_0_no_report_of_one_node_hurts_others(self):
        """The identity of a node in other hands: its NodeDaemons and its Lease as large and as strange as the API server lets them be."""
        # What it says of its own node counts: a node that is not well takes one of the budget.
        self.admin.patch("daemonsets", "net", {"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}, TRUSTED)
        node = self.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"}})
        owner = [{"apiVersion": "v1", "kind": "Node", "name": "ghost", "uid": node["metadata"]["uid"]}]
        ghost = self.cluster.user("daemonlet:node:ghost", ["daemonlet:nodes"])
        ghost.create("nodedaemons", {"apiVersion": "daemonlet.dev/v1beta1", "kind": "NodeDaemons", "metadata": {"name": "ghost", "ownerReferences": owner}})
        lease = {"holderIdentity": "\x1b[2J", "leaseDurationSeconds": 2147483647, "renewTime": "9999-12-31T23:59:59.999999Z", "acquireTime": "0001-01-01T00:00:00.000000Z"}
        ghost.create("leases", {"metadata": {"name": "ghost", "ownerReferences": owner, "annotations": {"a": "x" * 200_000}}, "spec": lease}, "daemonlet-node-lease")
        uid, strange = self.admin.get("daemonsets", "net", TRUSTED)["metadata"]["uid"], "\x1b]0;x\x07\u202e\n../../"
        own = {"namespace": TRUSTED, "name": "net", "uid": uid, "mode": "static", "phase": "running"}
        plugin = scratch() / "kubectl-daemonlet"
        plugin.symlink_to(binary())
        instance = lambda number: {"pod": f"../{number}", "revision": strange, "created": "9999-12-31T23:59:59Z"}
        # What the schema refuses, and as much as it takes.
        too_much = {
            "40,000 daemons": {"daemons": [{"namespace": "x", "name": str(n)} for n in range(40_000)]},
            "10,000 times the same": {"daemons": [own] * 10_000},
            "30,000 refused": {"refused": [{"reason": str(n), "count": -9223372036854775808} for n in range(30_000)]},
            "a message of 1 MiB": {"daemons": [own | {"message": "x" * (1 << 20)}]},
            "instances without end": {"daemons": [own | {"instances": [instance(n) for n in range(10_000)]}]},
        }
        statuses = {
            "1,024 daemons": {"daemons": [{"namespace": "x", "name": str(n), "message": "x" * 512, "instances": [instance(m) for m in range(4)]} for n in range(1024)]},
            "1,024 times the same": {"daemons": [own] * 1024},
            "128 refused": {"refused": [{"reason": str(n), "count": -9223372036854775808} for n in range(128)]},
            "a message of 2,048 characters": {"worst": strange * 100, "ready": strange, "agentVersion": strange, "daemons": [own | {"message": "\U0001f980" * 2048}]},
            "16 instances": {"daemons": [own | {"instances": [instance(n) for n in range(16)]}]},
            "unknown words": {"daemons": [own | {"phase": strange, "replacing": strange * 10, "staged": strange, "pullFailed": strange * 100,
                                                 "stockPod": "../../../nodes/ghost", "previous": strange, "failed": {"revision": strange, "cause": strange, "message": strange * 100}}]},
            "what it does not have": {"daemons": [own | {"replacing": "f" * 10, "instances": [{"pod": "net-x", "revision": "f" * 10, "created": "0001-01-01T00:00:00Z", "ending": True}]}]},
        }
        write = lambda status: ghost.request("PATCH", path_of("nodedaemons", name="ghost", sub="status"), {"status": {"daemons": None, "refused": None} | status},
                                             "application/merge-patch+json", 60)
        for what, status in too_much.items():
            with self.subTest(what):
                self.assertFalse(self.attempt(what, lambda status=status: write(status)))
        for what, status in statuses.items():
            with self.subTest(what):
                write(status)
                self.others_are_served()
                of_net = lambda: self.admin.get("daemonsets", "net", TRUSTED)["status"]
                status = until(lambda: of_net() if of_net()["numberReady"] == 1 else None, SOON, "it is Ready, as before")
                self.assertLess(len(json.dumps(status)), 4000, what)
                output = subprocess.run([plugin, "--kubeconfig", self.admin.kubeconfig], capture_output=True, text=True, check=False, timeout=60).stdout
                self.assertEqual(set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", output)), set(), what)
        self.admin.delete("nodes", "ghost")

    def test_1_no_annotation_hurts_others(self):
        names = [f"a{number}" for number in range(len(ANNOTATIONS))]
        for name in names:
            self.admin.create("daemonsets", tenant(name))
        for number, (what, value) in enumerate(VALUES.items(), 1):
            for name, annotation in zip(names, ANNOTATIONS, strict=True):
                body = {"metadata": {"annotations": {f"{OURS}{annotation}": value}}}
                self.attempt(f"{annotation}: {what}", lambda name=name, body=body: self.admin.patch("daemonsets", name, body, TENANT))
            if number % 5 == 0:
                self.others_are_served()
        self.others_are_served()

    def attempts(self):
        """What, and its objects: each a kind and a body."""
        own, uid = TENANT, lambda namespace: self.admin.get("daemonsets", "net", namespace)["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "net", "controller": True, "blockOwnerDeletion": True}

        def with_metadata(name, **metadata):
            body = tenant(name)
            body["metadata"] |= metadata
            return [("daemonsets", body)]

        def with_spec(name, **spec):
            body = tenant(name)
            body["spec"] |= spec
            return [("daemonsets", body)]

        def with_template(name, /, **metadata):
            body = tenant(name)
            body["spec"]["template"]["metadata"] |= metadata
            return [("daemonsets", body)]

        def pod(name, **fields):
            return [("daemonsets", tenant(name, **fields))]

        def container(name, **fields):
            return [("daemonsets", tenant(name, fields))]

        def revision(name, of, **fields):
            labels = {"app": "net", "controller-revision-hash": name}
            return [("controllerrevisions", {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {},
                                             "metadata": {"name": name, "namespace": own, "labels": labels, "ownerReferences": [owner | {"uid": uid(of)}]}} | fields)]

        resources = lambda **memory: {"resources": {kind: {"memory": value} for kind, value in memory.items()}}
        return {
            "the name of the trusted one": with_metadata("net"),
            "owned by the trusted one": with_metadata("owned", ownerReferences=[owner | {"uid": uid(TRUSTED)}]),
            "owned by an unknown UID": with_metadata("orphan", ownerReferences=[owner | {"uid": "0"}]),
            "1,000 owners": with_metadata("many-owners", ownerReferences=[owner | {"uid": str(n), "controller": False, "name": "x" * 250} for n in range(1000)]),
            "1,000 finalizers": with_metadata("finalizers", finalizers=[f"example.test/{'x' * 40}{n}" for n in range(1000)]),
            "250 KiB of annotations": with_metadata("annotated", annotations={f"a{n}": "x" * 1000 for n in range(250)}),
            "10,000 labels": with_metadata("labelled", labels=STATIC | {f"l{n}": "x" * 63 for n in range(10_000)}),
            "a mode of another spelling": with_metadata("spelt", labels={"daemonlet.dev/mode": "Static"}),
            "the longest name": with_metadata("x" * 253),
            "a name of dots": with_metadata("a.b.c.d"),
            "a name of a path": with_metadata("etc.cron.d"),
            "a generation of the past": with_metadata("generation", generation=-1, annotations={"deprecated.daemonset.template.generation": "-9223372036854775808"}),
            "a generation of the far future": with_metadata("far", annotations={"deprecated.daemonset.template.generation": "9223372036854775807"}),
            "a UID of the trusted one": with_metadata("uid", uid=uid(TRUSTED)),
            "no selector": with_spec("no-selector", selector={}),
            "a selector of 2,000 expressions": with_spec("selector", selector={"matchLabels": {"app": "selector"}, "matchExpressions": [
                {"key": "app", "operator": "NotIn", "values": [f"v{n}"]} for n in range(2000)]}),
            "a budget of all": with_spec("budget", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2147483647}}),
            "a surge": with_spec("surge", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}),
            "ready after 68 years": with_spec("min-ready", minReadySeconds=2147483647),
            "a history without end": with_spec("history", revisionHistoryLimit=2147483647),
            "a history of none": with_spec("no-history", revisionHistoryLimit=0),
            "a mirror pod": with_template("mirror", annotations={"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "api", "kubernetes.io/config.hash": "x"}),
            "an instance of the trusted one": with_template("instance", annotations={
                "daemonlet.dev/daemonset": f"{TRUSTED}/net", "daemonlet.dev/incarnation": "9" * 30, "daemonlet.dev/waiting-containers": "c," * 5000}),
            "a revision of its own choice": with_template("hash", labels={"app": "hash", "controller-revision-hash": "x", "pod-template-generation": "-1"}),
            "a finalizer in the template": with_template("template-finalizer", finalizers=["example.test/never"], name="net", namespace=TRUSTED),
            "a device by NRI": with_template("nri", annotations={"devices.nri.io/container.main": "- path: /dev/sda\n  type: b\n  major: 8\n  minor: 0"}),
            "a device by CRI-O": with_template("crio", annotations={"io.kubernetes.cri-o.Devices": "/dev/sda:/dev/sda:rwm"}),
            "a device by CDI": with_template("cdi", annotations={"cdi.k8s.io/x": "vendor.test/gpu=all"}),
            "a property of its scope": with_template("systemd", annotations={"org.systemd.property.DeviceAllow": "[('/dev/sda', 'rwm')]"}),
            "a hypervisor of its choice": with_template("kata", annotations={"io.katacontainers.config.hypervisor.path": "/bin/sh"}),
            "an end in ten years": pod("ten-years", terminationGracePeriodSeconds=315_360_000),
            "an end of no time": pod("no-time", terminationGracePeriodSeconds=-1),
            "a probe that ends it in ten years": container("probe", livenessProbe={"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 315_360_000}),
            "a deadline": pod("deadline", activeDeadlineSeconds=1),
            "a node by name": pod("by-name", nodeName="another"),
            "a runtime class that is not there": pod("class", runtimeClassName="privileged"),
            "a user namespace": pod("user-namespace", hostUsers=False),
            "one process namespace": pod("processes", shareProcessNamespace=True),
            "claims of resources": pod("claims", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}]),
            "a scheduling gate": pod("gate", schedulingGates=[{"name": "example.test/never"}]),
            "another scheduler": pod("scheduler", schedulerName="nobody"),
            "a host name": pod("hostname", hostname="kubernetes", subdomain="default", setHostnameAsFQDN=True),
            "the API server's address": pod("aliases", hostAliases=[{"ip": "127.0.0.1", "hostnames": ["kubernetes.default.svc"]}] * 300),
            "a resolver with line ends": pod("dns", dnsPolicy="None", dnsConfig={"nameservers": ["127.0.0.1"], "options": [{"name": "ndots:1\nnameserver 1.2.3.4"}]}),
            "all groups": pod("groups", securityContext={"supplementalGroups": list(range(20_000)), "fsGroup": 0}),
            "the largest user": pod("user", securityContext={"runAsUser": 2147483647, "runAsGroup": 2147483647, "fsGroup": 2147483647}),
            "600 tolerations": pod("tolerations", tolerations=[{"key": f"k{n}", "operator": "Exists"} for n in range(600)]),
            "affinity to 3,000 terms": pod("affinity", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(3000)]}}}),
            "an exabyte": container("exabyte", **resources(limits="9E", requests="9E")),
            "more than a number": container("number", **resources(limits="9223372036854775807Ei")),
            "a thousandth of a byte": container("thousandth", **resources(limits="1m")),
            "requests of nothing": container("nothing", **resources(limits="16Mi", requests="0")),
            "cpu without end": container("cpu", resources={"limits": {"memory": "16Mi", "cpu": "9e18"}}),
            "60 lines that unfold": container("unfold", env=[{"name": "V0", "value": "x" * 100}] + [
                {"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 60)]),
            "a command of 1 MiB": container("command", command=["x" * (1 << 20)]),
            "100 containers of one name": [("daemonsets", tenant("one-name") | {"spec": tenant("one-name")["spec"] | {"template": {
                "metadata": {"labels": {"app": "one-name"}}, "spec": {"containers": [{"name": "c", "image": "i"} | BOUNDED] * 100}}}})],
            "tokens for 300 audiences": pod("audiences", volumes=[{"name": "t", "projected": {"sources": [
                {"serviceAccountToken": {"path": f"t{n}", "audience": f"a{n}"}} for n in range(300)]}}]),
            "the account of others": pod("account", serviceAccountName="kube-system.admin", automountServiceAccountToken=True),
            "a path out of a volume": pod("climbs", volumes=[{"name": "v", "configMap": {"name": "x", "items": [{"key": "k", "path": "../../x"}]}}]),
            "an expression out of a volume": [("daemonsets", tenant("expression", {
                "env": [{"name": "UP", "value": "../../.."}], "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(UP)/etc"}]},
                volumes=[{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]))],
            "an overlay of others": with_metadata("overlaid", annotations={"daemonlet.dev/overlays": f"{TRUSTED}/list"}),
            "revisions of the trusted one": revision("forged-trusted", TRUSTED),
            "revisions without data": revision("forged-empty", OTHER),
            "revisions of the largest number": revision("forged-number", OTHER, revision=9223372036854775807),
            "revisions of a negative number": revision("forged-negative", OTHER, revision=-9223372036854775808),
            "revisions of another shape": revision("forged-shape", OTHER, data={"spec": {"template": [1, 2, {"$patch": "delete"}]}}),
            "revisions of 900 KiB": revision("forged-large", OTHER, data={"spec": {"template": {"metadata": {"annotations": {"a": "x" * 900_000}}}}}),
        }

    def test_2_no_object_hurts_others(self):
        through = 0
        attempts = self.attempts()
        for number, (what, objects) in enumerate(attempts.items(), 1):
            for kind, body in objects:
                through += self.attempt(what, lambda kind=kind, body=body: self.admin.create(kind, body, TENANT))
            if number % 20 == 0:
                self.others_are_served()
        self.others_are_served()
        self.assertGreater(through, len(attempts) * 3 // 4, "the API server refuses too much of it")
        refused = {body["metadata"]["name"]: words for what, words in REFUSED.items() for _, body in attempts[what]}
        self.assertEqual({name: self.shown(name)["state"] for name in refused}, dict.fromkeys(refused, "refused"))
        for name, words in refused.items():
            self.assertIn(words, self.shown(name)["reason"], name)

    def test_3_no_haste_hurts_others(self):
        for number in range(100):
            self.admin.create("daemonsets", tenant("again", {"image": f"example.org/a:{number}"}))
            self.admin.delete("daemonsets", "again", TENANT)
        self.admin.create("daemonsets", tenant("hasty"))
        for number in range(100):
            self.change("hasty", str(number))
        self.others_are_served()
        self.runs("hasty", "99")
        until(lambda: not self.agent.manifests(f"{TENANT}_again-"), SOON, "nothing is left of what is gone")
        # A refused one that changes again and again is reported now and then.
        for number in range(100):
            self.change("ten-years", str(number))
        self.others_are_served()
        self.assertLess(len([one for one in self.admin.list("events", TENANT) if one["regarding"]["name"] == "ten-years"]), 10)

    def test_4_no_number_of_revisions_hurts_others(self):
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "hasty", "uid": self.admin.get("daemonsets", "hasty", TENANT)["metadata"]["uid"], "controller": True}
        for number in range(1000):
            self.admin.create("controllerrevisions", {
                "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1_000_000 + number, "data": {"spec": {"template": {"$patch": "replace"}}},
                "metadata": {"name": f"hasty-{number}", "namespace": TENANT, "labels": {"app": "hasty", "controller-revision-hash": str(number % 7)}, "ownerReferences": [owner]}})
        self.others_are_served()
        self.change("hasty", "last")
        self.runs("hasty", "last")
        until(lambda: len(self.admin.list("controllerrevisions", TENANT, "app=hasty")) <= 12, SOON, "the history has its length again")
        self.others_are_served()

    def test_5_one_that_fills_the_room_of_all_leaves_others_theirs(self):
        # What the attempts before have left takes of the number that a namespace may have.
        for one in self.admin.list("daemonsets", TENANT):
            if one["metadata"]["name"] != "net":
                self.admin.delete("daemonsets", one["metadata"]["name"], TENANT)
        # 8,000 values each: the bound counts 256 bytes for a value beside its text.
        body = {"metadata": {"annotations": {f"a{number}": "" for number in range(8000)}}}

        def large(name, namespace):
            one = tenant(name, namespace=namespace)
            one["spec"]["template"]["metadata"] |= body["metadata"]
            return one

        for number in range(10):
            self.admin.create("daemonsets", large(f"large-{number}", TENANT))
        # Each question costs the agent a table of all of them.
        is_full = lambda: "more than 16777216 bytes of the agent's memory" in self.agent.cli("status").stdout
        until(is_full, SOON, "its own room is full", pause=3)
        for namespace in (TRUSTED, OTHER):
            self.admin.create("daemonsets", large("new", namespace))
        for namespace in (TRUSTED, OTHER):
            until(lambda namespace=namespace: self.agent.manifests(f"{namespace}_new-"), SOON, f"a new one runs in {namespace}")
        for number in range(10):
            self.change(f"large-{number}", "x" * (30 << 10))
        self.others_are_served()

    def test_6_no_number_of_daemon_sets_that_change_holds_up_a_rollout(self):
        changes = {TENANT: 0, OTHER: 0}
        for namespace in changes:
            for number in range(25):
                self.attempt("one of many", lambda namespace=namespace, number=number: self.admin.create("daemonsets", tenant(f"many-{number}", namespace=namespace)))
        stop = threading.Event()

        def churn(namespace):
            for version in itertools.count():
                for number in range(25):
                    if stop.wait(0.3):
                        return
                    self.change(f"many-{number}", str(version), namespace)
                    changes[namespace] += 1

        threads = [threading.Thread(target=churn, args=(namespace,)) for namespace in changes]
        for thread in threads:
            thread.start()
        try:
            self.others_are_served()
            self.others_are_served()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertGreater(min(changes.values()), 5, changes)

    def change(self, name, version, namespace=TENANT):
        """Changes the template of a DaemonSet of the tenant."""
        self.admin.patch("daemonsets", name, {"spec": {"template": {"metadata": {"annotations": {"version": version}}}}}, namespace)

    def runs(self, name, version):
        """Waits until the one manifest of a DaemonSet of the tenant has this version."""
        has = lambda: re.findall(r"^ +version: (\S+)$", "\n".join(self.agent.manifests(f"{TENANT}_{name}-").values()), re.M)
        until(lambda: [one.strip("\"'") for one in has()] == [version], SOON, f"{name} runs as {version}: {self.shown(name)}")
