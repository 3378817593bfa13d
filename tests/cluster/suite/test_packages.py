"""The packages, on a whole machine: install, reload, a loop that hangs, upgrade, teardown, remove, purge; and the .rpm in a root."""

import json
import shutil
import subprocess
import unittest
from types import SimpleNamespace

from kit import agent
from kit import packages
from kit import tools
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.machine import Machine
from kit.machine import common_layer
from kit.net import GATEWAY
from kit.net import Lan
from kit.sandbox import scratch
from kit.wait import never
from kit.wait import until
from suite import removal
from suite.story import Story

OLD, NEW = "0.0.9", "0.1.0"
CONFIG = "/etc/daemonlet/daemonlet.toml"
MANIFESTS = "/etc/kubernetes/manifests"
WORLD = SimpleNamespace()


def setUpModule():  # noqa: N802 (unittest's name)
    """A machine with a kubelet and without daemonlet, and packages of two versions."""
    WORLD.lan = Lan()
    WORLD.cluster = cluster = unittest.enterModuleContext(ControlPlane(GATEWAY))
    cluster.start_controllers()
    cluster.wait_namespace("kube-system")
    agent.grant(cluster)
    WORLD.machine = unittest.enterModuleContext(Machine(cluster, WORLD.lan, "n1", common_layer()))
    WORLD.machine.power_on()
    WORLD.old, WORLD.new = packages.build(OLD), packages.build(NEW)
    for deb, _ in (WORLD.old, WORLD.new):
        shutil.copy(deb, WORLD.machine.root / "root" / deb.name)
    WORLD.machine.wait_up()
    labels = {"daemonlet.dev/mode": "static"}
    spec = {"hostNetwork": True, "tolerations": [{"operator": "Exists"}], "volumes": [{"name": "token", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]}
    cluster.admin.apply(daemonset("steady", labels=labels, **spec))


class Packages(Story):
    """The .deb on Debian 12"""

    def setUp(self):
        self.machine, self.cluster = WORLD.machine, WORLD.cluster

    def apt(self, *words):
        """One call of apt-get; gives its output."""
        return self.machine.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", *words, seconds=120)

    def show(self, name, unit="daemonlet.service"):
        """A property of a unit."""
        return self.machine.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def fails(self, *argv):
        """Runs a command that is to fail; gives what it said on standard error."""
        with self.assertRaises(AssertionError) as raised:
            self.machine.run(*argv)
        return str(raised.exception)

    def says(self, text, seconds=20):
        """Waits until systemd shows that text of the agent."""
        try:
            until(lambda: text in self.show("StatusText"), seconds, f"STATUS= has {text!r}")
        except AssertionError:
            self.fail(f"STATUS= has no {text!r}: {self.show('StatusText')}")

    def runs(self):
        """The daemon's one container."""
        return self.machine.cri.wait_running("steady-", 60)

    def manifests(self):
        """The manifest folder with each file's inode and time."""
        return self.machine.run("ls", "-li", "--time-style=full-iso", MANIFESTS)

    def configure(self, **config):
        """Writes the configuration file."""
        self.machine.put(CONFIG, agent.toml({"update-jitter": "0s"} | config))

    def test_apt_installs_and_starts_it(self):
        said = self.apt("install", f"/root/{WORLD.old[0].name}")
        self.assertIn("Setting up daemonlet", said)
        self.assertEqual(self.show("ActiveState"), "active")
        for unit in ("daemonlet.service", "daemonlet-boot-guard.service"):
            self.assertEqual(self.machine.run("systemctl", "is-enabled", unit).strip(), "enabled", unit)
        self.assertEqual(self.show("ActiveState", "daemonlet-boot-guard.service"), "inactive", "the boot guard acts at boot alone")
        self.says("0 daemons, 0 ready; no API server configured")
        lines = self.machine.run("cat", CONFIG).splitlines()
        self.assertTrue(all(line.startswith(("#", "[")) or not line for line in lines), "a key is not commented out")
        listed = self.machine.run("dpkg", "-L", "daemonlet")
        for file in ("/usr/share/man/man8/daemonlet.8.gz", "/usr/share/man/man5/daemonlet.toml.5.gz", "/usr/share/man/man5/daemonlet-daemonsets.d.5.gz",
                     "/usr/share/bash-completion/completions/daemonlet", "/usr/share/zsh/vendor-completions/_daemonlet",
                     "/usr/share/fish/vendor_completions.d/daemonlet.fish", "/usr/share/doc/daemonlet/DEPENDENCIES.gz", "/usr/lib/tmpfiles.d/daemonlet.conf"):
            self.assertIn(file, listed.splitlines())
        self.assertIn("Usage: kubectl daemonlet", self.machine.run("kubectl-daemonlet", "--help"))
        self.assertIn("serde_json", self.machine.run("zcat", "/usr/share/doc/daemonlet/DEPENDENCIES.gz"))
        self.assertEqual(self.machine.run("dpkg", "--verify", "daemonlet"), "")
        self.machine.run("cp", "-p", "/usr/bin/kubectl-daemonlet", "/root/kept")
        self.machine.run("sh", "-c", "echo '#' >>/usr/bin/kubectl-daemonlet")
        self.assertIn("??5?????? ", self.machine.run("dpkg", "--verify", "daemonlet", check=False))
        self.machine.run("mv", "/root/kept", "/usr/bin/kubectl-daemonlet")

    def test_folders_of_others_keep_their_modes(self):
        modes = {MANIFESTS: "711", "/var/lib/kubelet": "700"}
        before = {path: self.machine.run("stat", "-c", "%a", path).strip() for path in modes}
        for path, mode in modes.items():
            self.machine.run("chmod", mode, path)
        self.machine.run("systemd-tmpfiles", "--create", "daemonlet.conf")
        self.assertEqual({path: self.machine.run("stat", "-c", "%a", path).strip() for path in modes}, modes)
        for path, mode in before.items():
            self.machine.run("chmod", mode, path)

    def test_a_reload_takes_a_changed_configuration_in_the_same_process(self):
        pid = self.show("MainPID")
        self.machine.put("/etc/daemonlet/kubeconfig", agent.kubeconfig(self.cluster, "n1").read_text(encoding="utf-8"))
        self.configure(kubeconfig="/etc/daemonlet/kubeconfig")
        self.machine.run("systemctl", "reload", "daemonlet")
        self.runs()
        self.says("1 daemon, ", 60)
        self.assertEqual((self.show("MainPID"), self.show("NRestarts"), self.show("ActiveState")), (pid, "0", "active"))

    def test_the_journal_has_its_fields(self):
        entries = until(lambda: [e for e in self.machine.journal("--unit=daemonlet") if e.get("DAEMONSET") == "kube-system/steady" and "REVISION" in e], 10,
                        "entries with DAEMONSET= and REVISION=")
        pod = self.runs()[0]
        self.assertTrue(pod.startswith(entries[0]["POD"]), f"{entries[0]['POD']} is no part of {pod}")
        self.assertTrue(entries[0]["UID"])

    def test_a_configuration_with_mistakes_is_reported_and_not_used(self):
        pid, before = self.show("MainPID"), self.manifests()
        good = self.machine.run("cat", CONFIG)
        self.machine.put(CONFIG, good + "no-such-key = 1\n")
        self.fails("systemctl", "reload", "daemonlet")
        self.assertEqual((self.show("MainPID"), self.show("ActiveState")), (pid, "active"))
        self.machine.run("kill", "-HUP", pid)
        self.says("the changed configuration is not in force")
        status = json.loads(self.machine.run("daemonlet", "status", "--json", "--config", "/dev/null", check=False) or "{}")
        self.assertIn("no-such-key", str(status.get("problems")))
        self.machine.put(CONFIG, good)
        self.machine.run("systemctl", "reload", "daemonlet")
        until(lambda: "not in force" not in self.show("StatusText"), 10, "the problem is gone")
        self.assertEqual((self.show("MainPID"), self.manifests()), (pid, before))

    def test_a_loop_that_hangs_is_ended_and_started_again(self):
        daemon = self.runs()
        self.machine.put("/etc/systemd/system/daemonlet.service.d/test.conf", "[Service]\nWatchdogSec=3s\n")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "daemonlet")
        never(lambda: self.show("NRestarts") != "0", 7, "an agent with nothing to do was taken for one that hangs")
        pid = self.show("MainPID")
        self.machine.run("kill", "-STOP", pid)
        until(lambda: self.show("MainPID") not in (pid, "0"), 20, "systemd starts it again")
        self.assertTrue(any("atchdog" in entry["MESSAGE"] for entry in self.machine.journal("UNIT=daemonlet.service")), "systemd logged nothing of the watchdog")
        self.says("1 daemon, ")
        self.assertEqual(self.runs(), daemon)
        (self.machine.root / "etc/systemd/system/daemonlet.service.d/test.conf").unlink()
        self.machine.run("systemctl", "daemon-reload")

    def test_a_folder_that_the_sandbox_does_not_open_is_named_and_a_drop_in_opens_it(self):
        daemon, good = self.runs(), self.machine.run("cat", CONFIG)
        self.machine.put(CONFIG, 'state-dir = "/srv/daemonlet"\n' + good)
        self.machine.run("systemctl", "restart", "daemonlet", check=False)
        said = until(lambda: [str(e) for e in self.machine.journal("--unit=daemonlet") if "generate unit-dropin" in str(e)], 15, "the hint names the drop-in")
        self.assertIn("ReadWritePaths=", said[-1])
        drop_in = self.machine.run("daemonlet", "generate", "unit-dropin")
        self.machine.put("/etc/systemd/system/daemonlet.service.d/paths.conf", drop_in)
        folders = [line.removeprefix("#   ") for line in drop_in.splitlines() if line.startswith("#   d ")]
        self.machine.put("/etc/tmpfiles.d/daemonlet-paths.conf", "\n".join(folders) + "\n")
        self.machine.run("systemd-tmpfiles", "--create", "daemonlet-paths.conf")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "daemonlet")
        self.says("1 daemon, ")
        self.machine.run("test", "-d", "/srv/daemonlet/daemons")
        (self.machine.root / "etc/systemd/system/daemonlet.service.d/paths.conf").unlink()
        (self.machine.root / "etc/tmpfiles.d/daemonlet-paths.conf").unlink()
        self.machine.put(CONFIG, good)
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "restart", "daemonlet")
        self.says("1 daemon, ")
        self.assertEqual(self.runs(), daemon)

    def test_an_upgrade_restarts_the_agent_and_touches_no_manifest(self):
        daemon, before, config, pid = self.runs(), self.manifests(), self.machine.run("cat", CONFIG), self.show("MainPID")
        self.apt("install", f"/root/{WORLD.new[0].name}")
        self.assertEqual(self.machine.run("dpkg-query", "-W", "-f", "${Version}", "daemonlet"), NEW)
        self.assertNotEqual(self.show("MainPID"), pid)
        self.says("1 daemon, ", 60)
        self.assertEqual((self.runs(), self.manifests(), self.machine.run("cat", CONFIG)), (daemon, before, config))

    def test_teardown_is_refused_while_the_agent_runs(self):
        said = self.fails("daemonlet", "teardown")
        self.assertIn("another daemonlet has it", said)
        self.assertIn("hint: stop the agent first", said)
        self.assertRegex(self.machine.run("daemonlet", "teardown", "--dry-run"), f"^would end steady-\\w+ of kube-system/steady: {MANIFESTS}/kube-system_steady-\\w+.yaml\n$")

    def test_teardown_ends_what_is_ours_and_nothing_else(self):
        name = self.runs()[0]
        self.machine.put(f"{MANIFESTS}/foreign.yaml", "# not daemonlet's, and no pod\n")
        (record,) = (self.machine.root / "var/lib/daemonlet/daemons").glob("kube-system_steady*")
        self.machine.run("systemctl", "stop", "daemonlet")
        uid = self.machine.run("ls", "/var/lib/kubelet/pods").split()
        said = self.machine.run("daemonlet", "teardown", seconds=120)
        self.assertEqual(said, f"n1 is torn down: 1 pod ended, no manifest of daemonlet is left in {MANIFESTS}\n")
        self.assertEqual(self.machine.run("ls", MANIFESTS).split(), ["foreign.yaml"])
        self.assertEqual(self.machine.cri.of("steady-"), [])
        until(lambda: not set(uid) & set(self.machine.run("ls", "/var/lib/kubelet/pods").split()), 20, "the pod's folder is gone")
        self.assertTrue(record.exists(), "no record says that the UID is used up")
        self.assertEqual(self.machine.run("daemonlet", "teardown"), f"n1 is torn down: 0 pods ended, no manifest of daemonlet is left in {MANIFESTS}\n")
        self.machine.run("systemctl", "start", "daemonlet")
        self.assertNotEqual(self.runs()[0], name, "the same UID again")
        (self.machine.root / MANIFESTS.lstrip("/") / "foreign.yaml").unlink()

    def test_removal_leaves_the_daemon_and_says_how_to_drain(self):
        daemon, before = self.runs(), self.manifests()
        said = self.apt("remove", "daemonlet")
        self.assertIn("what it started goes on running:", said)
        self.assertIn(f"of kube-system/steady: {MANIFESTS}/kube-system_steady-", said)
        self.assertIn("daemonlet teardown", said)
        self.assertEqual(self.machine.run("pgrep", "-x", "daemonlet", check=False), "")
        never(lambda: self.runs() != daemon, 3, "the daemon went with the package")
        self.assertEqual(self.manifests(), before)
        self.machine.run("test", "-f", CONFIG)
        self.machine.run("test", "-d", "/var/lib/daemonlet/daemons")
        self.apt("install", f"/root/{WORLD.new[0].name}")
        self.assertEqual(self.show("ActiveState"), "active", "what ran before the removal runs again")
        self.says("1 daemon, ", 60)
        self.assertEqual(self.runs(), daemon)
        self.apt("remove", "daemonlet")
        self.assertEqual(self.runs(), daemon)

    def test_purge_removes_configuration_and_state_and_no_daemon(self):
        self.apt("install", f"/root/{WORLD.new[0].name}")
        # What an agent left there before.
        self.machine.run("test", "-d", "/srv/daemonlet/daemons")
        self.machine.put(CONFIG, 'state-dir = "/srv/daemonlet"\n' + self.machine.run("cat", CONFIG))
        daemon, before = self.runs(), self.manifests()
        said = self.apt("purge", "daemonlet")
        for state in ("/srv/daemonlet", "/var/lib/daemonlet"):
            self.assertIn(f"daemonlet: removed {state}: the checkpoint", said)
            self.machine.run("test", "!", "-e", state)
        self.assertIn("/etc/daemonlet has files of yours and stays:\n  /etc/daemonlet/kubeconfig\n", said)
        self.assertEqual(self.machine.run("ls", "/etc/daemonlet").split(), ["kubeconfig"])
        for path in (CONFIG, "/var/lib/daemonlet", "/run/daemonlet", "/usr/lib/systemd/system/daemonlet.service"):
            self.machine.run("test", "!", "-e", path)
        self.assertEqual(self.machine.run("find", "/etc/systemd/system", "-name", "daemonlet*"), "")
        never(lambda: self.runs() != daemon, 3, "the daemon went with the package")
        self.assertEqual(self.manifests(), before)

    def test_installed_again_it_takes_over_what_runs(self):
        daemon = self.runs()
        self.apt("install", f"/root/{WORLD.new[0].name}")
        self.says("1 daemon, ", 60)
        self.assertEqual(self.runs(), daemon)

    def test_what_the_page_of_removal_says_leaves_nothing_on_the_node(self):
        for line in filter(removal.is_of_a_node, removal.commands("Uninstall from a cluster")):
            self.machine.run("sh", "-ec", line.replace("apt purge", "apt-get -y purge"), seconds=120)
        self.assertEqual(self.machine.cri.of("steady-"), [])
        self.assertEqual(self.machine.run("ls", MANIFESTS), "")
        left = self.machine.run("sh", "-c", "find / -xdev -path /proc -prune -o -name '*daemonlet*' -print | grep -v '^/root/\\|^/srv/\\|/var/lib/dpkg\\|/var/lib/systemd/deb\\|/var/cache\\|/var/log'",
                                check=False)
        self.assertEqual(left.split(), ["/etc/daemonlet"], "the kubeconfig is the test's")


class Rpm(unittest.TestCase):
    """The .rpm (there is no Fedora here: a root of Debian takes it)"""

    def rpm(self, *words):
        """One call of rpm; gives its output."""
        return subprocess.run(["rpm", *map(str, words)], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def test_it_says_what_it_is_and_has_what_the_deb_has(self):
        _, rpm = WORLD.new
        self.assertEqual(self.rpm("-qp", "--queryformat", "%{NAME} %{VERSION} %{LICENSE}", rpm), f"daemonlet {NEW} Apache-2.0")
        self.assertEqual(self.rpm("-qp", "--configfiles", rpm).split(), [CONFIG])
        deb = subprocess.run(["dpkg-deb", "--fsys-tarfile", WORLD.new[0]], check=True, stdout=subprocess.PIPE).stdout
        listed = subprocess.run(["tar", "-t"], input=deb, check=True, stdout=subprocess.PIPE).stdout.decode().split()
        files = {name.removeprefix(".") for name in listed if not name.endswith("/")}
        debian = {name for name in files if name.startswith(("/usr/share/doc", "/usr/share/lintian")) or "zsh" in name}
        self.assertLessEqual(files - debian, set(self.rpm("-qpl", rpm).split()))

    def test_it_installs_upgrades_and_goes_in_a_root(self):
        home = scratch() / "rpm"
        for folder in ("upper", "work", "root"):
            (home / folder).mkdir(parents=True)
        root = home / "root"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={tools.machine_root()},upperdir={home}/upper,workdir={home}/work", root], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", root], check=True)
        # The packages that it asks for are Debian's here, which rpm does not know.
        said = self.rpm("--root", root, "--install", "--nodeps", WORLD.old[1])
        self.assertIn("nothing was started", said)
        for unit in ("daemonlet.service", "daemonlet-boot-guard.service"):
            self.assertIn(f"  {unit}: enabled\n", said, "Debian's presets enable what is new")
        # The one command that the page has, too.
        command = "systemctl enable --now daemonlet && systemctl enable daemonlet-boot-guard"
        self.assertIn(f"start the agent now and both at each boot: {command}\n", said)
        self.assertIn(command, (tools.REPO / "docs" / "installation.md").read_text(encoding="utf-8"))
        wants = root / "etc/systemd/system/multi-user.target.wants"
        self.assertTrue((wants / "daemonlet.service").is_symlink())
        config = root / CONFIG.lstrip("/")
        config.write_text("node-name = \"mine\"\n", encoding="utf-8")
        manifest = root / MANIFESTS.lstrip("/") / "some.yaml"
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text("# anything\n", encoding="utf-8")
        self.rpm("--root", root, "--upgrade", "--nodeps", WORLD.new[1])
        self.assertEqual(self.rpm("--root", root, "-q", "daemonlet").strip(), f"daemonlet-{NEW}-1.x86_64")
        self.assertEqual(config.read_text(encoding="utf-8"), "node-name = \"mine\"\n")
        self.assertTrue((wants / "daemonlet.service").is_symlink(), "the upgrade disabled it")
        (root / "srv/state").mkdir(parents=True)
        config.write_text("state-dir = \"/srv/state\"\n", encoding="utf-8")
        self.assertIn("/srv/state stays: the checkpoint", self.rpm("--root", root, "--erase", "daemonlet"))
        self.assertFalse((wants / "daemonlet.service").is_symlink())
        self.assertFalse((root / "usr/bin/daemonlet").exists())
        self.assertEqual(manifest.read_text(encoding="utf-8"), "# anything\n")
        self.assertEqual(config.with_name(config.name + ".rpmsave").read_text(encoding="utf-8"), "state-dir = \"/srv/state\"\n")


if __name__ == "__main__":
    unittest.main()
