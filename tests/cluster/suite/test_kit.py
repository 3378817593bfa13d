"""The kit itself: what is not there is reported in one line, and who runs when."""

import os
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import run
from kit import networks
from kit import preflight
from kit import tools
from kit import truth


class Missing(unittest.TestCase):
    """What is missing."""

    def test_nothing_is_made_inside_a_sandbox(self):
        with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, {"DAEMONLET_CACHE": empty}):
            os.environ.pop("DAEMONLET_TOOLS", None)
            for look in (tools.machine_root, lambda: tools.program("kubelet")):
                with self.assertRaisesRegex(FileNotFoundError, f"^{empty}/.* is not there: run `make cluster-tools`$"):
                    look()
            self.assertEqual(os.listdir(empty), [])
            self.assertGreater(len(tools.missing()), 15)

    def test_a_machine_without_room_is_reported_line_by_line(self):
        self.assertEqual(preflight.check(), [])
        with mock.patch.multiple(preflight, LANE_MEMORY=1 << 60, LANE_DISK=1 << 60, CONTROLLERS={"no-such"}, NAMESPACES=("no-such",)):
            lacks = preflight.check()
            self.assertEqual(preflight.lanes(4), 1)
        self.assertEqual([line.split(":")[0] for line in lacks], ["memory", "disk", "namespaces", "control groups"], lacks)
        self.assertFalse([line for line in lacks if "\n" in line])

    def test_a_file_that_cannot_be_used_is_reported_in_a_line(self):
        self.assertEqual(networks.chosen().daemons, [("kube-system", "example-cni")])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "net.yaml"
            for text, word in ((None, "No such file or directory"), ("a: 1\n", "apiVersion: required"), (networks.example().file.read_text(encoding="utf-8"), "example.invalid/cni:1, and no registry")):
                if text:
                    file.write_text(text, encoding="utf-8")
                with mock.patch.dict(os.environ, {"MANIFEST": str(file)}), self.assertRaisesRegex(networks.Unusable, f"^MANIFEST: {file}.*({word})[^\n]*$"):
                    networks.chosen()
            networks.example().images[0].save(Path(folder) / "image.tar")
            with mock.patch.dict(os.environ, {"MANIFEST": str(file), "IMAGES": folder}):
                self.assertEqual([image.names for image in networks.chosen().images], [["example.invalid/cni:1"]])


class Liar:
    """An API server whose two nodes run one revision, which says of it what it is set to say."""

    def __init__(self, folder):
        self.nodes = [types.SimpleNamespace(name=name, manifests=Path(folder) / name) for name in ("n1", "n2")]
        self.pods, self.reports = [], []
        for node in self.nodes:
            node.manifests.mkdir()
            text = f"metadata:\n  labels:\n    controller-revision-hash: r1\n    daemonlet.dev/incarnation: \"3\"\n  uid: {node.name}\n"
            (node.manifests / "kube-system_net-abcde.yaml").write_text(text, encoding="utf-8")
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.pods.append({"metadata": {"annotations": {"kubernetes.io/config.mirror": node.name}}, "status": ready})
            instances = [{"revision": "r1", "readySince": "x"}]
            daemons = [{"namespace": "kube-system", "name": "net", "uid": "u", "instances": instances}]
            self.reports.append({"metadata": {"name": node.name}, "status": {"daemons": daemons}})
        self.status = {field: 2 for field in ("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady",
                                              "numberAvailable")}
        self.status |= {"observedGeneration": 1, "conditions": [
            {"type": "Progressing", "reason": "Complete"}, {"type": "Available", "reason": "AllAvailable", "message": "2 of 2 nodes"},
            {"type": "Degraded", "status": "False", "reason": "AsExpected"},
            {"type": "Released", "status": "True", "reason": "Complete", "message": "ControllerRevision net-r1 (hash r1) at generation 1"}]}
        self.marks, self.annotations = {}, {}

    def get(self, *_):
        """The DaemonSet."""
        metadata = {"uid": "u", "generation": 1, "annotations": self.annotations}
        return {"metadata": metadata, "spec": {"template": {"spec": {}}}, "status": self.status}

    def list(self, kind, *_, **__):
        """What is there."""
        revision = {"revision": 1, "metadata": {"name": "net-r1", "labels": {"controller-revision-hash": "r1"}, "annotations": self.marks}}
        nodes = [{"metadata": {"name": node.name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}} for node in self.nodes]
        return {"pods": self.pods, "nodes": nodes, "nodedaemons": self.reports, "controllerrevisions": [revision]}[kind]


class Checked(unittest.TestCase):
    """What is reported, beside what is so."""

    def looks(self, change, excused=()):
        """What is found wrong after `change` of what is reported."""
        with tempfile.TemporaryDirectory() as folder:
            liar = Liar(folder)
            checker = truth.Truth(liar, liar.nodes, "net", late=0.01)
            checker.began = 0.0
            change(liar)
            checker.excuse(*excused, seconds=60 if excused else 0)
            for _ in range(truth.LOOKS):
                # A look that runs no commands.
                checker.looks = 1
                checker._look(liar.get())
            return [line.split(": ")[1].split(" says")[0] for line in checker.wrong]

    def test_what_is_so_is_not_wrong_and_what_is_not_is(self):
        self.assertEqual(self.looks(lambda liar: None), [])
        self.assertEqual(self.looks(lambda liar: liar.status.update(numberReady=1)), ["status.numberReady"])
        self.assertEqual(self.looks(lambda liar: liar.status.update(observedGeneration=0)), ["observedGeneration"])
        self.assertEqual(self.looks(lambda liar: liar.status["conditions"][1].update(message="1 of 2 nodes")), ["Available"])
        unready = lambda liar: liar.pods[0]["status"]["conditions"][0].update(status="False")
        wrong = ["status.numberReady", "status.numberAvailable", "status.numberUnavailable", "Available", "NodeDaemons n1"]
        self.assertEqual(self.looks(unready), wrong)
        self.assertEqual(self.looks(unready, ["n1"]), [], "its agent is stopped")

        def other(liar):
            (liar.nodes[1].manifests / "kube-system_net-abcde.yaml").write_text("  controller-revision-hash: r0\n", encoding="utf-8")
        self.assertIn("Progressing=Complete", self.looks(other))

    def test_conditions_are_as_the_revision_the_agents_and_the_nodes_have_it(self):
        halt = lambda liar: liar.marks.update({"daemonlet.dev/halted": "{}"})
        self.assertEqual(self.looks(halt), ["Halted"])
        self.assertEqual(self.looks(lambda liar: liar.annotations.update({"daemonlet.dev/aborted": "net-r1"})), ["Halted"])
        self.assertEqual(self.looks(lambda liar: (halt(liar), liar.status["conditions"].append({"type": "Halted", "status": "True",
                                                                                               "reason": "Failed"}))), [])
        fail = lambda liar: liar.reports[0]["status"]["daemons"][0].update(failed={"revision": "r1"})
        self.assertEqual(self.looks(fail), ["Degraded"])
        self.assertEqual(self.looks(fail, ["n1"]), [], "its agent is stopped")
        degrade = lambda liar, words: liar.status["conditions"][2].update(reason="Failing", message=words)
        self.assertEqual(self.looks(lambda liar: (fail(liar), degrade(liar, "crash loop on 1 node: n1"))), [])
        self.assertEqual(self.looks(lambda liar: (fail(liar), degrade(liar, "crash loop on 1 node: n2"))), ["Degraded", "Degraded"])
        self.assertEqual(self.looks(lambda liar: degrade(liar, "approval not claimed on 1 node: n1")), [])
        self.assertIn("Degraded", self.looks(lambda liar: liar.reports.pop()), "it has no agent")
        self.assertEqual(self.looks(lambda liar: liar.status["conditions"][3].update(reason="Held")), ["Released=Complete"])

    def test_what_is_released_was_had_by_all(self):
        def released(liar, hash_of):
            checker = truth.Truth(liar, liar.nodes, "net", late=0.01)
            checker.began, checker.looks, checker.released = 0.0, 1, "r0"
            liar.status["conditions"][3]["message"] = f"ControllerRevision net-{hash_of} (hash {hash_of}) at generation 1"
            for _ in range(truth.LOOKS):
                checker.looks = 1
                checker._look(liar.get())
            return {line.split(": ")[1].split(" says")[0] for line in checker.wrong}, checker.released
        with tempfile.TemporaryDirectory() as folder:
            liar = Liar(folder)
            self.assertEqual(released(liar, "r1"), (set(), "r1"))
            self.assertEqual(released(liar, "r2")[0], {"Released", "Released=Complete"})


class Order(unittest.TestCase):
    """Who runs when."""

    def test_the_longest_is_first_and_what_was_never_measured_before_it(self):
        with mock.patch.object(run, "_seconds", return_value={"node": 5.0, "kit": 50.0}):
            self.assertEqual(run.in_order(["node", "policy", "kit"]), (["policy", "kit", "node"], []))

    def test_what_was_measured_is_there(self):
        files = {path.stem.removeprefix("test_") for path in (run.HERE / "suite").glob("test_*.py")}
        self.assertLessEqual(set(run._seconds()), files)


if __name__ == "__main__":
    unittest.main()
