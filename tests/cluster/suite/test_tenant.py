"""Whoever may write DaemonSets in one namespace: attempts to reach the node, and to hurt the daemons of others."""

import json
import time
import unittest
from pathlib import Path

from kit.agent import grant
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

BOUNDED = {"resources": {"limits": {"memory": "16Mi"}}, "securityContext": {"readOnlyRootFilesystem": True}}
METADATA = "169.254.169.254"


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller, and the agents' rights as they are packaged."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


def security(**context):
    """A container with another security context."""
    return {"securityContext": BOUNDED["securityContext"] | context}


def handler(host, port=80):
    """An HTTP request that the kubelet would send."""
    return {"httpGet": {"host": host, "path": "/latest/meta-data", "port": port}}


# What a container tries, and what the refusal says.
CONTAINERS = {
    "privileged": (security(privileged=True), "privileged"),
    "unconfined": (security(seccompProfile={"type": "Unconfined"}), "seccompProfile"),
    "apparmor": (security(appArmorProfile={"type": "Unconfined"}), "AppArmor"),
    "spc": (security(seLinuxOptions={"type": "spc_t"}), "seLinuxOptions"),
    "selinux-user": (security(seLinuxOptions={"user": "system_u"}), "seLinuxOptions"),
    "sys-admin": (security(capabilities={"add": ["SYS_ADMIN"]}), "capabilities"),
    "all": (security(capabilities={"add": ["ALL"]}), "capabilities"),
    "net-raw": (security(capabilities={"add": ["NET_RAW"]}), "capabilities"),
    "ssh": ({"ports": [{"containerPort": 22, "hostPort": 22}]}, "host-ports"),
    "kubelet": ({"ports": [{"containerPort": 1, "hostPort": 10250, "hostIP": "127.0.0.1"}]}, "host-ports"),
    "live": ({"livenessProbe": handler(METADATA)}, "probe"),
    "ready": ({"readinessProbe": handler("127.0.0.1", 10250)}, "probe"),
    "startup": ({"startupProbe": {"tcpSocket": {"host": "127.0.0.1", "port": 2379}}}, "probe"),
    "begin": ({"lifecycle": {"postStart": handler(METADATA)}}, "probe"),
    "end": ({"lifecycle": {"preStop": handler("localhost")}}, "probe"),
    "hungry": ({"resources": {}}, "limits.memory"),
    "writing": (security(readOnlyRootFilesystem=False), "readOnlyRootFilesystem"),
    "unfolding": ({"env": [{"name": "V0", "value": "x" * 100}] + [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 40)]}, "$(NAME)"),
    "patient": ({"livenessProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 601}}, "max-grace-period"),
}

# What a pod tries.
PODS = {
    "host-network": ({"hostNetwork": True}, "hostNetwork"),
    "host-pid": ({"hostPID": True}, "hostPID"),
    "host-ipc": ({"hostIPC": True}, "hostIPC"),
    "critical": ({"priorityClassName": "system-node-critical"}, "trusted namespaces"),
    "cluster-critical": ({"priorityClassName": "system-cluster-critical"}, "trusted namespaces"),
    "sysctl": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls"),
    "pod-unconfined": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
    "pod-spc": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions"),
    "for-ever": ({"terminationGracePeriodSeconds": 315_360_000}, "max-grace-period"),
    "pulls": ({"imagePullSecrets": [{"name": "registry"}]}, "every pod's"),
}

# The volumes that it tries.
VOLUMES = {
    "disk": ({"emptyDir": {}}, "sizeLimit"),
    "sized-disk": ({"emptyDir": {"sizeLimit": "1Mi"}}, "sizeLimit"),
    "memory": ({"emptyDir": {"medium": "Memory"}}, "sizeLimit"),
    "root": ({"hostPath": {"path": "/"}}, "host-paths"),
    "socket": ({"hostPath": {"path": "/run/containerd/containerd.sock", "type": "Socket"}}, "host-paths"),
    "created": ({"hostPath": {"path": "/granted/new", "type": "DirectoryOrCreate"}}, "trusted namespaces"),
    "device": ({"hostPath": {"path": "/granted/sda", "type": "BlockDevice"}}, "trusted namespaces"),
    "beside": ({"hostPath": {"path": "/granted-not"}}, "host-paths"),
    "nfs": ({"nfs": {"server": "10.0.0.1", "path": "/"}}, "volume-types"),
    "iscsi": ({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:s", "lun": 0}}, "volume-types"),
    "fc": ({"fc": {"targetWWNs": ["5"], "lun": 0}}, "volume-types"),
    "flex": ({"flexVolume": {"driver": "k/d"}}, "volume-types"),
    "csi": ({"csi": {"driver": "d.example"}}, "a static pod cannot"),
    "cephfs": ({"cephfs": {"monitors": ["m"]}}, "volume-types"),
    "rbd": ({"rbd": {"monitors": ["m"], "image": "i"}}, "volume-types"),
    "git": ({"gitRepo": {"repository": "https://r.test/x"}}, "volume-types"),
    "claim": ({"persistentVolumeClaim": {"claimName": "c"}}, "a static pod cannot"),
    "claims": ({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}}}, "a static pod cannot"),
}


class Tenant(Story):
    """Namespaces that may run daemons here, and are not trusted."""

    def start(self, **policy):
        """An agent whose policy trusts no namespace, on a node with a core and 1 GiB."""
        agent = self.start_agent(policy={"namespaces": [self.namespace], "trusted-namespaces": []} | policy)
        self.admin.patch("nodes", agent.node.name, {"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "110"}}}, sub="status")
        return agent

    def bounded(self, name, container=None, **pod):
        """A DaemonSet that obeys every rule but for what is given."""
        return self.daemon(name, BOUNDED | (container or {}), **pod)

    def test_no_attempt_reaches_the_node_and_each_is_reported(self):
        agent = self.start(grants={self.namespace: {"host-paths": ["/granted"]}})
        words = {}
        for name, (container, said) in CONTAINERS.items():
            words[name] = (self.bounded(name, container), said)
        for name, (pod, said) in PODS.items():
            words[name] = (self.bounded(name, **pod), said)
        for name, (source, said) in VOLUMES.items():
            words[name] = (self.bounded(name, volumes=[{"name": "v"} | source]), said)
        for body, _ in words.values():
            self.put(body)
        self.put(self.bounded("modest"))
        self.instance(agent, "modest")
        for name, (_, said) in words.items():
            shown = lambda name=name: (self.status(agent, name) or {"state": "", "reason": ""})
            until(lambda shown=shown: shown()["state"] == "refused", SOON, f"{name} is refused")
            self.assertIn(said, shown()["reason"], name)
        self.assertEqual([file.split("_")[1].rsplit("-", 1)[0] for file in agent.manifests()], ["modest"])
        # The list shows each with what would allow it.
        hints = "\n".join(self.status(agent, "root")["hints"])
        self.assertIn(f'change the template, or add "{self.namespace}" to policy.trusted-namespaces', hints)

    def test_a_granted_path_is_resolved_beneath_the_grant(self):
        agent = self.start(grants={self.namespace: {"host-paths": ["/granted"], "host-ports": [9100]}})
        self.put(self.bounded("reader", {"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "own"}],
                                         "ports": [{"containerPort": 1, "hostPort": 9100}]},
                              volumes=[{"name": "v", "hostPath": {"path": "/granted/a/b"}}]))
        manifest = self.instance(agent, "reader").text
        self.assertRegex(manifest, r"hostPath:\n +path: /granted\n")
        self.assertIn("subPath: a/b/own", manifest)
        self.assertIn("readOnly: true", manifest)
        self.assertIn("recursiveReadOnly: IfPossible", manifest)

    def test_what_all_of_them_request_is_bounded(self):
        agent = self.start()
        asking = lambda memory: BOUNDED | {"resources": {"requests": {"memory": memory}, "limits": {"memory": memory}}}
        self.put(self.daemon("large", asking("60Mi")))
        first = self.instance(agent, "large")
        self.put(self.daemon("another", asking("60Mi")))
        until(lambda: "policy.max-requests" in (self.status(agent, "another") or {"reason": ""})["reason"], SOON, "it is refused")
        self.put(self.daemon("small", asking("30Mi")))
        self.instance(agent, "small")
        self.assertEqual(self.instance(agent, "large").uid, first.uid)
        self.assertFalse(self.instances(agent, "another"))
        self.remove("large")
        self.instance(agent, "another")

    def not_read(self, agent, name, words):
        """Waits until a daemon waits for what is not read, and says so."""
        shown = lambda: self.status(agent, name) or {"state": "", "notes": []}
        until(lambda: shown()["state"] == "waiting" and words in "\n".join(shown()["notes"]), SOON, f"{name} says {words}")
        self.assertFalse(self.instances(agent, name))

    def test_what_its_config_maps_take_of_the_agent_is_bounded(self):
        agent = self.start()
        (agent.folder / "own.yaml").write_text(json.dumps(self.daemon("own", labels={})), encoding="utf-8")
        own = self.instance(agent, "own")
        # Each key counts as 256 bytes more: so they are large, and quickly read.
        large = {f"k{number:04}": "x" for number in range(4000)}
        names = {name: [f"{name}-{number}" for number in range(14)] for name in ("a", "b", "c")}
        for name, maps in names.items():
            for one in maps:
                self.config(one, **large)
            mounts = {"volumeMounts": [{"name": one, "mountPath": f"/{one}"} for one in maps]}
            self.put(self.bounded(name, mounts, volumes=[{"name": one, "configMap": {"name": one, "items": [{"key": "k0000", "path": "key"}]}} for one in maps]))
            if name != "c":
                self.instance(agent, name)
        first = self.instance(agent, "b")
        self.not_read(agent, "c", "it is not read: with its 10")
        # What runs keeps its data, whatever becomes of the ConfigMap; and nothing of it ends over a restart.
        self.admin.patch("configmaps", "b-0", {"data": {"k0000": "y"}}, self.namespace)
        until(lambda: agent.node.data(first, "b-0", "key") == "y", SOON, "it follows the API server")
        agent.restart()
        self.settled(agent)
        self.assertEqual([self.instance(agent, name).uid for name in ("b", "own")], [first.uid, own.uid])
        self.remove("a")
        self.instance(agent, "c")

    def peak(self, agent):
        """The most memory that the agent has had, in MiB."""
        lines = Path(f"/proc/{agent.process.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    def test_what_unfolds_takes_no_memory(self):
        agent = self.start(**{"max-requests": "100%"})
        self.put(self.bounded("first"))
        self.instance(agent, "first")
        before = self.peak(agent)
        # A tenth of a megabyte of text that is a hundred megabytes with its aliases, for each of many DaemonSets.
        aliases = ", ".join(f"k{number}: *a" for number in range(1000))
        self.config("unfolds", **{"overlays.yaml": f"- nodes: {{}}\n  patch: {{metadata: {{annotations: {{a: &a {'x' * 100_000}, {aliases}}}}}}}\n"})
        # The same megabyte in 16 variables of each pod.
        self.config("large", key="x" * 900_000)
        sources = [{"prefix": f"p{number}_", "configMapRef": {"name": "large"}} for number in range(16)]
        for number in range(20):
            self.put(self.daemon(f"unfolds-{number}", BOUNDED, annotations={"daemonlet.dev/overlays": "unfolds"}))
            self.put(self.bounded(f"repeats-{number}", {"envFrom": sources}))
        reason = lambda name: (self.status(agent, name) or {"reason": ""})["reason"]
        for name, words in (("unfolds", "the document unfolds to more than"), ("repeats", "from ConfigMaps and Secrets have more than")):
            for one in (f"{name}-{number}" for number in range(20)):
                until(lambda one=one, words=words: words in reason(one), SOON, f"{one} is refused: {self.status(agent, one)}")
        self.assertLess(self.peak(agent) - before, 64)
        self.assertTrue(self.instance(agent, "first"))

    def test_what_cannot_be_written_replaces_nothing(self):
        agent = self.start()
        self.config("data", key="1")
        volumes = [{"name": "v", "configMap": {"name": "data"}}, {"name": "w", "configMap": {"name": "data"}}]
        mounts = lambda inner: {"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": f"/v/{inner}"}]}
        for name in ("a", "b", "c"):
            self.put(self.bounded(name, mounts("w"), volumes=volumes))
        first = {name: self.instance(agent, name).uid for name in ("a", "b", "c")}
        for name, inner in {"a": "..data/x", "b": "..x", "c": "x" * 256}.items():
            container = daemonset(name, self.namespace, BOUNDED | mounts(inner))["spec"]["template"]["spec"]["containers"][0]
            self.admin.patch("daemonsets", name, {"spec": {"template": {"spec": {"containers": [container]}}}}, self.namespace)
            until(lambda name=name: "mountPath" in (self.status(agent, name) or {"reason": ""})["reason"], SOON, f"{name} is refused")
        self.settled(agent)
        self.assertEqual({name: self.instance(agent, name).uid for name in first}, first)

    def test_how_many_config_maps_of_it_are_read_is_bounded(self):
        agent = self.start()
        for name in ("a", "b", "c"):
            self.put(self.bounded(name, {"envFrom": [{"configMapRef": {"name": f"{name}-{number}", "optional": True}} for number in range(200)]}))
            if name != "c":
                self.instance(agent, name)
        self.not_read(agent, "c", "name more than 512 ConfigMaps, Secrets and ControllerRevisions for this node")
        self.assertIn("policy.trusted-namespaces", agent.cli("explain", f"{self.namespace}/c").stdout)
        self.remove("a")
        self.instance(agent, "c")

    def test_a_name_says_nothing_about_a_folders_daemon(self):
        agent = self.start(namespaces=["elsewhere"])
        own = self.daemon("own", labels={})
        (agent.folder / "own.yaml").write_text(json.dumps(own), encoding="utf-8")
        first = self.instance(agent, "own")
        for body in (own, self.daemon("own", labels={"daemonlet.dev/mode": "bootstrap"}), self.daemon("own", hostPID=True)):
            self.put(body)
            until(lambda: "says nothing here" in "\n".join(self.status(agent, "own")["notes"]), SOON, "it is reported")
            self.remove("own", propagation="Foreground")
            until(lambda: "says nothing here" not in "\n".join(self.status(agent, "own")["notes"]), SOON, "it went")
        never(lambda: [one.uid for one in self.instances(agent, "own")] != [first.uid], 3, "another component ended it")

    def test_no_name_of_one_namespace_is_a_file_of_another(self):
        other = f"{self.namespace}-a"
        self.make_namespace(other)
        agent = self.start(namespaces=[self.namespace, other])
        self.put(self.bounded("a-b"))
        body = self.bounded("b")
        body["metadata"]["namespace"] = other
        self.put(body)
        until(lambda: len(agent.manifests()) == 2, SOON, "both run")
        self.assertEqual(len({file.split("_")[0] for file in agent.manifests()}), 2)

    @staticmethod
    def is_noted(file):
        """Whether it is there, to its end."""
        try:
            return file.read_bytes().endswith(b"\n")
        except FileNotFoundError:
            return False

    def kill_at_work(self, agent, times):
        """Starts the agent and kills it while it works on this namespace's definitions, so often in a row."""
        file, in_a_row = agent.home / "state" / "at-work.json.tmp", 0
        agent.kill()
        for _ in range(50):
            if file.exists():
                # As the agent itself does at its start.
                file.rename(file.with_suffix(""))
            agent.start()
            late = time.monotonic() + 2
            while not self.is_noted(file) and time.monotonic() < late:
                pass
            agent.kill()
            # Else it was done before it was killed.
            in_a_row = in_a_row + 1 if self.is_noted(file) else 0
            if in_a_row == times:
                return agent.start()
        raise AssertionError(f"it was never killed at work {times} times in a row")

    def test_an_agent_that_is_killed_over_a_template_sets_it_aside(self):
        agent = self.start()
        self.put(self.bounded("greedy"))
        first = self.instance(agent, "greedy")
        self.kill_at_work(agent, 1)
        self.settled(agent)
        self.assertNotEqual(self.status(agent, "greedy")["state"], "refused", "once may be chance")
        self.kill_at_work(agent, 2)
        self.settled(agent)
        status = self.status(agent, "greedy")
        self.assertEqual(status["state"], "refused", status)
        self.assertIn("it is set aside: the agent was killed while it worked on its template, 2 times in a row; what runs stays", status["reason"])
        self.assertIn(f"daemonlet retry {self.namespace}/greedy", "\n".join(status["hints"]))
        self.assertIn("set aside", agent.cli("explain", f"{self.namespace}/greedy").stdout)
        self.assertFalse(list((agent.home / "state").glob("at-work*")), "nothing is noted any more")
        self.put(self.bounded("modest"))
        self.instance(agent, "modest")
        agent.restart()
        self.settled(agent)
        self.assertEqual(self.status(agent, "greedy")["state"], "refused", "it outlives a restart")
        self.assertEqual(self.report(agent)["refused"], [{"reason": "spec.template", "count": 1}])
        self.assertEqual(self.instance(agent, "greedy").uid, first.uid)
        retried = agent.cli("retry", f"{self.namespace}/greedy")
        self.assertEqual(retried.returncode, 0, retried.stdout + retried.stderr)
        until(lambda: self.status(agent, "greedy")["state"] != "refused", SOON, "it is tried again")
        self.assertEqual(self.instance(agent, "greedy").uid, first.uid)

    def test_a_template_that_was_set_aside_is_replaced_by_a_changed_one(self):
        agent = self.start()
        self.put(self.bounded("greedy"))
        first = self.instance(agent, "greedy")
        self.kill_at_work(agent, 2)
        until(lambda: self.status(agent, "greedy")["state"] == "refused", SOON, "it is set aside")
        self.change("greedy", "another")
        self.instance(agent, "greedy", other_than=first)

    def test_the_api_server_may_refuse_what_we_do_too(self):
        # A number instead of a class, and a path that climbs out of a granted one.
        agent = self.start(grants={self.namespace: {"host-paths": ["/granted"]}})
        for name, pod in (("number", {"priority": 2000001000}), ("climbing", {"volumes": [{"name": "v", "hostPath": {"path": "/granted/../etc"}}]})):
            try:
                self.put(self.bounded(name, **pod))
            except Refused:
                continue
            until(lambda name=name: (self.status(agent, name) or {"state": ""})["state"] == "refused", SOON, f"{name} is refused")
        self.assertFalse(agent.manifests())

    def test_a_pod_that_is_no_mirror_pod_ends_nothing(self):
        # The annotation of a mirror pod can be on any pod, and the UID of an instance can be computed from its template.
        other = f"{self.namespace}-other"
        self.make_namespace(other)
        agent = self.start()
        (agent.folder / "own.yaml").write_text(json.dumps(self.daemon("own", labels={})), encoding="utf-8")
        first = self.instance(agent, "own")
        self.settled(agent)
        for namespace in (other, self.namespace):
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "annotations": {"kubernetes.io/config.mirror": first.uid}},
                    "spec": {"nodeName": agent.node.name, "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}
            self.admin.create("pods", body, namespace)
            time.sleep(1)
            self.admin.delete("pods", "x", namespace, gracePeriodSeconds=0)
            self.keeps(agent, first, "own", 4)
        # One whose deletion never ends is seen at each list.
        body["metadata"]["finalizers"] = ["example.test/never"]
        self.admin.create("pods", body, other)
        self.addCleanup(lambda: self.admin.patch("pods", "x", {"metadata": {"finalizers": None}}, other))
        self.admin.delete("pods", "x", other, gracePeriodSeconds=0)
        self.keeps(agent, first, "own", 3)
        agent.restart()
        self.settled(agent)
        self.keeps(agent, first, "own", 4)
