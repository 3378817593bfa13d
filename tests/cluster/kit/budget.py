"""An observer of rollouts: how many nodes are without their daemon, at every instant that the API shows.

It looks at pods alone, as any user could. A node that was made to flap is not the rollout's doing: it counts again
when it has been back for a while and has served (what is unreachable takes no slot, and comes back as it was).
"""

import http.client
import threading
import time

from .api import Refused


def _ready(pod):
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


# So long a node that flapped is not counted, at least: its kubelet looks every 10 s.
_FLAPS = 15


class Observer:
    """`with Observer(admin, "net", nodes) as observer:`, then `observer.expect(budget)` before each rollout."""

    def __init__(self, admin, daemon, nodes, namespace="kube-system"):
        self.admin, self.daemon, self.nodes, self.namespace = admin, daemon, list(nodes), namespace
        self.pods, self.flapping = {}, {}
        self.lock, self.ends = threading.Lock(), threading.Event()
        self.allowed = self.limit = len(self.nodes)
        self.instants = self.most = self.surged = 0
        self.wrong = []
        self.known = threading.Event()

    def __enter__(self):
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ends.set()

    def _watch(self):
        while not self.ends.is_set():
            try:
                self._list()
                for kind, pod in self.admin.watch("pods", self.namespace, labels=f"app={self.daemon}", seconds=600):
                    with self.lock:
                        self._take(kind, pod)
                        self._judge()
                    if self.ends.is_set():
                        return
            except (OSError, ValueError, Refused, http.client.HTTPException):
                # The API server is away, or was in the middle of an answer.
                time.sleep(0.2)

    def _list(self):
        with self.lock:
            self.pods.clear()
            for pod in self.admin.list("pods", self.namespace, labels=f"app={self.daemon}"):
                self._take("ADDED", pod)
            self.known.set()

    def _take(self, kind, pod):
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self.pods.pop(uid, None)
            return
        self.pods[uid] = pod

    def unavailable(self):
        """The nodes without a daemon that serves."""
        serving = {pod["spec"]["nodeName"] for pod in self.pods.values() if _ready(pod) and not pod["metadata"].get("deletionTimestamp")}
        now = time.monotonic()
        self.flapping = {node: until for node, until in self.flapping.items() if now < until or node not in serving}
        return [node for node in self.nodes if node not in serving and node not in self.flapping]

    def _judge(self):
        away = self.unavailable()
        self.instants += 1
        self.most = max(self.most, len(away))
        self.allowed = max(self.limit, min(self.allowed, len(away)))
        if len(away) > self.allowed:
            seen = sorted((p["spec"]["nodeName"], p["metadata"]["name"], p["spec"]["containers"][0]["image"], _ready(p),
                           bool(p["metadata"].get("deletionTimestamp"))) for p in self.pods.values())
            self.wrong.append(f"{time.strftime('%H:%M:%S')}: {len(away)} nodes are unavailable ({', '.join(away)}), "
                              f"{self.allowed} may be: {seen}")

    def expect(self, budget):
        """From now on no more than `budget` nodes may be unavailable, but for those that are so already."""
        with self.lock:
            self.limit = budget
            self.allowed = max(budget, len(self.unavailable()))
            self.most = 0

    def flaps(self, node):
        """This node was made to flap."""
        with self.lock:
            self.flapping[node] = time.monotonic() + _FLAPS
