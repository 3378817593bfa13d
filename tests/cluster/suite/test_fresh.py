"""Whole machines that boot on a fresh disk, without an API server: what the checkpoint and the folders bring back.

First manifests, volume data and `/run` are lost, then Secrets come back from the sealed checkpoint,
at last everything is lost but a folder. What the state folder has forgotten (numbers of instances)
is not promised: then daemons run, once, and are not restarted when the API server returns.
"""

import base64
import json
import shutil
import unittest
from types import SimpleNamespace

from kit import agent
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.wait import never
from kit.wait import until
from suite.story import Story

NAMESPACE = "kube-system"
MANIFESTS = "etc/kubernetes/manifests"
STATE = "var/lib/daemonlet"
SECRET = b"open-sesame"
ANYWHERE = {"hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
# The API's alone, a folder's, and a folder's that every boot loses.
STEADY, FILED, FLEETING = "steady", "filed", "fleeting"
WORLD = SimpleNamespace()


def steady():
    """A daemon that says what its volumes have: a ConfigMap, a Secret (also as a variable), a token."""
    says = 'echo "$(cat /c/greeting) $(cat /s/password) $PASSWORD $(wc -c < /var/run/secrets/kubernetes.io/serviceaccount/token)"; trap exit TERM; while :; do sleep 3600 & wait; done'
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": STEADY, "namespace": NAMESPACE}, "data": {"greeting": "hello"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": STEADY, "namespace": NAMESPACE}, "stringData": {"password": SECRET.decode()}},
        daemonset(STEADY, NAMESPACE, **ANYWHERE,
                  volumes=[{"name": "c", "configMap": {"name": STEADY}}, {"name": "s", "secret": {"secretName": STEADY}}],
                  container={"command": ["sh", "-c", says], "volumeMounts": [{"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}],
                             "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": STEADY, "key": "password"}}}]})]


def shown(pods):
    """The containers that run, by the API's word."""
    statuses = (status for pod in pods.values() for status in pod.get("status", {}).get("containerStatuses", []))
    return {status.get("containerID") for status in statuses if "running" in status.get("state", {})}


def setUpModule():  # noqa: N802 (unittest's name)
    """One machine on which a daemon of each kind has run."""
    lan = Lan()
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    cluster.wait_namespace(NAMESPACE)
    agent.grant(cluster)
    WORLD.machine = machine = unittest.enterModuleContext(Machine(cluster, lan, "n1", common_layer(), daemonlet={"default-mode": "static"}))
    machine.put("/etc/daemonlet/daemonsets.d/filed.json", json.dumps(daemonset(FILED, NAMESPACE, automountServiceAccountToken=False, **ANYWHERE)))
    machine.power_on()
    cluster.admin.apply(*steady())
    machine.wait_up()
    # The machine's own /run is not under the root that the test sees.
    fleeting = daemonset(FLEETING, NAMESPACE, automountServiceAccountToken=False, **ANYWHERE)
    machine.run("sh", "-c", f"mkdir -p /run/daemonlet/daemonsets.d && echo '{json.dumps(fleeting)}' > /run/daemonlet/daemonsets.d/fleeting.json")
    for name in (STEADY, FILED, FLEETING):
        machine.cri.wait_running(f"{name}-", 60)


class Fresh(Story):
    """One boot after the other, each on less."""

    def setUp(self):
        self.machine, self.cluster = WORLD.machine, WORLD.cluster

    def uids(self):
        """The pod UID of each daemon, by the manifests on the disk."""
        found = {}
        for file in (self.machine.root / MANIFESTS).glob("[!.]*"):
            name = file.name.removeprefix(f"{NAMESPACE}_").rsplit("-", 1)[0]
            found[name] = next(line.split(":")[1].strip(" \"'") for line in file.read_text(encoding="utf-8").splitlines() if line.strip().startswith("uid:"))
        return found

    def settled(self):
        """Waits until what the agent knows is on its disk."""
        saved = self.machine.root / STATE / "inputs.json"
        until(lambda: b'"greeting"' in saved.read_bytes() and FLEETING.encode() in saved.read_bytes(), 30, "the inputs are saved")

    def wipe(self, *folders):
        """Empties folders of the machine, which is off. The kubelet's root lies beside the others."""
        for folder in folders:
            inside = folder.removeprefix("var/lib/kubelet")
            path = self.machine.home / "kubelet" / inside.lstrip("/") if inside != folder else self.machine.root / folder
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def boot_without_api(self, *names):
        """Powers on while the API server refuses; waits for these daemons and gives their containers."""
        self.cluster.stop("api")
        self.machine.power_on()
        self.machine.wait_up()
        return {name: self.machine.cri.wait_running(f"{name}-", 60) for name in names}

    def api_returns(self, before, *others):
        """Starts the API server: what runs stays as it is, and the others come."""
        self.cluster.start_api()
        for name in others:
            self.machine.cri.wait_running(f"{name}-", 120)
        ids = {f"containerd://{container}" for _, _, container, _ in before.values()}
        self.cluster.admin.wait("pods", lambda seen: ids <= shown(seen), 120, f"the API shows {ids}")
        never(lambda: any(self.machine.cri.of(f"{name}-") != [was] for name, was in before.items()), 5, "the API server's return restarted a daemon")

    def says(self):
        """What the daemon has read since power-on."""
        _, text = until(lambda: self.machine.first_output(f"{STEADY}-", "main"), 60, "the daemon says something")
        *words, token = text.split()
        self.assertGreater(int(token), 100, "no token")
        return words

    def test_1_manifests_and_volume_data_lost(self):
        self.settled()
        before = self.uids()
        self.assertEqual(sorted(before), [FILED, FLEETING, STEADY])
        self.machine.power_off()
        self.wipe(MANIFESTS, "var/lib/kubelet/pods")
        running = self.boot_without_api(STEADY, FILED, FLEETING)
        self.assertEqual(self.uids(), before, "the instances are others")
        self.assertEqual(self.says(), ["hello", SECRET.decode(), SECRET.decode()])
        self.api_returns(running)
        self.assertEqual(self.uids(), before)

    def lies_in_plain(self, *folders):
        """The files below folders (by default: state, manifests, volume data) that show the Secret."""
        words = SECRET, base64.b64encode(SECRET)
        folders = folders or (self.machine.root / STATE, self.machine.root / MANIFESTS, self.machine.home / "kubelet/pods")
        files = [file for folder in folders for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
        self.assertTrue(files)
        return [str(file) for file in files if any(word in file.read_bytes() for word in words)]

    def shown(self, why):
        """The Secret lies there in plain. Files are renamed while the machine runs."""
        def lies():
            try:
                return self.lies_in_plain()
            except FileNotFoundError:
                return None
        until(lies, 30, why)

    def test_2_secrets_come_back_from_the_sealed_checkpoint(self):
        self.shown("without sealing it lies there: the test looks in the wrong places")
        self.machine.run("systemd-creds", "setup")
        self.machine.configure(**{"default-mode": "static", "checkpoint": {"seal": "systemd-creds", "key": "host"}})
        self.machine.run("systemctl", "restart", "daemonlet.service")
        until((self.machine.root / STATE / "secrets.json").exists, 60, "the secrets are sealed")
        until(lambda: not self.lies_in_plain(self.machine.root / STATE), 60, "nothing of the state folder shows them")
        before = self.uids()
        self.shown("daemons read it while the machine runs")
        self.machine.power_off()
        self.assertEqual(self.lies_in_plain(), [], "after a shutdown")
        running = self.boot_without_api(STEADY, FILED, FLEETING)
        self.assertEqual(self.says(), ["hello", SECRET.decode(), SECRET.decode()])
        self.assertEqual(self.uids(), before)
        self.api_returns(running)

    def test_3_everything_lost_but_a_folder(self):
        self.machine.power_off()
        self.wipe(MANIFESTS, "var/lib/kubelet/pods", STATE)
        running = self.boot_without_api(FILED)
        never(lambda: self.machine.cri.of(f"{STEADY}-") or self.machine.cri.of(f"{FLEETING}-"), 2, "an unknown daemon runs")
        self.assertEqual(sorted(self.uids()), [FILED])
        self.api_returns(running, STEADY)
        self.assertEqual(sorted(self.uids()), [FILED, STEADY])
        self.assertEqual(self.says(), ["hello", SECRET.decode(), SECRET.decode()])


if __name__ == "__main__":
    unittest.main()
