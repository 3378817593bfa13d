"""Container images without a registry: docker archives made by hand, for `ctr images import`.

Every image is imported under the very name that a manifest has, before the kubelet starts: there
is nowhere to pull from.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

from . import tools

PAUSE = "dl.test/pause:1"
BOX = "dl.test/box:1"
BUSYBOX = "/bin/busybox"


class Image:
    """One image of one layer. `files` maps a path in the image to a file here, or to bytes.

    `links` maps a path in the image to what it points to. `busybox=True` adds a whole shell.
    """

    def __init__(self, *names, entrypoint=(), files=None, links=None, busybox=False):
        self.names = names
        self.entrypoint = list(entrypoint)
        self.files = dict(files or {})
        self.links = dict(links or {})
        if busybox:
            self.files["/bin/busybox"] = BUSYBOX
            applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
            self.links = {f"/bin/{name}": "/bin/busybox" for name in applets if name != "busybox"} | self.links

    def save(self, path):
        """Writes the archive."""
        layer = self.layer()
        diff = hashlib.sha256(layer).hexdigest()
        config = self.config(layer)
        image = hashlib.sha256(config).hexdigest()
        manifest = json.dumps([{"Config": f"{image}.json", "RepoTags": list(self.names), "Layers": [f"{diff}/layer.tar"]}]).encode()
        with tarfile.open(path, "w") as archive:
            for name, data in ((f"{image}.json", config), (f"{diff}/layer.tar", layer), ("manifest.json", manifest)):
                _add(archive, name, data, 0o644)
        return path

    def config(self, layer):
        """The image's configuration."""
        diff = hashlib.sha256(layer).hexdigest()
        return json.dumps({
            "architecture": "amd64", "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]}, "history": [{"created_by": "tests/cluster"}],
        }).encode()

    def layer(self):
        """Its one layer, a tar archive."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as layer:
            made = set()

            def folder(path):
                for parent in [*reversed(path.parents), path]:
                    name = str(parent).lstrip("/")
                    if name and name not in made:
                        made.add(name)
                        entry = tarfile.TarInfo(name)
                        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
                        layer.addfile(entry)

            for name in ("/bin", "/etc", "/tmp", "/proc", "/sys", "/dev", "/run", "/var"):
                folder(Path(name))
            for path, source in self.files.items():
                folder(Path(path).parent)
                _add(layer, path.lstrip("/"), source if isinstance(source, bytes) else Path(source).read_bytes(), 0o755)
            for path, target in self.links.items():
                folder(Path(path).parent)
                entry = tarfile.TarInfo(path.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                layer.addfile(entry)
        return out.getvalue()


def _add(archive, name, data, mode):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def libraries(*programs):
    """The shared libraries of programs of this machine, at their own paths (for `Image(files=…)`)."""
    found = {}
    for path in programs:
        found[path] = os.path.realpath(path)
        # A static program has none, and ldd says so by failing.
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            if word.startswith("/") and os.path.exists(word):
                found[word] = os.path.realpath(word)
    return found


def pause():
    """The image of pod sandboxes."""
    return Image(PAUSE, entrypoint=["/pause"], files={"/pause": tools.program("pause")})


def box():
    """A shell with everything that busybox has."""
    return Image(BOX, entrypoint=["/bin/sh"], busybox=True)
