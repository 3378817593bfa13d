"""The recipes' commands for a cluster, run as the pages have them against a real API server.

What the pages take from elsewhere (flannel's and Cilium's files, Calico, a daemon of one's own) are stand-ins of the same
names; kubeadm's kube-proxy is the one of `examples`. What is shown in blocks `console` is run and compared by `cargo test`.
"""

import json
import os
import re
import subprocess
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
    "mkdir -p /etc/systemd": "the host's files", "printf '[Unit]": "the host's files", "cp -a /tmp/tree": "the host's files",
    "rm -rf /var/lib/daemonlet": "the host's files",
}


def commands(page):
    """The lines of a page's blocks `sh`, without those that go on in the next."""
    blocks = re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"))
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


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
        cls.admin.apply(*(daemonset(name, "kube-system") for name in ("cilium", "calico-node", "node-network")),
                        tools.REPO / "examples" / "recipes" / "kube-proxy.yaml")
        cls.sh("kubectl -n kube-system get ds cilium -o yaml > cilium.yaml")
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

    def test_daemonlet_knows_what_the_commands_write(self):
        written = r"kubectl -n (\S+) (label|annotate) ds (\S+) (daemonlet\.dev/[^=\s]+)=('[^']+'|\S+)"
        found = [(page.name, *words) for page in PAGES for line in commands(page) for words in re.findall(written, line)]
        self.assertGreaterEqual(len(found), 6)
        for page, namespace, verb, name, key, value in found:
            body = daemonset(name, namespace)
            body["metadata"].setdefault("labels" if verb == "label" else "annotations", {})[key] = value.strip("'")
            (self.folder / "one.json").write_text(json.dumps(body), encoding="utf-8")
            told = json.loads(self.sh("daemonlet render -f one.json --node-name n1 --json"))
            self.assertEqual([outcome.get("warnings", []) for outcome in told["outcomes"]], [[]], (page, key, value))
