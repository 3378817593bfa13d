"""Images for the daemons of `examples/recipes`, under the names that the files have.

node-exporter is Debian's. The others are stand-ins that do what theirs do with the node: register with the kubelet, read
their files and variables, keep state, hold an address.
"""

from . import daemons
from . import images
from . import tools

FOLDER = tools.REPO / "examples" / "recipes"

# It reads its configuration with its variables, and notes which logs it sees.
_FLUENT_BIT = b"""#!/bin/sh
set -e
sed "s/[$]{LOGS_PASSWORD}/${LOGS_PASSWORD:?}/" "${1#--config=}" > /tmp/read
trap exit TERM
while :; do
    ls /var/log/containers > /var/lib/fluent-bit/tail.db
    sleep 1 & wait
done
"""

# It holds the address, answers for its health there, and takes the address away as it ends. It answers no names.
_NODE_CACHE = b"""#!/bin/sh
set -e
[ "$1 $3" = "-localip -conf" ]
grep -q "bind $2" "$4"
ip addr add "$2/32" dev lo
trap 'ip addr del "$2/32" dev lo; exit' TERM
mkdir -p /tmp/www
echo OK > /tmp/www/health
httpd -f -p "$2:8080" -h /tmp/www &
while :; do sleep 3600 & wait $!; done
"""


def all_images():
    """One image for each name in the files, but for kube-proxy's."""
    plugin = lambda part: {"files": {"/plugin": tools.program("plugin")}, "entrypoint": ["/plugin", part]}
    script = lambda text: {"files": {"/daemon": text}, "entrypoint": ["/daemon"], "busybox": True}
    exporter = tools.program("node-exporter")
    made = {"csi-node-driver-registrar": plugin("registrar"), "nfsplugin": plugin("driver"), "k8s-device-plugin": plugin("device"),
            "node-exporter": {"files": images.libraries(exporter), "entrypoint": [exporter]},
            "fluent-bit": script(_FLUENT_BIT), "k8s-dns-node-cache": script(_NODE_CACHE)}
    found = []
    for file in ("csi-node", "device-plugin", "node-exporter", "fluent-bit", "node-local-dns"):
        for name in daemons.images_of((FOLDER / f"{file}.yaml").read_text(encoding="utf-8")):
            found.append(images.Image(name, **made[name.rpartition(":")[0].rpartition("/")[2]]))
    return found
