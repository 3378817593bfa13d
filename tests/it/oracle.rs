//! The Go programs of `tests/cluster/k8s` that answer with Kubernetes' own code.
//!
//! They are built by `make cluster-tools`; the environment variable `DAEMONLET_TOOLS` names their folder.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

/// The program `name`; `None`, with a word, where the programs are not built.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("DAEMONLET_TOOLS") else {
        println!("DAEMONLET_TOOLS is not set: {name} is not asked");
        return None;
    };
    let path = PathBuf::from(folder).join(name);
    assert!(path.exists(), "{} is not built: run `make cluster-tools`", path.display());
    Some(path)
}

/// Runs `command` with `input` on its standard input.
pub(crate) fn run(command: &mut Command, input: Vec<u8>) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A thread, or both sides wait once the pipes are full.
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic").expect("everything is read");
    output
}

/// What a program wrote.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is UTF-8")
}
