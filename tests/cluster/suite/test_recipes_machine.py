"""The recipes whose daemons come from files, and kube-proxy in mode `bootstrap` and back, on a machine as their pages say it.

`kit/recipes` says which programs are stand-ins. What the pages' blocks for a cluster have, `test_recipes` runs.
"""

import json
import re
import subprocess
import threading
import time
import unittest
from types import SimpleNamespace

from kit import agent
from kit import daemons
from kit import recipes
from kit import tools
from kit.control_plane import ControlPlane
from kit.kubelet import BRIDGE
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until
from suite.story import Story

WORLD = SimpleNamespace()
NAMESPACE = "kube-system"
DRIVER = "nfs.csi.k8s.io"
INSTALLED = "/etc/daemonlet/daemonsets.d"
SOON = 60
# What `daemonlet status` says of a pod that runs and is ready.
RUNNING = "running +yes"


def setUpModule():  # noqa: N802 (unittest's name)
    """One machine with a pod network, the DaemonSet controller and the scheduler."""
    lan = Lan()
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers(daemonset_controller=True)
    cluster.start_scheduler()
    for name in ("monitoring", "logging"):
        cluster.admin.create("namespaces", {"metadata": {"name": name}})
    cluster.wait_namespace(NAMESPACE)
    agent.grant(cluster)
    common = common_layer([*recipes.all_images(), daemons.kube_proxy_image()])
    WORLD.machine = machine = unittest.enterModuleContext(Machine(cluster, lan, "n1", common, daemonlet={}))
    machine.put("/etc/cni/net.d/10-pods.conflist", json.dumps(BRIDGE))
    machine.power_on()
    machine.wait_up()
    machine.wait_ready()


def curl(*words):
    """What curl on the machine prints; empty where it gets nothing within 2 s."""
    argv = ["ip", "netns", "exec", WORLD.machine.name, "curl", "--silent", "--fail", "--max-time", "2", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False).stdout


class OnAMachine(Story):
    """What the stories of a page are told with."""

    def setUp(self):
        self.cluster, self.machine = WORLD.cluster, WORLD.machine
        self.admin = self.cluster.admin

    @property
    def cri(self):
        """The runtime of this boot."""
        return self.machine.cri

    def says(self, daemon, words, seconds=SOON):
        """Waits until `daemonlet status` has a line of that daemon with these words; gives it."""
        status = lambda: self.machine.run("daemonlet", "status", check=False)
        try:
            return until(lambda: re.search(rf"(?m)^{daemon} .*{words}.*$", status()), seconds, f"status says {words} of {daemon}")[0]
        except AssertionError as error:
            raise AssertionError(f"{error}\n{status()}") from None

    def install(self, name, change=("", "")):
        """Puts the recipe's file on the machine, as the page says it where it has a command for that."""
        text = (recipes.FOLDER / f"{name}.yaml").read_text(encoding="utf-8").replace(*change)
        page = tools.REPO / "docs" / "recipes" / f"{name}.md"
        (command, *_) = [*(re.findall(r"`(install -D [^`]+)`", page.read_text(encoding="utf-8")) if page.exists() else []),
                         f"install -m 0644 {name}.yaml {INSTALLED}/{name}.yaml"]
        self.machine.put(f"/root/{name}.yaml", text)
        self.machine.run("sh", "-ec", f"mkdir -p {INSTALLED}; cd /root; {' '.join(command.split())}")

    def remove(self, name, pod):
        """Removes the file; the pod ends."""
        self.machine.run("rm", f"{INSTALLED}/{name}.yaml")
        began = time.monotonic()
        self.cri.wait_gone(pod)
        print(f"          {name}: its pod ended {time.monotonic() - began:.1f} s after the file")


class Files(OnAMachine):
    """The pages of daemons from files."""

    def test_1_csi(self):
        self.admin.apply({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {
            "attachRequired": False, "podInfoOnMount": False, "volumeLifecycleModes": ["Ephemeral"]}})
        self.install("csi-node")
        self.says("kube-system/csi-node", RUNNING)
        until(lambda: f"name: {DRIVER}\n" in self.admin.kubectl("get", "csinode", "n1", "-o", "yaml"), SOON, "the driver is listed")
        data = {"volumes": [{"name": "data", "csi": {"driver": DRIVER}}], "mounts": [{"name": "data", "mountPath": "/data"}]}
        self.user("one", **data)
        one = self.cri.wait_running("one", SOON)
        mounts = lambda: self.cri.execute(one[2], "grep", " /data tmpfs ", "/proc/mounts")
        self.assertIn("stand-in", mounts())
        self.remove("csi-node", "csi-node-")
        # What it has mounted stays; nothing else is mounted until a plugin runs again.
        self.assertIn("stand-in", mounts())
        self.user("two", **data)
        never(lambda: self.cri.of("two"), 4, "a pod runs without its volume")
        self.install("csi-node")
        self.cri.wait_running("two", 90)
        for name in ("one", "two"):
            self.admin.delete("pods", name, NAMESPACE)
        until(lambda: not self.admin.list("pods", NAMESPACE, labels="user=yes"), SOON, "the pods are gone")
        self.remove("csi-node", "csi-node-")

    def user(self, name, volumes=(), mounts=(), **container):
        """A pod for the scheduler that uses what a plugin brings."""
        self.admin.create("pods", {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"user": "yes"}}, "spec": {
            "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "volumes": list(volumes), "containers": [
                {"name": "main", "image": "dl.test/box:1", "command": daemons.SLEEP, "volumeMounts": list(mounts)} | container]}})

    def test_2_gpu(self):
        self.install("device-plugin")
        self.says("kube-system/gpu-device-plugin", RUNNING)
        shown = lambda: self.admin.kubectl("get", "node", "n1", "-o", "jsonpath={.status.allocatable}")
        allocatable = lambda: json.loads(shown()).get("nvidia.com/gpu")
        until(lambda: allocatable() == "1", SOON, "the node has the resource")
        self.user("with-gpu", resources={"limits": {"nvidia.com/gpu": "1"}})
        user = self.cri.wait_running("with-gpu", SOON)
        self.remove("device-plugin", "gpu-device-plugin-")
        until(lambda: allocatable() == "0", SOON, "the node has none for others")
        self.assertEqual(self.cri.of("with-gpu"), [user], "who has one keeps it")
        self.admin.delete("pods", "with-gpu", NAMESPACE)

    def test_3_node_exporter(self):
        self.install("node-exporter")
        self.says("monitoring/node-exporter", RUNNING)
        metrics = until(lambda: curl("http://127.0.0.1:9100/metrics"), SOON, "it answers")
        # The machine's name and mounts, each by its path on the machine.
        for words in (r'node_uname_info\{.*nodename="n1"', r'node_filesystem_size_bytes\{.*mountpoint="/var/lib/kubelet"'):
            self.assertTrue(re.search(f"(?m)^{words}", metrics), words)
        ((_, _, container, pid),) = self.cri.of("node-exporter-")
        self.assertRegex(self.machine.run("grep", "^Uid:", f"/proc/{pid}/status"), r"Uid:\t65534\t65534")
        self.remove("node-exporter", "node-exporter-")
        self.assertEqual(curl("http://127.0.0.1:9100/metrics"), "")

    def test_4_fluent_bit(self):
        self.install("fluent-bit", ("change me", "first-word"))
        self.says("logging/fluent-bit", RUNNING)
        first = self.cri.wait_running("fluent-bit-")
        read = lambda container: self.cri.execute(container, "grep", "http_passwd", "/tmp/read").split()
        self.assertEqual(read(first[2]), ["http_passwd:", "first-word"])
        for folder in ("/etc/kubernetes/manifests", "/var/lib/daemonlet/daemons"):
            self.assertEqual(self.machine.run("grep", "-rl", "first-word", folder, check=False), "", "the password is in the manifest")
        self.assertEqual(self.machine.run("stat", "-c", "%a", f"{INSTALLED}/fluent-bit.yaml").strip(), "600")
        seen = "/var/lib/fluent-bit/tail.db"
        until(lambda: "fluent-bit-" in self.machine.run("cat", seen), SOON, "it sees its own log")
        said = lambda: [entry["MESSAGE"] for entry in self.machine.journal("_SYSTEMD_UNIT=daemonlet.service")]
        updates = lambda: sum("brought fluent-bit-" in message for message in said())
        before = updates()
        self.install("fluent-bit", ("change me", "second-word"))
        # A restart that is asked for within the second before the agent reads the file starts with what it read before.
        until(lambda: updates() > before, SOON, "the agent has read the changed file")
        (change,) = set(re.findall(r"`(daemonlet restart [^`]+)`", (tools.REPO / "docs/recipes/fluent-bit.md").read_text(encoding="utf-8")))
        self.machine.run(*change.split())
        other = until(lambda: [one for one in self.cri.of("fluent-bit-") if one[2] != first[2]], SOON, "another instance runs")
        self.assertEqual(read(other[0][2]), ["http_passwd:", "second-word"])
        self.remove("fluent-bit", "fluent-bit-")
        self.assertTrue(self.machine.run("cat", seen), "what it remembers went with its pod")

    def test_5_node_local_dns(self):
        self.install("node-local-dns")
        self.says("kube-system/node-local-dns", RUNNING)
        until(lambda: curl("http://169.254.20.10:8080/health") == "OK\n", SOON, "it answers at its address")
        self.machine.run("test", "-f", "/run/xtables.lock")
        before = self.cri.wait_running("node-local-dns-")
        corefile = lambda: self.cri.execute(before[2], "cat", "/etc/coredns/Corefile")
        self.assertIn("forward . 10.96.0.10 {", corefile())
        self.install("node-local-dns", ("10.96.0.10", "10.96.0.53"))
        until(lambda: "forward . 10.96.0.53 {" in corefile(), SOON, "the changed file reaches the container")
        self.assertEqual(self.cri.of("node-local-dns-"), [before], "the pod restarted")
        self.remove("node-local-dns", "node-local-dns-")
        self.assertNotIn("169.254.20.10", self.machine.run("ip", "addr", "show", "dev", "lo"))


class KubeProxy(OnAMachine):
    """kubeadm's kube-proxy, the real program."""

    def answers(self):
        """Whether the API server's own Service answers on the machine."""
        return curl("--insecure", "https://10.96.0.1/livez") == "ok"

    def stock(self):
        """The container of the DaemonSet controller's pod, or nothing."""
        pods = [pod["metadata"]["name"] for pod in self.admin.list("pods", NAMESPACE, labels="k8s-app=kube-proxy")
                if "kubernetes.io/config.mirror" not in pod["metadata"].get("annotations", {})]
        return [one for one in self.cri.of("kube-proxy-") if one[0] in pods]

    def test_1_the_label_restarts_nothing(self):
        self.admin.apply(*daemons.kube_proxy(self.cluster.url))
        until(self.answers, SOON, "the Service answers")
        type(self).before = before = until(self.stock, SOON, "the controller's pod runs")
        self.admin.kubectl("-n", NAMESPACE, "label", "ds", "kube-proxy", "daemonlet.dev/mode=bootstrap")
        self.assertIn(before[0][0], self.says("kube-system/kube-proxy", "standing by"))
        never(lambda: self.cri.of("kube-proxy-") != before, 3, "something restarted")

    def test_2_without_scheduler_and_controller_a_boot_brings_services(self):
        for part in ("controllers", "scheduler"):
            self.cluster.stop(part)
        self.admin.delete("pods", self.before[0][0], NAMESPACE)
        until(lambda: not self.cri.of("kube-proxy-"), SOON, "the controller's pod is gone")
        self.machine.power_off()
        # A machine that boots within the second in which it ended is no machine.
        time.sleep(3)
        self.machine.power_on()
        self.machine.wait_up()
        self.says("kube-system/kube-proxy", RUNNING, 90)
        until(self.answers, SOON, "the Service answers")
        until(lambda: self.cri.of("kube-proxy-") and not self.stock(), SOON, "daemonlet's pod alone runs")

    def test_3_services_answer_while_the_controllers_pod_takes_over_and_the_label_goes(self):
        asked, ended = [], threading.Event()

        def ask():
            while not ended.wait(0.2):
                asked.append(self.answers())

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            self.cluster.start_controllers(daemonset_controller=True)
            self.cluster.start_scheduler()
            until(lambda: self.stock() and len(self.cri.of("kube-proxy-")) == 1, SOON, "the controller's pod alone runs")
            self.says("kube-system/kube-proxy", "standing by")
            before = self.stock()
            self.admin.kubectl("-n", NAMESPACE, "label", "ds", "kube-proxy", "daemonlet.dev/mode-")
            until(lambda: "standing by" not in self.machine.run("daemonlet", "status", check=False), SOON, "daemonlet leaves it alone")
            never(lambda: self.cri.of("kube-proxy-") != before, 3, "something restarted")
        finally:
            ended.set()
            asking.join()
        print(f"          the Service was asked {len(asked)} times, and answered {sum(asked)}")
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked.count(False), 0)


if __name__ == "__main__":
    unittest.main()
