"""A checker of what is reported: once a second it compares counters, conditions, `kubectl get ds`, `kubectl rollout status`,
`kubectl daemonlet` and NodeDaemons with the truth on the nodes.

The truth is what lies in the nodes' manifest folders and what their kubelets say of those pods. What is reported may be late:
it has to be what was true at some instant of the last seconds. Who stops a coordinator or an agent excuses it.

The condition `Released` may name another revision only once all nodes that can take it had it; `Halted` is what the
ControllerRevision of the template, or the owner's annotation, says; `Degraded` names the nodes that are in trouble by their
agents' word, and those without one.
"""

import http.client
import json
import re
import subprocess
import threading
import time

from .agent import binary
from .api import Refused
from .follow import Following
from .sandbox import scratch

# What the docs promise is a second or two; the machine may be busy. Commands are run every so many looks.
LATE = 12
# What serves is counted from the claim on, before it ends: only the coordinator and its turn of a second come between.
SERVING_LATE = 4
_SERVING = ("status.numberReady", "status.numberAvailable", "status.numberUnavailable", "Available")
COMMANDS = 4
# So many looks in a row say the same that is wrong before it is an error: between two of them what is true may have been another.
LOOKS = 4
# What the DaemonSet controller's pods tolerate, whatever their template says.
_TOLERATED = {(f"node.kubernetes.io/{name}", effect) for name, effect in (
    ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"), ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"))}


def ready(it):
    """Whether a Node or a pod is Ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in it.get("status", {}).get("conditions", []))


def _belongs(node, it):
    """Whether a DaemonSet that tolerates everything, or nothing of its own, is to run on a Node."""
    if any(one.get("operator") == "Exists" and not one.get("key") for one in it["spec"]["template"]["spec"].get("tolerations", [])):
        return True
    taints = node.get("spec", {}).get("taints", [])
    return all(one["effect"] == "PreferNoSchedule" or (one["key"], one["effect"]) in _TOLERATED for one in taints)


def _find(text, pattern):
    found = re.search(pattern, text, re.M)
    return found.group(1).strip("\"'") if found else None


def _only(values):
    """The value that all have; None: they have several."""
    return next(iter(values)) if len(values) == 1 else None


# Causes of which the coordinator alone knows.
_OWN_CAUSES = ("approval not claimed", "agent does not renew its Lease", "agent writes no Lease",
               "cannot start the released revision, and NodeDaemons says why,",
               "not available within the progress deadline", "not available with an older revision",
               "its Node was deleted after it took the revision and before it was available")
_TROUBLE = ("refused", "failing", "notAccepted")
# The API server is away, or something is being deleted.
_AWAY = (OSError, ValueError, KeyError, Refused, AssertionError, http.client.HTTPException, subprocess.TimeoutExpired)


def _named(words):
    """The nodes that the words of `Degraded` name, without those that only the coordinator can know of; None: not all are named."""
    named = set()
    for cause in words.split("; "):
        found = re.fullmatch(r"(.+) on (\d+) nodes?: ([^;]+)", cause)
        names = found.group(3).split(", ") if found else []
        if len(names) != int(found.group(2) if found else -1):
            return None
        if found.group(1) not in _OWN_CAUSES:
            named.update(names)
    return named


class Truth:
    """`with Truth(admin, nodes, "net") as truth:` beside a story; the end fails if something was reported that was not so."""

    def __init__(self, admin, nodes, daemon, namespace="kube-system", late=LATE, in_a_row=LOOKS):
        self.admin, self.daemon, self.namespace, self.late, self.in_a_row = admin, daemon, namespace, late, in_a_row
        self.nodes = {node.name: node for node in nodes}
        self.history, self.wrong, self.since, self.dark = [], [], {}, {}
        self.looks, self.began = 0, None
        self.ends, self.lock = threading.Event(), threading.Lock()
        self.plugin = self.thread = self.released = None
        self.following = Following()
        # The nodes that each revision was seen Ready on: on a busy machine that was long ago when it is reported.
        self.had = {}

    def __enter__(self):
        self.plugin = scratch() / f"truth-{self.daemon}" / "kubectl-daemonlet"
        self.plugin.parent.mkdir()
        self.plugin.symlink_to(binary())
        threading.Thread(target=self._sampling, daemon=True).start()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ends.set()
        self.thread.join(60)
        self.following.end()
        print(f"  reported and true: {self.looks} looks, {len(self.wrong)} wrong")
        if kind is None and self.wrong:
            raise AssertionError("what was reported was not so:\n" + "\n".join(self.wrong[:20]))

    def joins(self, node):
        """Another node."""
        with self.lock:
            self.nodes[node.name] = node

    def leaves(self, name):
        """A node is gone."""
        with self.lock:
            self.nodes.pop(name, None)

    def excuse(self, *names, seconds=float("inf")):
        """For so long nothing is expected of what the agents of these nodes report, and of what is counted of them; without
        names of nothing at all: no coordinator runs."""
        with self.lock:
            self.dark.update(dict.fromkeys(names or ("",), time.monotonic() + seconds))

    def _dark(self):
        with self.lock:
            return {name for name, until in self.dark.items() if time.monotonic() < until}

    def _run(self):
        while not self.ends.wait(1):
            try:
                # A request each time: an API server that is silent says nothing.
                it = self.admin.get("daemonsets", self.daemon, self.namespace)
                if it is not None and it.get("status", {}).get("conditions"):
                    with self.following.here():
                        self._look(it)
            except _AWAY:
                self.since.clear()

    def _sampling(self):
        """What is true for a moment may lie between two looks, whose commands take seconds on a busy machine."""
        while not self.ends.wait(0.3):
            try:
                with self.following.here():
                    it = self.admin.get("daemonsets", self.daemon, self.namespace)
                    if it is not None:
                        self._sample(it)
            except _AWAY:
                pass

    def true(self):
        """What is so on the nodes now: by node the number and revision of each manifest, oldest first, and whether its pod is
        ready; and which Nodes are."""
        pods = {}
        for pod in self.admin.list("pods", self.namespace, labels=f"app={self.daemon}"):
            if not pod["metadata"].get("deletionTimestamp"):
                pods[pod["metadata"]["annotations"].get("kubernetes.io/config.mirror")] = pod
        found = {it["metadata"]["name"]: it for it in self.admin.list("nodes")}
        here = {}
        with self.lock:
            nodes = dict(self.nodes)
        for name, node in nodes.items():
            if name not in found:
                continue
            here[name] = []
            for file in node.manifests.glob(f"{self.namespace}_{self.daemon}-*"):
                try:
                    text = file.read_text(encoding="utf-8")
                except FileNotFoundError:
                    continue
                uid, number = _find(text, r"^  uid: (\S+)$"), _find(text, r"^ +daemonlet.dev/incarnation: (\S+)$")
                revision = _find(text, r"^ +controller-revision-hash: (\S+)$")
                here[name].append((int(number or 0), revision, uid in pods and ready(pods[uid])))
            here[name].sort()
        return here, {name: it for name, it in found.items() if name in here}

    def _counters(self, here, nodes, it, wanted):
        # Upstream counts a node's oldest pod where it is to run; ours says what the newest is, and whether any serves.
        there = [(them, ready(nodes[name]), _belongs(nodes[name], it)) for name, them in here.items()]
        belong = [(them, is_up) for them, is_up, belongs in there if belongs]
        serve = sum(bool(them and is_up and them[0][2]) for them, is_up in belong)
        has = [(them, is_up) for them, is_up, belongs in there if them or belongs]
        return {"desired": len(belong), "current": sum(bool(them) for them, _ in belong),
                "updated": sum(bool(them and them[0][1] == wanted) for them, _ in belong),
                "ready": serve, "available": serve, "unavailable": len(belong) - serve, "places": len(has),
                "everywhere": _only({them[-1][1] if them else None for them, _ in belong}),
                "newest": sum(bool(them and them[-1][1] == wanted) for them, _ in has),
                "serving": sum(bool(is_up and any(one[2] for one in them)) for them, is_up in has)}

    def _sample(self, it):
        here, nodes = self.true()
        found = self.admin.list("controllerrevisions", self.namespace, labels=f"app={self.daemon}")
        newest = max(found, key=lambda it: it["revision"], default=None)
        wanted = newest and newest["metadata"]["labels"]["controller-revision-hash"]
        now = time.monotonic()
        self.began = now if self.began is None else self.began
        counters = self._counters(here, nodes, it, wanted)
        counters |= {"wanted": wanted, "halted": self._is_halted(it, newest), "troubled": self._troubled(it, nodes, wanted),
                     "belong": {name for name, node in nodes.items() if _belongs(node, it)}}
        for name, them in here.items():
            if them and them[-1][2]:
                self.had.setdefault(them[-1][1], set()).add(name)
        with self.lock:
            self.history.append((now, counters, here, {name: ready(node) for name, node in nodes.items()}))
            self.history = [sample for sample in self.history if sample[0] > now - self.late]

    @staticmethod
    def _is_halted(it, newest):
        """Whether the rollout of the newest revision is halted, or aborted by its owner."""
        if newest is None:
            return False
        marks = newest["metadata"].get("annotations", {})
        is_aborted = it["metadata"].get("annotations", {}).get("daemonlet.dev/aborted") == newest["metadata"].get("name")
        return is_aborted or "daemonlet.dev/halted" in marks

    def _troubled(self, it, nodes, wanted):
        """The nodes that are in trouble by what their agents say, and those that have none."""
        reports = {report["metadata"]["name"]: report.get("status", {}) for report in self.admin.list("nodedaemons")}
        troubled = set()
        for name, node in nodes.items():
            if name not in reports:
                troubled.update({name} if _belongs(node, it) else ())
                continue
            for one in reports[name].get("daemons", []):
                if (one["namespace"], one["name"]) == (self.namespace, self.daemon):
                    has_failed = one.get("failed", {}).get("revision") == wanted or one.get("phase") in _TROUBLE
                    troubled.update({name} if has_failed or one.get("pullFailed") or one.get("missing", {}).get("revision") == wanted else ())
        return troubled

    def _look(self, it):
        self._sample(it)
        it = self.admin.get("daemonsets", self.daemon, self.namespace) or it
        read_at = time.monotonic()
        reported = [*self._status(it), *self._reports(it)]
        if self.looks % COMMANDS == 0:
            reported += self._commands()
        self._sample(it)
        self.looks += 1
        if time.monotonic() - self.began < self.late:
            return  # what is reported may be older than all that was seen
        dark, history = self._dark(), self.history
        for what, node, value, of in reported:
            if "" in dark or node in dark or (dark and not node):
                self.since.pop(what, None)
                continue
            late = min(self.late, SERVING_LATE) if what in _SERVING and self.late <= LATE else self.late
            recent = [sample for sample in history if sample[0] > read_at - late] or history[-1:]
            expected = [of(*sample[1:]) for sample in recent]
            if any(value == one for one in expected):
                self.since.pop(what, None)
                continue
            # Of something that becomes another each second none may have been there at a sample.
            before, count = self.since.get(what, (value, 0))
            count = count if before == value else 0
            self.since[what] = (value, count + 1)
            # Commands are not run at each look.
            if count + 1 == (1 + self.in_a_row // COMMANDS if what.startswith("kubectl") else self.in_a_row):
                self.wrong.append(f"{time.strftime('%H:%M:%S')}: {what} says {value}, and for {late} s it was {expected[-1]}: "
                                  f"{history[-1][2]}")

    def _status(self, it):
        status, is_new = it["status"], it["status"].get("observedGeneration") == it["metadata"]["generation"]
        names = {"desiredNumberScheduled": "desired", "currentNumberScheduled": "current", "updatedNumberScheduled": "updated",
                 "numberReady": "ready", "numberAvailable": "available", "numberUnavailable": "unavailable"}
        for field, name in names.items():
            yield f"status.{field}", "", status.get(field, 0), lambda counters, *_, name=name: counters[name]
        yield "observedGeneration", "", is_new, lambda *_: True
        reasons = {c["type"]: c["reason"] for c in status["conditions"]}
        if reasons.get("Progressing") == "Complete" and is_new:
            yield "Progressing=Complete", "", True, lambda counters, *_: counters["updated"] == counters["desired"]
        words = next((c.get("message", "") for c in status["conditions"] if c["type"] == "Progressing"), "")
        if is_new and (found := re.match(r"(\d+) of (\d+) nodes? (?:is|are) left", words)):
            left = tuple(map(int, found.groups()))
            yield "Progressing: left", "", left, lambda counters, *_: (counters["desired"] - counters["updated"], counters["desired"])
        words = next((c["message"] for c in status["conditions"] if c["reason"] == "RolledBack"), "")
        if is_new and (found := re.search(r"every node is on revision (\w+)$", words)):
            yield "Progressing=RolledBack", "", found.group(1), lambda counters, *_: counters["everywhere"]
        if reasons.get("Available") in ("AllAvailable", "Unavailable"):
            words = next(c["message"] for c in status["conditions"] if c["type"] == "Available")
            yield "Available", "", words, lambda counters, *_: f"{counters['available']} of {counters['desired']} nodes"
        conditions = {c["type"]: c for c in status["conditions"]}
        if is_new:
            halted = conditions.get("Halted", {}).get("status") == "True"
            yield "Halted", "", halted, lambda counters, *_: counters["halted"]
        yield from self._degraded(conditions.get("Degraded", {}))
        yield from self._released(conditions.get("Released", {}), it, is_new)

    def _degraded(self, condition):
        named = {"AsExpected": lambda _: set(), "Failing": _named}.get(condition.get("reason"), lambda _: None)(condition.get("message", ""))
        if named is None:
            return
        dark = self._dark()
        with self.lock:
            known = set(self.nodes) - dark
        # Each node by itself: what is reported of one may be late while another's changes.
        for name in known:
            yield f"Degraded: {name}", name, name in named, lambda counters, *_, name=name: name in counters["troubled"]

    def _released(self, condition, it, is_new):
        """What is released was had by all nodes that can take it when that was first reported; and it is the newest, or it is not."""
        found = re.fullmatch(r"ControllerRevision \S+ \(hash (\S+)\) at generation \d+", condition.get("message", ""))
        if not found:
            return
        hash_of = found.group(1)
        if self.released is None or self._dark():
            self.released = hash_of
        if hash_of != self.released:
            yield "Released", "", True, lambda *_: self._had_by_all(hash_of)
        if is_new:
            yield "Released=Complete", "", condition["reason"] == "Complete", lambda counters, *_: counters["wanted"] == hash_of
        if is_new and condition["reason"] == "RollingOut":
            paused = it["metadata"].get("annotations", {}).get("daemonlet.dev/paused") == "true"
            yield "Released=RollingOut", "", True, lambda counters, *_: not counters["halted"] and not paused

    def _had_by_all(self, released):
        """Whether each node that can take it was seen with it: the instant at which all have it may be a short one."""
        _, counters, _, nodes = self.history[-1]
        able = {name for name in counters["belong"] if nodes.get(name) and name not in counters["troubled"]}
        if able and able <= self.had.get(released, set()):
            self.released = released
        return self.released == released

    def _reports(self, it):
        for report in self.admin.list("nodedaemons"):
            name = report["metadata"]["name"]
            reported = [daemon for daemon in report.get("status", {}).get("daemons", [])
                        if (daemon["namespace"], daemon["name"], daemon.get("uid")) == (self.namespace, self.daemon, it["metadata"]["uid"])]
            live = [one for daemon in reported for one in daemon.get("instances", []) if not one.get("ending")]
            value = sorted((one["revision"], bool(one.get("readySince"))) for one in live)

            def of(_, here, nodes, name=name):
                return sorted((revision, is_ready and nodes.get(name, False)) for _, revision, is_ready in here.get(name, []))
            with self.lock:
                is_known = name in self.nodes
            if is_known:
                yield f"NodeDaemons {name}", name, value, of

    def _commands(self):
        columns = self.admin.kubectl("-n", self.namespace, "get", "ds", self.daemon, "--no-headers").split()[1:6]
        for name, value in zip(("desired", "current", "ready", "updated", "available"), columns):
            yield f"kubectl get ds: {name}", "", int(value), lambda counters, *_, name=name: counters[name]
        words = self.admin.kubectl("-n", self.namespace, "rollout", "status", f"ds/{self.daemon}", "--watch=false", check=False)
        if "successfully rolled out" in words:
            yield "kubectl rollout status", "", True, lambda counters, *_: counters["updated"] == counters["available"] == counters["desired"]
        elif found := re.search(r"(\d+) out of (\d+) new pods have been updated", words):
            yield "kubectl rollout status", "", tuple(map(int, found.groups())), lambda counters, *_: (counters["updated"], counters["desired"])
        elif found := re.search(r"(\d+) of (\d+) updated pods are available", words):
            yield "kubectl rollout status", "", tuple(map(int, found.groups())), lambda counters, *_: (counters["available"], counters["desired"])
        done = subprocess.run([self.plugin, "--kubeconfig", self.admin.kubeconfig, "-n", self.namespace, "-o", "json"], capture_output=True,
                              text=True, check=False, timeout=30)
        found = json.loads(done.stdout or "{}").get("daemonSets", [])
        for one in (one for one in found if (one["namespace"], one["name"]) == (self.namespace, self.daemon)):
            for field, name in (("desired", "places"), ("updated", "newest"), ("ready", "serving")):
                yield f"kubectl daemonlet: {field}", "", one[field], lambda counters, *_, name=name: counters[name]
