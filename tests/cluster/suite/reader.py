"""Stories of a daemon that reads a ConfigMap, a Secret and a token (no tests of its own)."""

import shutil
import subprocess
import uuid

from kit.sandbox import scratch
from kit.wait import until
from suite.bare import SOON
from suite.bare import Story

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Reader(Story):
    """A daemon that reads a ConfigMap, a Secret and a token, as most do."""

    def reader(self, **config):
        """An agent with it; all is on disk."""
        agent = self.start_agent(**config)
        self.config("settings", level="one")
        self.admin.create("secrets", {"metadata": {"name": "keys", "namespace": self.namespace}, "stringData": {"key": "sesame"}})
        names = {"settings": {"configMap": {"name": "settings"}}, "keys": {"secret": {"secretName": "keys"}},
                 "token": {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]}}}
        self.put(self.daemon("reader", {"volumeMounts": [{"name": volume, "mountPath": f"/{volume}"} for volume in names]},
                             volumes=[{"name": volume, **source} for volume, source in names.items()]))
        first = self.instance(agent, "reader")
        self.settled(agent)
        self.saved(agent, b'"level":"one"')
        return agent, first

    def saved(self, agent, *words):
        """Waits until the inputs on disk have a token, and these words."""
        inputs = self.state(agent)[0]
        until(lambda: all(word in inputs.read_bytes() for word in (b'"expires":', *words)), SOON, "the inputs are saved")

    def state(self, agent):
        """The files of the checkpoint: inputs and the daemon's record."""
        return agent.home / "state/inputs.json", agent.home / f"state/daemons/{self.namespace}_reader.json"

    def data(self, agent, instance):
        """What the daemon reads."""
        return {file: agent.node.data(instance, volume, file) for volume, file in (("settings", "level"), ("keys", "key"), ("token", "token"))}

    def without_api(self):
        """From here on no API server answers."""
        self.cluster.stop("api")
        self.addCleanup(self.cluster.start_api)

    def another_boot(self):
        """As after a reboot: the kernel's name of this boot is another."""
        file = scratch() / f"boot-{uuid.uuid4()}"
        file.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        subprocess.run(["mount", "--bind", file, BOOT_ID], check=True)
        self.addCleanup(subprocess.run, ["umount", BOOT_ID], check=True)

    def wipe(self, agent, *folders):
        """A fresh disk, but for the checkpoint."""
        for folder in folders:
            shutil.rmtree(folder)
            folder.mkdir()
