"""What the simulator assumes of kubelets and runtimes, on a real kubelet and containerd.

Each story changes what the node is: another name, another runtime to ask, a kubelet that lacks a feature.
"""

import json
import shutil
import subprocess
import unittest
from types import SimpleNamespace

from kit.agent import Agent
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.sandbox import scratch
from kit.standin import Runtime
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, without scheduler and DaemonSet controller."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))


def labelled(name, **fields):
    """A DaemonSet that asks for static mode."""
    return daemonset(name, namespace=NAMESPACE, labels={"daemonlet.dev/mode": "static"}, hostNetwork=True,
                     **({"terminationGracePeriodSeconds": 5} | fields))


class Models(unittest.TestCase):
    """Each story has an agent and a daemon of its own."""

    def setUp(self):
        self.cluster, self.node, self.admin, self.cri = WORLD.cluster, WORLD.node, WORLD.cluster.admin, WORLD.node.cri

    def start(self, name, **config):
        """An agent that runs `name`; gives both, with the daemon's container."""
        made = self.enterContext(Agent(self.node, name, **config))
        self.admin.apply(labelled(name))
        self.addCleanup(self.admin.delete, "daemonsets", name, NAMESPACE)
        return made, self.wait_running(made, name)

    def wait_running(self, made, name, seconds=40):
        """Waits for the daemon's one container."""
        try:
            return self.cri.wait_running(f"{name}-", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{made.cli('status').stdout}\n{made.process.tail(25)}") from None

    def until(self, made, check, seconds, what):
        """Waits, and says what the agent said meanwhile if in vain."""
        try:
            return until(check, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{made.cli('status').stdout}\n{made.process.tail(40)}") from None

    def change(self, name, template):
        """Changes a DaemonSet's template."""
        self.admin.patch("daemonsets", name, {"spec": {"template": template}}, NAMESPACE)

    def status(self, made, name):
        """The daemon's line of `status --json`."""
        return next((one for one in json.loads(made.cli("status", "--json").stdout)["daemons"] if one["name"] == name), {})

    def test_a_container_without_its_environment_waits_alone(self):
        made = self.enterContext(Agent(self.node, "lone"))
        body = labelled("lone")
        first = body["spec"]["template"]["spec"]["containers"][0]
        source = {"secretKeyRef": {"name": "late", "key": "password"}}
        body["spec"]["template"]["spec"]["containers"].append(first | {"name": "needy", "env": [{"name": "PASSWORD", "valueFrom": source}]})
        self.admin.apply(body)
        self.addCleanup(self.admin.delete, "daemonsets", "lone", NAMESPACE)
        runs = self.wait_running(made, "lone")
        self.assertEqual(runs[1], first["name"], "the container that lacks nothing runs")
        self.until(made, lambda: "late" in json.dumps(self.status(made, "lone")), 20, "status names what is missing")
        self.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": NAMESPACE}, "stringData": {"password": "x"}})
        both = self.until(made, lambda: len(found := self.cri.of("lone-")) == 2 and found, 10, "the other one runs")
        self.assertIn(runs, both, "the first one was not touched")
        needy = next(one for one in both if one[1] == "needy")
        self.assertEqual(self.cri.execute(needy[2], "sh", "-c", "echo $PASSWORD").strip(), "x")

    def test_b_a_runtime_beside_the_kubelets_is_no_pod_status_source(self):
        home = scratch() / "another"
        (home / "manifests").mkdir(parents=True)
        (home / "kubelet").mkdir()
        another = Runtime("another", home, home / "manifests", home / "kubelet")
        another.start()
        self.addCleanup(another.stop)
        made, first = self.start("beside", runtime_endpoint=f"unix://{another.socket}")
        self.until(made, lambda: self.status(made, "beside").get("state") == "running", 30, "its mirror pod says that it runs")
        most = []

        def replaced():
            pods = {pod for pod, _, _, _ in self.cri.of("beside-")}
            most.append(len(pods))
            return len(pods) == 1 and pods != {first[0]}
        self.change("beside", {"metadata": {"annotations": {"round": "two"}}})
        self.until(made, replaced, 45, "the mirror pod is the source of its status")
        self.assertLessEqual(max(most), 1, "two instances ran at once")
        second = self.wait_running(made, "beside")
        # The kubelet keeps a pod's container while its end could not be observed.
        self.cluster.stop("api")
        self.addCleanup(lambda: self.cluster.alive("api") or self.cluster.start_api())
        until(lambda: made.cli("restart", f"{NAMESPACE}/beside").returncode is not None, 10, "it is ordered")
        self.until(made, lambda: "could not be observed" in made.cli("status").stdout, 30, "status says why the restart waits")
        never(lambda: self.cri.of("beside-") != [second], 5, "it ended though its end could not be observed")
        self.cluster.start_api()
        self.until(made, lambda: [pod for pod, _, _, _ in self.cri.of("beside-")] not in ([], [second[0]]), 120, "it is restarted when the API server is back")

    def test_c_a_manifest_that_the_kubelet_does_not_take_gives_way_to_the_last_one(self):
        self.node.kubelet.stop()
        self.node.config = {"featureGates": {"ContainerRestartRules": False, "RestartAllContainersOnContainerExits": False}}
        self.node.start_kubelet()
        self.node.wait_ready()
        made, first = self.start("taken")
        container = labelled("taken")["spec"]["template"]["spec"]["containers"][0]
        # The API server takes it, and this kubelet's file source does not.
        self.change("taken", {"spec": {"containers": [container | {"restartPolicy": "Always"}]}})
        self.until(made, lambda: self.status(made, "taken").get("failed"), 90, "the revision has failed")
        again = self.wait_running(made, "taken")
        self.assertNotEqual(again[0], first[0], "a new instance of the last revision that was taken")
        said = self.status(made, "taken")
        self.assertIn("is not accepted", said["reason"])
        self.assertNotEqual(said["revision"], said["failed"]["revision"])
        never(lambda: self.cri.of("taken-") != [again], 5, "it stays so")
        self.node.kubelet.stop()
        self.node.config = {}
        self.node.start_kubelet()

    def rename(self, name):
        """The kubelet's node has another name from now on."""
        self.node.kubelet.stop()
        self.node.name = name
        self.node.start_kubelet()
        self.node.wait_ready()

    def replaced_once(self, made, name, first):
        """Waits until another container runs in the first one's place, and sees it stay."""
        def other():
            found = self.cri.of(f"{name}-")
            return found[0] if len(found) == 1 and found[0][2] != first[2] else None
        renewed = self.until(made, other, 90, "it is replaced")
        never(lambda: self.cri.of(f"{name}-") != [renewed], 5, "once")
        self.assertEqual(self.status(made, name)["state"], "running")
        return renewed

    def test_d_a_node_that_has_another_name_replaces_what_it_ran_once(self):
        made, first = self.start("named")
        made.stop()
        self.rename("renamed")
        self.replaced_once(self.enterContext(Agent(self.node, "named", state_dir=str(made.home / "state"))), "named", first)

    def test_e_a_machine_that_was_cloned_without_its_state_folder_replaces_what_it_ran_once(self):
        made, first = self.start("cloned")
        made.stop()
        shutil.rmtree(made.home / "state")
        self.rename("cloned-node")
        self.replaced_once(self.enterContext(Agent(self.node, "cloned")), "cloned", first)

    def test_f_what_runs_without_manifest_and_record_ends_before_another_one_starts(self):
        made, first = self.start("lost")
        made.stop()
        # The kubelet looks at its folder no more, so the pod goes on.
        self.node.kubelet.stop()
        shutil.rmtree(made.home / "state")
        for file in self.node.manifests.glob(f"{NAMESPACE}_lost-*"):
            file.unlink()
        made.start()
        self.until(made, lambda: "neither a manifest nor a record" in self.status(made, "lost").get("reason", ""), 20, "it waits for what runs")
        never(lambda: made.manifests("lost-"), 3, "another one has a manifest though one runs")
        self.node.start_kubelet()
        second = self.replaced_once(made, "lost", first)
        self.assertNotEqual(second[0], first[0], "the number of the lost one is not used again")

    def test_g_a_file_system_that_is_mounted_late_under_a_linked_file_ends_nothing(self):
        late = scratch() / "late"
        late.mkdir()

        def mount(number):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", late], check=True)
            body = labelled("linked")
            body["spec"]["template"]["metadata"]["annotations"] = {"round": number}
            (late / "linked.yaml").write_text(json.dumps(body), encoding="utf-8")
        mount("one")
        self.addCleanup(subprocess.run, ["umount", "-l", late], check=False)
        made = Agent(self.node, "linked")
        made.folder.mkdir(parents=True)
        (made.folder / "linked.yaml").symlink_to(late / "linked.yaml")
        made.start()
        self.addCleanup(made.stop)
        runs = self.wait_running(made, "linked")
        made.stop()
        subprocess.run(["umount", "-l", late], check=True)
        made.start()
        self.until(made, lambda: "cannot be read" in made.cli("status").stdout, 20, "status names the file")
        never(lambda: self.cri.of("linked-") != [runs], 3, "it ended for a file that cannot be looked at")
        mount("two")
        made.process.hang_up()
        self.replaced_once(made, "linked", runs)


if __name__ == "__main__":
    unittest.main()
