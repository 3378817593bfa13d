"""What the stories stand on: a node that exists in the API only, and clocks on what happens.

Owns how a moment is taken. All times are of the monotonic clock.
"""

import ctypes
import os
import struct
import threading
import time
from pathlib import Path

from kit.sandbox import scratch

_MOVED_TO, _CLOSE_WRITE, _CREATE = 0x80, 0x8, 0x100


class PaperNode:
    """A Node without a kubelet: nothing reads its manifests, and nothing else is measured."""

    def __init__(self, cluster, name, home=None):
        self.cluster, self.name = cluster, name
        self.home = Path(home) if home else scratch() / name
        self.manifests, self.root, self.socket = self.home / "manifests", self.home / "kubelet", ""
        for folder in (self.manifests, self.root):
            folder.mkdir(parents=True)
            folder.chmod(0o700)
        cluster.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}},
                                       "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}, "conditions": [{"type": "Ready", "status": "True"}]}})
        # The taint of a new Node, which the node controller would take away.
        cluster.admin.patch("nodes", name, {"spec": {"taints": None}})


class Moments:
    """When each name was first seen: `at(name)` waits for it."""

    def __init__(self):
        self._seen, self._news = {}, threading.Condition()

    def note(self, name, when):
        """Notes a name, unless it was seen before."""
        with self._news:
            self._seen.setdefault(name, when)
            self._news.notify_all()

    def forget(self):
        """Forgets all that was seen."""
        with self._news:
            self._seen.clear()

    def at(self, matches, seconds=20):
        """The moment of the first name for which `matches(name)`."""
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                for name, when in self._seen.items():
                    if matches(name):
                        return when
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"not within {seconds} s (seen: {sorted(self._seen)[-5:]})")
                self._news.wait(left)


def events(folder, mask=_MOVED_TO):
    """Watches a folder from now on; gives an endless iterator of a file's name and when it was renamed into it."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(folder), mask) < 0:
        raise OSError(ctypes.get_errno(), f"cannot watch {folder}")

    def follow():
        while True:
            data, when = os.read(watch, 65536), time.monotonic()
            while data:
                _, _, _, length = struct.unpack_from("iIII", data)
                yield data[16:16 + length].rstrip(b"\0").decode(), when
                data = data[16 + length:]

    return follow()


def files_appearing(folder, mask=_MOVED_TO):
    """Notes each file that is renamed into a folder, by inotify."""
    moments, seen = Moments(), events(folder, mask)

    def follow():
        for name, when in seen:
            moments.note(name, when)

    threading.Thread(target=follow, daemon=True).start()
    return moments


def files_written(folder):
    """Notes each file that is made in a folder."""
    return files_appearing(folder, _CREATE)


def objects_appearing(cluster, kind):
    """Notes each object by name when its ADDED event reaches this process: another client of the API server."""
    moments = Moments()

    def follow():
        api = cluster.user("watcher", ["system:masters"])
        try:
            for event, item in api.watch(kind, seconds=3600):
                when = time.monotonic()
                if event == "ADDED":
                    moments.note(item["metadata"]["name"], when)
        except OSError:
            pass  # the API server has gone: the story is over

    threading.Thread(target=follow, daemon=True).start()
    return moments
