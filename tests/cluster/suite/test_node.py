"""One real kubelet: what follows a change without a restart, and what a change must not break."""

import json
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
# The kubelet looks at a static pod's emptyDir at once: what the agent writes there shows at once.
SOON = 15


def labelled(name, **fields):
    """A DaemonSet that asks for static mode."""
    return daemonset(name, **({"namespace": NAMESPACE, "labels": MODE, "hostNetwork": True} | fields))


WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, without scheduler and DaemonSet controller, with an agent beside the kubelet."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))


class OneKubelet(unittest.TestCase):
    """What the stories share."""

    def setUp(self):
        self.cluster, self.node, self.agent = WORLD.cluster, WORLD.node, WORLD.agent
        self.admin, self.cri = self.cluster.admin, self.node.cri

    def run_daemon(self, manifest, *before):
        """Applies a DaemonSet (after what it needs) and waits for its container; deletes it at the end."""
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        self.admin.apply(*before, manifest)
        self.addCleanup(self.delete_daemon, name, namespace)
        try:
            return self.cri.wait_running(f"{name}-", 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- agent\n{self.agent.process.tail(25)}") from None

    def delete_daemon(self, name, namespace=NAMESPACE):
        """Deletes a DaemonSet and waits until nothing of it runs."""
        try:
            self.admin.delete("daemonsets", name, namespace)
        except Refused:
            pass
        self.cri.wait_gone(f"{name}-")

    def unchanged(self, daemon):
        """Asserts that a daemon is still the very same container."""
        pod, _, container, _ = daemon
        self.assertEqual([item[2] for item in self.cri.of(pod)], [container], "it was restarted")

    def read(self, daemon, path):
        """A file in a daemon's container."""
        return self.cri.execute(daemon[2], "cat", path)


class Data(OneKubelet):
    """What a daemon reads."""

    def test_a_configmap_and_a_secret_reach_the_running_container(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NAMESPACE}, "data": {"level": "one", "gone": "soon"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": NAMESPACE}, "stringData": {"key": "first"}}
        daemon = self.run_daemon(labelled(
            "reader",
            volumes=[{"name": "settings", "configMap": {"name": "settings"}}, {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}}],
            container={"volumeMounts": [{"name": "settings", "mountPath": "/settings"}, {"name": "keys", "mountPath": "/keys"}]}), config, secret)
        self.assertEqual((self.read(daemon, "/settings/level"), self.read(daemon, "/keys/key")), ("one", "first"))
        self.admin.patch("configmaps", "settings", {"data": {"level": "two", "gone": None, "new": "file"}}, NAMESPACE)
        self.admin.patch("secrets", "keys", {"stringData": {"key": "second"}}, NAMESPACE)
        until(lambda: self.read(daemon, "/settings/level") == "two", SOON, "the ConfigMap's change arrives")
        until(lambda: self.read(daemon, "/keys/key") == "second", SOON, "the Secret's change arrives")
        self.assertEqual(sorted(self.cri.execute(daemon[2], "ls", "/settings").split()), ["level", "new"])
        self.unchanged(daemon)

    def test_env_comes_from_configmaps_and_secrets_without_showing(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "env", "namespace": NAMESPACE}, "data": {"PLAIN": "a $(b) 'c'"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "env", "namespace": NAMESPACE}, "stringData": {"password": "hidden value"}}
        daemon = self.run_daemon(labelled("environ", container={
            "envFrom": [{"configMapRef": {"name": "env"}, "prefix": "C_"}],
            "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "env", "key": "password"}}}]}), config, secret)
        environ = self.cri.execute(daemon[2], "env")
        self.assertIn("C_PLAIN=a $(b) 'c'\n", environ)
        self.assertIn("PASSWORD=hidden value\n", environ)
        mirror = self.admin.wait("pods", lambda seen: next((item for key, item in seen.items() if key[1].startswith("environ-")), None), 20, "its mirror pod")
        self.assertNotIn("hidden value", json.dumps(mirror))

    def test_a_sub_path_is_the_file_itself(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parts", "namespace": NAMESPACE}, "data": {"one": "1", "two": "2"}}
        daemon = self.run_daemon(labelled(
            "subpath", volumes=[{"name": "parts", "configMap": {"name": "parts"}}],
            container={"volumeMounts": [{"name": "parts", "mountPath": "/etc/one.conf", "subPath": "one"},
                                        {"name": "parts", "mountPath": "/etc/by-name.conf", "subPathExpr": "$(WHICH)"}],
                       "env": [{"name": "WHICH", "value": "two"}]}), config)
        self.assertEqual((self.read(daemon, "/etc/one.conf"), self.read(daemon, "/etc/by-name.conf")), ("1", "2"))

    def test_fs_group_holds_after_an_update(self):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "grouped", "namespace": NAMESPACE}, "stringData": {"key": "first"}}
        daemon = self.run_daemon(labelled(
            "grouped", securityContext={"fsGroup": 2345, "runAsUser": 1234, "runAsGroup": 1234},
            volumes=[{"name": "keys", "secret": {"secretName": "grouped", "defaultMode": 0o400}}],
            container={"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}), secret)
        token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
        self.assertEqual(self.stat(daemon, "/keys/key"), "2345 440")
        before = self.stat(daemon, token)
        self.assertEqual(before, "2345 640")
        self.admin.patch("secrets", "grouped", {"stringData": {"key": "second"}}, NAMESPACE)
        until(lambda: self.read(daemon, "/keys/key") == "second", SOON, "the Secret's change arrives (read as user 1234)")
        self.assertEqual(self.stat(daemon, "/keys/key"), "2345 440")
        self.assertEqual(self.stat(daemon, token), before)
        self.unchanged(daemon)

    def stat(self, daemon, path):
        """Group and mode of a file."""
        return self.cri.execute(daemon[2], "stat", "-L", "-c", "%g %a", path).strip()

    def test_the_token_is_valid_bound_to_the_node_and_refreshed(self):
        volume = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "tests", "expirationSeconds": 600}}]}}
        daemon = self.run_daemon(labelled("tokens", volumes=[volume], container={"volumeMounts": [{"name": "token", "mountPath": "/token"}]}))
        default = "/var/run/secrets/kubernetes.io/serviceaccount"
        self.assertEqual(self.read(daemon, f"{default}/namespace"), NAMESPACE)
        self.assertEqual(self.read(daemon, f"{default}/ca.crt").strip(), self.cluster.pki.ca.read_text(encoding="ascii").strip())
        first = self.read(daemon, "/token/token")
        for token, audiences in ((first, ["tests"]), (self.read(daemon, f"{default}/token"), ["https://kubernetes.default.svc"])):
            review = self.admin.create("tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": audiences}})
            self.assertTrue(review["status"].get("authenticated"), review["status"])
            self.assertEqual(review["status"]["user"]["username"], f"system:serviceaccount:{NAMESPACE}:default")
            self.assertEqual(review["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"], [self.node.name])
        # A new Node object of the same name: the old tokens died with the old one, and waiting would not help.
        self.admin.delete("nodes", self.node.name)
        self.node.kubelet.stop()
        self.node.start_kubelet()
        until(lambda: self.read(daemon, "/token/token") != first, 30, "a new token after the Node was made anew")
        review = self.admin.create("tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": self.read(daemon, "/token/token"), "audiences": ["tests"]}})
        self.assertTrue(review["status"].get("authenticated"), review["status"])
        self.unchanged(daemon)


class Placement(OneKubelet):
    """Where a daemon belongs, and what follows from a change of that."""

    def test_a_node_label_adds_it_and_its_loss_removes_it(self):
        self.admin.apply(labelled("picky", nodeSelector={"disk": "fast"}))
        self.addCleanup(self.delete_daemon, "picky")
        never(lambda: self.cri.of("picky-") or self.agent.manifests("picky"), 2, "it runs on a node that it does not select")
        self.admin.patch("nodes", self.node.name, {"metadata": {"labels": {"disk": "fast"}}})
        first = self.cri.wait_running("picky-")
        self.admin.patch("nodes", self.node.name, {"metadata": {"labels": {"disk": None}}})
        self.cri.wait_gone("picky-")
        self.admin.patch("nodes", self.node.name, {"metadata": {"labels": {"disk": "fast"}}})
        again = self.cri.wait_running("picky-")
        self.assertNotEqual(first[0], again[0], "an instance that ended came back under its name")

    def test_a_taint_without_toleration_removes_it(self):
        daemon = self.run_daemon(labelled("shy"))
        tolerant = self.run_daemon(labelled("tolerant", tolerations=[{"operator": "Exists"}]))
        self.admin.patch("nodes", self.node.name, {"spec": {"taints": [{"key": "test", "value": "yes", "effect": "NoExecute"}]}})
        self.addCleanup(self.admin.patch, "nodes", self.node.name, {"spec": {"taints": None}})
        self.cri.wait_gone("shy-")
        self.unchanged(tolerant)
        self.admin.patch("nodes", self.node.name, {"spec": {"taints": None}})
        self.assertNotEqual(self.cri.wait_running("shy-")[0], daemon[0])

    def test_a_deleted_daemonset_goes(self):
        self.run_daemon(labelled("doomed"))
        self.admin.delete("daemonsets", "doomed", NAMESPACE)
        self.cri.wait_gone("doomed-")
        until(lambda: not self.agent.manifests("doomed"), 5, "its manifest is gone")

    def test_an_unlabelled_daemonset_is_left_alone(self):
        self.admin.apply(daemonset("stranger", NAMESPACE, hostNetwork=True))
        self.addCleanup(self.delete_daemon, "stranger")
        never(lambda: self.agent.manifests("stranger"), 2, "a DaemonSet without the mode label was taken")

    def test_pod_security_does_not_take_the_mirror_pod(self):
        self.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "careful", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}})
        self.cluster.wait_namespace("careful")
        self.run_daemon(labelled("modest", namespace="careful", hostNetwork=False))
        self.admin.wait("pods", lambda seen: any(name.startswith("modest-") for _, name in seen), 20, "its mirror pod", namespace="careful")


class Change(OneKubelet):
    """A changed template replaces in order; trouble loses nothing."""

    def test_a_changed_template_never_runs_twice(self):
        first = self.run_daemon(labelled("ordered", terminationGracePeriodSeconds=3, container={
            "command": ["sh", "-c", "trap 'sleep 1; exit' TERM; while :; do sleep 3600 & wait; done"]}))
        log = self.node.home / "events.log"
        events = self.cri.events(log)
        self.addCleanup(events.stop)
        seen = []
        self.admin.patch("daemonsets", "ordered", {"spec": {"template": {"metadata": {"annotations": {"round": "two"}}}}}, NAMESPACE)

        def replaced():
            pods = [pod for pod, _, _, _ in self.cri.of("ordered-")]
            seen.append(len(pods))
            return len(pods) == 1 and pods != [first[0]]
        until(replaced, 45, "the new instance runs")
        self.assertLessEqual(max(seen), 1, "two instances ran at once")
        second = self.cri.of("ordered-")[0]
        events.wait_line(f"/tasks/start .*{second[2]}", 5)
        lines = [line for _, line in events.lines]
        ended = next(i for i, line in enumerate(lines) if "/tasks/exit" in line and first[2] in line)
        began = next(i for i, line in enumerate(lines) if "/tasks/start" in line and second[2] in line)
        self.assertLess(ended, began, "the new instance began before the old one had ended")

    def test_nothing_is_lost_while_the_api_is_in_trouble(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "steady", "namespace": NAMESPACE}, "data": {"key": "one"}}
        daemon = self.run_daemon(labelled("steady", volumes=[{"name": "config", "configMap": {"name": "steady"}}],
                                          container={"volumeMounts": [{"name": "config", "mountPath": "/config"}]}), config)
        manifests = self.agent.manifests("steady")

        def changed():
            return self.cri.of("steady-") != [daemon] or self.agent.manifests("steady") != manifests

        self.cluster.freeze()
        never(changed, 3, "something changed while the API server hung")
        self.cluster.thaw()

        self.cluster.stop("api")
        never(changed, 2, "something changed while the API server was gone")
        self.agent.restart()
        never(changed, 3, "something changed when the agent started without an API server")
        self.cluster.start_api()

        self.admin.kubectl("delete", "clusterrole", agent.ROLE)
        self.agent.restart()
        never(changed, 3, "something changed when the agent had lost its rights")
        agent.grant(self.cluster)

        self.admin.patch("configmaps", "steady", {"data": {"key": "two"}}, NAMESPACE)
        until(lambda: self.read(daemon, "/config/key") == "two", 60, "changes arrive again")
        self.unchanged(daemon)

    def test_a_killed_agent_leaves_all_running_and_goes_on(self):
        daemon = self.run_daemon(labelled("survivor"))
        self.agent.kill()
        never(lambda: self.cri.of("survivor-") != [daemon], 1, "it did not survive the agent")
        self.agent.start()
        until(lambda: "survivor" in self.agent.cli("status").stdout, 15, "the agent knows it again")
        self.unchanged(daemon)

    def test_a_foreign_change_to_a_manifest_is_repaired(self):
        self.run_daemon(labelled("guarded"))
        (name, text), = self.agent.manifests("guarded").items()
        (self.node.manifests / name).write_text(text.replace("dl.test/box:1", "dl.test/other:1"), encoding="utf-8")
        until(lambda: self.agent.manifests("guarded") == {name: text}, 10, "the manifest is repaired")
        foreign = self.node.manifests / "foreign.json"
        foreign.write_text("{}", encoding="utf-8")
        self.addCleanup(foreign.unlink)
        never(lambda: foreign.read_text(encoding="utf-8") != "{}", 1, "a foreign file was touched")


class Apply(OneKubelet):
    """How long it takes; figures are printed, only the order of magnitude is held."""

    def test_apply_to_running(self):
        self.run_daemon(labelled("warm"))
        began = time.monotonic()
        self.run_daemon(labelled("quick"))
        took = time.monotonic() - began
        print(f"          kubectl apply to container running: {took:.2f} s")
        self.assertLess(took, 10)
