"""What an operator has: doctor, metrics and the kubectl plugin, on hollow nodes of a real API server."""

import json
import os
import re
import socket
import subprocess
import threading
import urllib.request
from urllib.parse import urlsplit

from kit import agent
from kit import coordinator
from kit import tools
from kit.agent import Agent
from kit.agent import binary
from kit.coordinator import Coordinator
from kit.daemons import daemonset
from kit.hollow import crowd
from kit.process import Process
from kit.sandbox import scratch
from kit.wait import until

from .bare import STATIC
from .story import Coordinated

NODES = 3
SOON = 60
MONITORING = tools.REPO / "packaging" / "monitoring"
METRICS = 9465
DEPLOYED = 9466


def relay(address, port, to):
    """Lets a service address answer on this host, as kube-proxy would."""
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    server = socket.create_server((address, port))

    def copy(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve():
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            upstream = socket.create_connection(to)
            for pair in ((client, upstream), (upstream, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return server


def promtool(*args, stdin=None):
    """Runs promtool; gives its output, and fails where it does."""
    done = subprocess.run([tools.program("promtool"), *map(str, args)], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"promtool {args}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class OperationsTest(Coordinated):
    """Three nodes, one DaemonSet, and everything that can be asked about them."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        nodes = crowd(cls.cluster, NODES, cls.stack)
        cls.coordinator = cls.enterClassContext(Coordinator(cls.cluster, "one"))
        listen = {"metrics": {"listen": f"127.0.0.1:{METRICS}"}}
        cls.agents = [cls.enterClassContext(Agent(node, runtime_endpoint="", kubelet_endpoint="", **(listen if at == 0 else {})))
                      for at, node in enumerate(nodes)]
        cls.one = cls.agents[0]
        # A kubelet's file as the hollow node would have it, so that each line of it can be put wrong.
        cls.kubelet_file = scratch() / "kubelet.yaml"
        cls.write_kubelet()
        server = urlsplit(cls.admin.server)
        service = cls.admin.get("services", "kubernetes", "default")["spec"]["clusterIP"]
        cls.address = service
        cls.relayed = relay(service, 443, (server.hostname, server.port))
        # The plugin as people have it: a link on PATH.
        cls.path = scratch() / "path"
        cls.path.mkdir()
        for name in ("kubectl-daemonlet", "kubectl_complete-daemonlet"):
            (cls.path / name).symlink_to(binary())

    @classmethod
    def write_kubelet(cls, **fields):
        """The kubelet's configuration file."""
        config = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                  "staticPodPath": str(cls.one.node.manifests)} | fields
        cls.kubelet_file.write_text(json.dumps(config), encoding="utf-8")
        cls.kubelet_file.chmod(0o600)

    def kubectl(self, *args):
        """`kubectl daemonlet` as an operator types it; gives code, output and errors."""
        environment = os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}", "KUBECONFIG": str(self.admin.kubeconfig)}
        done = subprocess.run([tools.program("kubectl"), "daemonlet", *args], env=environment, capture_output=True, text=True,
                              check=False, timeout=30)
        return done.returncode, done.stdout, done.stderr

    def net(self, image, **spec):
        """The DaemonSet."""
        it = daemonset("net", labels=STATIC, terminationGracePeriodSeconds=0, automountServiceAccountToken=False)
        it["metadata"]["namespace"] = "kube-system"
        it["spec"]["template"]["spec"]["containers"][0]["image"] = image
        it["spec"] |= spec
        return it

    def doctor(self, **config):
        """Runs doctor with another configuration than the agent's; gives (exit code, {check: [finding]})."""
        file = scratch() / "doctor.toml"
        file.write_text(agent.toml(self.one.config | {"kubelet-config": str(self.kubelet_file)} | config), encoding="utf-8")
        done = subprocess.run([binary(), "doctor", "--json", "--config", file], capture_output=True, text=True, check=False, timeout=60)
        report = json.loads(done.stdout)
        found = {}
        for finding in report["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        bad = [f for f in report["findings"] if f["level"] == "bad"]
        self.assertEqual(done.returncode, len(bad), done.stdout)
        self.assertEqual(report["bad"], len(bad))
        self.assertTrue(all(f["level"] == "ok" or f.get("hint") for f in report["findings"]), "each says how to mend it")
        return [(f["check"], f["text"]) for f in bad], found

    def only(self, check, text, **config):
        """Doctor finds this one thing bad and nothing else."""
        bad, _ = self.doctor(**config)
        self.assertEqual([name for name, _ in bad], [check], bad)
        self.assertIn(text, bad[0][1])

    def scrape(self, path="/metrics", port=METRICS):
        """What the first agent serves, or another on its port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def test_1_the_plugin_shows_a_rollout_that_is_done(self):
        self.admin.apply(self.net("example.org/net:1"))
        until(lambda: re.search(r"kube-system/net +\w+ +\[#{20}\] +3/3 +3/3 +3 running", self.kubectl()[1]), SOON,
              "the rollout is done")
        # Just after the CRD the API server may refuse to list NodeDaemons, which the coordinator says until it has tried again.
        until(lambda: self.kubectl()[0] == 0, SOON, "the coordinator reads NodeDaemons")
        _, out, _ = self.kubectl()
        print(out)
        environment = os.environ | {"PATH": f"{self.path}:{os.environ['PATH']}"}
        asked = subprocess.run([tools.program("kubectl"), "__complete", "daemonlet", "pro"], env=environment, capture_output=True,
                               text=True, check=True, timeout=30)
        self.assertRegex(asked.stdout, r"\Apromote\tEnd the hold .*\n:4\n")
        report = json.loads(self.kubectl("-o", "json")[1])
        self.assertEqual([(r["name"], r["desired"], r["updatedReady"]) for r in report["daemonSets"]], [("net", 3, 3)])

    def test_2_the_plugin_explains_a_node(self):
        self.admin.patch("nodes", "hollow-1", {"spec": {"taints": [{"key": "only", "value": "x", "effect": "NoSchedule"}]}})
        other = self.net("example.org/other:1")
        other["metadata"]["name"] = "other"
        other["spec"]["template"]["spec"]["nodeSelector"] = {"nobody": "has-it"}
        self.admin.apply(other)
        code, out, _ = self.kubectl("explain", "hollow-1")
        self.assertEqual(code, 0, out)
        self.assertRegex(out, r"hollow-1: Ready, agent \S+\n")
        self.assertRegex(out, r"(?m)^not here: kube-system/other: .*nobody")
        code, out, _ = self.kubectl("explain", "hollow-1", "kube-system/other")
        self.assertRegex(out, r"(?m)^  no   node selector: nobody")
        self.assertEqual(self.kubectl("explain", "nowhere")[0], 1)
        print(out)
        self.assertIn("has no context nope", self.kubectl("--context", "nope")[2])
        self.admin.patch("nodes", "hollow-1", {"spec": {"taints": None}})
        self.admin.delete("daemonsets", "other", "kube-system")

    def test_3_a_rollout_under_way_has_a_bar_and_the_nodes_that_are_late(self):
        code, out, _ = self.kubectl("pause", "kube-system/net")
        self.assertEqual((code, out.split(";")[0]), (0, "kube-system/net: paused (daemonlet.dev/paused=true)"))
        self.admin.apply(self.net("example.org/net:2") | {"metadata": {"name": "net", "namespace": "kube-system", "labels": STATIC,
                                                                      "annotations": {"daemonlet.dev/paused": "true"}}})
        until(lambda: "kube-system/net: 3 of 3 nodes are left: paused\n" in self.kubectl()[1], SOON, "nothing is replaced")
        out = self.kubectl()[1]
        self.assertRegex(out, r"^coordinator: \S+ since 2\S+\n")
        self.assertIn("[....................]", out)
        self.assertRegex(out, r"0/3 +3/3 .*\(paused\)")
        self.assertRegex(out, r"(?m)^hollow-2 +kube-system/net +\w+ ")
        print(out)
        code, out, errors = self.kubectl("retry", "kube-system/net")
        self.assertEqual((code, out, errors), (1, "", "error: kube-system/net: the current revision is not halted, and no node reports that it failed\n"))
        self.assertEqual(self.kubectl("resume", "kube-system/net")[0], 0)
        until(lambda: "[####################]" in self.kubectl()[1], SOON, "the rollout is done")

    def test_4_metrics_are_what_promtool_dashboard_and_rules_want(self):
        text = self.scrape()
        promtool("check", "metrics", stdin=text)
        self.assertRegex(text, r'daemonlet_daemons\{state="running",node="hollow-\d"\} 1\n')
        self.assertRegex(text, r'daemonlet_api_connected\{node="hollow-\d"\} 1\n')
        self.assertRegex(text, r'daemonlet_api_watch_up\{watch="nodedaemons",node="hollow-\d"\} 1\n')
        self.assertRegex(self.scrape("/healthz"), r"^ok: the last pass ended \d+ s ago")
        self.assertIn("23 rules found", promtool("check", "rules", MONITORING / "rules.yaml"))
        promtool("test", "rules", MONITORING / "rules-test.yaml")
        # What only shows while something is wrong is in the table all the same.
        table = (tools.REPO / "docs" / "metrics.md").read_text(encoding="utf-8")
        known = set(re.findall(r"(?m)^\| `([a-z_]+)` \|", table))
        shown = set(re.findall(r"(?m)^# TYPE (\w+)", text))
        self.assertEqual(shown - known, set())
        self.assertEqual(known - shown, {"daemonlet_refused_daemons", "daemonlet_failed_revision",
                                         "daemonlet_certificate_expiry_timestamp_seconds",
                                         "daemonlet_token_expiry_timestamp_seconds", "daemonlet_token_problems",
                                         "daemonlet_volume_refresh_blocked", "daemonlet_start_order_waiting",
                                         "daemonlet_startup_taint_awaited", "daemonlet_rollout_waiting"}
                         | {name for name in known if name.startswith(("daemonlet_coordinator_", "daemonlet_daemonset_"))})
        dashboards = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(MONITORING.glob("dashboard*.json"))]
        self.assertEqual([one["uid"] for one in dashboards], ["daemonlet-node", "daemonlet"])
        expressions = [t["expr"] for one in dashboards for panel in one["panels"] for t in panel["targets"]]
        used = "\n".join([*expressions, (MONITORING / "rules.yaml").read_text(encoding="utf-8")])
        names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\b(?:daemonlet|process)_\w+", used)}
        self.assertGreater(len(names), 20)
        self.assertEqual(names - known, set())
        # promtool parses the dashboard's expressions as those of rules.
        rules = {"groups": [{"name": "dashboard", "rules": [{"record": f"r{at}", "expr": e.replace("$instance", ".*")}
                                                            for at, e in enumerate(expressions)]}]}
        file = scratch() / "dashboard-rules.yaml"
        file.write_text(json.dumps(rules), encoding="utf-8")
        promtool("check", "rules", file)

    def test_4a_a_textfile_of_the_page_has_what_prometheus_reads(self):
        page = (tools.REPO / "docs" / "metrics.md").read_text(encoding="utf-8")
        (line,) = [block.replace("\\\n", " ") for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", page) if block.startswith("curl ")]
        folder = scratch() / "textfile"
        folder.mkdir()
        line = line.replace("/var/lib/node_exporter", str(folder)).replace(":9465/", f":{METRICS}/")
        subprocess.run(["sh", "-ec", line], check=True, timeout=20)
        self.assertEqual([path.name for path in folder.iterdir()], ["daemonlet.prom"])
        text = (folder / "daemonlet.prom").read_text(encoding="utf-8")
        promtool("check", "metrics", stdin=text)
        self.assertIn("daemonlet_last_pass_timestamp_seconds{", text)

    def test_4a_the_version_before_is_taken_from_the_record_as_the_page_says(self):
        page = (tools.REPO / "docs" / "operations.md").read_text(encoding="utf-8")
        found = re.findall(r"(?ms)^```sh\n(.*?)^```$", page)
        block = "".join(block for start in ("sed 1d ", "install -D ") for block in found if block.startswith(start))
        folder = scratch() / "record"
        folder.mkdir()
        block = block.replace("/var/lib/daemonlet", self.one.config["state-dir"]).replace("NAMESPACE_NAME", "kube-system_net").replace("NAME", "net")
        block = block.replace("/etc/daemonlet", str(folder)).replace("daemonlet render", f"{binary()} render --node-name n1")
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", block], cwd=folder, capture_output=True, text=True, check=False, timeout=30)
        self.assertEqual(done.returncode, 0, done.stderr)
        taken = json.loads((folder / "daemonsets.d" / "net.json").read_text(encoding="utf-8"))
        self.assertEqual(taken["metadata"]["annotations"]["daemonlet.dev/override"], "true")
        now = self.admin.get("daemonsets", "net", "kube-system")["spec"]["template"]["spec"]["containers"][0]["image"]
        self.assertNotEqual(taken["spec"]["template"]["spec"]["containers"][0]["image"], now, "that is the version that runs")

    def holder(self):
        """Who holds the Lease."""
        return self.admin.get("leases", "daemonlet-coordinator", "kube-system")["spec"]["holderIdentity"]

    def test_4b_the_deployments_account_is_enough_to_coordinate_and_its_token_may_change(self):
        manifest = tools.REPO / "packaging/k8s/coordinator-deployment.yaml"
        self.admin.kubectl("apply", "-f", str(manifest))
        text = self.admin.get("configmaps", "daemonlet-coordinator", "kube-system")["data"]["daemonlet.toml"]
        # The pod's own is not at hand; the rest of a pod is its environment and this folder.
        folder = scratch() / "serviceaccount"
        folder.mkdir()
        (folder / "ca.crt").write_bytes(self.cluster.pki.ca.read_bytes())
        (folder / "token").write_text("of yesterday", encoding="utf-8")
        file = scratch() / "deployment.toml"
        file.write_text('node-name = "pod"\n' + text.replace('"in-cluster"', f'"in-cluster:{folder}"'), encoding="utf-8")
        server = urlsplit(self.admin.server)
        environment = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port), "PATH": os.environ["PATH"]}
        pod = Process("deployed coordinator", [binary(), "coordinator", "--config", file], scratch() / "deployed.log", env=environment)
        self.addCleanup(pod.stop, 5)
        pod.wait_line(r"the Lease kube-system/daemonlet-coordinator: .*Unauthorized.*; trying again", SOON)
        (folder / "next").write_text(self.admin.kubectl("create", "token", "daemonlet-coordinator", "-n", "kube-system"), encoding="utf-8")
        (folder / "next").rename(folder / "token")
        pod.wait_line("the Lease kube-system/daemonlet-coordinator answers again", SOON)
        self.coordinator.kill()
        until(lambda: self.holder().startswith("pod_"), SOON, "the account's process coordinates")
        self.admin.apply(self.net("example.org/net:deployed"))
        def done():
            found = self.admin.get("daemonsets", "net", "kube-system")
            status = found["status"]
            return status.get("observedGeneration") == found["metadata"]["generation"] and status.get("updatedNumberScheduled") == NODES
        until(done, SOON, f"the rollout ends: {pod.tail(20)}")
        text = self.scrape(port=DEPLOYED)
        promtool("check", "metrics", stdin=text)
        self.assertRegex(text, r'daemonlet_coordinator_leads\{identity="pod_\d+_\d+"\} 1\n')
        for sample in ('watch_up{watch="nodedaemons"} 1', f'nodes{{agent="reports"}} {NODES}', 'writes_total{outcome="written"} '):
            self.assertIn(f"daemonlet_coordinator_{sample}", text)
        self.assertIn('daemonset="net",condition="Degraded",status="False",reason="AsExpected"} 1\n', text)
        self.assertRegex(self.scrape("/healthz", DEPLOYED), r"^ok: holds the Lease since \S+; the last pass ended \d+ s ago")
        made = "app.kubernetes.io/name=daemonlet-coordinator"
        until(lambda: len(self.admin.list("pods", "kube-system", labels=made)) == 2, SOON, "the API server takes the Deployment's pods")
        self.admin.kubectl("delete", "-f", str(manifest))
        pod.stop(5)
        self.coordinator.start()

    def test_5_doctor_finds_nothing_bad_where_nothing_is(self):
        bad, found = self.doctor()
        self.assertEqual(bad, [], json.dumps(found, indent=1))
        self.assertEqual(found["rights"][0]["level"], "ok", found["rights"])
        ((level, text),) = [(one["level"], one["text"]) for one in found["admission policies"]]
        self.assertEqual(level, "ok")
        self.assertIn("not checked from here: daemonlet-agent-writes, ", text)
        policies = tools.REPO / "packaging/k8s/admission-policies.yaml"
        unbound = [f"daemonlet-agent-{name}" for name in ("leases", "events", "certificates", "pods")]
        self.admin.kubectl("delete", "validatingadmissionpolicybindings", *unbound)
        def are_open():
            (finding,) = self.doctor()[1]["admission policies"]
            return finding["level"] == "warn" and f"not in force for this agent: {', '.join(unbound)}; " in finding["text"]
        try:
            until(are_open, SOON, "each policy that is not bound is named")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.doctor()[1]['admission policies']}") from None
        self.admin.kubectl("apply", "-f", str(policies))
        until(lambda: self.doctor()[1]["admission policies"][0]["level"] == "ok", SOON, "they are in force again")
        self.assertEqual(found["secrets at rest"][0]["level"], "warn")
        self.assertEqual(found["service address"][0]["text"], f"{self.address}:443 answers from this node")
        print(self.one.cli("doctor").stdout)

    def test_6_doctor_finds_each_fault_alone_and_counts_all(self):
        self.write_kubelet(staticPodPath="/srv/elsewhere")
        self.only("static pod folder", "the kubelet reads /srv/elsewhere")
        self.write_kubelet(featureGates={"EnvFiles": False})
        self.only("feature gates", "EnvFiles is off")
        self.write_kubelet()
        self.kubelet_file.chmod(0o666)
        self.only("kubelet configuration", "users other than root may write to")
        self.kubelet_file.write_text("kind: [", encoding="utf-8")
        # The settings that come from this file are written in the agent's configuration: it loads.
        self.only("kubelet configuration", "line 1")
        self.write_kubelet()
        self.only("container runtime", "does not answer", **{"runtime-endpoint": f"unix://{scratch()}/none.sock"})
        self.only("disk of state-dir", "not a folder", **{"state-dir": "/dev/null"})
        shared = scratch() / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        self.only("state folder", "can be written to by others", **{"state-dir": str(shared)})

        manifest, text = self.one.wait_manifest("net")
        name = re.search(r"(?m)^ +\"?name\"?: \"?(net-[a-z0-9]{5})\"?", text).group(1)
        foreign = self.one.node.manifests / "foreign.yaml"
        foreign.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: kube-system}}\n"
                           "spec: {containers: [{name: x, image: y}]}\n", encoding="utf-8")
        self.only("foreign manifests", f"and so is {manifest}")
        foreign.unlink()

        role = self.admin.get("clusterroles", agent.ROLE)
        rules = [r for r in role["rules"] if r["resources"] != ["priorityclasses"]]
        self.admin.patch("clusterroles", agent.ROLE, {"rules": rules})
        until(lambda: self.doctor()[0], SOON, "the right is gone")
        self.only("rights", "may not get, list, watch priorityclasses.scheduling.k8s.io")
        self.admin.patch("clusterroles", agent.ROLE, {"rules": role["rules"]})
        until(lambda: not self.doctor()[0], SOON, "the right is back")

        subprocess.run(["ip", "address", "del", f"{self.address}/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "route", "add", "unreachable", f"{self.address}/32"], check=True)
        self.only("service address", "does not answer from this node")
        self.write_kubelet(staticPodPath="/srv/elsewhere", featureGates={"EnvFiles": False})
        bad, _ = self.doctor()
        self.assertEqual(sorted(name for name, _ in bad), ["feature gates", "service address", "static pod folder"])
        self.write_kubelet()

    def test_7_doctor_says_so_when_the_api_server_is_away_or_the_configuration_is_wrong(self):
        self.cluster.stop("api")
        bad, found = self.doctor()
        self.assertEqual([name for name, _ in bad], ["API server"], bad)
        self.assertEqual(found["agent"][0]["level"], "warn", "the agent says that it is cut off")
        until(lambda: re.search(r'daemonlet_api_connected\{node="[^"]+"\} 0\n', self.scrape()), SOON, "the metrics show it, too")
        file = scratch() / "bad.toml"
        file.write_text("manifst-dir = 1\nnode-name = 2\n", encoding="utf-8")
        done = subprocess.run([binary(), "doctor", "--config", file], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn('did you mean "manifest-dir"?', done.stdout)
