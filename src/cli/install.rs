//! `daemonlet install`: this program, its units and its configuration on a host that has no package of it.
//!
//! Owns the list of files. Must not start anything, and must not replace the configuration of a host.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::CommandFailure;
use crate::cli::Exit;
use crate::cli::output;
use crate::config;

/// The program's files, by their paths on the host: an upgrade replaces them.
const FILES: [(&str, &str); 3] = [
    ("usr/lib/systemd/system/daemonlet.service", include_str!("../../systemd/daemonlet.service")),
    ("usr/lib/systemd/system/daemonlet-boot-guard.service", include_str!("../../systemd/daemonlet-boot-guard.service")),
    ("usr/lib/tmpfiles.d/daemonlet.conf", include_str!("../../packaging/tmpfiles.d/daemonlet.conf")),
];

const PROGRAM: &str = "usr/bin/daemonlet";

/// Files that the owner may have changed.
const CONFIGURATION: &str = "etc/daemonlet/daemonlet.toml";

/// What dpkg knows of the package: the files that are there. Of a package that was removed, the configuration is left.
const DPKG: &str = "var/lib/dpkg/info/daemonlet.list";
/// A file that the rpm has, and nothing else writes. Its folder outlives the package, which owns files alone.
const RPM: &str = "usr/share/licenses/daemonlet/LICENSE";

/// The unit that dpkg masks when the package is removed.
const MASK: &str = "etc/systemd/system/daemonlet.service";

/// Put this program, its units and a configuration on a host
///
/// For hosts that get no package, such as from a container of the image with the host's file system at --root. Starts
/// nothing; an existing configuration stays. Exit code: 0 installed, 1 a package has it there, 3 a file cannot be written.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The root of the host's file system
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, CommandFailure> {
    let root = &arguments.root;
    if !root.is_dir() {
        let why = format!("{}: there is no such folder, and nothing is written", root.display());
        return Err(
            CommandFailure::new(Exit::Unreadable, why).hint("name the folder where the host's file system is mounted")
        );
    }
    if let Some(owner) = package(root) {
        let why = format!("{}: a package has installed daemonlet here, and nothing is written", owner.display());
        return Err(CommandFailure::new(Exit::Refused, why).hint("upgrade or remove the package with its own tool"));
    }
    let program = fs::read("/proc/self/exe").map_err(|error| failed(Path::new("/proc/self/exe"), "read", &error))?;
    let configuration = config::example();
    let mut files = vec![(PROGRAM, program.as_slice(), 0o755)];
    files.extend(FILES.iter().map(|(path, text)| (*path, text.as_bytes(), 0o644)));
    if !root.join(CONFIGURATION).exists() {
        files.push((CONFIGURATION, configuration.as_bytes(), 0o644));
    }
    for (path, bytes, mode) in files {
        let path = root.join(path);
        let is_same = fs::read(&path).is_ok_and(|there| there == bytes);
        if !is_same {
            replace(&path, bytes, mode).map_err(|error| failed(&path, "written", &error))?;
        }
        output::lines([format!("{} {}", if is_same { "unchanged" } else { "wrote" }, path.display())])?;
    }
    let is_masked = fs::read_link(root.join(MASK)).is_ok_and(|target| target == Path::new("/dev/null"));
    let unmask = if is_masked { "systemctl unmask daemonlet daemonlet-boot-guard && " } else { "" };
    output::remarks(&format!(
        "next, on the host: {unmask}systemctl daemon-reload && systemd-tmpfiles --create daemonlet.conf && systemctl enable \
         --now daemonlet && systemctl enable daemonlet-boot-guard\n",
    ));
    Ok(Exit::Success)
}

/// The sign of a package that has the program on the host.
fn package(root: &Path) -> Option<PathBuf> {
    let has_program = |list: String| list.lines().any(|line| line.trim_start_matches('/') == PROGRAM);
    let dpkg = root.join(DPKG);
    let is_debian = fs::read_to_string(&dpkg).is_ok_and(has_program);
    is_debian.then_some(dpkg).or_else(|| Some(root.join(RPM)).filter(|path| path.is_file()))
}

/// Writes a file beside the old one and puts it in its place: a program that runs cannot be written to.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let staged = path.with_extension("new");
    let stage = || {
        fs::write(&staged, bytes)?;
        fs::set_permissions(&staged, fs::Permissions::from_mode(mode))?;
        fs::File::open(&staged)?.sync_all()?;
        fs::rename(&staged, path)
    };
    stage().inspect_err(|_| drop(fs::remove_file(&staged)))
}

fn failed(path: &Path, doing: &str, error: &io::Error) -> CommandFailure {
    let why = config::io_reason(error);
    CommandFailure::new(Exit::Unreadable, format!("{}: cannot be {doing}: {why}", path.display()))
        .hint("run it as root, with the host's file system mounted for writing")
}
