"""A rendered pod is the pod that the stock DaemonSet controller makes, but for a list of differences.

Every DaemonSet of the examples and of the corpus goes to an API server. The controller's pod is
compared, field by field, with our static pod of the same DaemonSet as the kubelet decodes it, so that
both carry the API's defaults. Each difference that is meant has a function below that takes it out
and says why; anything else fails.
"""

import copy
import json
import re
import subprocess
import unittest
from pathlib import Path

from kit import agent
from kit import daemons
from kit import tools
from kit.api import Refused
from kit.control_plane import ControlPlane
from kit.hollow import HollowNode
from kit.kubelet import is_ready
from kit.sandbox import scratch
from kit.wait import until

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"
# Files that no API server takes: apps/v1 without a selector.
NOT_VALID = {"fluentd-daemonset-loggly-rbac.yaml", "intel-xpumanager-sidecar.yaml"}


def documents(path):
    """The objects of a file."""
    texts = [text for text in re.split(r"(?m)^---.*$", path.read_text(encoding="utf-8")) if text.strip()]
    decoded = subprocess.run([tools.program("yamlread")], input="\n".join(map(json.dumps, texts)), capture_output=True, text=True, check=True)
    values = [json.loads(line).get("value") for line in decoded.stdout.splitlines()]
    flat = []
    for value in values:
        if isinstance(value, dict):
            flat += value.get("items") or [] if value.get("kind", "").endswith("List") else [value]
    return [value for value in flat if "kind" in value]


def containers(pod):
    """Init containers and containers."""
    return (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]


# The differences that are meant. Each takes (the controller's pod, ours) and makes both alike where
# they may differ; it must not hide anything else.

def identity(stock, ours):
    """Name, UID, owner and times are the instance's own; the hash of a revision is computed differently."""
    for pod in (stock, ours):
        pod.pop("status", None)
        meta = pod["metadata"]
        for field in ("name", "generateName", "uid", "creationTimestamp", "generation", "resourceVersion", "ownerReferences", "managedFields"):
            meta.pop(field, None)
        meta["labels"].pop("controller-revision-hash")
    for name in ("daemonlet.dev/daemonset", "daemonlet.dev/incarnation"):
        ours["metadata"]["annotations"].pop(name)
    for name in list(ours["metadata"]["annotations"]):
        if name.startswith("kubernetes.io/config."):
            ours["metadata"]["annotations"].pop(name)  # the kubelet marks every static pod
    for pod in (stock, ours):
        if not pod["metadata"].get("annotations"):
            pod["metadata"].pop("annotations", None)


def placement(stock, ours):
    """The decision is made: node selector and node affinity would only be judged again, at a cold boot wrongly."""
    stock["spec"].pop("nodeSelector", None)
    affinity = stock["spec"].get("affinity", {})
    affinity.pop("nodeAffinity", None)
    if not affinity:
        stock["spec"].pop("affinity", None)
    ours["spec"].pop("nodeName")


def tolerations(stock, ours):
    """The kubelet makes every static pod tolerate every NoExecute taint; the order means nothing."""
    everything = {"operator": "Exists", "effect": "NoExecute"}
    for pod in (stock, ours):
        specific = [one for one in pod["spec"].get("tolerations", []) if one != everything]
        pod["spec"]["tolerations"] = sorted(specific, key=json.dumps)


def account(stock, ours):
    """A static pod has no ServiceAccount; its token volume has a fixed name."""
    for field in ("serviceAccountName", "serviceAccount", "imagePullSecrets"):
        stock["spec"].pop(field, None)
    for volume in stock["spec"].get("volumes", []):
        if volume["name"].startswith("kube-api-access-"):
            for container in containers(stock):
                for mount in container.get("volumeMounts", []):
                    if mount["name"] == volume["name"]:
                        mount["name"] = "kube-api-access"
            volume["name"] = "kube-api-access"


def volumes(stock, ours):
    """ConfigMaps, Secrets and tokens lie in an emptyDir that was filled before, mounted read-only as the kubelet does."""
    converted = set()
    for volume in stock["spec"].get("volumes", []):
        sources = volume.get("projected", {}).get("sources", [{"downwardAPI": {}}])
        if "configMap" in volume or "secret" in volume or any("downwardAPI" not in source for source in sources):
            name = volume["name"]
            volume.clear()
            volume.update({"name": name, "emptyDir": {}})
            converted.add(name)
    for container in containers(stock):
        for mount in container.get("volumeMounts", []):
            if mount["name"] in converted:
                mount["readOnly"] = True


def waiting(stock, ours):
    """A container whose environment refers to an object that is not there says what it waits for."""
    annotations = ours["metadata"].get("annotations", {})
    named = set(filter(None, annotations.pop("daemonlet.dev/waiting-containers", "").split(",")))
    if not annotations:
        ours["metadata"].pop("annotations", None)
    for theirs, mine in zip(containers(stock), containers(ours)):
        refers = json.dumps([theirs.get("env"), theirs.get("envFrom")])
        if mine["name"] in named and ("configMap" in refers or "secret" in refers):
            named.remove(mine["name"])
            mine["env"] = [one for one in mine["env"] if one["name"] != "DAEMONLET_WAITS_FOR"]
    if named:
        ours["metadata"]["waiting without a reference"] = sorted(named)


def gate(stock, ours):
    """The gate of a pod that starts after others (`daemonlet.dev/after`)."""
    own = {"volumes": "daemonlet-gate", "volumeMounts": "daemonlet-gate", "env": "DAEMONLET_GATE"}
    for holder in (ours["spec"], *containers(ours)):
        for field, name in own.items():
            left = [one for one in holder.get(field) or [] if one["name"] != name]
            if len(left) < len(holder.get(field) or []):
                holder[field] = left


def environment(stock, ours):
    """Values of ConfigMaps and Secrets are resolved; the API server's address is written out."""
    for theirs, mine in zip(containers(stock), containers(ours)):
        resolved = {one["name"] for one in mine.get("env", []) if one["name"].startswith(("KUBERNETES_SERVICE_", "KUBERNETES_PORT"))}
        for variable in theirs.get("env", []):
            source = variable.get("valueFrom", {})
            if "configMapKeyRef" in source or "secretKeyRef" in source:
                resolved.add(variable["name"])
            elif source.get("fieldRef", {}).get("fieldPath") == "spec.serviceAccountName":
                resolved.add(variable["name"])  # its value: a static pod has none
        from_objects = bool(theirs.pop("envFrom", None))
        written = {variable["name"] for variable in theirs.get("env", [])}
        for container in (theirs, mine):
            kept = [one for one in container.get("env", []) if one["name"] not in resolved]
            if from_objects:
                kept = [one for one in kept if one["name"] in written]
            container["env"] = kept
        mine["volumeMounts"] = [one for one in mine.get("volumeMounts", []) if not one["name"].startswith("daemonlet-env")]
        for container in (theirs, mine):
            for field in ("env", "volumeMounts"):
                if not container.get(field):
                    container.pop(field, None)
    mine = [one for one in ours["spec"].get("volumes", []) if not one["name"].startswith("daemonlet-env")]
    ours["spec"]["volumes"] = mine
    for pod in (stock, ours):
        if not pod["spec"].get("volumes"):
            pod["spec"].pop("volumes", None)


def priority(stock, ours):
    """Without a class the API writes the default's number; to the kubelet no number is 0."""
    if "priorityClassName" not in ours["spec"] and stock["spec"].get("priority") == 0:
        stock["spec"].pop("priority")
        if stock["spec"].get("preemptionPolicy") == "PreemptLowerPriority":
            stock["spec"].pop("preemptionPolicy")


def app_armor(stock, ours):
    """The API copies the old annotation to the field; of a static pod the kubelet reads the annotation."""
    for theirs, mine in zip(containers(stock), containers(ours)):
        annotation = f"container.apparmor.security.beta.kubernetes.io/{theirs['name']}"
        context = mine.get("securityContext", {})
        if ours["metadata"].get("annotations", {}).get(annotation) and "appArmorProfile" not in context:
            theirs.get("securityContext", {}).pop("appArmorProfile", None)
            if "securityContext" not in mine and not theirs.get("securityContext"):
                theirs.pop("securityContext", None)


def pull_policy(stock, ours):
    """Always is written as IfNotPresent: the agent pulls anew, and what is on the node starts without a registry."""
    for theirs, own in zip(containers(stock), containers(ours), strict=True):
        if theirs.get("imagePullPolicy") == "Always" and own.get("imagePullPolicy") == "IfNotPresent":
            own["imagePullPolicy"] = "Always"


DIFFERENCES = (pull_policy, identity, placement, tolerations, account, volumes, waiting, gate, environment, priority, app_armor)


def differences(left, right, path=""):
    """Every place at which two values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        return [found for key in sorted({*left, *right}) for found in differences(left.get(key), right.get(key), f"{path}.{key}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [found for i, (one, other) in enumerate(zip(left, right)) for found in differences(one, other, f"{path}[{i}]")]
    return [] if left == right else [f"{path}: {json.dumps(left)} of the controller, {json.dumps(right)} of ours"]


class Fidelity(unittest.TestCase):
    """The real API server and DaemonSet controller; no scheduler, so that no pod changes after its creation."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(ControlPlane())
        cls.cluster.start_controllers(daemonset_controller=True)
        cls.node = cls.enterClassContext(HollowNode(cls.cluster, "hollow-0", 0)).name
        cls.cluster.admin.wait("nodes", lambda seen: ("", cls.node) in seen and is_ready(seen[("", cls.node)]), 30, "the node is Ready")

    def create(self):
        """Creates every DaemonSet under a name of its own with what its pods need; gives those created, with their files."""
        admin, made, known, labels = self.cluster.admin, {}, set(), {}
        files = sorted((tools.REPO / "examples").rglob("*.yaml")) + sorted((tools.REPO / "tests" / "golden" / "volumes").glob("*.yaml"))
        if daemons.CORPUS.exists():
            files += sorted(path for path in daemons.CORPUS.glob("*.yaml") if path.name not in NOT_VALID)

        def ensure(kind, body):
            key = (kind, body["metadata"].get("namespace"), body["metadata"]["name"])
            if key not in known:
                known.add(key)
                try:
                    admin.create(kind, body)
                except Refused as refused:
                    if refused.code != 409:  # a controller made it
                        raise

        for index, file in enumerate(files):
            objects = documents(file)
            for number, body in enumerate(one for one in objects if one["kind"] == "DaemonSet" and one["apiVersion"] == "apps/v1"):
                meta, spec = body["metadata"], body["spec"]["template"]["spec"]
                if "windows" in json.dumps(spec.get("nodeSelector", {})):
                    continue
                namespace = meta.setdefault("namespace", "default")
                meta["name"] = f"d{index}-{number}-{meta['name']}"[:50].rstrip("-.")
                ensure("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
                name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
                own = [one for one in objects if one["kind"] == "ServiceAccount" and one["metadata"]["name"] == name]
                sa = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
                automount = own[0].get("automountServiceAccountToken") if own else None
                ensure("serviceaccounts", sa | ({} if automount is None else {"automountServiceAccountToken": automount}))
                if spec.get("priorityClassName") and not spec["priorityClassName"].startswith("system-"):
                    ensure("priorityclasses", {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                                               "metadata": {"name": spec["priorityClassName"]}})
                if spec.get("runtimeClassName"):
                    ensure("runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc",
                                              "metadata": {"name": spec["runtimeClassName"]}, "overhead": {"podFixed": {"cpu": "250m"}}})
                for key, value in (spec.get("nodeSelector") or {}).items():
                    labels.setdefault(key, value)
                admin.create("daemonsets", body)
                made[(namespace, meta["name"])] = (file, objects)
        admin.patch("nodes", self.node, {"metadata": {"labels": labels}})
        return made

    def ours(self, daemonset, objects):
        """Our pod of the API's DaemonSet, as the kubelet decodes it."""
        meta = daemonset["metadata"]
        home = scratch() / "rendered" / meta["namespace"] / meta["name"]
        home.mkdir(parents=True)
        admin = self.cluster.admin
        kinds = {"serviceaccounts": ("v1", "ServiceAccount"), "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass"),
                 "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass")}
        listed = []
        for plural, (version, kind) in kinds.items():
            where = meta["namespace"] if kind == "ServiceAccount" else "*"
            listed += [one | {"apiVersion": version, "kind": kind} for one in admin.list(plural, where)]
        needed = [one for one in objects if one["kind"] in ("ConfigMap", "Secret")] + listed
        items = [daemonset | {"apiVersion": "apps/v1", "kind": "DaemonSet"}, *needed]
        source = home / "in.json"
        source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
        rendered = subprocess.run([agent.binary(), "render", "-f", source, "-o", home, "--json", "--node-name", self.node, "--api-endpoint", "10.0.0.1:6443"],
                                  capture_output=True, text=True, check=False)
        outcome = next((one for one in json.loads(rendered.stdout)["outcomes"] if one["outcome"] != "invalid"), None)
        if not outcome or outcome["outcome"] != "rendered":
            raise AssertionError(f"{meta['name']}: {rendered.stdout}{rendered.stderr}")
        taken = subprocess.run([tools.program("accepts"), "-dump", home / "manifests", self.node], capture_output=True, text=True, check=False)
        if taken.returncode:
            raise AssertionError(f"{meta['name']}: {taken.stderr}")
        return json.loads(taken.stdout)

    def test_pods_are_as_the_controller_makes_them(self):
        made = self.create()
        placed = {}

        def all_made(_seen=None):
            sets = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in self.cluster.admin.list("daemonsets")}
            settled = all(one["status"].get("observedGeneration") == one["metadata"]["generation"] for one in sets.values())
            wanted = [key for key, one in sets.items() if one["status"]["desiredNumberScheduled"]]
            pods = {}
            for pod in self.cluster.admin.list("pods"):
                for owner in pod["metadata"].get("ownerReferences", []):
                    pods[(pod["metadata"]["namespace"], owner["name"])] = pod
            placed.clear()
            placed.update({key: (sets[key], pods[key]) for key in wanted if key in pods})
            return settled and len(placed) == len(wanted) and wanted

        # Not a watch of pods: the last word may be that of a DaemonSet's status.
        until(all_made, 120, "the controller has made its pods", pause=0.5)
        wrong, compared = [], 0
        for key, (daemonset, stock) in sorted(placed.items()):
            file, objects = made[key]
            ours, stock = self.ours(daemonset, objects), copy.deepcopy(stock)
            for difference in DIFFERENCES:
                difference(stock, ours)
            for pod in (stock, ours):
                pod.pop("apiVersion", None), pod.pop("kind", None)
            wrong += [f"{Path(file).name} {'/'.join(key)}{found}" for found in differences(stock, ours)]
            compared += 1
        print(f"  {compared} of {len(made)} DaemonSets have a pod on the node and were compared")
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertGreater(compared, 0)
        if daemons.CORPUS.exists():
            self.assertGreater(compared, 100)


if __name__ == "__main__":
    unittest.main()
