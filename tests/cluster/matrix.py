#!/usr/bin/env python3
"""`make matrix`: which kubelets, API servers and containerds daemonlet works with, by running them.

    matrix.py                     every row: one table at the end, as docs/versioning.md has it
    matrix.py --row 1.35 [...]    only rows whose first words begin so

A row is a kubelet and an API server of one Kubernetes version and a containerd. Its cells: how many of the published and
the repository's own DaemonSets the kubelet's file source takes, rendered for that kubelet; then one story each. Kubernetes
and containerd are built once, from their modules, and kept in the cache folder. Needs what `make cluster-tools` makes, and
root. A story of a capability that a kubelet does not have says so in its cell.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kit import agent  # noqa: E402
from kit import tools  # noqa: E402
from kit.daemons import CORPUS  # noqa: E402

# Kubernetes, containerd; `None`: Debian's containerd.
ROWS = [("1.34.4", None), ("1.35.4", None), (tools.KUBERNETES, None), (tools.KUBERNETES, "1.7.35"), (tools.KUBERNETES, tools.CONTAINERD)]
BUILT = ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# What a row shows, the story's file, a word of its name, and since which kubelet.
STORIES = [
    ("first start, data", "node", "a_configmap_and_a_secret_reach", (1, 34)),
    ("Secret in the environment", "node", "env_comes_from_configmaps_and_secrets", (1, 35)),
    ("update", "node", "a_changed_template_never_runs_twice", (1, 34)),
    ("cold boot without an API server", "cni", "", (1, 34)),
    ("start order at a boot", "gates", "", (1, 35)),
]
# How `accepts` is written for the file source of an older version: text of today's, text of then.
OLDER = {
    "1.35": [("config.NewPodConfig(&", "config.NewPodConfig(config.PodConfigNotificationIncremental, &")],
    "1.34": [("config.NewPodConfig(&", "config.NewPodConfig(config.PodConfigNotificationIncremental, &"),
             ("config.NewSourceFile(logger, ", "klog.SetLogger(logger)\n\tconfig.NewSourceFile(")],
}


def minor(version):
    """1.35 of 1.35.4."""
    return version.rsplit(".", 1)[0]


def kubernetes(version):
    """The folder with the programs of that version; those that do not depend on it are links to today's."""
    today = tools.bin_dir()
    if version == tools.KUBERNETES:
        return today
    out = tools.cache() / "matrix" / version / "bin"
    out.mkdir(parents=True, exist_ok=True)
    for program in today.iterdir():
        link = out / program.name
        if program.name not in (*BUILT, "accepts") and not program.name.startswith(".") and not link.exists():
            link.symlink_to(program)
    wanted = [name for name in (*BUILT, "accepts") if not (out / name).exists()]
    if wanted:
        tools.say(f"building Kubernetes {version}")
        with tempfile.TemporaryDirectory() as folder:
            module(Path(folder), version)
            go = lambda *argv: subprocess.run(["go", *argv], cwd=folder, check=True, env=os.environ | {"CGO_ENABLED": "0"})
            go("mod", "tidy")
            flags = [flag.replace(tools.KUBERNETES, version).replace("gitMinor=36", f"gitMinor={minor(version)[2:]}") for flag in tools.FLAGS]
            for name in wanted:
                go("build", *flags, "-o", str(out / name), "./accepts" if name == "accepts" else f"k8s.io/kubernetes/cmd/{name}")
    return out


def module(folder, version):
    """Writes a module that has Kubernetes of that version and our program that asks its file source."""
    text = (tools.MODULE / "go.mod").read_text(encoding="utf-8")
    replaced = re.findall(r"(?m)^\t(k8s\.io/[\w-]+) => ", text)
    lines = [f"\t{name} => {name} v0{version[1:]}" for name in replaced if name not in ("k8s.io/cri-streaming", "k8s.io/streaming")]
    (folder / "go.mod").write_text(
        "module daemonlet.dev/matrix\n\ngo 1.26.0\n\n" f"require k8s.io/kubernetes v{version}\n\nreplace (\n" + "\n".join(lines) + "\n)\n",
        encoding="utf-8")
    imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{name}"\n' for name in BUILT)
    (folder / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\nimport (\n{imports})\n", encoding="utf-8")
    source = (tools.MODULE / "accepts" / "main.go").read_text(encoding="utf-8")
    for now, then in OLDER.get(minor(version), []):
        if source.count(now) != 1:
            raise SystemExit(f"tests/cluster/k8s/accepts/main.go does not have {now!r} once: mend OLDER in matrix.py")
        source = source.replace(now, then)
    (folder / "accepts").mkdir()
    (folder / "accepts" / "main.go").write_text(source, encoding="utf-8")


def containerd(version):
    """The folder with that containerd; `None`: Debian's."""
    if version is None:
        return None
    if version == tools.CONTAINERD:
        return tools.newer_containerd()
    out = tools.cache() / "matrix" / f"containerd-{version}"
    missing = [name for name in ("containerd", "containerd-shim-runc-v2") if not (out / name).exists()]
    if missing:
        tools.say(f"building containerd {version}")
        # Its go.mod has what `go install MODULE@VERSION` refuses.
        got = subprocess.run(["go", "mod", "download", "-json", f"github.com/containerd/containerd@v{version}"],
                             check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout
        env = os.environ | {"GOBIN": str(out), "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "containerd"
            subprocess.run(["cp", "-r", "--no-preserve=mode", json.loads(got)["Dir"], source], check=True)
            subprocess.run(["go", "install", "-trimpath", "-tags", "no_btrfs,no_devmapper,no_zfs,no_aufs",
                            *(f"./cmd/{name}" for name in missing)], cwd=source, check=True, env=env)
    return out


def file_source(programs, version):
    """How many rendered DaemonSets the kubelet's file source takes, and which it refuses."""
    paths = [path for folder in (CORPUS, tools.REPO / "examples") if folder.is_dir() for path in sorted(folder.rglob("*.yaml"))
             if not {"templated-not-plain", "companions"} & set(path.parts)]
    taken = rendered = 0
    refused = []
    for path in paths:
        with tempfile.TemporaryDirectory() as out:
            companions = CORPUS / "companions" / path.stem
            argv = [agent.binary(), "render", "-o", out, "--node-name", "n1", "--api-endpoint", "10.0.0.1:6443", "--kubelet-version", f"v{version}",
                    "-f", path, *(["-f", companions] if companions.is_dir() else [])]
            subprocess.run(argv, capture_output=True, check=False)
            manifests = Path(out) / "manifests"
            count = len(list(manifests.iterdir())) if manifests.is_dir() else 0
            if not count:
                continue
            done = subprocess.run([programs / "accepts", manifests, "n1"], capture_output=True, text=True, check=False)
            rendered += count
            taken += sum(line.startswith("ok ") for line in done.stdout.splitlines())
            if done.returncode:
                refused.append(f"{path.name}: {done.stderr.strip()}")
    return f"{taken} of {rendered}", refused


def story(programs, runtime, file, word):
    """What became of a story."""
    env = os.environ | {"DAEMONLET_TOOLS": str(programs), "DAEMONLET_BIN": str(agent.binary())}
    if runtime:
        env["DAEMONLET_CONTAINERD"] = str(runtime)
    argv = [sys.executable, "-u", HERE / "run.py", "--lanes", "1", file, *(["-k", word] if word else [])]
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    counted = re.findall(r"(?m)^(\d+) passed, (\d+) failed, (\d+) skipped$", done.stdout)
    passed, failed, skipped = map(int, counted[-1]) if counted else (0, 1, 0)
    if failed or not passed + skipped:
        print(done.stdout, file=sys.stderr)
        return "**fails**"
    return "yes" if passed else "skipped"


def main():
    """The command; the exit status is 1 if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", default=[])
    asked = parser.parse_args()
    os.environ.setdefault("DAEMONLET_BIN", str(tools.target_dir() / "debug" / "daemonlet"))
    rows, bad = [], 0
    for version, runtime in ROWS:
        if asked.row and not any(f"{version} {runtime or ''}".startswith(row) for row in asked.row):
            continue
        programs, folder = kubernetes(version), containerd(runtime)
        taken, refused = file_source(programs, version)
        for line in refused:
            print(f"{version}: {line}", file=sys.stderr)
        debian = subprocess.run(["containerd", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
        cells = [version, runtime or debian.split("~")[0], taken]
        for _, file, word, since in STORIES:
            known = tuple(map(int, minor(version).split(".")))
            cells.append(story(programs, folder, file, word) if known >= since else f"from {since[0]}.{since[1]}")
        bad |= bool(refused) or "**fails**" in cells
        rows.append(cells)
        print(" | ".join(cells), file=sys.stderr, flush=True)
    print(f"{datetime.date.today()}\n")
    heads = ["Kubernetes", "containerd", "DaemonSets that the file source takes", *(head for head, *_ in STORIES)]
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
