"""A small Kubernetes client: JSON over TLS with a client certificate, and watches as generators.

Owns no knowledge of kinds beyond how their paths are spelt. Tests of what a user does go through
`kubectl` all the same; this is for looking, and for what must be quick.
"""

import base64
import http.client
import json
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from . import follow
from . import tools
from .wait import TooLong

_GROUPS = {
    "clusterrolebindings": "apis/rbac.authorization.k8s.io/v1", "clusterroles": "apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1", "roles": "apis/rbac.authorization.k8s.io/v1",
    "controllerrevisions": "apis/apps/v1", "daemonsets": "apis/apps/v1", "deployments": "apis/apps/v1",
    "events": "apis/events.k8s.io/v1", "endpointslices": "apis/discovery.k8s.io/v1", "leases": "apis/coordination.k8s.io/v1",
    "priorityclasses": "apis/scheduling.k8s.io/v1", "runtimeclasses": "apis/node.k8s.io/v1",
    "tokenreviews": "apis/authentication.k8s.io/v1", "nodedaemons": "apis/daemonlet.dev/v1beta1",
}
_CLUSTER = {"nodedaemons", "clusterrolebindings", "clusterroles", "namespaces", "nodes", "persistentvolumes", "priorityclasses",
            "runtimeclasses", "tokenreviews"}


class Refused(AssertionError):
    """The API server said no; `code` is the HTTP status."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


def path_of(kind, namespace=None, name=None, sub=None):
    """The path of objects of a kind, by the kind's plural name."""
    parts = ["", _GROUPS.get(kind, "api/v1")]
    if kind not in _CLUSTER and namespace != "*":
        parts += ["namespaces", namespace or "default"]
    parts.append(kind)
    return "/".join(parts + [part for part in (name, sub) if part])


class Api:
    """One user's view of the API server of a kubeconfig made by `pki`."""

    def __init__(self, kubeconfig):
        self.kubeconfig = Path(kubeconfig)
        config = json.loads(self.kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self._ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=self._ca)
        with tempfile.NamedTemporaryFile("w") as both:
            both.write(base64.b64decode(user["client-certificate-data"]).decode())
            both.write(base64.b64decode(user["client-key-data"]).decode())
            both.flush()
            self._tls.load_cert_chain(both.name)
        self._kept = threading.local()

    def _connect(self, seconds):
        server = urlsplit(self.server)
        return http.client.HTTPSConnection(server.hostname, server.port, timeout=seconds, context=self._tls)

    def _open(self, method, path, body=None, content="application/json", seconds=30):
        connection = self._connect(seconds)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
        answer = connection.getresponse()
        if answer.status >= 300:
            text = answer.read().decode("utf-8", "replace")
            connection.close()
            raise Refused(answer.status, f"{method} {path}: {_message(text)}")
        return connection, answer

    def request(self, method, path, body=None, content="application/json", seconds=30):
        """One request; gives the decoded answer (or the text, when it is not JSON)."""
        if method == "GET":
            text = self._look(path, seconds)
        else:
            connection, answer = self._open(method, path, body, content, seconds)
            try:
                text = answer.read().decode("utf-8")
            finally:
                connection.close()
        try:
            return json.loads(text)
        except ValueError:
            return text

    def _look(self, path, seconds):
        """A GET, on the connection of this thread's last one if that still stands: half of what a look costs is the TLS
        handshake."""
        kept = self._kept.__dict__.pop("connection", None)
        try:
            return self._answer(kept, path, seconds) if kept else self._answer(self._connect(seconds), path, seconds)
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            # It may have ended since, with the server of that time.
            if not kept:
                raise
        return self._answer(self._connect(seconds), path, seconds)

    def _answer(self, connection, path, seconds):
        try:
            if connection.sock:
                connection.sock.settimeout(seconds)
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            self._kept.connection = connection
        if answer.status >= 300:
            raise Refused(answer.status, f"GET {path}: {_message(text)}")
        return text

    def get(self, kind, name, namespace=None):
        """One object, None when there is none. A wait follows it."""
        def ask():
            try:
                return [self.request("GET", path_of(kind, namespace, name))]
            except Refused as refused:
                if refused.code == 404:
                    return []
                raise

        waits = follow.current()
        found = waits.look(ask, self, kind, namespace, "", f"metadata.name={name}") if waits else ask()
        return found[0] if found else None

    def list(self, kind, namespace="*", labels="", fields=""):
        """The objects of a kind, in all namespaces unless one is named. A wait follows them."""
        def ask():
            return self.listed(kind, namespace, labels, fields)["items"]

        waits = follow.current()
        return waits.look(ask, self, kind, namespace, labels, fields) if waits else ask()

    def listed(self, kind, namespace, labels, fields):
        """The answer to a list, whole."""
        query = urlencode({key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value})
        return self.request("GET", path_of(kind, namespace) + (f"?{query}" if query else ""))

    def create(self, kind, body, namespace=None, name=None, sub=None):
        """Creates an object (or a subresource, as `serviceaccounts/NAME/token`)."""
        return self.request("POST", path_of(kind, namespace or body.get("metadata", {}).get("namespace"), name, sub), body)

    def patch(self, kind, name, body, namespace=None, sub=None):
        """Merges `body` into an object."""
        return self.request("PATCH", path_of(kind, namespace, name, sub), body, "application/merge-patch+json")

    def delete(self, kind, name, namespace=None, **options):
        """Deletes an object; options as in DeleteOptions."""
        return self.request("DELETE", path_of(kind, namespace, name), options or None)

    def open_watch(self, kind, namespace, labels, fields, seconds, since):
        """A watch as (connection, answer); a line of the answer is an event."""
        query = {"watch": "1", "timeoutSeconds": int(seconds) + 1, "labelSelector": labels, "fieldSelector": fields, "resourceVersion": since}
        query = {key: value for key, value in query.items() if value}
        return self._open("GET", path_of(kind, namespace) + "?" + urlencode(query), seconds=seconds)

    def watch(self, kind, namespace="*", labels="", fields="", seconds=60, since=""):
        """Events (type, object) of a kind until `seconds` are over, beginning with what is there,
        or after the resource version `since`."""
        deadline = time.monotonic() + seconds
        connection, answer = self.open_watch(kind, namespace, labels, fields, seconds, since)
        try:
            while time.monotonic() < deadline:
                try:
                    line = answer.readline()
                except TimeoutError:
                    return
                if not line:
                    return
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()

    def wait(self, kind, check, seconds, what, namespace="*", labels="", fields=""):
        """Follows a kind until `check({(namespace, name): object})` gives something true; gives that."""
        deadline = time.monotonic() + seconds
        seen = {}
        value = None
        while time.monotonic() < deadline:
            try:
                listed = self.listed(kind, namespace, labels, fields)
                seen = {_key(item): item for item in listed["items"]}
                value = check(seen)
                if value:
                    return value
                since = listed["metadata"]["resourceVersion"]  # a check for what is gone must never see a part
                for event, item in self.watch(kind, namespace, labels, fields, max(deadline - time.monotonic(), 0.1), since):
                    if event == "ERROR":
                        break
                    seen.pop(_key(item), None)
                    if event != "DELETED":
                        seen[_key(item)] = item
                    value = check(seen)
                    if value:
                        return value
            except OSError:
                time.sleep(0.05)  # away or coming up: there is no event for its return
        raise TooLong(f"not within {seconds} s: {what} (last: {sorted(seen)})")

    def kubectl(self, *args, stdin=None, check=True):
        """Runs kubectl as this user; gives its standard output."""
        done = subprocess.run([tools.program("kubectl"), "--kubeconfig", self.kubeconfig, *args], input=stdin,
                              capture_output=True, text=True, check=False, timeout=60)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, args))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *documents):
        """`kubectl apply -f` of objects (as dicts), or of text, or of a file."""
        for document in documents:
            if isinstance(document, Path):
                self.kubectl("apply", "-f", document)
            else:
                text = document if isinstance(document, str) else json.dumps(document)
                self.kubectl("apply", "-f", "-", stdin=text)


def _message(text):
    """What a Status says, or the text itself."""
    try:
        return json.loads(text).get("message", text)
    except ValueError:
        return text


def _key(item):
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
