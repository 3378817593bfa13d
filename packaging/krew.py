#!/usr/bin/env python3
"""`make krew URL=…`: the kubectl plugin as krew installs it, in target/packages.

    krew.py --url FOLDER [--binary PROGRAM] [--out FOLDER]

Makes the archive of the static program (`make static`) and its licence, and the manifest with the archive's
checksum. FOLDER is the address below which the archive will be found. The same program gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import platform
import re
import tarfile
from pathlib import Path

from packages import EPOCH
from packages import OUT
from packages import REPO
from packages import target_dir

ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


def archive(program):
    """The plugin's archive."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, source, mode in (("LICENSE", REPO / "LICENSE", 0o644), ("kubectl-daemonlet", program, 0o755)):
            content = Path(source).read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, int(EPOCH)
            tar.addfile(member, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    version = re.search(r'(?m)^version = "(.*)"$', (REPO / "Cargo.toml").read_text(encoding="utf-8")).group(1)
    arch = ARCHES[platform.machine()]
    name = f"kubectl-daemonlet-{version}-linux-{arch}.tar.gz"
    packed = archive(options.binary or target_dir() / f"{platform.machine()}-unknown-linux-musl/release/daemonlet")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / name).write_bytes(packed)
    text = (REPO / "deploy/krew/daemonlet.yaml").read_text(encoding="utf-8").split("\n", 1)[1]
    values = {"VERSION": version, "ARCH": arch, "URI": f"{options.url.rstrip('/')}/{name}", "SHA256": hashlib.sha256(packed).hexdigest()}
    for word, value in values.items():
        text = text.replace(word, value)
    (options.out / "daemonlet.yaml").write_text(text, encoding="utf-8")
    print(options.out / name)
    print(options.out / "daemonlet.yaml")


if __name__ == "__main__":
    main()
