"""The recipes' commands for a cluster, run as the pages have them against a real API server.

What the pages take from elsewhere (flannel's and Cilium's files, Calico, a daemon of one's own) are stand-ins of the same
names; kubeadm's kube-proxy is the one of `examples`. What is shown in blocks `console` is run and compared by `cargo test`.
"""

import json
import os
import re
import shutil
import subprocess
import textwrap
import unittest

from kit import tools
from kit.agent import binary
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.sandbox import scratch

PAGES = sorted((tools.REPO / "docs" / "recipes").glob("*.md"))
# Commands that begin so are not run here: whose they are, or which tests run the like.
ELSEWHERE = {
    "helm template": "Cilium's chart", "kubeadm upgrade": "kubeadm's cluster",
    "daemonlet generate unit-dropin": "test_packages", "systemctl": "test_packages", "apt-get install": "test_packages",
    "daemonlet run --check-config": "tests/cli",
    "mkdir -p /etc/systemd": "the host's files", "printf '[Unit]": "the host's files", "cp -r /tmp/tree": "Trees", "chmod 0600 /usr/lib/daemonlet": "the host's files",
    "mkdir -p /etc/daemonlet": "Trees",
    "rm -rf /var/lib/daemonlet": "the host's files", "rm -f /etc/systemd": "the host's files",
}


# Blocks of other pages that begin so: which tests run them or the like, or what is not here.
NOT_HERE = {
    "dnf install": "test_release, of a repository; no Fedora", "helm install": "test_deploy", "kubectl krew": "test_release", "mkdir -p /etc/systemd": "test_packages",
    "podman run": "test_release, and what follows test_packages",
    "kubectl daemonlet abort": "test_rollout", "HASH=$(kubectl daemonlet": "test_rollout, by `undo` without a number", "sed 1d /var/lib": "test_operations", "install -D": "test_operations", "daemonlet support-bundle": "tests/cli", "curl -sSf": "test_operations",
}


def blocks(page):
    """The blocks `sh` of a page, each without the indentation of its list."""
    text = (tools.REPO / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [textwrap.dedent(block) for block in re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", text)]


def commands(page):
    """The lines of a page's blocks `sh`, without those that go on in the next."""
    blocks = re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"))
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


class Trees(unittest.TestCase):
    """What the pages do to a host's files, done to a folder."""

    def run_on(self, line, host):
        """Runs a line of a page on `host` in place of the root."""
        for folder in ("/tmp/tree", "/etc/", "/usr/"):
            line = line.replace(f" {folder}", f" {host}{folder}")
        if line.endswith(" /"):
            line = f"{line[:-1]}{host}/"
        done = subprocess.run(["bash", "-e", "-c", line], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{line}: {done.stderr}")

    def line(self, start):
        """The line of the page of images that begins so."""
        (line,) = [line for line in commands(tools.REPO / "docs" / "recipes" / "image.md") if line.startswith(start)]
        return line

    def test_a_tree_of_packers_user_becomes_roots_and_changes_no_folder_of_the_host(self):
        host = scratch() / "packer"
        files = ("usr/lib/daemonlet/daemonsets.d/10-demo.yaml", "etc/systemd/system-preset/10-daemonlet.preset")
        for file in files:
            path = host / "tmp/tree" / file
            path.parent.mkdir(parents=True)
            path.write_text("", encoding="utf-8")
        for path in (host / "tmp/tree", *(host / "tmp/tree").rglob("*")):
            os.chown(path, 1000, 1000)
            path.chmod(0o775 if path.is_dir() else 0o664)
        (host / "usr").mkdir(mode=0o755)
        (host / "etc").mkdir(mode=0o711)
        host.chmod(0o755)
        self.run_on(self.line("cp -r /tmp/tree"), host)
        modes = {path: oct((host / path).stat().st_mode & 0o777) for path in ("", "usr", "etc")}
        self.assertEqual(modes, {"": "0o755", "usr": "0o755", "etc": "0o711"})
        owners = {path.stat().st_uid for top in ("usr", "etc") for path in (host / top, *(host / top).rglob("*"))}
        self.assertEqual(owners | {host.stat().st_uid}, {0})
        self.assertTrue(all((host / file).exists() for file in files))

    def test_a_file_of_the_image_is_masked_on_a_node_without_the_folder(self):
        host = scratch() / "masked"
        host.mkdir(parents=True)
        self.run_on(self.line("mkdir -p /etc/daemonlet"), host)
        self.assertEqual(os.readlink(host / "etc/daemonlet/daemonsets.d/10-demo.yaml"), "/dev/null")


class Recipes(unittest.TestCase):
    """One API server and kubectl; nothing runs what is applied."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.admin = cls.cluster.admin
        cls.folder = scratch() / "reader"
        programs = cls.folder / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(tools.program("kubectl"))
        (programs / "daemonlet").symlink_to(binary())
        cls.environment = os.environ | {"KUBECONFIG": str(cls.admin.kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}
        cls.admin.create("namespaces", {"metadata": {"name": "calico-system"}})
        cls.admin.apply(daemonset("calico-node", "calico-system"), *(daemonset(name, "kube-system") for name in ("cilium", "node-network")),
                        tools.REPO / "examples" / "recipes" / "kube-proxy.yaml")
        cls.sh("kubectl -n kube-system get ds cilium -o yaml > cilium.yaml")
        for name in ("k8s", "monitoring"):
            shutil.copytree(tools.REPO / "packaging" / name, cls.folder / name)
        shutil.copy(cls.folder / "k8s" / "coordinator-deployment.yaml", cls.folder / "k8s" / "my-coordinator-deployment.yaml")
        cls.sh("kubectl create namespace kube-flannel --dry-run=client -o yaml > kube-flannel.yml && echo --- >> kube-flannel.yml && "
               "kubectl -n kube-system get ds cilium -o yaml | grep -v ' uid:\\| resourceVersion:' | "
               "sed 's/kube-system/kube-flannel/; s/name: cilium/name: kube-flannel-ds/' >> kube-flannel.yml")

    @classmethod
    def sh(cls, line):
        """A line as a person types it."""
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], cwd=cls.folder, env=cls.environment, capture_output=True,
                              text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def test_every_command_for_a_cluster_works_as_it_is_written(self):
        run = 0
        used = set()
        for page in PAGES:
            for line in commands(page):
                if elsewhere := next((start for start in ELSEWHERE if line.startswith(start)), None):
                    used.add(elsewhere)
                    continue
                self.sh(line.replace("/usr/share/daemonlet", f"{tools.REPO}/packaging"))
                run += 1
        print(f"          {run} commands of {len(PAGES)} pages")
        self.assertGreaterEqual(run, 14)
        self.assertEqual(set(ELSEWHERE) - used, set(), "no page has these any more")

    def test_every_block_for_a_cluster_on_the_other_pages_works_as_it_is_written(self):
        self.cluster.start_controllers()
        self.sh("kubectl apply -f kube-flannel.yml")
        ran, used = 0, set()
        for page in ("installation", "deploy", "security", "operations", "standstill", "status", "metrics", "coordinator"):
            for block in blocks(page):
                if elsewhere := next((start for start in NOT_HERE if block.startswith(start)), None):
                    used.add(elsewhere)
                    continue
                here = block.replace("/usr/share/daemonlet", str(self.folder)).replace("NAMESPACE", "kube-system").replace(" NAME ", " cilium ")
                self.sh(here)
                ran += 1
        self.assertGreaterEqual(ran, 6)
        self.assertEqual(set(NOT_HERE) - used, set(), "no page has these any more")
        # What the page of the coordinator makes is one.
        who = json.loads(self.sh("kubectl --kubeconfig coordinator.kubeconfig auth whoami -o json"))["status"]["userInfo"]
        self.assertEqual(who["username"], "daemonlet:coordinator")
        self.assertIn("daemonlet:coordinators", who["groups"])
        self.assertEqual(self.sh("kubectl --kubeconfig coordinator.kubeconfig config get-users").split()[1:], ["coordinator"])

    def test_daemonlet_knows_what_the_commands_write(self):
        written = r"kubectl -n (\S+) (label|annotate) ds (\S+) (daemonlet\.dev/[^=\s]+)=('[^']+'|\S+)"
        found = [(page.name, *words) for page in PAGES for line in commands(page) for words in re.findall(written, line)]
        self.assertGreaterEqual(len(found), 6)
        for page, namespace, verb, name, key, value in found:
            body = daemonset(name, namespace)
            body["metadata"].setdefault("labels" if verb == "label" else "annotations", {})[key] = value.strip("'")
            (self.folder / "one.json").write_text(json.dumps(body), encoding="utf-8")
            rendered = json.loads(self.sh("daemonlet render -f one.json --node-name n1 --json"))
            self.assertEqual([outcome.get("warnings", []) for outcome in rendered["outcomes"]], [[]], (page, key, value))
