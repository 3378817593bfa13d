"""What agents ask of an API server that writes it down, and what that takes of connections and memory (no tests of its own)."""

import json
import os
import re
from urllib.parse import parse_qs
from urllib.parse import urlsplit

from kit.control_plane import ControlPlane
from suite.bare import WORLD

AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["ResponseComplete"],
         "rules": [{"level": "Metadata", "userGroups": ["daemonlet:nodes"]}, {"level": "None"}]}


def asked(agent):
    """What the API server has written down of an agent's requests: [(verb, resource, namespace, name, field selector)]."""
    requests = {}
    for line in WORLD.audit.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["user"]["username"] == f"daemonlet:node:{agent.node.name}":
            requests[event["auditID"]] = event
    found = []
    for event in requests.values():
        what, query = event.get("objectRef", {}), parse_qs(urlsplit(event["requestURI"]).query)
        sub = f"/{what['subresource']}" if "subresource" in what else ""
        found.append((event["verb"], what.get("resource", event["requestURI"]) + sub, what.get("namespace"), what.get("name"),
                      query.get("fieldSelector", [None])[0]))
    return found


def connections(agent):
    """The TCP connections of an agent's process to the API server."""
    pid = agent.process.pid
    sockets = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except FileNotFoundError:
            # Closed since it was listed.
            pass
    lines = [line.split() for line in open(f"/proc/{pid}/net/tcp", encoding="ascii")][1:]
    port = f"{ControlPlane.PORT:04X}"
    return sum(1 for line in lines if line[2].endswith(f":{port}") and line[3] == "01" and f"socket:[{line[9]}]" in sockets)


def memory(agent):
    """Resident memory in MiB."""
    status = open(f"/proc/{agent.process.pid}/status", encoding="ascii").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024
