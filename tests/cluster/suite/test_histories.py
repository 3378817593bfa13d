"""20,000 ControllerRevisions of a tenant: a coordinator that starts decides about a trusted DaemonSet as soon as without them."""

import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from kit.agent import Agent
from kit.api import path_of
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

TRUSTED, TENANT = "trusted", "tenant"
COUNT, OWNED = 20_000, 3_000
WRITERS = 8
SOON = 120
# What they may add, in seconds, and in requests: with pages of eight there were 2,500.
AT_MOST, PAGES = 30, 100


class Histories(Coordinated):
    """An agent and a coordinator that trust one namespace."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in (TRUSTED, TENANT):
            cls.admin.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        policy = {"namespaces": [TRUSTED, TENANT], "trusted-namespaces": [TRUSTED]}
        cls.one = cls.enterClassContext(Coordinator(cls.cluster, "one", policy=policy))
        cls.node = crowd(cls.cluster, 1, cls.stack)[0]
        cls.agent = cls.enterClassContext(Agent(cls.node, runtime_endpoint="", kubelet_endpoint="", policy=policy))

    @staticmethod
    def daemon(name, namespace):
        """A DaemonSet that obeys every rule."""
        container = {"resources": {"limits": {"memory": "16Mi"}}, "securityContext": {"readOnlyRootFilesystem": True}}
        return daemonset(name, namespace, container, dict(STATIC), None, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)

    def has(self, version):
        """Whether the trusted daemon runs this version."""
        text = "\n".join(self.agent.manifests(f"{TRUSTED}_net-").values())
        return re.findall(r"^ +version: \"?(\w+)\"?$", text, re.M) == [version]

    def approved_after(self, version):
        """How long it takes from the coordinator's start until a change that came before is approved, in seconds."""
        self.one.process.stop(5)
        self.admin.patch("daemonsets", "net", {"spec": {"template": {"metadata": {"annotations": {"version": version}}}}}, TRUSTED)
        began = time.monotonic()
        self.one.start()
        try:
            until(lambda: self.has(version), SOON, f"version {version} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.one.process.tail(25)}\n{self.agent.process.tail(25)}") from None
        return time.monotonic() - began

    def lists(self):
        """How many lists of ControllerRevisions the API server has answered."""
        counted = re.findall(r'^apiserver_request_total\{(.*)\} (\d+)$', self.admin.request("GET", "/metrics"), re.M)
        return sum(int(count) for labels, count in counted if 'resource="controllerrevisions"' in labels and 'verb="LIST"' in labels)

    def forge(self, name, count, owners):
        """ControllerRevisions in the tenant's namespace."""
        server, path = urlsplit(self.admin.server), path_of("controllerrevisions", TENANT)

        def some(first):
            connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=30, context=self.admin._tls)
            for number in range(first, count, WRITERS):
                connection.request("POST", path, json.dumps({
                    "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number, "data": {"spec": {"template": {"a": "x" * 200}}},
                    "metadata": {"name": f"{name}-{number}", "labels": {"app": name}, "ownerReferences": owners}}), {"Content-Type": "application/json"})
                answer = connection.getresponse()
                said = answer.read()
                self.assertEqual(answer.status, 201, said)
            connection.close()

        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(some, range(WRITERS)))

    def test_what_a_tenant_has_of_them_holds_up_nothing_that_is_trusted(self):
        self.admin.create("daemonsets", self.daemon("net", TRUSTED))
        self.admin.patch("daemonsets", "net", {"spec": {"template": {"metadata": {"annotations": {"version": "first"}}}}}, TRUSTED)
        until(lambda: self.has("first"), SOON, "the first version runs")
        before = self.approved_after("second")
        self.forge("forged", COUNT, [])
        lists = self.lists()
        ownerless = self.approved_after("third")
        self.assertLess(self.lists() - lists, PAGES)
        self.assertLess(ownerless, before + AT_MOST)
        # Of a DaemonSet that is coordinated: each is read whole, after what is trusted, and then deleted.
        self.one.process.stop(5)
        owner = self.admin.create("daemonsets", self.daemon("hasty", TENANT))
        reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "hasty", "uid": owner["metadata"]["uid"], "controller": True}
        self.forge("hasty", OWNED, [reference])
        owned = self.approved_after("fourth")
        self.assertLess(owned, before + AT_MOST)
        print(f"          approved {before:.1f} s after the coordinator's start, with {COUNT} without an owner {ownerless:.1f} s, with {OWNED} of a DaemonSet {owned:.1f} s")
