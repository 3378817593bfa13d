"""Certificates of a cluster: one authority, any number of users, kubeconfigs for them."""

import base64
import json
import re
import subprocess
import threading

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def _openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Authority:
    """A certificate authority in a folder, with the key pair for service-account tokens."""

    def __init__(self, folder):
        self.folder = folder
        self._lock = threading.Lock()
        folder.mkdir(parents=True)
        self.ca = folder / "ca.crt"
        self.ca_key = folder / "ca.key"
        self.tokens_key = folder / "sa.key"
        self.tokens_public = folder / "sa.pub"
        _openssl("req", "-x509", *_CURVE, "-keyout", self.ca_key, "-out", self.ca, "-subj", "/CN=test authority", "-days", 30)
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.tokens_key)
        _openssl("ec", "-in", self.tokens_key, "-pubout", "-out", self.tokens_public)

    def certificate(self, user, groups=(), names=()):
        """A certificate and key for `user` in `groups`; `names` are subject names like `IP:127.0.0.1`."""
        with self._lock:
            return self._certificate(user, groups, names)

    def _certificate(self, user, groups, names):
        stem = self.folder / re.sub(r"[^A-Za-z0-9.-]", "_", user)
        cert, key = stem.with_name(stem.name + ".crt"), stem.with_name(stem.name + ".key")
        if cert.exists():
            return cert, key
        request, extensions = stem.with_name(stem.name + ".csr"), stem.with_name(stem.name + ".ext")
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        san = f"subjectAltName={','.join(names)}\n" if names else ""
        extensions.write_text(f"extendedKeyUsage=clientAuth,serverAuth\n{san}", encoding="utf-8")
        _openssl("req", *_CURVE, "-keyout", key, "-out", request, "-subj", subject)
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial",
                 "-days", 30, "-out", cert, "-extfile", extensions)
        return cert, key

    def kubeconfig(self, server, user, groups=(), names=()):
        """A kubeconfig of one file, with everything in it, so that it can be taken anywhere."""
        cert, key = self.certificate(user, groups, names)
        stem = self.folder / (cert.stem + "@" + re.sub(r"[^A-Za-z0-9.-]", "_", server) + ".kubeconfig")
        stem.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": _base64(self.ca)}}],
            "users": [{"name": "test", "user": {"client-certificate-data": _base64(cert), "client-key-data": _base64(key)}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }, indent=1), encoding="utf-8")
        stem.chmod(0o600)
        return stem


def _base64(path):
    return base64.b64encode(path.read_bytes()).decode()
