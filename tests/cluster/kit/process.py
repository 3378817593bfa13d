"""Programs that a test starts: each by its own handle, none ever by its name."""

import re
import signal
import subprocess
import threading
import time
from pathlib import Path

from .wait import TooLong
from .wait import until


class Process:
    """One running program. Its output goes to a log file and can be awaited line by line."""

    def __init__(self, name, argv, log, env=None, cwd=None):
        self.name = name
        self.argv = [str(arg) for arg in argv]
        self.log = log
        self.began = time.monotonic()
        self.lines = []
        self._news = threading.Condition()
        self._child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, env=env, cwd=cwd, start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with open(self.log, "ab") as log:
            for raw in self._child.stdout:
                log.write(raw)
                log.flush()
                with self._news:
                    self.lines.append((time.monotonic(), raw.decode("utf-8", "replace").rstrip("\n")))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def pid(self):
        """Its process id."""
        return self._child.pid

    @property
    def alive(self):
        """Whether it runs (or is frozen)."""
        return self._child.poll() is None

    @property
    def status(self):
        """Its exit status, None while it runs."""
        return self._child.poll()

    def wait_line(self, pattern, seconds, since=0):
        """Waits for a line of output that matches, from line number `since` on; gives (time, match)."""
        found = re.compile(pattern)
        deadline = time.monotonic() + seconds
        with self._news:
            at = since
            while True:
                while at < len(self.lines):
                    when, line = self.lines[at]
                    match = found.search(line)
                    if match:
                        return when, match
                    at += 1
                left = deadline - time.monotonic()
                if left <= 0 or not self._reader.is_alive() and at >= len(self.lines):
                    raise TooLong(f"{self.name}: no line like {pattern!r} within {seconds} s\n{self.tail()}")
                self._news.wait(min(left, 0.5))

    def tail(self, count=15):
        """The last lines of its output."""
        return "\n".join(line for _, line in self.lines[-count:])

    def wait(self, seconds):
        """Waits for its end; gives the exit status."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TooLong(f"{self.name} did not end within {seconds} s\n{self.tail()}") from None

    def signal(self, number):
        """Sends a signal, if it still runs."""
        if self.alive:
            self._child.send_signal(number)

    def hang_up(self):
        """Sends SIGHUP once the program catches or blocks it: one that has only just started would be ended by it."""
        until(lambda: not self.alive or _handles(self.pid, signal.SIGHUP), 30, f"{self.name} catches SIGHUP")
        self.signal(signal.SIGHUP)

    def freeze(self):
        """Stops it in its tracks: connections stay open and nothing answers. It has stopped on return."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while self.alive and not self._stopped():
            if time.monotonic() > deadline:
                raise TooLong(f"{self.name} did not stop")

    def _stopped(self):
        stat = Path(f"/proc/{self._child.pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "T"

    def thaw(self):
        """Lets a frozen program go on."""
        self.signal(signal.SIGCONT)

    def stop(self, seconds=20):
        """Ends it in order; by force when that takes too long. Gives the exit status."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(5)
        return self._child.returncode

    def kill(self):
        """Ends it at once, as a crash would."""
        self.signal(signal.SIGKILL)
        self._child.wait(10)
        return self._child.returncode


def _handles(pid, number):
    """Whether a process catches or blocks a signal."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    masks = (int(mask, 16) for mask in re.findall(r"^Sig(?:Cgt|Blk):\s*(\w+)$", status, re.MULTILINE))
    return any(mask >> (number - 1) & 1 for mask in masks)
