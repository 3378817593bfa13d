"""On one real kubelet: our volumes lie on disk as those of an API pod with the same template.

The daemons are those of tests/golden/volumes, which `cargo test` compares with the kubelet's volume
plugins alone; here the whole kubelet has had its hands on both.
"""

import copy
import os
import unittest

from kit import agent
from kit import daemons
from kit import images
from kit import tools
from kit.agent import Agent
from kit.control_plane import ControlPlane
from kit.kubelet import Node
from kit.wait import until
from suite.test_fidelity import documents

NAMESPACE = "kube-system"
CASES = tools.REPO / "tests" / "golden" / "volumes"
# How long the agent takes at most to see that something in a volume was removed, in seconds.
VERIFIED = 40
# Content that is the pod's own: its name, UID and annotations, and tokens.
OWN = ("pod/name", "pod/uid", "pod/labels", "pod/annotations", "token", "tokens/vault", "tokens/api", "uid")


def listing(folder):
    """Every entry of a volume: {path: (mode, owner, group, link target or content)}; version folders have one name."""
    found = {}

    def plain(path):
        return "/".join("..version" if part.startswith("..2") else part for part in path.split("/"))

    for parent, folders, files in os.walk(folder):
        for name in [".", *folders, *files] if parent == str(folder) else [*folders, *files]:
            path = os.path.normpath(os.path.join(parent, name))
            key, stat = plain(os.path.relpath(path, folder)), os.lstat(path)
            what = ""
            if os.path.islink(path):
                what = plain(os.readlink(path))
            elif os.path.isfile(path) and not key.removeprefix("..version/").endswith(OWN):
                with open(path, "rb") as content:
                    what = content.read()
            # Secrets and tokens of the API lie on a tmpfs, whose root is sticky; no container may write to either.
            mode = stat.st_mode & ~0o1000 if key == "." else stat.st_mode
            found[key] = (oct(mode), stat.st_uid, stat.st_gid, what)
    return found


def alike(theirs, ours):
    """Whether two volumes are the same; if not, an error says in what."""
    left, right = listing(theirs), listing(ours)
    wrong = [f"{path}: {left.get(path)} of the kubelet, {right.get(path)} of ours"
             for path in sorted({*left, *right}) if left.get(path) != right.get(path)]
    if wrong:
        raise AssertionError("\n".join(wrong))
    return bool(left)


class Volumes(unittest.TestCase):
    """One node; the same template as a daemon of ours and as a pod of the API."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers()
        cls.cluster.wait_namespace(NAMESPACE)
        agent.grant(cls.cluster)
        cls.node = cls.enterClassContext(Node(cls.cluster))
        cls.node.wait_ready()
        cls.agent = cls.enterClassContext(Agent(cls.node, policy={"namespaces": ["*"]}))

    def test_data_modes_owners_and_links_are_the_same(self):
        admin = self.cluster.admin
        objects = [one for file in sorted(CASES.glob("*.yaml")) for one in documents(file)]
        for one in objects:
            if one["kind"] in ("ConfigMap", "Secret") and one["metadata"]["name"] != "kube-root-ca.crt":
                admin.create(one["kind"].lower() + "s", one)
        admin.create("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kinds", "namespace": NAMESPACE}})
        sets = [one for one in objects if one["kind"] == "DaemonSet"]
        for daemon in sets:
            name, template = daemon["metadata"]["name"], daemon["spec"]["template"]
            daemon["metadata"]["labels"] = {"daemonlet.dev/mode": "static"}
            daemon["spec"]["selector"] = {"matchLabels": {"app": name}}
            template["metadata"]["labels"]["app"] = name
            template["spec"] |= {"hostNetwork": True, "terminationGracePeriodSeconds": 1}
            for container in template["spec"]["containers"]:
                # The kubelet sets up only what a container mounts.
                mounts = [{"name": volume["name"], "mountPath": f"/volumes/{volume['name']}"} for volume in template["spec"]["volumes"]]
                container |= {"image": images.BOX, "command": daemons.SLEEP, "volumeMounts": mounts}
            admin.create("daemonsets", daemon)
            spec = copy.deepcopy(template["spec"]) | {"nodeName": self.node.name}
            admin.create("pods", {"apiVersion": "v1", "kind": "Pod", "spec": spec,
                                  "metadata": copy.deepcopy(template["metadata"]) | {"name": f"api-{name}", "namespace": NAMESPACE}})

        def running(seen):
            pods = [pod for pod in seen.values() if pod.get("status", {}).get("phase") == "Running"]
            return len(pods) == 2 * len(sets) and pods

        pods = admin.wait("pods", running, 90, f"{2 * len(sets)} pods run", namespace=NAMESPACE)
        pairs = [pair for daemon in sets for pair in self.pairs(daemon["metadata"]["name"], pods)]
        self.assertGreater(len(pairs), 30)
        for what, theirs, ours in pairs:
            # Between data and manifest the kubelet may take the folder for an orphan's and remove what is
            # empty in it (removeOrphanedPodVolumeDirs); the agent puts it back when it verifies.
            until(lambda theirs=theirs, ours=ours: alike(theirs, ours), VERIFIED, f"{what} is as the kubelet's")

    def pairs(self, name, pods):
        """The volumes of a daemon: (what, folder of the API's pod, folder of ours)."""
        theirs = next(pod for pod in pods if pod["metadata"]["name"] == f"api-{name}")
        mirror = next(pod for pod in pods if pod["metadata"]["labels"]["app"] == name and pod is not theirs)
        root = self.node.root / "pods"
        ours = root / mirror["metadata"]["annotations"]["kubernetes.io/config.hash"] / "volumes" / "kubernetes.io~empty-dir"
        for folder in sorted((root / theirs["metadata"]["uid"] / "volumes").glob("*/*")):
            volume = "kube-api-access" if folder.name.startswith("kube-api-access-") else folder.name
            yield f"{name}: {volume}", folder, ours / volume


if __name__ == "__main__":
    unittest.main()
