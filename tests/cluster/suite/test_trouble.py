"""Trouble with the API server, one kind a story: survived, reported in words, tried again, nothing lost."""

import json
import shutil
import socket
import ssl
import threading
import time
import unittest
import urllib.error
import urllib.request

from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.bare import Story

# A dead connection is noticed by the pings after 45 s; what is new shows within that.
PATIENCE = 75


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Trouble(Story):
    """A daemon with data, through each kind."""

    def setUp(self):
        super().setUp()
        self.agent = self.start_agent(kubeconfig=str(self.kubeconfig()), update_jitter="0s")
        self.config("settings", level="one")
        self.put(self.daemon("steady", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        self.first = self.instance(self.agent, "steady")
        self.settled(self.agent)

    def kubeconfig(self):
        """The agent's kubeconfig."""
        return self.cluster.kubeconfig(f"daemonlet:node:{self.namespace}", ["daemonlet:nodes"])

    def level(self):
        """What the daemon reads."""
        return self.agent.node.data(self.first, "settings", "level")

    def set_level(self, value):
        """Changes it in the API."""
        self.admin.patch("configmaps", "settings", {"data": {"level": value}}, self.namespace)

    def same(self, seconds=2):
        """Asserts that nothing happens to the daemon and its data."""
        level = self.level()
        self.keeps(self.agent, self.first, "steady", seconds)
        self.assertEqual(self.level(), level)

    def follows(self, value, seconds=SOON):
        """A change of now arrives, in the same instance; gives how long it took."""
        began = time.monotonic()
        self.set_level(value)
        try:
            until(lambda: self.level() == value, seconds, "a change arrives")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.agent.cli('status').stdout}\n{self.agent.process.tail(25)}") from None
        self.same(0.5)
        return time.monotonic() - began

    def test_absent(self):
        self.cluster.stop("api")
        self.says(self.agent, "API: .*connection refused since ")
        self.same()
        self.agent.restart()
        self.says(self.agent, "API: .*connection refused since ")
        self.same()
        self.cluster.start_api()
        until(lambda: self.report(self.agent)["agent"]["api"] == "connected", PATIENCE, "it is connected again")
        self.follows("two")

    def test_silent(self):
        self.agent.restart()
        self.settled(self.agent)
        self.cluster.freeze()
        try:
            self.same(3)
            self.agent.restart()
            self.says(self.agent, "API: .*no answer within")
            self.same(1)
        finally:
            self.cluster.thaw()
        self.follows("two", PATIENCE)

    def test_slow(self):
        with SlowWay(self.cluster.PORT, 0.4) as way:
            config = json.loads(self.kubeconfig().read_text(encoding="utf-8"))
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{way.port}"
            path = self.agent.home / "slow.kubeconfig"
            path.write_text(json.dumps(config), encoding="utf-8")
            path.chmod(0o600)
            self.agent.config["kubeconfig"] = str(path)
            self.agent.config["api-endpoint"] = f"127.0.0.1:{self.cluster.PORT}"
            self.agent.restart()
            self.same()
            took = self.follows("two", PATIENCE)
            print(f"          0.4 s in each direction: connected, and followed a change in {took:.1f} s")
            self.put(self.daemon("second"))
            self.instance(self.agent, "second", seconds=PATIENCE)
            self.remove("second")
            self.wait_gone(self.agent, "second", PATIENCE)

    def test_credentials_revoked_and_renewed(self):
        self.admin.create("serviceaccounts", {"metadata": {"name": "agent", "namespace": self.namespace}})
        self.admin.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "agent-account"},
                          "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "daemonlet-agent"},
                          "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": self.namespace}]})
        path = self.agent.home / "token.kubeconfig"
        self.by_token(path)
        self.agent.config["kubeconfig"] = str(path)
        self.agent.restart()
        self.settled(self.agent)
        self.admin.delete("serviceaccounts", "agent", self.namespace)
        until(lambda: self.refused(path), 40, "the API server forgets that it has just seen the token")
        self.agent.restart()
        self.says(self.agent, r"API: .*\(401\)")
        self.same()
        self.admin.create("serviceaccounts", {"metadata": {"name": "agent", "namespace": self.namespace}})
        self.by_token(path)
        until(lambda: self.report(self.agent)["agent"]["api"] == "connected", PATIENCE, "new credentials are taken without a restart")
        self.follows("two")

    def by_token(self, path):
        """Writes a kubeconfig with a token of the account."""
        config = json.loads(self.kubeconfig().read_text(encoding="utf-8"))
        token = self.admin.create("serviceaccounts", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
                                  self.namespace, "agent", "token")["status"]["token"]
        config["users"][0]["user"] = {"token": token}
        path.write_text(json.dumps(config), encoding="utf-8")
        path.chmod(0o600)

    def refused(self, path):
        """Whether the API server refuses the kubeconfig's token."""
        config = json.loads(path.read_text(encoding="utf-8"))
        request = urllib.request.Request(f"{self.cluster.url}/api", headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"})
        try:
            urllib.request.urlopen(request, timeout=5, context=ssl.create_default_context(cafile=str(self.cluster.pki.ca))).close()
        except urllib.error.HTTPError as error:
            return error.code == 401
        return False

    def test_one_resource_forbidden(self):
        role = self.admin.get("clusterroles", "daemonlet-agent")
        rules = [rule | {"resources": [resource for resource in rule["resources"] if resource != "configmaps"]} for rule in role["rules"]]
        self.set_rules([rule for rule in rules if rule["resources"]])
        self.addCleanup(self.set_rules, role["rules"])
        self.agent.restart()
        self.says(self.agent, f"ConfigMap {self.namespace}/settings: .*forbidden")
        self.same()
        self.put(self.daemon("free"))
        self.instance(self.agent, "free")
        self.set_rules(role["rules"])
        self.follows("two", PATIENCE)

    def set_rules(self, rules):
        """Replaces the agents' rights."""
        self.admin.patch("clusterroles", "daemonlet-agent", {"rules": rules})

    def test_daemonsets_forbidden(self):
        role = self.admin.get("clusterroles", "daemonlet-agent")
        self.set_rules([rule for rule in role["rules"] if "daemonsets" not in rule["resources"]])
        self.addCleanup(self.set_rules, role["rules"])
        self.agent.restart()
        self.says(self.agent, "API: daemonsets: .*forbidden")
        self.same()
        self.follows("two")
        self.remove("steady")
        self.same(3)
        self.set_rules(role["rules"])
        self.wait_gone(self.agent, "steady", PATIENCE)

    def test_history_compacted(self):
        self.agent.process.freeze()
        self.cluster.stop("api")
        self.cluster.start_api()
        self.set_level("two")
        self.put(self.daemon("second"))
        revision = int(self.admin.get("daemonsets", "second", self.namespace)["metadata"]["resourceVersion"])
        for number in range(20):
            self.admin.patch("daemonsets", "second", {"metadata": {"annotations": {"round": str(number)}}}, self.namespace)
        self.admin.delete("daemonsets", "second", self.namespace)
        self.put(self.daemon("third"))
        request = urllib.request.Request("http://127.0.0.1:2379/v3/kv/compaction", json.dumps({"revision": str(revision + 15)}).encode())
        urllib.request.urlopen(request, timeout=10).close()
        self.cluster.stop("api")
        self.cluster.start_api()
        self.agent.process.thaw()
        until(lambda: self.level() == "two", PATIENCE, "what changed meanwhile arrives")
        self.instance(self.agent, "third", seconds=PATIENCE)
        self.same(0.5)
        self.assertEqual(self.instances(self.agent, "second"), [])
        self.follows("three")

    def test_everything_at_once_again_and_again(self):
        began = time.monotonic()
        for number in range(3):
            self.cluster.stop("api")
            self.agent.kill()
            self.agent.start()
            self.same(0.5)
            self.cluster.start_api()
            self.cluster.freeze()
            self.same(0.5)
            self.cluster.thaw()
            self.follows(f"round {number}", PATIENCE)
        print(f"          three rounds of refusal, crash and hang: {time.monotonic() - began:.0f} s")

    def test_the_address_answers_for_another_cluster(self):
        folder = (self.agent.folder / "filed.json")
        folder.write_text(json.dumps(self.daemon("filed", labels={})), encoding="utf-8")
        filed = self.instance(self.agent, "filed")
        inputs = self.agent.home / "state/inputs.json"
        until(lambda: b"/filed.json" in inputs.read_bytes(), PATIENCE, "the checkpoint has it")
        self.wipe()
        self.make_namespace(self.namespace)
        until(lambda: self.report(self.agent)["agent"]["api"] == "connected", PATIENCE, "it is connected to the other cluster")
        self.says(self.agent, "another cluster answers", PATIENCE)
        self.same(6)
        self.agent.restart()
        self.says(self.agent, "another cluster answers", PATIENCE)
        self.same(6)
        self.keeps(self.agent, filed, "filed", 0.5)
        status = self.agent.cli("status").stdout
        self.assertRegex(status, "hint: .*move .*inputs.json away")
        # As the hint says.
        self.agent.stop()
        (self.agent.home / "state" / "inputs.json").unlink()
        self.agent.start()
        self.wait_gone(self.agent, "steady", PATIENCE)
        self.keeps(self.agent, filed, "filed", 0.5)

    def wipe(self):
        """A new cluster under the same address, with the same certificates."""
        self.cluster.stop("api")
        self.cluster.stop("etcd")
        shutil.rmtree(self.cluster.home / "etcd")
        self.cluster.start_etcd()
        self.cluster.start_api()
        grant(self.cluster)
        until(lambda: self.admin.get("namespaces", "kube-system"), 20, "kube-system is there")


class SlowWay:
    """A way to the API server that holds back all that it carries for a while."""

    def __init__(self, port, delay):
        self.to, self.delay = port, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.to))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one, other):
        try:
            while data := one.recv(65536):
                time.sleep(self.delay)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            one.close()
            other.close()


if __name__ == "__main__":
    unittest.main()
