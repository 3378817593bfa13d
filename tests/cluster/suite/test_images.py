"""Images: pulled before anything is replaced, with the credentials that there are, and not needed twice."""

import json
import re
import unittest
from types import SimpleNamespace

from kit import agent
from kit import images
from kit.agent import Agent
from kit.api import Refused
from kit.daemons import daemonset
from kit.kubelet import Node
from kit.registry import Registry
from kit.registry import docker_config
from kit.wait import never
from kit.wait import until
from suite import story

NAMESPACE = "kube-system"
MODE = {"daemonlet.dev/mode": "static"}
SOON = 20
USER, PASSWORD = "somebody", "sesame"

WORLD = SimpleNamespace()

_PROVIDER = """#!/bin/sh
cat > "{home}/asked"
echo '{{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
"cacheDuration": "0s", "auth": {{"{host}": {{"username": "{user}", "password": "{password}"}}}}}}'
"""


def setUpModule():  # noqa: N802 (unittest's name)
    """One cluster of one node for all, with an agent beside the kubelet and a registry."""
    WORLD.cluster = story.cluster(NAMESPACE)
    WORLD.node = unittest.enterModuleContext(Node(WORLD.cluster))
    WORLD.registry = unittest.enterModuleContext(Registry())
    WORLD.agent = unittest.enterModuleContext(Agent(WORLD.node, policy={"namespaces": ["*"]}))


def picture(mark):
    """An image like no other."""
    return images.Image(entrypoint=["/bin/sh"], busybox=True, files={"/mark": mark.encode()})


class Images(unittest.TestCase):
    """What the stories share: a daemon that runs an image from disk, and a registry in order."""

    def setUp(self):
        self.cluster, self.node, self.agent, self.registry = WORLD.cluster, WORLD.node, WORLD.agent, WORLD.registry
        self.admin, self.cri = self.cluster.admin, self.node.cri
        self.name = re.sub("[^a-z]", "", self.id().rsplit("_", 1)[1])
        self.config = dict(self.agent.config)
        self.addCleanup(self.tidy)

    def tidy(self):
        """Everything as it was."""
        registry = self.registry
        registry.users, registry.delay, registry.hangs, registry.status = {}, 0, False, None
        registry.stop()
        registry.start()
        try:
            self.admin.delete("daemonsets", self.name, NAMESPACE)
        except Refused:
            pass
        self.cri.wait_gone(f"{self.name}-")
        if self.agent.config != self.config:
            self.agent.config = self.config
            self.agent.restart()

    def configure(self, **keys):
        """Starts the agent with these keys of its section `images`."""
        self.agent.config = self.config | {"images": {key.replace("_", "-"): value for key, value in keys.items()}}
        self.agent.restart()

    def put(self, image=images.BOX, policy=None, **pod):
        """The daemon, with this image."""
        container = {"image": image, "env": [{"name": "IMAGE", "value": image}]} | ({"imagePullPolicy": policy} if policy else {})
        self.admin.apply(daemonset(self.name, NAMESPACE, container, MODE, hostNetwork=True, **pod))

    def runs(self, image=images.BOX, other_than=None, seconds=30):
        """Waits until exactly one instance runs, and with that image; gives (pod, container id)."""
        def one():
            found = self.cri.of(f"{self.name}-")
            if len(found) != 1 or found[0][0] == other_than:
                return None
            return found[0] if self.cri.image(found[0][2]) == image else None
        try:
            pod, _, container, _ = until(one, seconds, f"{image} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n--- agent\n{self.agent.process.tail(25)}") from None
        return pod, container

    def daemon(self):
        """What status says of it."""
        status = json.loads(self.agent.cli("status", "--json").stdout)
        return next((d for d in status["daemons"] if d["name"] == self.name), {})

    def says(self, pattern, seconds=SOON):
        """Waits until status says so of the daemon."""
        def found():
            return re.search(pattern, json.dumps(self.daemon()))
        try:
            return until(found, seconds, pattern)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.agent.cli('status').stdout}") from None

    def unchanged(self, before, seconds=2):
        """Asserts that the very same container runs for a while."""
        never(lambda: [item[2] for item in self.cri.of(f"{self.name}-")] != [before[1]], seconds, "it was replaced")


class PulledFirst(Images):
    """Non-surge: the old instance ends when the new one's images are there."""

    def test_the_old_instance_runs_while_images_are_pulled(self):
        self.put()
        old = self.runs()
        image = self.registry.push("slow:1", picture("slow"))
        self.registry.delay = 3
        self.put(image)
        said = self.says(r"pulls image 1 of 1 \(\S+slow:1\) since 20\d\d-\d\d-\d\dT[\d:]+Z")
        self.unchanged(old, 3)
        self.assertIn(said.group(), json.dumps(self.daemon()), "it is another time now")
        self.registry.delay = 0
        self.runs(image)

    def test_a_present_image_is_not_pulled(self):
        image = self.registry.push("present:1", picture("present"))
        self.cri.ctr("images", "pull", "--plain-http", image)
        before = len(self.registry.requests)
        self.put()
        self.runs()
        self.put(image)
        self.runs(image)
        self.assertEqual(self.registry.requests[before:], [])

    def test_a_pull_failure_leaves_the_old_instance_and_is_reported(self):
        self.put()
        old = self.runs()
        self.put(f"{self.registry.host}/nowhere:1")
        self.says(r"image \S+nowhere:1 cannot be pulled: .*nowhere:1.*not found")
        until(lambda: "not found" in self.agent.cli("status").stdout, SOON, "people read it, too")
        self.unchanged(old)
        self.registry.push("nowhere:1", picture("there"))
        self.runs(f"{self.registry.host}/nowhere:1")

    def test_the_switch_for_the_stock_controllers_rule_goes_on(self):
        self.configure(on_pull_failure="go-on")
        self.put()
        self.runs()
        self.put(f"{self.registry.host}/missing:1")
        self.cri.wait_gone(f"{self.name}-")
        shown = self.admin.wait("pods", lambda seen: next(
            (status for key, item in seen.items() if key[1].startswith(f"{self.name}-")
             for status in item["status"].get("containerStatuses", []) if "Pull" in status["state"].get("waiting", {}).get("reason", "")), None),
            30, "the new pod shows its error")
        self.assertIn("missing:1", json.dumps(shown))

    def test_a_pull_that_hangs_holds_nothing_else_up(self):
        self.put()
        old = self.runs()
        self.registry.hangs = True
        self.put(f"{self.registry.host}/hangs:1")
        self.says("pulls image 1 of 1")
        other = daemonset("other", NAMESPACE, labels=MODE, hostNetwork=True)
        self.addCleanup(self.cri.wait_gone, "other-")
        self.addCleanup(self.admin.delete, "daemonsets", "other", NAMESPACE)
        self.admin.apply(other)
        first = self.cri.wait_running("other-")
        other["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 6
        self.admin.apply(other)
        until(lambda: [pod for pod, *_ in self.cri.of("other-") if pod != first[0]], 20, "the other one is replaced")
        self.unchanged(old, 0.5)
        # Given up by its owner: no template has that revision any more.
        self.put()
        until(lambda: "pulls image" not in json.dumps(self.daemon()), SOON, "the wish is forgotten")
        self.unchanged(old, 0.5)


class Anew(Images):
    """`Always`: anew for each new instance, and never needed to start again."""

    def test_always_is_written_as_if_not_present_and_pulled_anew_once_an_instance(self):
        image = self.registry.push("moving:latest", picture("one"))
        self.put(image)
        first = self.runs(image)
        self.assertIn("imagePullPolicy: IfNotPresent", self.agent.wait_manifest(self.name)[1])
        self.assertEqual(self.cri.execute(first[1], "cat", "/mark"), "one")
        self.registry.push("moving:latest", picture("two"))
        before = self.registry.pulls("moving")
        self.restart()
        second = self.runs(image, other_than=first[0])
        self.assertEqual(self.cri.execute(second[1], "cat", "/mark"), "two")
        self.assertEqual(self.registry.pulls("moving") - before, 1, "it was not asked once")

    def test_registry_away_and_image_present_starts_and_says_so(self):
        image = self.registry.push("kept:latest", picture("kept"))
        self.put(image)
        first = self.runs(image)
        self.registry.stop()
        self.restart()
        self.runs(image, other_than=first[0])
        self.says("cannot be pulled: .*connection refused.*; it starts with the image that is on the node")

    def test_an_image_that_no_registry_has_is_the_kubelets_to_pull_anew(self):
        image = self.registry.push("first:latest", picture("first"))
        self.put(image)
        self.runs(image)
        self.assertEqual(self.registry.pulls("first"), 1)

    def test_as_written_the_kubelet_asks_the_registry(self):
        self.configure(pull_policy="as-written")
        self.put(self.registry.push("asked:1", picture("asked")), policy="Always")
        self.runs(f"{self.registry.host}/asked:1")
        self.assertIn("imagePullPolicy: Always", self.agent.wait_manifest(self.name)[1])

    def restart(self):
        """A new instance, by another template."""
        self.admin.patch("daemonsets", self.name, {"spec": {"template": {"metadata": {"annotations": {"again": "1"}}}}}, NAMESPACE)


class Credentials(Images):
    """A registry that wants a user, and each place where one may be."""

    def private(self, name):
        """An image that needs the user."""
        image = self.registry.push(f"{name}:1", picture(name))
        self.registry.users[name] = (USER, PASSWORD)
        return image

    def secret(self, name, legacy=False):
        """A pull secret."""
        config = docker_config(self.registry.host, USER, PASSWORD)
        key, kind = (".dockercfg", "dockercfg") if legacy else (".dockerconfigjson", "dockerconfigjson")
        self.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
                          "type": f"kubernetes.io/{kind}", "stringData": {key: json.dumps(config["auths"] if legacy else config)}})
        self.addCleanup(self.admin.delete, "secrets", name, NAMESPACE)

    def test_of_the_pod(self):
        self.secret("of-pod")
        image = self.private("ofpod")
        self.put(image, imagePullSecrets=[{"name": "of-pod"}])
        self.runs(image)

    def test_of_the_service_account(self):
        self.secret("of-account", legacy=True)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller", "namespace": NAMESPACE}, "imagePullSecrets": [{"name": "of-account"}]}
        self.admin.apply(account)
        self.addCleanup(self.admin.delete, "serviceaccounts", "puller", NAMESPACE)
        self.put()
        self.runs()
        image = self.private("ofaccount")
        self.put(image, serviceAccountName="puller", automountServiceAccountToken=False)
        self.runs(image)

    def test_of_a_secret_that_comes_later(self):
        self.configure(require_prepull=True)
        self.put()
        old = self.runs()
        image = self.private("later")
        self.put(image, imagePullSecrets=[{"name": "later"}])
        self.says("later:1 cannot be pulled: ")
        self.unchanged(old)
        self.secret("later")
        self.runs(image)

    def test_of_the_nodes_docker_config(self):
        file = self.node.root / "config.json"
        file.write_text(json.dumps(docker_config(self.registry.host, USER, PASSWORD)), encoding="utf-8")
        self.addCleanup(file.unlink)
        self.put()
        self.runs()
        image = self.private("ofnode")
        before = len(self.registry.requests)
        self.put(image)
        self.runs(image)
        self.assertIn(USER, [user for *_, user in self.registry.requests[before:]])

    def test_of_a_credential_provider(self):
        home = self.agent.home / "providers"
        home.mkdir()
        (home / "cloud").write_text(_PROVIDER.format(home=home, host=self.registry.host, user=USER, password=PASSWORD), encoding="utf-8")
        (home / "cloud").chmod(0o755)
        (home / "config.yaml").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [{
                "name": "cloud", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "matchImages": [self.registry.host], "defaultCacheDuration": "0s"}]}), encoding="utf-8")
        self.configure(credential_provider_config=str(home / "config.yaml"), credential_provider_bin_dir=str(home), require_prepull=True)
        self.put()
        self.runs()
        image = self.private("ofprovider")
        self.put(image)
        self.runs(image)
        self.assertEqual(json.loads((home / "asked").read_text(encoding="utf-8"))["image"], f"{self.registry.host}/ofprovider")

    def test_refused_it_is_handed_to_the_kubelet_with_the_risk(self):
        self.put()
        self.runs()
        image = self.private("handed")
        self.put(image)
        self.cri.wait_gone(f"{self.name}-")
        log = self.agent.process.tail(200)
        self.assertRegex(log, "handed:1 cannot be pulled")
        # What the kubelet knows and the agent does not.
        self.registry.users.clear()
        self.runs(image, seconds=60)

    def test_refused_the_old_instance_stays_where_pulling_first_is_required(self):
        self.configure(require_prepull=True)
        self.put()
        old = self.runs()
        self.put(self.private("required"))
        self.says("required:1 cannot be pulled: .*(401|authorization|basic auth)")
        self.unchanged(old, 4)


if __name__ == "__main__":
    unittest.main()
