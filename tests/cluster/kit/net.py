"""The network of whole machines: one switch, one namespace each, and cuts in it.

The sandbox itself is on the switch under 10.88.0.1; there the control plane runs.
"""

import subprocess

GATEWAY = "10.88.0.1"


def _ip(*args):
    subprocess.run(["ip", *args], check=True)


class Lan:
    """The switch. A sandbox has one."""

    def __init__(self):
        _ip("link", "add", "dl-lan", "type", "bridge", "forward_delay", "0")
        _ip("addr", "add", f"{GATEWAY}/24", "dev", "dl-lan")
        _ip("link", "set", "dl-lan", "up")
        self._count = 0

    def plug(self, name):
        """A network namespace with a cable to the switch; gives its address."""
        self._count += 1
        address = f"10.88.0.{10 + self._count}"
        _ip("netns", "add", name)
        _ip("link", "add", f"p-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", f"p-{name}", "master", "dl-lan", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "route", "add", "default", "via", GATEWAY)
        return address

    def cut(self, name):
        """Pulls the cable of one machine."""
        _ip("link", "set", f"p-{name}", "down")

    def mend(self, name):
        """Plugs it in again."""
        _ip("link", "set", f"p-{name}", "up")

    def swallow(self, port):
        """Drops what comes in for a port of the control plane: connections neither open nor fail."""
        subprocess.run(["nft", "-f", "-"], check=True, text=True, input=(
            "table inet dl { chain in { type filter hook input priority 0; "
            f"tcp dport {port} iifname != \"lo\" drop; }}; }}\n"))

    def answer(self):
        """Ends `swallow`."""
        subprocess.run(["nft", "delete", "table", "inet", "dl"], check=True)

    def leave(self):
        """The control plane's host is gone: no host has its address."""
        _ip("addr", "del", f"{GATEWAY}/24", "dev", "dl-lan")

    def come_back(self):
        """Ends `leave`."""
        _ip("addr", "add", f"{GATEWAY}/24", "dev", "dl-lan")

    def reset(self, name):
        """After a machine lost its power: a fresh namespace at the same address, as its cable has."""
        links = subprocess.run(["ip", "-n", name, "-o", "link"], capture_output=True, text=True, check=True).stdout
        for line in links.splitlines():
            link = line.split(": ")[1].split("@")[0]
            if link not in ("lo", "eth0"):
                subprocess.run(["ip", "-n", name, "link", "del", link], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "exec", name, "nft", "flush", "ruleset"], check=False)
        routes = subprocess.run(["ip", "-n", name, "route"], capture_output=True, text=True, check=True).stdout
        for line in routes.splitlines():
            if not line.startswith(("default", "10.88.0.0/24")):
                _ip("-n", name, "route", "del", *line.split()[:1])
