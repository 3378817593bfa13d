"""What a node starts again with: its checkpoint, whole, damaged, or alone on a wiped disk."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from kit.agent import grant
from kit.control_plane import ControlPlane
from kit.wait import never
from kit.wait import until
from suite.bare import SOON
from suite.bare import WORLD
from suite.reader import Reader

# Where systemd keeps the host's key.
MACHINE = Path("/var/lib/systemd")


def setUpModule():  # noqa: N802 (unittest's name)
    """One API server for all, without any controller."""
    WORLD.cluster = unittest.enterModuleContext(ControlPlane())
    grant(WORLD.cluster)


class Checkpoint(Reader):
    """As it is by default: readable for root."""

    def test_what_cannot_be_trusted_is_reported_and_set_aside_and_what_runs_stays(self):
        agent, first = self.reader()
        before = self.data(agent, first)
        spoil = {
            "cut": lambda file: os.truncate(file, file.stat().st_size - 7),
            "empty": lambda file: os.truncate(file, 0),
            "of a newer version": lambda file: file.write_bytes(file.read_bytes().replace(b"checkpoint/1", b"checkpoint/7", 1)),
            "with another shape": lambda file: file.write_bytes(with_sum(b'{"key":7}')),
            "of another user": lambda file: os.chown(file, 4711, 4711),
            "writable by others": lambda file: file.chmod(0o622),
            "a link": lambda file: file.symlink_to(file.rename(agent.home / file.name)),
        }
        for how, spoilt in spoil.items():
            with self.subTest(how):
                until(lambda: all(file.exists() for file in self.state(agent)), SOON, "the checkpoint is written")
                agent.stop()
                kept = []
                for file in self.state(agent):
                    spoilt(file)
                    kept.append(file.read_bytes())
                agent.start()
                for file in self.state(agent):
                    self.says(agent, f"{file.name}.* it is not used, its bytes are kept in .*{file.name}.bad-")
                set_aside = {path.read_bytes() for file in self.state(agent) for path in file.parent.glob(f"{file.name}.bad-*")}
                self.assertLessEqual(set(kept), set_aside)
                self.settled(agent)
                self.keeps(agent, first, "reader", 0.5)
                self.assertEqual(self.data(agent, first) | {"token": None}, before | {"token": None})

    def test_an_agent_that_is_killed_at_once_knows_which_file_an_instance_came_from(self):
        agent = self.start_agent()
        self.settled(agent)
        file = agent.folder / "filed.json"
        file.write_text(json.dumps(self.daemon("filed", labels={})), encoding="utf-8")
        # Reported at the end of the pass that made it.
        until(lambda: '"starting"' in agent.cli("status", "--json").stdout, SOON, "its instance is made")
        agent.kill()
        file.unlink()
        agent.start()
        self.wait_gone(agent, "filed")

    def test_names_that_came_and_went_leave_a_bounded_folder_and_no_uid_is_used_again(self):
        agent, names = self.start_agent(), [f"guest-{number}" for number in range(70)]
        file, records = agent.folder / "guests.json", agent.home / "state/daemons"
        guests = json.dumps({"apiVersion": "v1", "kind": "List", "items": [self.daemon(name, labels={}) for name in names]})

        def come():
            agent.folder.joinpath(".guests").write_text(guests, encoding="utf-8")
            agent.folder.joinpath(".guests").rename(file)
            until(lambda: len(agent.manifests("_guest-")) == len(names), 60, "all of them run")
            return {self.instance(agent, name).uid for name in names}

        first = come()
        until(lambda: len(list(records.glob("*.json"))) == len(names), SOON, "a record of each")
        file.unlink()
        # Their folders are cleared first, ten seconds after their end.
        until(lambda: len(list(records.glob("*.json"))) <= 64, 90, "the folder is bounded")
        self.assertTrue((agent.home / "state/floor.json").exists())
        agent.restart()
        self.assertEqual(first & come(), set(), "a UID is used again")

    def test_a_damaged_checkpoint_without_an_api_server_leaves_what_runs_as_it_is(self):
        agent, first = self.reader()
        before = self.data(agent, first)
        self.without_api()
        agent.kill()
        for file in self.state(agent):
            os.truncate(file, 20)
        agent.start()
        self.says(agent, "inputs.json.* it is not used")
        self.keeps(agent, first, "reader", 3)
        self.assertEqual(self.data(agent, first), before)

    def test_a_record_that_is_damaged_uses_no_number_again(self):
        agent, first = self.reader()
        (agent.node.manifests / first.file).unlink()
        second = self.instance(agent, "reader", other_than=first)
        self.settled(agent)
        agent.kill()
        os.truncate(self.state(agent)[1], 0)
        agent.start()
        self.settled(agent)
        self.keeps(agent, second, "reader", 1)
        (agent.node.manifests / second.file).unlink()
        third = self.instance(agent, "reader", other_than=second)
        self.assertEqual(len({first.uid, second.uid, third.uid}), 3)

    def test_a_disk_without_manifests_and_data_comes_back_as_it_was(self):
        agent, old = self.reader()
        self.change("reader", "two")
        first = self.instance(agent, "reader", other_than=old)
        self.settled(agent)
        self.saved(agent, b'"image":"two"')
        before, text = self.data(agent, first), first.text
        agent.kill()
        self.without_api()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        self.another_boot()
        agent.start()
        again = self.instance(agent, "reader", seconds=5)
        self.assertEqual((again.uid, again.text), (first.uid, text))
        self.assertEqual(self.data(agent, again), before)
        # From now on it is as ever: what is removed was removed by an operator.
        until(lambda: "starting" in agent.cli("status").stdout or "unknown" in agent.cli("status").stdout, SOON, "status has it")
        (agent.node.manifests / again.file).unlink()
        never(lambda: any(one.uid == first.uid for one in self.instances(agent, "reader")), 3, "a UID came back in the boot that had it")

    def test_a_fresh_etc_keeps_the_data_that_is_still_there(self):
        agent, first = self.reader()
        before = self.data(agent, first)
        agent.kill()
        self.without_api()
        self.wipe(agent, agent.node.manifests)
        self.another_boot()
        agent.start()
        self.assertEqual(self.instance(agent, "reader", seconds=5).uid, first.uid)
        self.assertEqual(self.data(agent, first), before)

    def test_what_the_kubelet_has_run_in_this_boot_is_not_taken_for_wiped(self):
        agent, first = self.reader()
        agent.kill()
        self.wipe(agent, agent.node.manifests)
        (agent.node.root / "pods" / first.uid / "etc-hosts").write_text("", encoding="ascii")
        self.another_boot()
        agent.start()
        self.assertNotEqual(self.instance(agent, "reader").uid, first.uid)

    def test_a_removal_while_the_agent_is_down_is_no_wiped_disk(self):
        agent, first = self.reader()
        agent.kill()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        agent.start()
        self.assertNotEqual(self.instance(agent, "reader").uid, first.uid)

    def test_what_was_deleted_meanwhile_ends_though_the_disk_lost_it(self):
        agent, first = self.reader()
        agent.kill()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        self.remove("reader")
        self.cluster.stop("api")
        self.another_boot()
        agent.start()
        try:
            self.assertEqual(self.instance(agent, "reader").uid, first.uid)
        finally:
            self.cluster.start_api()
        self.wait_gone(agent, "reader", 75)

    def test_with_nothing_but_its_folders_a_node_starts_what_they_reach(self):
        agent = self.start_agent(kubeconfig="")
        file = agent.folder / "whole.json"
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": self.namespace}, "data": {"level": "one"}}
        body = self.daemon("whole", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, labels={},
                           volumes=[{"name": "settings", "configMap": {"name": "settings"}}])
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, body]}), encoding="utf-8")
        first = self.instance(agent, "whole")
        agent.kill()
        self.wipe(agent, agent.node.manifests, agent.node.root, agent.home / "state")
        self.another_boot()
        agent.start()
        again = self.instance(agent, "whole", seconds=5)
        self.assertEqual((again.uid, again.text), (first.uid, first.text))
        self.assertEqual(agent.node.data(again, "settings", "level"), "one")

    def test_a_state_folder_that_is_removed_is_made_again(self):
        agent, first = self.reader()
        agent.process.freeze()
        shutil.rmtree(agent.home / "state")
        agent.process.thaw()
        self.admin.patch("configmaps", "settings", {"data": {"level": "two"}}, self.namespace)
        until(lambda: agent.node.data(first, "settings", "level") == "two", SOON, "the change is followed")
        until(lambda: all(file.exists() for file in self.state(agent)), SOON, "inputs and record are saved again")
        self.keeps(agent, first, "reader", 0.5)
        second = subprocess.run([agent.process.argv[0], "run", "--config", agent.config_file], capture_output=True, text=True, check=False, timeout=20)
        self.assertIn("another daemonlet has it", second.stderr)
        self.without_api()
        agent.kill()
        agent.start()
        self.keeps(agent, first, "reader", 1)
        self.assertEqual(agent.node.data(first, "settings", "level"), "two")


class Sealed(Reader):
    """Secrets and tokens sealed by systemd-creds."""

    SEAL = {"checkpoint": {"seal": "systemd-creds", "key": "host"}}

    def setUp(self):
        super().setUp()
        # A machine with a key of its own.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", MACHINE], check=True)
        self.addCleanup(subprocess.run, ["umount", MACHINE], check=True)

    def saved(self, agent, *words):
        """Waits until the secrets on disk are sealed, and the inputs have these words."""
        inputs, secrets = self.state(agent)[0], agent.home / "state/secrets.json"
        until(lambda: secrets.exists() and all(word in inputs.read_bytes() for word in words), SOON, "inputs and secrets are saved")
        until(lambda: "seal" not in agent.cli("status").stdout, SOON, "they are sealed")

    def in_plain(self, agent, instance):
        """The files of the state folder that show the daemon's Secret or token."""
        shown = [self.data(agent, instance)["token"].encode(), b"sesame", base64.b64encode(b"sesame")]

        def shows(file):
            try:
                data = file.read_bytes()
            except (FileNotFoundError, IsADirectoryError):
                # Renamed since it was listed, or a folder.
                return False
            return any(word in data for word in shown)
        return [file.name for file in (agent.home / "state").rglob("*") if shows(file)]

    def test_nothing_lies_in_plain_and_all_comes_back(self):
        agent, first = self.reader(**self.SEAL)
        before = self.data(agent, first)
        self.assertEqual(self.in_plain(agent, first), [])
        self.assertEqual((agent.home / "state/secrets.json").stat().st_mode & 0o777, 0o600)
        agent.kill()
        self.without_api()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        self.another_boot()
        agent.start()
        again = self.instance(agent, "reader", seconds=5)
        self.assertEqual((again.uid, self.data(agent, again)), (first.uid, before))
        self.assertEqual(self.in_plain(agent, first), [])

    def test_sealing_is_switched_on_and_off(self):
        agent, first = self.reader(**{"checkpoint": {"seal": "systemd-creds", "key": "host"}})
        for seal, shown in (("none", ["inputs.json"]), ("systemd-creds", [])):
            agent.stop()
            agent.config["checkpoint"] = {"seal": seal, "key": "host"}
            agent.start()
            until(lambda: self.in_plain(agent, first) == shown, SOON, f"seal = {seal}")
            until(lambda: (agent.home / "state/secrets.json").exists() == (seal != "none"), SOON, "what was sealed goes once it is saved in plain")
            self.settled(agent)
            self.keeps(agent, first, "reader", 0.3)

    def test_what_another_machine_sealed_is_kept_until_the_api_has_shown_all_and_the_rest_starts(self):
        agent, first = self.reader(**self.SEAL)
        self.put(self.daemon("plain", {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}, volumes=[{"name": "settings", "configMap": {"name": "settings"}}]))
        plain = self.instance(agent, "plain")
        (agent.folder / "filed.json").write_text(json.dumps(self.daemon("filed", labels={})), encoding="utf-8")
        filed = self.instance(agent, "filed")
        self.settled(agent)
        self.saved(agent, b'"plain"')
        sealed = (agent.home / "state/secrets.json").read_bytes()
        agent.kill()
        self.cluster.stop("api")
        (MACHINE / "credential.secret").unlink()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        self.another_boot()
        agent.start()
        try:
            self.says(agent, "sealed secrets cannot be opened now: systemd-creds decrypt failed")
            self.assertEqual(self.instance(agent, "plain").uid, plain.uid)
            self.assertEqual(agent.node.data(plain, "settings", "level"), "one")
            self.assertEqual(self.instance(agent, "filed").uid, filed.uid)
            self.says(agent, f"reader.*Secret {self.namespace}/keys")
            self.assertEqual(self.instances(agent, "reader"), [])
            self.assertEqual((agent.home / "state/secrets.json").read_bytes(), sealed, "it may be opened yet")
        finally:
            self.cluster.start_api()
        self.assertEqual(self.instance(agent, "reader", seconds=75).uid, first.uid)
        self.assertEqual(self.data(agent, first)["key"], "sesame")
        # The API server has shown all Secrets since.
        new, old = agent.home / "state/secrets.json", agent.home / "state/secrets.json.bad-1"
        until(lambda: old.exists() and new.exists(), 150, "they are sealed anew, and what was sealed is set aside")
        self.assertEqual(old.read_bytes(), sealed)
        self.assertNotEqual(new.read_bytes(), sealed)
        self.saved(agent, b'"plain"')
        self.assertEqual(self.in_plain(agent, first), [])

    def test_without_the_program_nothing_is_replaced_and_nothing_lies_in_plain(self):
        agent, first = self.reader(**self.SEAL)
        before, sealed = self.data(agent, first), (agent.home / "state/secrets.json").read_bytes()
        agent.kill()
        with mock.patch.dict(os.environ, PATH="/nowhere"):
            agent.start()
        # Once the API server has shown all Secrets, it says too that these cannot be sealed.
        self.says(agent, "sealed secrets cannot be opened now[:,].*systemd-creds cannot be run")
        self.settled(agent)
        self.keeps(agent, first, "reader", 1)
        self.assertEqual(self.in_plain(agent, first), [])
        agent.stop()
        self.assertEqual((agent.home / "state/secrets.json").read_bytes(), sealed)
        self.without_api()
        self.wipe(agent, agent.node.manifests, agent.node.root)
        self.another_boot()
        agent.start()
        again = self.instance(agent, "reader", seconds=5)
        self.assertEqual((again.uid, self.data(agent, again)), (first.uid, before))

    def test_while_it_cannot_be_opened_what_runs_stays_and_switching_it_off_loses_nothing(self):
        agent, reader = self.reader(**self.SEAL)
        secret = {"name": "keys", "secret": {"secretName": "keys", "optional": True}}
        body = self.daemon("filed", {"volumeMounts": [{"name": "keys", "mountPath": "/keys"}]}, labels={}, volumes=[secret])
        (agent.folder / "filed.json").write_text(json.dumps(body), encoding="utf-8")
        filed = self.instance(agent, "filed")
        shown = lambda: agent.node.data(filed, "keys", "key")
        until(lambda: shown() == "sesame", SOON, "a daemon of a folder reads it, though it needs none")
        self.settled(agent)
        self.saved(agent, b'"filed"')
        agent.kill()
        self.without_api()
        for seal in ("systemd-creds", "none"):
            agent.config["checkpoint"] = {"seal": seal, "key": "host"}
            with mock.patch.dict(os.environ, PATH="/nowhere"):
                agent.start()
            self.says(agent, "sealed secrets cannot be opened now")
            never(lambda: shown() != "sesame", 2, "it was taken away")
            agent.stop()
        agent.start()
        until(lambda: self.in_plain(agent, reader) == ["inputs.json"], SOON, "it is in plain again")
        until(lambda: not (agent.home / "state/secrets.json").exists(), SOON, "nothing sealed is left")
        self.keeps(agent, filed, "filed", 0.5)
        self.assertEqual(shown(), "sesame")


def with_sum(payload):
    """A checkpoint of that content, as the agent would write it."""
    return b"daemonlet-checkpoint/1 sha256:" + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload + b"\n"


if __name__ == "__main__":
    unittest.main()
