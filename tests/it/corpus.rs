//! Every published DaemonSet that is at hand, and all of our own examples, through the real binary.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::oracle;

/// What a static pod cannot carry: a part of the field that is refused.
const REFUSABLE: [&str; 6] =
    [".persistentVolumeClaim", ".ephemeral", ".csi", ".resourceClaims", ".clusterTrustBundle", ".podCertificate"];

/// Files that no API server takes either: apps/v1 without a selector.
const NOT_VALID: [&str; 2] = ["fluentd-daemonset-loggly-rbac.yaml", "intel-xpumanager-sidecar.yaml"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The manifests below `folder`, without the folders named in `without`.
pub(crate) fn manifests(folder: &Path, without: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                folders.extend((!without.contains(&name)).then_some(path));
            } else if path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml" || kind == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What became of all DaemonSets of some files.
#[derive(Default)]
struct Tally {
    rendered: usize,
    waiting: usize,
    windows: usize,
    refused: BTreeMap<String, String>,
    missing: BTreeMap<String, usize>,
}

/// Renders `file` with its companions into `out`, and counts.
fn render(file: &Path, companions: &[PathBuf], out: &Path, tally: &mut Tally) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daemonlet"));
    command.args(["render", "--json", "--node-name", "node-1", "--api-endpoint", "10.0.0.1:6443", "-o"]).arg(out);
    for path in std::iter::once(file).chain(companions.iter().map(PathBuf::as_path)) {
        command.arg("-f").arg(path);
    }
    let output = oracle::run(&mut command, Vec::new());
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let said = oracle::text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {}: {said}", output.status);
    assert_eq!(said.replace("no DaemonSet in what was read\n", ""), "", "{name}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for rendering in report["outcomes"].as_array().expect("outcomes") {
        count(name, rendering, out, tally);
    }
}

fn count(name: &str, rendering: &Value, out: &Path, tally: &mut Tally) {
    let daemon =
        format!("{name}: {}/{}", rendering["namespace"].as_str().unwrap(), rendering["name"].as_str().unwrap());
    match rendering["outcome"].as_str() {
        Some("rendered") => {
            tally.rendered += 1;
            let manifest = rendering["manifest"].as_str().expect("a path");
            assert!(out.join(manifest).is_file(), "{daemon}: there is no {manifest}");
            let missing = rendering["waitingFor"].as_array().expect("a list");
            tally.waiting += usize::from(!missing.is_empty());
            for missing in missing {
                *tally.missing.entry(missing["kind"].as_str().expect("a kind").to_owned()).or_default() += 1;
            }
        }
        Some("refused") => {
            let reason = rendering["reason"].as_str().expect("a reason").to_owned();
            if reason.contains("this daemon is for Windows nodes") {
                tally.windows += 1;
            } else {
                tally.refused.insert(daemon, reason);
            }
        }
        other => panic!("{daemon}: {other:?}"),
    }
}

/// The kubelet's own file source takes every manifest of every folder below `out`.
fn all_accepted(out: &Path, rendered: usize) {
    let Some(accepts) = oracle::program("accepts") else { return };
    let together = out.join("together");
    fs::create_dir(&together).expect("a folder");
    let mut names = BTreeSet::new();
    for (index, folder) in fs::read_dir(out).expect("a folder").enumerate() {
        let manifests = folder.expect("an entry").path().join("manifests");
        for manifest in fs::read_dir(manifests).into_iter().flatten() {
            let manifest = manifest.expect("an entry").path();
            let name = format!("{index}-{}", manifest.file_name().and_then(|name| name.to_str()).expect("a name"));
            fs::copy(&manifest, together.join(&name)).expect("a copy");
            names.insert(name);
        }
    }
    // Variants of one project are the same DaemonSet: the kubelet takes one pod of a name.
    let distinct: BTreeSet<&str> =
        names.iter().filter_map(|name| name.split_once('-').map(|(_, manifest)| manifest)).collect();
    let output = oracle::run(Command::new(accepts).arg(&together).arg("node-1"), Vec::new());
    let refused: Vec<&str> = oracle::text(&output.stderr).lines().filter(|line| line.starts_with("refused")).collect();
    assert!(refused.is_empty(), "the kubelet refuses:\n{}", refused.join("\n"));
    let taken = oracle::text(&output.stdout).lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!((names.len(), taken), (rendered, distinct.len()), "{}", oracle::text(&output.stderr));
}

#[test]
fn published_daemonsets_are_rendered_and_the_kubelet_takes_them() {
    let corpus = root().join("../shared/corpus");
    if !corpus.is_dir() {
        println!("no corpus at {}: skipped", corpus.display());
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let mut tally = Tally::default();
    for (index, file) in manifests(&corpus, &["companions", "templated-not-plain"]).iter().enumerate() {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let companions = corpus.join("companions").join(stem);
        let companions = if companions.is_dir() { manifests(&companions, &[]) } else { Vec::new() };
        render(file, &companions, &out.path().join(index.to_string()), &mut tally);
    }
    let all = tally.rendered + tally.refused.len();
    println!(
        "corpus: {} of {all} DaemonSets rendered ({} for Windows alone left out), {} of them wait for something: {:?}",
        tally.rendered, tally.windows, tally.waiting, tally.missing
    );
    for (daemon, reason) in &tally.refused {
        println!("refused: {daemon}: {reason}");
        let known = NOT_VALID.iter().any(|file| daemon.starts_with(file)) && reason == "spec.selector: required"
            || reason.split("; ").all(|reason| REFUSABLE.iter().any(|field| reason.contains(field)));
        assert!(known, "{daemon} is refused for a reason that is not among the known ones: {reason}");
    }
    assert!(all > 130, "only {all} DaemonSets were found");
    assert!(tally.rendered * 100 >= all * 93, "{} of {all} are less than 93 %", tally.rendered);
    assert!(!tally.missing.is_empty(), "published files name tokens at least");
    all_accepted(out.path(), tally.rendered);
}

#[test]
fn every_example_is_rendered_and_the_kubelet_takes_it() {
    let examples = root().join("examples");
    if !examples.is_dir() {
        println!("no examples at {}: skipped", examples.display());
        return;
    }
    let out = tempfile::tempdir().expect("a folder");
    let mut tally = Tally::default();
    for (index, file) in manifests(&examples, &[]).iter().enumerate() {
        render(file, &[], &out.path().join(index.to_string()), &mut tally);
    }
    println!("examples: {} DaemonSets rendered, {} wait: {:?}", tally.rendered, tally.waiting, tally.missing);
    assert!(tally.rendered > 0 && tally.windows == 0 && tally.refused.is_empty(), "{:?}", tally.refused);
    all_accepted(out.path(), tally.rendered);
}
