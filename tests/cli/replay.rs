//! Recorded lives, decided again; and bundles of a node with the agent and without it.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::names;
use crate::node::GOOD;
use crate::node::Node;
use crate::run;

const SECRET: &str = "
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: a}
stringData: {key: never-in-a-bundle}
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a bundle.
fn files(bundle: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(bundle).unwrap()));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let (mut entry, mut bytes) = (entry.unwrap(), Vec::new());
        Read::read_to_end(&mut entry, &mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn recorded_lives_are_decided_as_they_were() {
    let lives = names(&root().join("tests/replay"));
    assert!(lives.len() >= 3, "{lives:?}");
    for life in lives {
        let ran = run(["replay", &root().join("tests/replay").join(&life).display().to_string()]);
        assert_eq!(ran.code, 0, "{life}: {ran:?}");
        assert!(ran.out.ends_with("every decision is the same\n"), "{life}: {}", ran.out);
    }
}

#[test]
fn a_decision_that_has_changed_is_found() {
    let ran = run(["replay", &root().join("tests/golden/cli/changed.cbor").display().to_string()]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("daemons.kube-system/net.summary.reason: recorded another, today "), "{}", ran.out);
}

#[test]
fn what_cannot_be_read_is_named() {
    let ran = run(["replay", "/nowhere"]);
    ran.is(3, "", "error: /nowhere: cannot be read: no such file or directory\n");
    let ran = crate::run_with_input(["replay", "-"], "a: b");
    assert!(ran.code == 3 && ran.err.starts_with("error: <stdin>: it is no recording: "), "{}", ran.err);
    let ran = run(["replay", &root().join("Cargo.toml").display().to_string()]);
    assert_eq!(ran.code, 3);
    let text = "it is no recording: it does not begin as a support bundle's does\nhint: give a file that ";
    assert!(ran.err.contains(text), "{}", ran.err);
}

#[test]
fn a_bundle_has_what_the_agent_saw_and_no_secret_and_is_never_written_over() {
    let uses = "env: [{name: K, valueFrom: {secretKeyRef: {name: key, key: key}}}]";
    let daemon = GOOD.replace("image: 'x:1'", &format!("image: 'x:1', {uses}"));
    let node = Node::new(&[("good.yaml", &format!("{daemon}{SECRET}"))]);
    let _agent = node.start();
    let bundle = node.0.path("bundle.tar.gz");
    let make = || node.ask(&["support-bundle", "-o", &bundle.display().to_string()]);
    let made = make();
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let files = files(&bundle);
    for name in ["README.txt", "config.toml", "doctor.json", "recording.cbor", "records/a_good.json", "status.json"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    for (name, bytes) in &files {
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has("never-in-a-bundle") && !has("bmV2ZXItaW4tYS1idW5kbGU"), "{name}");
    }
    let replayed = run(["replay", &bundle.display().to_string()]);
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let again = make();
    assert_eq!(again.code, 3);
    assert!(again.err.contains("cannot be written: file exists"), "{}", again.err);
    assert!(!names(&node.0.path("r")).iter().any(|name| name == "recording"), "it is not left behind");
}

#[test]
fn without_an_agent_a_bundle_has_what_the_disk_has_and_says_so() {
    let node = Node::new(&[("good.yaml", GOOD)]);
    let listed = node.ask(&["support-bundle", "--list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.contains("  config.toml\n") && !listed.out.contains("recording"), "{}", listed.out);
    assert!(listed.err.contains("not in the bundle: recording.cbor (no agent is running"), "{}", listed.err);
    let bundle = node.0.path("bundle.tar.gz");
    assert_eq!(node.ask(&["support-bundle", "-o", &bundle.display().to_string()]).code, 0);
    assert!(String::from_utf8_lossy(&files(&bundle)["README.txt"]).contains("no agent is running"));
    let replayed = run(["replay", &bundle.display().to_string()]);
    assert_eq!(replayed.code, 3);
    let none =
        "it has no recording.cbor: no agent answered when it was made\nhint: make it again while the agent answers: ";
    assert!(replayed.err.contains(none), "{}", replayed.err);
    let nowhere = node.0.text("none/bundle.tar.gz");
    let failed = node.ask(&["support-bundle", "-o", &nowhere]);
    let expected = format!("error: {nowhere}: cannot be written: no such file or directory\nhint: name another file ");
    assert!(failed.code == 3 && failed.err.contains(&expected), "{failed:?}");
    let config = node.0.text("c.toml");
    let piped = crate::program().args(["support-bundle", "-o", "-", "--config", &config]).output().unwrap();
    std::fs::write(&bundle, &piped.stdout).unwrap();
    assert!(piped.status.success() && files(&bundle).contains_key("config.toml"), "{piped:?}");
}
