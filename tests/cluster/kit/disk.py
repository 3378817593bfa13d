"""A disk that can lose its power: ext4 in a file on a loop device, and what of it had reached the disk.

What a program wrote and did not wait for is in the kernel's memory and not in the file behind the
device. So a copy of that file, taken while nothing is being written, is what the machine finds when
it boots again; mounting the copy replays its journal.
"""

import shutil
import subprocess
import time
from pathlib import Path

_SIZE = 24 << 20


def _run(*argv):
    return subprocess.run([str(arg) for arg in argv], check=True, capture_output=True, text=True).stdout.strip()


class Disk:
    """`mount(path)`, `lose_power()`; what was mounted is the older disk's until then."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.number, self.device, self.path = folder, 0, None, None
        # In memory: the test's own disk is slow, and shared.
        _run("mount", "-t", "tmpfs", "tmpfs", folder)
        with open(self.image(), "wb") as image:
            image.truncate(_SIZE)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self.image())

    def image(self):
        """The file that is the disk now."""
        return self.folder / f"disk-{self.number}"

    def mount(self, path):
        """Mounts it. Nothing is written back on its own for a long time: as much as can be is lost."""
        self.path = path
        self.device = Path(_run("losetup", "--find", "--show", self.image()))
        _run("mount", "-o", "commit=600", self.device, path)

    def _written(self):
        return (Path("/sys/block") / self.device.name / "stat").read_text(encoding="ascii").split()[4:9]

    def lose_power(self):
        """Puts the disk as it is, without what is only in memory, in the place of the mounted one."""
        before = self.image()
        self.number += 1
        while True:
            written = self._written()
            shutil.copyfile(before, self.image())
            # Writes that were under way have come to an end in between: copy again.
            if written == self._written() and written[4] == "0":
                break
            time.sleep(0.002)
        self.unmount()
        before.unlink()
        self.mount(self.path)

    def unmount(self):
        """Takes it away."""
        _run("umount", "-l", self.path)
        _run("losetup", "--detach", self.device)

    def remove(self):
        """Ends it."""
        self.unmount()
        _run("umount", "-l", self.folder)
