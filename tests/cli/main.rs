//! The command line as a person meets it: the real binary, its streams and its exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod agent;
mod changed;
mod config;
mod examples;
mod generate;
mod kubeconfig;
mod node;
mod packaging;
mod plugin;
mod policy;
mod readme;
mod render;
mod replay;
mod tables;
mod usage;
mod world;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

/// What a run of the program left.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    fn is(&self, code: i32, out: &str, err: &str) {
        assert_eq!((self.code, self.out.as_str(), self.err.as_str()), (code, out, err));
    }
}

/// A copy of the program in `scratch` that everybody may run.
fn readable_copy(scratch: &Scratch) -> PathBuf {
    fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = scratch.path("daemonlet");
    fs::copy(env!("CARGO_BIN_EXE_daemonlet"), &copy).unwrap();
    copy
}

/// What `command`, of a copy, prints to a user who is not root.
fn as_nobody(command: &mut Command) -> std::process::Output {
    if nix::unistd::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    // Another test's child may hold the copy open for writing until it executes its own program.
    loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => break output.unwrap(),
        }
    }
}

/// The program, free of the environment's own ideas.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daemonlet"));
    for variable in ["NOTIFY_SOCKET", "DAEMONLET_LOG", "JOURNAL_STREAM", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command
}

fn run<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>) -> Run {
    run_with_input(arguments, "")
}

fn run_with_input<I: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = I>, input: &str) -> Run {
    let mut child =
        program().args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A scratch folder with files.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new(files: &[(&str, &str)]) -> Self {
        let scratch = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            scratch.write(name, text);
        }
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as an argument or in a message.
    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// The Rust files below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    };
    entries.flat_map(of).filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}

/// The names in `folder`, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
