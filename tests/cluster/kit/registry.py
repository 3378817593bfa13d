"""A registry of images on loopback: pull only, with users, and with every way of not answering.

Owns its own server. Names of images are `127.0.0.1:<port>/<name>:<tag>`, which runtimes ask by plain HTTP.
"""

import base64
import hashlib
import json
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """`with Registry() as registry: name = registry.push("app:1", image)`; `requests` is what was asked."""

    def __init__(self, port=0):
        self.manifests, self.blobs = {}, {}
        self.users = {}      # repository -> (user, password) that it asks for
        self.delay = 0       # seconds before each answer
        self.hangs = False   # takes connections and says nothing more
        self.status = None   # answers everything with this
        self.requests = []   # (method, path, user)
        self._port, self._server, self._released = port, None, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def host(self):
        """Host and port, as the names of its images begin."""
        return f"127.0.0.1:{self._port}"

    def start(self):
        """Listens, on the port of before if there was one."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # noqa: N802 (the server's name)
                registry.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET

            def handle_error(self, request, client_address):
                # A client that goes in the middle is what the tests are about.
                if not isinstance(sys.exc_info()[1], ConnectionError):
                    super().handle_error(request, client_address)

        self._released.clear()
        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """From now on connections are refused."""
        if self._server:
            self._released.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def push(self, tag, image):
        """Takes an image under `name:tag`; gives its whole name."""
        name, tag = tag.split(":")
        layer = image.layer()
        config = image.config(layer)
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": _MANIFEST,
            "config": self._blob(config, "application/vnd.oci.image.config.v1+json"),
            "layers": [self._blob(layer, "application/vnd.oci.image.layer.v1.tar")]}).encode()
        for reference in (tag, self._digest(manifest)):
            self.manifests[name, reference] = manifest
        return f"{self.host}/{name}:{tag}"

    @staticmethod
    def _digest(data):
        return f"sha256:{hashlib.sha256(data).hexdigest()}"

    def _blob(self, data, kind):
        self.blobs[self._digest(data)] = data
        return {"mediaType": kind, "digest": self._digest(data), "size": len(data)}

    def pulls(self, name):
        """How often a client asked what a tag of that repository is."""
        return sum(1 for _, path, _ in self.requests if path.startswith(f"/v2/{name}/manifests/") and "sha256:" not in path)

    def answer(self, request):
        """One request: what a registry says, or what this one is set to do instead."""
        user = self._user(request)
        self.requests.append((request.command, request.path, user and user[0]))
        if self.hangs:
            self._released.wait()
            request.close_connection = True
            return
        time.sleep(self.delay)
        if self.status:
            self._send(request, self.status, b"{}")
            return
        parts = request.path.strip("/").split("/")
        name = "/".join(parts[1:-2])
        wanted = self.users.get(name)
        if wanted and user != wanted:
            self._send(request, 401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', {"WWW-Authenticate": 'Basic realm="test"'})
        elif len(parts) > 3 and parts[-2] == "manifests" and (name, parts[-1]) in self.manifests:
            manifest = self.manifests[name, parts[-1]]
            self._send(request, 200, manifest, {"Content-Type": _MANIFEST, "Docker-Content-Digest": self._digest(manifest)})
        elif len(parts) > 3 and parts[-2] == "blobs" and parts[-1] in self.blobs:
            self._send(request, 200, self.blobs[parts[-1]], {"Content-Type": "application/octet-stream"})
        elif parts == ["v2"]:
            self._send(request, 200, b"{}")
        else:
            self._send(request, 404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    @staticmethod
    def _user(request):
        kind, _, value = (request.headers.get("Authorization") or "").partition(" ")
        return tuple(base64.b64decode(value).decode().split(":", 1)) if kind == "Basic" else None

    @staticmethod
    def _send(request, status, data, headers=None):
        try:
            request.send_response(status)
            for key, value in ({"Content-Length": str(len(data)), "Docker-Distribution-Api-Version": "registry/2.0"} | (headers or {})).items():
                request.send_header(key, value)
            request.end_headers()
            if request.command != "HEAD":
                request.wfile.write(data)
        except OSError:
            pass  # whoever asked has gone


def docker_config(host, user, password):
    """A docker config with one user."""
    return {"auths": {host: {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}}}
