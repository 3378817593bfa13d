"""The cluster's objects as kustomizations and as a chart, applied to a real API server."""

import os
import re
import shutil
import subprocess
import sys
import unittest

from kit import tools
from kit.agent import binary
from kit.control_plane import ControlPlane
from kit.daemons import daemonset
from kit.sandbox import scratch
from kit.wait import until
from suite import removal

BASE = ("nodedaemons", "rbac", "admission-policies", "coordinator-rbac", "coordinator-deployment")
OVERLAYS = ("wide-rbac", "approver", "dry-run-admission", "startup-taint", "node-conditions")
KUSTOMIZE = tools.REPO / "deploy" / "kustomize"


class Deploy(unittest.TestCase):
    """One API server; nothing runs what is applied."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.admin = cls.cluster.admin

    def missing(self, *files, text=None):
        """What `kubectl diff` says that the cluster does not have as these files do."""
        argv = [tools.program("kubectl"), "--kubeconfig", self.admin.kubeconfig, "diff", *(f"--filename={file}" for file in files)]
        # kustomize writes empty lines into the policies' expressions, which mean nothing there.
        environment = os.environ | {"KUBECTL_EXTERNAL_DIFF": "diff -u -N -B -Igeneration"}
        done = subprocess.run([*argv, *(["--filename=-"] if text else [])], input=text, env=environment, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stdout

    def packaged(self, *names):
        """The paths of packaged files."""
        return [tools.REPO / "packaging" / "k8s" / f"{name}.yaml" for name in names]

    def test_1_the_base_is_what_is_packaged(self):
        files = self.packaged(*BASE)
        self.assertIn("daemonlet-agent-writes", self.missing(*self.packaged("admission-policies")))
        made = self.admin.kubectl("apply", "-k", str(KUSTOMIZE / "base"))
        self.admin.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/nodedaemons.daemonlet.dev")
        self.assertEqual(self.missing(*files), "")
        # Nothing besides: as many objects, of which the packaged files have one twice.
        kinds = sum(len(re.findall("(?m)^kind:", file.read_text(encoding="utf-8"))) for file in files)
        self.assertEqual(len(re.findall("(?m) (?:server-side )?(?:created|configured|applied)$", made)), kinds - 1, made)

    def test_2_the_overlays_are_what_is_packaged_and_the_chart_makes_the_same(self):
        folder = scratch() / "mine"
        folder.mkdir()
        path = os.path.relpath(KUSTOMIZE, folder)
        page = (tools.REPO / "docs" / "deploy.md").read_text(encoding="utf-8")
        (shown,) = re.findall(r"(?ms)^```yaml\n(apiVersion: kustomize.*?)^```$", page)
        self.assertEqual(set(re.findall(r"overlays/([\w-]+)", shown)), set(OVERLAYS))
        (folder / "kustomization.yaml").write_text(shown.replace("daemonlet/deploy/kustomize", path), encoding="utf-8")
        configuration = '[policy]\nnamespaces = ["kube-system", "kube-flannel"]\ntrusted-namespaces = ["kube-system", "kube-flannel"]'
        files = self.packaged("rbac-wide", "approver-rbac", "rbac-dry-run", "startup-taint", "node-conditions")
        self.assertNotEqual(self.missing(*files), "")
        self.admin.kubectl("apply", "-k", str(folder))
        self.assertEqual(self.missing(*files), "")
        argv = [sys.executable, tools.REPO / "packaging" / "deploy.py", "--render", "wideRbac=true", "approver=true", "dryRunAdmission=true", "startupTaint=true"]
        chart = lambda *more: subprocess.run([*argv, *more], capture_output=True, text=True, check=True).stdout
        self.assertEqual(self.missing(text=chart("image=registry.example.org/daemonlet:0.1.0", f"configuration={configuration}")), "")
        self.assertIn("replicas: 3", self.missing(text=chart("replicas=3")))
        # The namespace goes when its controller runs, as in the story after this one.
        self.admin.kubectl("delete", "--wait=false", "-k", str(folder))
        self.assertEqual(self.admin.kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,crds", "-o", "name").count("daemonlet"), 0)

    def test_3_what_is_uninstalled_as_the_page_says_leaves_nothing(self):
        self.cluster.start_controllers(daemonset_controller=False)
        until(lambda: not self.named(), 60, "what the kustomization made is gone")
        files = self.packaged(*BASE, "rbac-wide", "approver-rbac", "rbac-dry-run")
        for file in files:
            self.admin.kubectl("apply", "-f", str(file))
        self.cluster.wait_namespace("kube-system")
        self.admin.apply(daemonset("net", "kube-system", labels={"daemonlet.dev/mode": "static"}))
        self.admin.create("leases", {"metadata": {"name": "daemonlet-coordinator", "namespace": "kube-system"}})
        self.assertGreater(len(self.named()), 10)
        # A machine with kubectl and the package. test_packages runs what the page says on a node.
        machine = scratch() / "machine"
        programs = machine / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(tools.program("kubectl"))
        (programs / "daemonlet").symlink_to(binary())
        shutil.copytree(tools.REPO / "packaging" / "k8s", machine / "share" / "k8s")
        environment = os.environ | {"KUBECONFIG": str(self.admin.kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}"}
        example = tools.REPO / "examples" / "recipes" / "kube-proxy.yaml"
        run = lambda line: subprocess.run(["bash", "-e", "-o", "pipefail", "-c", line], cwd=machine, env=environment, check=True, timeout=120)
        run(f"daemonlet generate rbac -f {example} | kubectl apply -f -")
        self.assertIn("daemonlet", self.admin.kubectl("get", "roles", "-n", "kube-system", "-o", "name"))
        ran = 0
        for line in removal.commands("Uninstall from a cluster"):
            if line.startswith("apt purge "):
                shutil.rmtree(machine / "share")
                (programs / "daemonlet").unlink()
            if removal.is_of_a_node(line):
                continue
            run(line.replace("/usr/share/daemonlet", f"{machine}/share").replace("FILES", str(example)))
            ran += 1
        self.assertEqual(ran, 5)
        until(lambda: not self.named(), 60, "nothing of it is left")
        self.assertNotIn("daemonlet.dev/mode", self.admin.get("daemonsets", "net", "kube-system")["metadata"].get("labels", {}))

    @unittest.skipUnless(tools.installer("helm"), "Helm is made by `make test-long` alone")
    def test_4_helm_makes_the_same_of_the_chart_and_installs_and_uninstalls_it(self):
        helm = tools.installer("helm")
        done = subprocess.run([sys.executable, tools.REPO / "packaging" / "deploy.py", "--helm", helm], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        # A checkout, in which somebody does what the page says.
        checkout = scratch() / "checkout"
        programs = checkout / "programs"
        programs.mkdir(parents=True)
        (programs / "helm").symlink_to(helm)
        (checkout / "deploy").symlink_to(tools.REPO / "deploy")
        configuration = '[policy]\nnamespaces = ["kube-system"]\n'
        (checkout / "local.toml").write_text(configuration, encoding="utf-8")
        environment = os.environ | {"KUBECONFIG": str(self.admin.kubeconfig), "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(checkout)}

        def typed(line):
            done = subprocess.run(["bash", "-ec", line], cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 0, f"{line}: {done.stdout}{done.stderr}")
            return done.stdout

        page = (tools.REPO / "docs" / "deploy.md").read_text(encoding="utf-8")
        (install,) = re.findall(r"(?ms)^```sh\n(helm install .*?)^```$", page)
        options = re.findall(r"(?m)^\| .* \| `(\w+=true)` \|", page)
        install = " ".join([install.rstrip(), *(f"--set {option}" for option in options)])
        typed("helm lint --strict deploy/helm/daemonlet")
        typed(install)
        values = ["image=registry.example.org/daemonlet:0.1.0", f"configuration={configuration}", *options]
        self.assertEqual(len(values), 7)
        argv = [sys.executable, tools.REPO / "packaging" / "deploy.py", "--render", *values]
        self.assertEqual(self.missing(text=subprocess.run(argv, capture_output=True, text=True, check=True).stdout), "")
        typed(install.replace("helm install", "helm upgrade").replace("approver=true", "approver=false"))
        self.assertNotIn("clusterrole.rbac.authorization.k8s.io/daemonlet-approver", self.named())
        (uninstall,) = re.findall(r"`(helm uninstall [^`]+)`", page)
        typed(uninstall)
        # Nobody but a person removes the definition, and with it all objects.
        definition = ["customresourcedefinition.apiextensions.k8s.io/nodedaemons.daemonlet.dev"]
        until(lambda: self.named() == definition, 60, "nothing of it is left but the definition of NodeDaemons")

    def named(self):
        """What the cluster has that is named after this program."""
        kinds = ("customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
                 "namespaces,roles,rolebindings,serviceaccounts,configmaps,deployments,leases")
        return [name for name in self.admin.kubectl("get", kinds, "-A", "-o", "name").split() if "daemonlet" in name]
