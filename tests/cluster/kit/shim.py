"""The shim between a program and the system (`shim/shim.c`): counts its visible steps, and acts at one.

Owns the layout of the control file. A step is a change of the file system below the given folders,
or, where asked for, a send on a socket. At one of them the program can be killed or stopped before
it does it, or be made to see it fail. The wall clock can be set ahead or back at any time.
"""

import errno
import mmap
import struct
import subprocess
import threading
from pathlib import Path

from .sandbox import scratch

_SOURCE = Path(__file__).resolve().parent / "shim" / "shim.c"
_HEAD = struct.Struct("<QQIIqIIII")
_STEPS, _AT, _CLOCK, _ARMED, _ACTED = 0, 8, 24, 32, 40
_NAMES, _NAME = 1024, 128

_LOCK = threading.Lock()

KILL, STOP, FAIL_ONCE, FAIL_ON = 1, 2, 3, 4


def _library():
    """The compiled shim, made once a run."""
    library = scratch() / "shim.so"
    with _LOCK:
        if not library.exists():
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
    return library


class Shim:
    """One program's shim; it outlives the program, which may be started again with it."""

    def __init__(self, name, folders):
        self.file = scratch() / f"{name}.shim"
        self.file.write_bytes(bytes(_HEAD.size + _NAMES * _NAME))
        with open(self.file, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.env = {"LD_PRELOAD": str(_library()), "DL_SHIM_CONTROL": str(self.file), "DL_SHIM_FOLDERS": ":".join(map(str, folders))}

    def _get(self, form, at):
        return struct.unpack_from(form, self._map, at)[0]

    def arm(self, at=0, action=KILL, error=errno.EIO, sockets=False):
        """Counts from now on; acts at step `at` (0: at none)."""
        self.disarm()
        _HEAD.pack_into(self._map, 0, 0, at, action, error, self.clock, 0, int(sockets), 0, 0)
        struct.pack_into("<I", self._map, _ARMED, 1)

    def disarm(self):
        """Counts no more, and lets every step succeed."""
        struct.pack_into("<I", self._map, _ARMED, 0)

    @property
    def acted(self):
        """Whether the program was killed or stopped at a step, or is about to be."""
        return bool(self._get("<I", _ACTED))

    @property
    def steps(self):
        """The steps taken since it was armed."""
        return self._get("<Q", _STEPS)

    @property
    def clock(self):
        """How many nanoseconds the wall clock is ahead."""
        return self._get("<q", _CLOCK)

    def shift(self, seconds):
        """Sets the wall clock ahead (or back) by so much more."""
        struct.pack_into("<q", self._map, _CLOCK, self.clock + int(seconds * 1e9))

    def name(self, number):
        """What a step was, from 1."""
        start = _HEAD.size + (number - 1) * _NAME
        return self._map[start:start + _NAME].split(b"\0", 1)[0].decode("utf-8", "replace") if 0 < number <= _NAMES else ""

    def names(self):
        """What the steps were, in order."""
        return [self.name(number) for number in range(1, min(self.steps, _NAMES) + 1)]
