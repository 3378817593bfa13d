"""What gives a cluster its pod network: a published file, and images under the names that it has.

Owns the choice of the file: the repository's own CNI, or the one that the environment variable
MANIFEST names. No registry can be reached. Flannel's images are stood in for; those of any other
file come from `docker save`, as *.tar in the folder that IMAGES names.
"""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from . import agent
from . import daemons


class Unusable(Exception):
    """The file or its images; the text is one line for whoever named them."""


class Archive:
    """An image that was saved to a file."""

    def __init__(self, path):
        self.path = path
        try:
            with tarfile.open(path) as archive:
                manifest = json.load(archive.extractfile("manifest.json"))
            self.names = [name for image in manifest for name in image.get("RepoTags") or []]
        except (OSError, KeyError, ValueError, tarfile.TarError) as error:
            raise Unusable(f"IMAGES: {path} is not what `docker save` writes: {error}") from None

    def save(self, path):
        """Writes the archive."""
        shutil.copy(self.path, path)
        return path


class Network:
    """`file`, the `images` that it names, and its DaemonSets as (namespace, name); the first is the one that is updated."""

    def __init__(self, file, images):
        self.file, self.images = Path(file), images
        self.daemons = _daemons_of(self.file)
        self.namespaces = sorted({namespace for namespace, _ in self.daemons} | {"kube-system"})


def chosen():
    """The network that MANIFEST names, else the repository's own."""
    given = os.environ.get("MANIFEST")
    return published(Path(given).absolute()) if given else example()


def example():
    """The repository's own CNI."""
    files, image = daemons.example_cni()
    return Network(files / "cni.yaml", [image])


def published(path):
    """A published file."""
    try:
        names = daemons.images_of(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"MANIFEST: {path}: {getattr(error, 'strerror', None) or error}") from None
    if any("flannel" in name for name in names):
        return Network(path, daemons.flannel_images(path))
    folder = os.environ.get("IMAGES")
    archives = [Archive(file) for file in sorted(Path(folder).glob("*.tar"))] if folder else []
    absent = sorted(set(names) - {name for archive in archives for name in archive.names})
    if absent:
        raise Unusable(f"MANIFEST: {path} names {', '.join(absent)}, and no registry can be reached: put what `docker save` writes as *.tar into a folder and name it by IMAGES")
    return Network(path, archives)


def _daemons_of(path):
    """The DaemonSets of a file, as daemonlet reads it."""
    with tempfile.TemporaryDirectory() as out:
        argv = [agent.binary(), "render", "--json", "--node-name", "n1", "--output", out, "--filename", path]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    outcomes = json.loads(done.stdout)["outcomes"] if done.stdout else []
    usable = [(found["namespace"], found["name"]) for found in outcomes if found["outcome"] == "rendered"]
    if not usable:
        why = [found["reason"] for found in outcomes if found["reason"]] or done.stderr.strip().splitlines() or ["it has no DaemonSet"]
        raise Unusable(f"MANIFEST: {path}: {why[0]}")
    return usable
