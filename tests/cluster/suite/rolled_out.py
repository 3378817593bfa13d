"""Stories of one DaemonSet, `net`, that a coordinator rolls out on hollow nodes (no tests of its own)."""

import json

from kit.daemons import daemonset
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

SOON = 120


class RolledOut(Coordinated):
    """What is so of the DaemonSet, and what its owner does. `agents` are those of the nodes, by name."""

    agents = {}

    def create(self, image, budget=1):
        """Creates the DaemonSet."""
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"]["namespace"] = "kube-system"
        it["spec"]["template"]["spec"]["containers"][0]["image"] = f"example.org/net:{image}"
        it["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": budget}}
        self.admin.apply(it)

    def images(self):
        """Image of each mirror pod that does not end, by node."""
        pods = self.admin.list("pods", "kube-system", labels="app=net")
        return {p["spec"]["nodeName"]: p["spec"]["containers"][0]["image"].rpartition(":")[2] for p in pods
                if "deletionTimestamp" not in p["metadata"]}

    def having(self, image):
        """The nodes that run the image."""
        return sorted(node for node, has in self.images().items() if has == image)

    def status(self):
        """The DaemonSet's status."""
        return self.admin.get("daemonsets", "net", "kube-system").get("status", {})

    def condition(self, kind):
        """A condition as status, reason, message."""
        found = next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})
        return tuple(found.get(field) for field in ("status", "reason", "message"))

    def change(self, image, **spec):
        """Changes the image."""
        container = {"name": "main", "image": f"example.org/net:{image}"}
        self.kubectl("patch", "ds/net", "--type=strategic", "-p", json.dumps({"spec": spec | {"template": {"spec": {"containers": [container]}}}}))

    def annotate(self, **annotations):
        """Sets annotations of the DaemonSet, `_` for `-`; None removes."""
        found = {f"daemonlet.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.admin.patch("daemonsets", "net", {"metadata": {"annotations": found}}, "kube-system")

    def hash_of(self, image):
        """The hash of the revision with that image."""
        found = self.admin.list("controllerrevisions", "kube-system", labels="app=net")
        return next(r["metadata"]["labels"]["controller-revision-hash"] for r in found
                    if r["data"]["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{image}"))

    def released(self, image):
        """Whether the revision with that image is the released one, and what first instances of a newer one do."""
        _, reason, message = self.condition("Released")
        return reason if message and f"(hash {self.hash_of(image)})" in message else None

    def all_have(self, image):
        """Waits until every node runs the image and it is released."""
        until(lambda: self.images() == dict.fromkeys(self.agents, image), SOON, f"{image} on all nodes")
        until(lambda: self.released(image) == "Complete", SOON, f"{image} is released: {self.status()}")
