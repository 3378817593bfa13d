"""What is published, taken by whom it is for: apt, dnf, krew, containerd, podman; each refuses what was changed."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from kit import agent
from kit import packages
from kit import tools
from kit.sandbox import scratch
from kit.wait import until

RELEASE = tools.REPO / "packaging" / "release.py"
KEY = "releases@example.org"
INSTALLATION, DEPLOY, CONTRIBUTING = ((tools.REPO / page).read_text(encoding="utf-8") for page in ("docs/installation.md", "docs/deploy.md", "CONTRIBUTING.md"))


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

    @staticmethod
    @functools.cache
    def stripped():
        """The program under test without its symbols, in a folder of its own."""
        program = scratch() / "stripped" / "daemonlet"
        program.parent.mkdir()
        run("strip", "-o", program, agent.binary())
        return program

    @classmethod
    @functools.cache
    def image(cls):
        """The image's archive."""
        out = scratch() / "image.tar"
        run(sys.executable, RELEASE, "image", "--binary", cls.stripped(), "--out", out)
        return out

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

    def test_2_dnf_takes_the_signed_repository_and_no_other(self):
        out, state = self.repositories("repo-2"), scratch() / "dnf"
        rpm = out / "rpm"
        (shown,) = re.findall(r"(?ms)^```ini\n(\[daemonlet\].*?)^```$", CONTRIBUTING)
        (state / "repos").mkdir(parents=True)
        (state / "repos" / "daemonlet.repo").write_text(shown.replace("https://repo.example.org", f"file://{out}"), encoding="utf-8")
        # What the package needs of a Fedora is in another repository.
        needs = {line.split()[0] for line in run("rpm", "-qp", "--requires", self.rpm).splitlines() if not line.startswith("rpmlib(")}
        spec = state / "base.spec"
        spec.write_text("Name: base\nVersion: 1\nRelease: 1\nSummary: base\nLicense: none\nBuildArch: noarch\n"
                        + "".join(f"Provides: {need}\n" for need in sorted(needs)) + "%description\n%files\n", encoding="utf-8")
        run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {state}/build", "--define", f"_rpmdir {state}/base", spec)
        run("createrepo_c", "--quiet", state / "base")
        (state / "repos" / "base.repo").write_text(f"[base]\nname=base\nbaseurl=file://{state}/base\ngpgcheck=0\n", encoding="utf-8")

        def install(name):
            words = ["dnf", "--assumeyes", "--installroot", state / name, "--releasever=1", f"--setopt=reposdir={state}/repos",
                     f"--setopt=cachedir={state}/{name}-cache", "--downloadonly", "install", "daemonlet"]
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=120)
            return done.returncode == 0, done.stdout + done.stderr

        is_taken, said = install("first")
        self.assertTrue(is_taken, said)
        self.assertRegex(said, r"daemonlet +x86_64 +0\.1\.0-1 +daemonlet")
        # A changed package is not taken, nor is an index to which it was put without the key.
        content = bytearray((rpm / self.rpm.name).read_bytes())
        content[-1] ^= 1
        (rpm / self.rpm.name).write_bytes(content)
        is_taken, said = install("package")
        self.assertFalse(is_taken, said)
        self.assertIn("checksum", said)
        run("createrepo_c", "--quiet", "--update", "--keep-all-metadata", rpm)
        is_taken, said = install("index")
        self.assertFalse(is_taken, said)
        self.assertIn("Bad GPG signature", said)

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
            # Cargo builds outside of the checkout: what is packed lies in its `target` all the same.
            variables = environment | {"PATH": f"{programs}:{os.environ['PATH']}", "CARGO_TARGET_DIR": str(here.with_name(f"built-for-{here.name}")), "CARGO_NET_OFFLINE": "true"}
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
        out, again = self.image(), scratch() / "again.tar"
        run(sys.executable, RELEASE, "image", "--binary", self.stripped(), "--out", again)
        self.assertEqual(out.read_bytes(), again.read_bytes())
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

    def test_5_podman_builds_the_image_and_installs_from_it_to_a_host(self):
        home, host = scratch() / "podman", scratch() / "host"
        (home / "lib").mkdir(parents=True)
        host.mkdir()
        shutil.copy(tools.program("libsubid.so.4"), home / "lib")
        Path("/etc/ld.so.conf.d/podman.conf").write_text(f"{home}/lib\n", encoding="ascii")
        # Its own cache is the host's.
        run("mount", "-t", "tmpfs", "tmpfs", "/var/cache/ldconfig")
        run("ldconfig")
        os.makedirs("/etc/containers", exist_ok=True)
        Path("/etc/containers/policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n', encoding="ascii")
        (home / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{home}/graph"\nrunroot = "{home}/run"\n', encoding="utf-8")
        # The program under test is no static one: it takes this machine's libraries.
        (home / "containers.conf").write_text(
            '[containers]\nnetns = "none"\nvolumes = ["/lib:/lib:ro", "/lib64:/lib64:ro"]\n[engine]\ncgroup_manager = "cgroupfs"\n'
            f'events_logger = "none"\nruntime = "{shutil.which("runc")}"\nconmon_path = ["{tools.program("conmon")}"]\n', encoding="utf-8")
        environment = {"CONTAINERS_CONF": str(home / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
                       "PATH": f"{tools.bin_dir()}:{os.environ['PATH']}"}
        sh = lambda line: run("sh", "-ec", line, **environment)
        containerfile = tools.REPO / "packaging" / "Containerfile"
        (build,) = re.findall(r"(?m)^# +(podman build .*)$", containerfile.read_text(encoding="utf-8"))
        sh(build.replace("packaging/Containerfile", str(containerfile)).replace("target/x86_64-unknown-linux-musl/release", str(self.stripped().parent)))
        built = sh("podman image inspect --format '{{.User}} {{.Config.Entrypoint}}' localhost/daemonlet:0.1.0")
        sh("podman rmi localhost/daemonlet:0.1.0")
        # The archive is the same image, by podman's word.
        sh(f"podman load -i {self.image()}")
        self.assertEqual(sh("podman image inspect --format '{{.User}} {{.Config.Entrypoint}}' localhost/daemonlet:0.1.0"), built)
        sh("podman tag localhost/daemonlet:0.1.0 registry.example.org/daemonlet:0.1.0")
        (install,) = re.findall(r"(?m)^podman run .*$", INSTALLATION)
        self.assertIn(" -v /:/host ", install)
        said = sh(install.replace(" /:/host ", f" {host}:/host "))
        self.assertIn("wrote /host/usr/bin/daemonlet\n", said)
        self.assertEqual((host / "usr/bin/daemonlet").read_bytes(), self.stripped().read_bytes())
        for unit in ("daemonlet.service", "daemonlet-boot-guard.service"):
            self.assertTrue((host / "usr/lib/systemd/system" / unit).exists(), unit)
        self.assertEqual((host / "usr/bin/daemonlet").stat().st_mode & 0o7777, 0o755)

    @unittest.skipUnless(tools.installer("krew"), "krew is made by `make test-long` alone")
    def test_6_krew_installs_the_plugin_and_refuses_a_changed_archive(self):
        out, home, programs = scratch() / "krew", scratch() / "krew-home", scratch() / "krew-programs"
        programs.mkdir()
        (programs / "kubectl").symlink_to(tools.program("kubectl"))
        (programs / "kubectl-krew").symlink_to(tools.installer("krew"))
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=out)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_address[1]}"
        run(sys.executable, tools.REPO / "packaging" / "krew.py", "--url", url, "--binary", self.stripped(), "--out", out)
        (block,) = re.findall(r"(?ms)^```sh\n(kubectl krew install .*?)^```$", DEPLOY)
        (archive,) = out.glob("*.tar.gz")
        whole = archive.read_bytes()
        environment = os.environ | {"KREW_ROOT": str(home), "PATH": f"{home}/bin:{programs}:{os.environ['PATH']}"}
        typed = lambda: subprocess.run(["bash", "-ec", block], cwd=out, env=environment, capture_output=True, text=True, check=False, timeout=60)
        archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        done = typed()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn("checksum", done.stderr)
        archive.write_bytes(whole)
        done = typed()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("each DaemonSet's rollout, and the nodes to look at", done.stdout)
        self.assertEqual((home / "bin/kubectl-daemonlet").resolve().read_bytes(), self.stripped().read_bytes())
