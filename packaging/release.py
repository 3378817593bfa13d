#!/usr/bin/env python3
"""What is published of a version, and the folders that apt and dnf read.

    release.py repo [--packages FOLDER] [--out FOLDER] [--key KEY]
        apt's and dnf's metadata around the packages of `make packages`, in target/repo
    release.py image [--binary PROGRAM] [--out FILE]
        the container image as an archive in OCI's layout, from the program of `make static`; nothing else is needed
    release.py all --version VERSION --url FOLDER [--key KEY] [--out FOLDER]
        everything, in target/release-VERSION: packages, static program, image, krew's archive, list of components,
        checksums, repositories. From a clean checkout; the same sources give the same bytes in any folder.

KEY names a key of gpg's, which signs checksums and repositories. Without one they are not signed, and that is said.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from krew import ARCHES
from packages import EPOCH
from packages import OUT
from packages import REPO
from packages import STAGE
from packages import run
from packages import say
from packages import target_dir

SUITE = "stable"
# What makes the indices, and the Debian package that has it.
SCANPACKAGES = ("dpkg-scanpackages", "dpkg-dev")
CREATEREPO = ("createrepo_c", "createrepo-c")
STATIC = f"{platform.machine()}-unknown-linux-musl/release/daemonlet"


def version():
    """The version of the sources."""
    return re.search(r'(?m)^version = "(.*)"$', (REPO / "Cargo.toml").read_text(encoding="utf-8")).group(1)


def digest(content, kind="sha256"):
    """The digest as text."""
    return hashlib.new(kind, content).hexdigest()


def packed(content):
    """Compressed, the same each time."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(content)
    return out.getvalue()


def sign(key, file, *how):
    """Has gpg sign a file."""
    run("gpg", "--batch", "--yes", "--local-user", key, *how, file)


def needs(program, package):
    """Ends where a program is missing."""
    if not shutil.which(program):
        raise SystemExit(f"{program} is missing: apt-get install {package}")


def apt(files, out, key):
    """The folder that a line `deb [signed-by=…] FOLDER stable main` names."""
    needs(*SCANPACKAGES)
    pool = out / "pool"
    pool.mkdir(parents=True)
    for file in files:
        shutil.copy(file, pool)
    index = subprocess.run(["dpkg-scanpackages", "--multiversion", "pool"], cwd=out, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    arches = sorted(set(re.findall(r"(?m)^Architecture: (\S+)$", index.decode())))
    suite, sums = out / "dists" / SUITE, {}
    for arch in arches:
        entries = [entry for entry in index.decode().split("\n\n") if f"\nArchitecture: {arch}\n" in entry]
        text = ("\n\n".join(entry.strip("\n") for entry in entries) + "\n").encode()
        folder = suite / "main" / f"binary-{arch}"
        folder.mkdir(parents=True)
        for name, content in (("Packages", text), ("Packages.gz", packed(text))):
            (folder / name).write_bytes(content)
            sums[f"main/binary-{arch}/{name}"] = content
    date = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime(int(EPOCH)))
    lines = ["Origin: daemonlet", "Label: daemonlet", f"Suite: {SUITE}", f"Codename: {SUITE}", f"Date: {date}", f"Architectures: {' '.join(arches)}",
             "Components: main", "SHA256:", *(f" {digest(content)} {len(content)} {name}" for name, content in sorted(sums.items()))]
    release = suite / "Release"
    release.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if key:
        sign(key, release, "--armor", "--detach-sign", "--output", suite / "Release.gpg")
        sign(key, release, "--clear-sign", "--output", suite / "InRelease")


def dnf(files, out, key):
    """The folder that a .repo file's `baseurl` names."""
    needs(*CREATEREPO)
    out.mkdir(parents=True)
    for file in files:
        shutil.copy(file, out)
        os.utime(out / file.name, (int(EPOCH), int(EPOCH)))
    run("createrepo_c", "--quiet", "--revision", EPOCH, "--set-timestamp-to-revision", "--no-database", out)
    if key:
        sign(key, out / "repodata/repomd.xml", "--armor", "--detach-sign", "--output", out / "repodata/repomd.xml.asc")


def repositories(packages, out, key):
    """Both repositories, and the key beside them."""
    if out.exists():
        shutil.rmtree(out)
    debs, rpms = sorted(packages.glob("*.deb")), sorted(packages.glob("*.rpm"))
    if not debs and not rpms:
        raise SystemExit(f"{packages} has no packages: make packages")
    apt(debs, out / "apt", key)
    dnf(rpms, out / "rpm", key)
    if key:
        run("gpg", "--batch", "--yes", "--armor", "--output", out / "daemonlet.asc", "--export", key)
    else:
        say("no --key: the repositories are not signed, and apt and dnf take them only if configured to trust them")


def image(program):
    """The image: one layer with the program, which runs as nobody."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as tar:
        content = program.read_bytes()
        member = tarfile.TarInfo("daemonlet")
        member.size, member.mode, member.mtime = len(content), 0o755, int(EPOCH)
        tar.addfile(member, io.BytesIO(content))
    layer, created = packed(plain.getvalue()), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(EPOCH)))
    where = {"architecture": ARCHES[platform.machine()], "os": "linux"}
    compact = lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    config = compact(where | {
        "created": created,
        "config": {"User": "65532:65532", "Entrypoint": ["/daemonlet"], "Labels": {"org.opencontainers.image.version": version()}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(plain.getvalue())}"]},
        "history": [{"created": created, "created_by": "packaging/release.py image"}],
    })
    kind = "application/vnd.oci.image"
    blob = lambda media, content: {"mediaType": media, "digest": f"sha256:{digest(content)}", "size": len(content)}
    manifest = compact({"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": blob(f"{kind}.config.v1+json", config),
                        "layers": [blob(f"{kind}.layer.v1.tar+gzip", layer)]})
    named = {"org.opencontainers.image.ref.name": version(), "io.containerd.image.name": f"localhost/daemonlet:{version()}"}
    index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json",
             "manifests": [blob(f"{kind}.manifest.v1+json", manifest) | {"platform": where, "annotations": named}]}
    files = [("oci-layout", compact({"imageLayoutVersion": "1.0.0"})), ("index.json", compact(index)),
             *((f"blobs/sha256/{digest(content)}", content) for content in (manifest, config, layer))]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o644, int(EPOCH)
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def components():
    """What is linked into the program, as CycloneDX has it."""
    words = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={platform.machine()}-unknown-linux-musl"]
    metadata = json.loads(run(*words, stdout=subprocess.PIPE).stdout)
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    linked, todo = set(), [metadata["resolve"]["root"]]
    while todo:
        one = todo.pop()
        if one not in linked:
            linked.add(one)
            todo += [dep["pkg"] for dep in nodes[one] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    purl = lambda package: f"pkg:cargo/{package['name']}@{package['version']}"
    of = lambda package: {"type": "library", "name": package["name"], "version": package["version"], "purl": purl(package), "bom-ref": purl(package),
                          "licenses": [{"expression": package["license"].replace("/", " OR ")}] if package["license"] else []}
    found = sorted((package for package in metadata["packages"] if package["id"] in linked), key=purl)
    own = {"type": "application", "name": "daemonlet", "version": version(), "licenses": [{"expression": "Apache-2.0"}]}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(EPOCH)))
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"timestamp": stamp, "component": own},
           "components": [of(package) for package in found if package["id"] != metadata["resolve"]["root"]]}
    return json.dumps(bom, indent=1).encode() + b"\n"


def without_paths(program, folders):
    """Ends where one of the machine's folders is in the program: another folder would give other bytes."""
    content = program.read_bytes()
    if found := [folder for folder in folders if folder.encode() in content]:
        raise SystemExit(f"{program} holds the path {', '.join(found)}: build it anew, with the flags of `release.py all`")


def everything(options):
    """Builds and gathers all that is published."""
    if options.version != version():
        raise SystemExit(f"the sources are version {version()}, not {options.version}: change Cargo.toml and CHANGELOG.md first")
    if changed := run("git", "status", "--porcelain", stdout=subprocess.PIPE, text=True).stdout:
        raise SystemExit(f"the checkout is not clean:\n{changed}")
    # What is missing is said before anything is built.
    needs(*SCANPACKAGES)
    needs(*CREATEREPO)
    # Neither the folder of the checkout nor those of cargo are to be in the program.
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    maps = {str(REPO): "/daemonlet", str(target_dir()): "/daemonlet/target", str(home): "/cargo"}
    os.environ["SOURCE_DATE_EPOCH"] = EPOCH
    os.environ["RUSTFLAGS"] = " ".join(f"--remap-path-prefix={old}={new}" for old, new in maps.items())
    os.environ["CFLAGS"] = " ".join(f"-ffile-prefix-map={old}={new}" for old, new in maps.items())
    out = options.out or target_dir() / f"release-{options.version}"
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    python = sys.executable
    # First, because it may lack a compiler.
    run(python, "packaging/static.py")
    run(python, "packaging/packages.py")
    run(python, "packaging/krew.py", "--url", options.url, "--out", out)
    program = target_dir() / STATIC
    for built in (STAGE / "daemonlet", program):
        without_paths(built, maps)
    for file in [*OUT.glob("*.deb"), *OUT.glob("*.rpm")]:
        shutil.copy(file, out)
    arch = ARCHES[platform.machine()]
    shutil.copy(program, out / f"daemonlet-{options.version}-linux-{arch}")
    (out / f"daemonlet-{options.version}-image-{arch}.tar").write_bytes(image(program))
    (out / f"daemonlet-{options.version}.cdx.json").write_bytes(components())
    sums = "".join(f"{digest(file.read_bytes())}  {file.name}\n" for file in sorted(out.iterdir()))
    (out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    if options.key:
        sign(options.key, out / "SHA256SUMS", "--armor", "--detach-sign", "--output", out / "SHA256SUMS.asc")
    repositories(OUT, out / "repo", options.key)
    print(out)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("repo", "image", "all"))
    parser.add_argument("--packages", type=Path, default=OUT)
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--key")
    parser.add_argument("--version")
    parser.add_argument("--url")
    options = parser.parse_args()
    if options.what == "all":
        if not options.version or not options.url:
            parser.error("all needs --version and --url")
        everything(options)
    elif options.what == "repo":
        out = (options.out or REPO / "target" / "repo").resolve()
        repositories(options.packages.resolve(), out, options.key)
        print(out)
    else:
        out = options.out or OUT / f"daemonlet-{version()}-image-{ARCHES[platform.machine()]}.tar"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(image(options.binary or target_dir() / STATIC))
        print(out)


if __name__ == "__main__":
    main()
