"""Mirror pods belong to their DaemonSet where no DaemonSet controller runs: kubectl is the client."""

import json

from kit import agent
from kit.wait import never
from kit.wait import until

from .bare import STATIC
from .mirror_world import GATE
from .mirror_world import NAMESPACE
from .mirror_world import SOON
from .mirror_world import World
from .mirror_world import body
from .mirror_world import owner
from .story import Story

TALKS = ["sh", "-c", "echo hello; trap exit TERM; while :; do sleep 3600 & wait; done"]


class Owned(Story):
    """Without the DaemonSet controller."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(2))
        cls.admin, cls.kubectl = cls.world.admin, cls.world.kubectl

    def test_01_mirror_pods_belong_to_their_daemon_set(self):
        self.admin.apply(body("net", STATIC, {"command": TALKS}))
        pods = self.world.owned("net", "DaemonSet")
        uid = self.admin.get("daemonsets", "net", NAMESPACE)["metadata"]["uid"]
        self.assertEqual({ref["uid"] for pod in pods for ref in pod["metadata"]["ownerReferences"]}, {uid})
        self.assertEqual([len(pod["metadata"]["ownerReferences"]) for pod in pods], [1, 1, 1])

    def test_02_describe_counts_them(self):
        until(lambda: "3 Running / 0 Waiting / 0 Succeeded / 0 Failed" in self.kubectl("describe", "ds/net"), SOON,
              "describe counts")
        self.assertIn("successfully rolled out", self.kubectl("rollout", "status", "ds/net", "--timeout=20s"))

    def test_03_logs_are_had_by_the_daemon_set(self):
        # All pods but the real node's are hollow: theirs have no logs.
        real = next(pod for pod in self.world.pods("net") if pod["spec"]["nodeName"] == self.world.node.name)
        def logs(*args):
            # A kubelet on loopback reports no address: the API server needs one to ask it.
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            self.admin.patch("nodes", self.world.node.name, {"status": {"addresses": addresses}}, sub="status")
            return self.kubectl("logs", *args, check=False)
        until(lambda: logs(real["metadata"]["name"]) == "hello\n", 20, "its log by the pod's name")
        prefixed = logs("ds/net", "--all-pods=true", "--prefix", "--ignore-errors")
        self.assertRegex(prefixed, rf"\[pod/{real['metadata']['name']}/\S+\] hello")

    def test_04_services_select_them(self):
        self.admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
                          "spec": {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}},
                         body("web", STATIC, hostNetwork=False))
        self.world.owned("web", "DaemonSet")

        def ready(seen):
            return {e["nodeName"] for item in seen.values() if item["metadata"]["labels"].get("kubernetes.io/service-name") == "web"
                    for e in item.get("endpoints") or [] if e["conditions"]["ready"]}
        self.admin.wait("endpointslices", lambda seen: self.world.node.name in ready(seen), SOON, "it gets traffic", NAMESPACE)
        self.kubectl("delete", "ds/web", "svc/web")
        until(lambda: not self.world.pods("web"), SOON, "nothing of it is left")

    def test_05_a_recreated_mirror_pod_is_given_back_to_it(self):
        before = self.world.owned("net", "DaemonSet")
        hollow = next(pod for pod in before if pod["spec"]["nodeName"].startswith("hollow"))
        self.kubectl("delete", "pod", hollow["metadata"]["name"], "--wait=false")
        def new():
            names = {pod["metadata"]["name"] for pod in self.world.owned("net", "DaemonSet")}
            return hollow["metadata"]["name"] not in names
        until(new, SOON, "a new instance belongs to the DaemonSet")

    def test_06_drain_asks_for_ignore_daemonsets(self):
        # As for pods of the DaemonSet controller.
        name = self.world.node.name
        before = self.world.node.cri.of("net-")
        with self.assertRaisesRegex(AssertionError, "cannot delete DaemonSet-managed Pods"):
            self.kubectl("drain", name, "--timeout=10s")
        self.kubectl("drain", name, "--ignore-daemonsets", "--timeout=20s")
        never(lambda: self.world.node.cri.of("net-") != before, 3, "drain touched it")
        self.kubectl("uncordon", name)

    def test_07_one_known_from_a_folder_alone_is_the_nodes(self):
        file = self.world.agent.folder / "plain.json"
        file.write_text(json.dumps(body("plain", {})), encoding="utf-8")
        self.addCleanup(file.unlink)
        self.world.owned("plain", "Node", 1)
        never(lambda: [owner(pod) for pod in self.world.pods("plain")] != ["Node"], 3, "it was given away")

    def test_08_another_mode_gives_them_back_to_the_node(self):
        uids = {pod["metadata"]["uid"] for pod in self.world.owned("net", "DaemonSet")}
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=bootstrap", "--overwrite")
        given = {pod["metadata"]["uid"] for pod in self.world.owned("net", "Node")}
        self.assertEqual(given, uids, "in place")
        self.kubectl("label", "ds/net", "daemonlet.dev/mode=static", "--overwrite")
        self.world.owned("net", "DaemonSet")

    def test_09_a_gate_keeps_them_the_nodes(self):
        self.admin.apply(body("gated", STATIC, nodeSelector=GATE))
        self.world.owned("gated", "Node")
        never(lambda: {owner(pod) for pod in self.world.pods("gated")} != {"Node"}, 3, "they were given away")
        conditions = until(lambda: self.world.conditions("gated"), SOON, "conditions are written")
        self.assertEqual(sorted(conditions), ["Available", "Degraded", "Progressing"])
        status = self.admin.get("daemonsets", "gated", NAMESPACE)["status"]
        self.assertNotIn("observedGeneration", status, "the counters are the DaemonSet controller's")
        self.kubectl("delete", "ds/gated")

    def test_10_an_agent_that_may_not_patch_says_so(self):
        file = agent.ROLE
        role = self.admin.get("clusterroles", file)
        rules = [rule if rule["resources"] != ["pods"] else rule | {"verbs": ["get", "list", "watch"]} for rule in role["rules"]]
        self.admin.patch("clusterroles", file, {"rules": rules})
        self.addCleanup(self.admin.patch, "clusterroles", file, {"rules": role["rules"]})
        self.admin.apply(body("poor", STATIC))
        until(lambda: "cannot be given to their DaemonSets" in self.world.agent.cli("status").stdout, SOON, "status says what is missing")
        self.assertIn("/usr/share/daemonlet/k8s/rbac.yaml", self.world.agent.cli("status").stdout)
        self.kubectl("delete", "ds/poor")
