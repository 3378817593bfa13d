"""The kit itself: what is not there is told in one line, and who runs when."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import run
from kit import networks
from kit import preflight
from kit import tools


class Told(unittest.TestCase):
    """What is missing."""

    def test_nothing_is_made_inside_a_sandbox(self):
        with tempfile.TemporaryDirectory() as empty, mock.patch.dict(os.environ, {"DAEMONLET_CACHE": empty}):
            os.environ.pop("DAEMONLET_TOOLS", None)
            for look in (tools.machine_root, lambda: tools.program("kubelet")):
                with self.assertRaisesRegex(FileNotFoundError, f"^{empty}/.* is not there: run `make cluster-tools`$"):
                    look()
            self.assertEqual(os.listdir(empty), [])
            self.assertGreater(len(tools.missing()), 15)

    def test_a_machine_without_room_is_told_line_by_line(self):
        self.assertEqual(preflight.check(), [])
        with mock.patch.multiple(preflight, LANE_MEMORY=1 << 60, LANE_DISK=1 << 60, CONTROLLERS={"no-such"}, NAMESPACES=("no-such",)):
            lacks = preflight.check()
            self.assertEqual(preflight.lanes(4), 1)
        self.assertEqual([line.split(":")[0] for line in lacks], ["memory", "disk", "namespaces", "control groups"], lacks)
        self.assertFalse([line for line in lacks if "\n" in line])

    def test_a_file_that_cannot_be_used_is_told_in_a_line(self):
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
