"""What several stories ask of a pod network (no tests of its own)."""

from kit.wait import until


def pod_address(machine, prefix):
    """(container id, address) of the one pod of that prefix on a machine; raises while there is none."""
    (_, _, container, _), = machine.cri.of(prefix)
    words = machine.cri.execute(container, "ip", "-4", "-o", "addr", "show", "eth0").split()
    return container, words[words.index("inet") + 1].split("/")[0]


def fetch(machine, container, url):
    """What a pod gets from a URL within 2 s. (Debian's static busybox dies of wget's own -T.)"""
    return machine.cri.execute(container, "timeout", "2", "wget", "-q", "-O", "-", url).strip()


def all_reach_all(machines, prefix="probe-"):
    """Whether each machine's probe gets the right answer from each other machine's; raises where not."""
    probes = {machine: pod_address(machine, prefix) for machine in machines}
    for machine, (container, _) in probes.items():
        for other, (_, address) in probes.items():
            if machine is not other:
                answer = fetch(machine, container, f"http://{address}:8080/")
                if answer != other.name:
                    raise AssertionError(f"{machine.name} asked {other.name} at {address} and got {answer!r}")
    return True


def wait_all_reach_all(machines, seconds, prefix="probe-"):
    """Waits until the pods of all machines reach each other."""
    until(lambda: all_reach_all(machines, prefix), seconds, f"{prefix} pods reach each other", pause=0.1)
