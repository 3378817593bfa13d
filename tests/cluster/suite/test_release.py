"""What is published: repositories that apt and dnf's tools take with their signatures, and an image that containerd runs."""

import os
import shutil
import subprocess
import sys
import unittest

from kit import agent
from kit import packages
from kit import tools
from kit.sandbox import scratch
from kit.wait import until

RELEASE = tools.REPO / "packaging" / "release.py"
KEY = "releases@example.org"


def run(*argv, **environment):
    """A command; gives its output."""
    done = subprocess.run([str(word) for word in argv], env=os.environ | environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


class Release(unittest.TestCase):
    """Packages of the program under test, and a key that the owner has."""

    @classmethod
    def setUpClass(cls):
        cls.home = scratch() / "gnupg"
        cls.home.mkdir(mode=0o700)
        cls.key = {"GNUPGHOME": str(cls.home)}
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", KEY, "ed25519", "sign", "never", **cls.key)
        cls.deb, cls.rpm = packages.build("0.1.0")

    def repositories(self, name):
        """Signed repositories in a folder of that name."""
        out = scratch() / name
        run(sys.executable, RELEASE, "repo", "--packages", self.deb.parent, "--out", out, "--key", KEY, **self.key)
        return out

    def test_1_apt_takes_the_signed_repository_and_no_other(self):
        out, state = self.repositories("repo"), scratch() / "apt"
        for folder in ("lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (state / folder).mkdir(parents=True)
        (state / "status").touch()
        keyring = state / "key.gpg"
        run("gpg", "--dearmor", "--output", keyring, out / "daemonlet.asc", **self.key)
        sources = state / "sources.list"
        sources.write_text(f"deb [signed-by={keyring}] file://{out}/apt stable main\n", encoding="utf-8")
        options = [f"-o{key}={value}" for key, value in {
            "Dir::State": state, "Dir::State::status": state / "status", "Dir::State::lists": state / "lists", "Dir::Cache": state / "cache",
            "Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "-", "Dir::Etc::preferencesparts": state / "etc/preferences.d",
            "APT::Sandbox::User": "root"}.items()]
        run("apt-get", *options, "update", "--error-on=any")
        self.assertIn("Candidate: 0.1.0", run("apt-cache", *options, "policy", "daemonlet"))
        where = run("apt-get", *options, "download", "--print-uris", "daemonlet")
        self.assertIn("SHA256:", where)
        # A changed index is not taken.
        release = out / "apt/dists/stable/InRelease"
        release.write_text(release.read_text(encoding="utf-8").replace("Label: daemonlet", "Label: other"), encoding="utf-8")
        done = subprocess.run(["apt-get", *options, "update", "--error-on=any"], capture_output=True, text=True, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0, done.stdout)

    def test_2_the_rpm_is_in_an_index_that_is_signed(self):
        out = self.repositories("repo-2") / "rpm"
        run("gpg", "--verify", out / "repodata/repomd.xml.asc", out / "repodata/repomd.xml", **self.key)
        primary = run("sh", "-c", f"zcat {out}/repodata/*-primary.xml.gz")
        self.assertIn(f'href="{self.rpm.name}"', primary)

    def test_3_the_same_packages_give_the_same_index(self):
        one, two = self.repositories("repo-3"), self.repositories("elsewhere-3")
        for path in ("apt/dists/stable/Release", "rpm/repodata/repomd.xml"):
            self.assertEqual((one / path).read_bytes(), (two / path).read_bytes(), path)

    def test_3b_the_same_program_gives_the_same_bytes_in_another_folder_at_another_time_for_another_user(self):
        one = self.published("one", 0o022, {"LC_ALL": "C.UTF-8", "TZ": "UTC", "USER": "root", "LOGNAME": "root", "PYTHONHASHSEED": "1"})
        other = {"LC_ALL": "C", "TZ": "Pacific/Auckland", "USER": "builder", "LOGNAME": "builder", "PYTHONHASHSEED": "2"}
        two = self.published("another/place", 0o077, other)
        files = lambda folder: sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        self.assertEqual(files(one), files(two))
        print(f"          {len(files(one))} files twice: {', '.join(name for name in files(one) if '/' not in name)}")
        for kind in (".deb", ".rpm", ".tar", ".tar.gz", ".yaml", ".json", "Release", "repomd.xml"):
            self.assertTrue([name for name in files(one) if name.endswith(kind)], f"nothing was made that ends with {kind}")
        different = [name for name in files(one) if (one / name).read_bytes() != (two / name).read_bytes()]
        self.assertEqual(different, [])

    def published(self, name, umask, environment):
        """What `release.py all` makes around a program, without its build, in a checkout of its own."""
        here = scratch() / "checkouts" / name
        skipped = lambda folder, names: [n for n in names if n in ("target", ".git") or n == "__pycache__"]
        before = os.umask(umask)
        try:
            # As git makes a checkout: by the umask, at the time of the copy.
            shutil.copytree(tools.REPO, here, ignore=skipped, copy_function=shutil.copyfile)
            # The manual pages are the program's under test: nothing is compiled for them here.
            programs = here / "target" / "programs"
            programs.mkdir(parents=True)
            manuals = tools.target_dir() / "debug" / "examples" / "manuals"
            self.assertTrue(manuals.exists(), manuals)
            cargo = programs / "cargo"
            cargo.write_text(f'#!/bin/sh\n[ "$1" = run ] || exec {shutil.which("cargo")} "$@"\nexec {manuals} "$7"\n', encoding="ascii")
            cargo.chmod(0o755)
            out = here / "target" / "out"
            out.mkdir()
            variables = environment | {"PATH": f"{programs}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(here / "target"), "CARGO_NET_OFFLINE": "true"}
            # Any program: a small one is packed with the release's own compression in seconds.
            program = shutil.which("gpg")
            steps = ("import argparse, sys; from pathlib import Path; sys.path.insert(0, 'packaging'); import packages, release; program, out = sys.argv[1:]; "
                     "packages.stage(program, packages.HERE); "
                     "packages.packages(argparse.Namespace(out=out, fast=False, arch=packages.HERE, version=None)); "
                     "Path(out, 'components.json').write_bytes(release.components()); "
                     "Path(out, 'image.tar').write_bytes(release.image(Path(program))); "
                     "release.repositories(Path(out), Path(out, 'repo'), None)")
            for argv in (["-c", steps, program, out], ["packaging/krew.py", "--url", "https://example.org", "--binary", program, "--out", out]):
                run("sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", here, sys.executable, *argv, **variables)
            return out
        finally:
            os.umask(before)

    def test_3c_a_program_that_holds_a_folder_of_the_machine_is_not_published(self):
        program = scratch() / "with-a-path"
        check = "import sys; from pathlib import Path; sys.path.insert(0, 'packaging'); import release; release.without_paths(Path(sys.argv[1]), sys.argv[2:])"
        argv = [sys.executable, "-c", check, program, tools.REPO, "/home/builder/.cargo"]
        for content, fits in ((b"\0/daemonlet/src/main.rs\0", True), (f"\0{tools.REPO}/src/main.rs\0".encode(), False)):
            program.write_bytes(content)
            done = subprocess.run(argv, cwd=tools.REPO, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode == 0, f"holds the path {tools.REPO}" in done.stderr), (fits, not fits), done.stderr)

    def test_4_the_image_is_one_that_containerd_knows(self):
        out, program = scratch() / "image.tar", scratch() / "daemonlet"
        run("strip", "-o", program, agent.binary())
        run(sys.executable, RELEASE, "image", "--binary", program, "--out", out)
        first = out.read_bytes()
        run(sys.executable, RELEASE, "image", "--binary", program, "--out", out)
        self.assertEqual(out.read_bytes(), first)
        folder = scratch() / "oci"
        folder.mkdir()
        run("tar", "-xf", out, "-C", folder)
        for blob in (folder / "blobs/sha256").iterdir():
            self.assertEqual(run("sha256sum", blob).split()[0], blob.name)
        root = scratch() / "containerd"
        root.mkdir()
        address = root / "containerd.sock"
        server = subprocess.Popen(["containerd", "--root", root / "root", "--state", root / "state", "--address", address, "--log-level", "warn"])
        self.addCleanup(server.wait, 30)
        self.addCleanup(server.terminate)
        until(address.exists, 60, "containerd serves")
        ctr = lambda *words: run("ctr", "--address", address, *words)
        ctr("images", "import", "--snapshotter", "native", out)
        self.assertRegex(ctr("images", "list", "-q"), r"(?m)^localhost/daemonlet:\d+\.\d+\.\d+$")
