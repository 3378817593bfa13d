use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use super::*;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::ports::HostPort;

mod api_server;

fn levels(findings: &[Finding]) -> Vec<(&str, Severity)> {
    findings.iter().map(|finding| (finding.check.as_str(), finding.level)).collect()
}

/// The one finding that is not as it should be.
#[track_caller]
fn the_one(findings: Vec<Finding>) -> Finding {
    let mut found: Vec<Finding> = findings.into_iter().filter(|finding| finding.level != Severity::Ok).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    let one = found.remove(0);
    assert!(one.hint.is_some(), "{one:?}");
    one
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn kubelet_facts() -> kubelet::KubeletFacts {
    kubelet::KubeletFacts {
        processes: vec![words("/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --hostname-override n1")],
        configured: "/var/lib/kubelet/config.yaml".into(),
        path: "/var/lib/kubelet/config.yaml".into(),
        file: kubelet::KubeletConfigFile::Read {
            content: json!({"staticPodPath": "/etc/kubernetes/manifests/",
                "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock"}),
            parts: Vec::new(),
            open: Vec::new(),
        },
        manifest_dir: "/etc/kubernetes/manifests".into(),
        kubelet_root: "/var/lib/kubelet".into(),
        runtime: "unix:///run/containerd/containerd.sock".into(),
        node_name: "n1".into(),
        host_name: "n1".into(),
        version: Some("v1.36.2".into()),
        resolved: BTreeMap::new(),
    }
}

#[test]
fn a_kubelet_that_fits_is_well() {
    let findings = kubelet::examine(&kubelet_facts());
    assert!(findings.iter().all(|finding| finding.level == Severity::Ok), "{findings:#?}");
    assert_eq!(findings.len(), 7);
}

#[test]
fn each_setting_of_the_kubelet_that_does_not_fit_is_one_finding() {
    type Change = fn(&mut kubelet::KubeletFacts);
    fn set(facts: &mut kubelet::KubeletFacts, name: &str, value: Value) {
        if let kubelet::KubeletConfigFile::Read { content, .. } = &mut facts.file {
            content[name] = value;
        }
    }
    let cases: [(Change, Severity, &str, &str); 15] = [
        (|f| f.processes.clear(), Severity::Warn, "kubelet", "no process"),
        (
            |f| set(f, "staticPodPath", json!("/srv/other")),
            Severity::Bad,
            "static pod folder",
            "the kubelet reads /srv/other",
        ),
        (|f| set(f, "staticPodPath", Value::Null), Severity::Bad, "static pod folder", "no staticPodPath"),
        (|f| f.processes[0].push("--pod-manifest-path=/x".into()), Severity::Bad, "static pod folder", "reads /x"),
        (|f| f.processes[0].push("--root-dir=/srv/k".into()), Severity::Bad, "kubelet root", "is /srv/k"),
        (|f| f.processes[0].push("--hostname-override=n2".into()), Severity::Bad, "node name", "is n2"),
        (|f| f.path = "/etc/k.yaml".into(), Severity::Bad, "kubelet configuration", "reads /etc/k.yaml"),
        (|f| set(f, "featureGates", json!({"EnvFiles": false})), Severity::Bad, "feature gates", "EnvFiles is off"),
        (
            |f| f.processes[0].push("--feature-gates=A=true,EnvFiles=false".into()),
            Severity::Bad,
            "feature gates",
            "EnvFiles",
        ),
        (|f| f.version = Some("v1.34.1".into()), Severity::Warn, "kubelet version", "older than v1.35"),
        (|f| f.version = None, Severity::Warn, "kubelet version", "has not been read yet"),
        (|f| f.runtime = "unix:///run/crio/crio.sock".into(), Severity::Bad, "runtime endpoint", "crio"),
        (
            |f| f.file = kubelet::KubeletConfigFile::Unreadable("line 3: no".into()),
            Severity::Bad,
            "kubelet configuration",
            "config.yaml: line 3: no",
        ),
        (
            |f| {
                if let kubelet::KubeletConfigFile::Read { open, .. } = &mut f.file {
                    open.push("/k/open.conf".into());
                }
            },
            Severity::Bad,
            "kubelet configuration",
            "users other than root may write to /k/open.conf",
        ),
        (
            |f| {
                f.processes[0] = words("kubelet --config /var/lib/kubelet/config.yaml");
                f.host_name = "host".into();
            },
            Severity::Warn,
            "node name",
            "the host is called host",
        ),
    ];
    for (change, level, check, text) in cases {
        let mut facts = kubelet_facts();
        change(&mut facts);
        let found = kubelet::examine(&facts);
        // An unreadable file does not show the folder and the feature gates, either.
        let found = found.into_iter().filter(|f| check == f.check || f.level != Severity::Ok).collect::<Vec<_>>();
        let one = found.iter().find(|f| f.check == check).unwrap();
        assert_eq!(one.level, level, "{one:?}");
        assert!(one.text.contains(text), "{one:?}");
        let others = found.iter().filter(|f| f.check != check && f.level != Severity::Ok).count();
        let unread = if matches!(facts.file, kubelet::KubeletConfigFile::Unreadable(_)) { 2 } else { 0 };
        assert_eq!(others, unread, "{found:#?}");
    }
}

#[test]
fn what_a_file_that_was_not_read_would_say_is_unknown() {
    for (file, why) in [
        (kubelet::KubeletConfigFile::Missing, "/var/lib/kubelet/config.yaml does not exist"),
        (kubelet::KubeletConfigFile::Unreadable("it is empty".into()), "/var/lib/kubelet/config.yaml cannot be read"),
    ] {
        let mut facts = kubelet::KubeletFacts { file, ..kubelet_facts() };
        let found = kubelet::examine(&facts);
        for check in ["feature gates", "static pod folder"] {
            let one = found.iter().find(|finding| finding.check == check).unwrap();
            assert!(one.level == Severity::Warn && one.text.contains("unknown") && one.text.contains(why), "{one:?}");
        }
        facts.processes[0].push("--feature-gates=EnvFiles=true".into());
        let found = kubelet::examine(&facts);
        let one = found.iter().find(|finding| finding.check == "feature gates").unwrap();
        assert_eq!(one.level, Severity::Ok, "a flag takes precedence");
    }
}

#[test]
fn hints_name_the_file_that_takes_precedence() {
    let mut facts = kubelet_facts();
    facts.path = "/etc/kubelet.yaml".into();
    facts.configured = facts.path.clone();
    let parts = [
        ("/etc/kubelet.yaml", json!({"featureGates": {"EnvFiles": true}})),
        ("/etc/kubelet.d/10-gates.conf", json!({"featureGates": {"EnvFiles": false}})),
        ("/etc/kubelet.d/20-other.conf", json!({"featureGates": {"Other": false}})),
    ];
    facts.file = kubelet::KubeletConfigFile::Read {
        content: json!({"featureGates": {"EnvFiles": false, "Other": false}}),
        parts: parts.map(|(path, part)| (path.to_owned(), part)).to_vec(),
        open: vec!["/etc/kubelet.d/20-other.conf".into()],
    };
    let hints = |facts: &kubelet::KubeletFacts| -> Vec<String> {
        let findings = kubelet::examine(facts).into_iter();
        findings.filter(|f| f.level != Severity::Ok).filter_map(|f| f.hint).collect()
    };
    assert_eq!(
        hints(&facts),
        [
            "chown root /etc/kubelet.d/20-other.conf; chmod go-w /etc/kubelet.d/20-other.conf",
            "write `staticPodPath: /etc/kubernetes/manifests` into /etc/kubelet.yaml, then `systemctl restart kubelet`",
            "take EnvFiles out of featureGates in /etc/kubelet.d/10-gates.conf, then `systemctl restart kubelet`",
        ]
    );
    facts.file = kubelet::KubeletConfigFile::Unused;
    facts.processes[0].push("--feature-gates=EnvFiles=false".into());
    assert_eq!(
        hints(&facts),
        [
            "start the kubelet with --pod-manifest-path=/etc/kubernetes/manifests",
            "take EnvFiles out of the kubelet's --feature-gates and restart it",
        ]
    );
}

#[test]
fn links_do_not_make_two_folders() {
    let mut facts = kubelet_facts();
    facts.processes[0].push("--pod-manifest-path=/manifests".into());
    facts.resolved = [("/manifests".to_owned(), "/etc/kubernetes/manifests".to_owned())].into();
    assert!(kubelet::examine(&facts).iter().all(|finding| finding.level == Severity::Ok));
}

fn folder() -> disk::DiskFolder {
    disk::DiskFolder {
        key: "state-dir",
        path: "/var/lib/daemonlet".into(),
        error: None,
        kind: "ext4".into(),
        free_bytes: 10 << 30,
        bytes: 20 << 30,
        free_inodes: 1 << 20,
        inodes: 2 << 20,
        read_only: false,
        ext4_journal: Some(true),
    }
}

#[test]
fn disks_are_judged_by_room_inodes_and_what_outlives_a_pulled_plug() {
    let ok = disk::examine(&[folder()]);
    assert_eq!(levels(&ok), [("disk of state-dir", Severity::Ok)]);
    assert_eq!(ok[0].text, "/var/lib/daemonlet: ext4, 10240 MiB free");
    for (folder, level, text) in [
        (disk::DiskFolder { free_bytes: 63 << 20, ..folder() }, Severity::Bad, "has 63 MiB left"),
        (disk::DiskFolder { free_bytes: 1000 << 20, ..folder() }, Severity::Warn, "less than 5 %"),
        (disk::DiskFolder { free_inodes: 999, ..folder() }, Severity::Bad, "999 inodes left"),
        (disk::DiskFolder { read_only: true, ..folder() }, Severity::Bad, "read-only"),
        (disk::DiskFolder { ext4_journal: Some(false), ..folder() }, Severity::Warn, "without a journal"),
        (disk::DiskFolder { kind: "vfat".into(), ext4_journal: None, ..folder() }, Severity::Warn, "without a journal"),
        (
            disk::DiskFolder { kind: "tmpfs".into(), ext4_journal: None, ..folder() },
            Severity::Bad,
            "empty after a boot",
        ),
        (
            disk::DiskFolder { key: "manifest-dir", kind: "tmpfs".into(), ext4_journal: None, ..folder() },
            Severity::Warn,
            "empty after a boot",
        ),
        (disk::DiskFolder { error: Some("not a directory".into()), ..folder() }, Severity::Bad, "not a directory"),
    ] {
        let one = the_one(disk::examine(&[folder]));
        assert_eq!(one.level, level, "{one:?}");
        assert!(one.text.contains(text), "{one:?}");
    }
    let uncounted =
        disk::DiskFolder { kind: "btrfs".into(), ext4_journal: None, inodes: 0, free_inodes: 0, ..folder() };
    assert_eq!(disk::examine(&[uncounted])[0].level, Severity::Ok);
}

fn manifest(file: &str, name: &str, uid: &str, port: u64) -> manifests::FoundManifest {
    let port = HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port };
    manifests::FoundManifest {
        file: file.into(),
        error: None,
        namespace: "kube-system".into(),
        name: name.into(),
        uid: uid.into(),
        ports: vec![port],
    }
}

#[test]
fn a_foreign_manifest_clashes_by_name_uid_or_port() {
    let facts = |foreign| manifests::ManifestFolderFacts {
        path: "/m".into(),
        exists: true,
        error: None,
        ours: vec![manifest("ours.yaml", "cni-7x2kp", "u1", 80)],
        foreign,
    };
    let well = manifests::examine(&facts(vec![manifest("etcd.yaml", "etcd", "", 2379)]));
    assert_eq!(levels(&well), [("manifest folder", Severity::Ok), ("foreign manifests", Severity::Ok)]);
    assert_eq!(well[1].text, "1 foreign and 1 of ours, no conflicts");
    for (other, level, text) in [
        (
            manifest("x.yaml", "cni-7x2kp", "", 1),
            Severity::Bad,
            "x.yaml is the pod kube-system/cni-7x2kp, and so is ours.yaml",
        ),
        (manifest("x.yaml", "x", "u1", 1), Severity::Bad, "has the same UID as ours.yaml"),
        (manifest("x.yaml", "x", "", 80), Severity::Bad, "wants host port TCP 80"),
        (
            manifests::FoundManifest { file: "x".into(), error: Some("line 1: no".into()), ..Default::default() },
            Severity::Warn,
            "x is not a pod that the kubelet can run: line 1: no",
        ),
    ] {
        let one = the_one(manifests::examine(&facts(vec![other])));
        assert_eq!(one.level, level, "{one:?}");
        assert!(one.text.contains(text), "{one:?}");
    }
    let open = manifests::ManifestFolderFacts {
        error: Some(("others may write".into(), Some("chmod".into()))),
        ..facts(vec![])
    };
    assert_eq!(the_one(manifests::examine(&open)).hint.as_deref(), Some("chmod"));
    let unlisted = manifests::examine(&manifests::ManifestFolderFacts { ours: Vec::new(), ..open });
    assert_eq!(levels(&unlisted), [("manifest folder", Severity::Bad)], "nothing is counted that nobody could list");
    assert_eq!(
        the_one(manifests::examine(&manifests::ManifestFolderFacts { exists: false, ..facts(vec![]) })).level,
        Severity::Warn
    );
}

#[test]
fn who_may_write_a_definition_is_root_on_the_node() {
    assert_eq!(levels(&folders::examine(&[], &[])), [("definition folders", Severity::Ok)]);
    let open = the_one(folders::examine(&[], &["/d".to_owned(), "/d/x.yaml".to_owned()]));
    assert_eq!(open.level, Severity::Bad);
    assert!(open.text.contains("may write to /d, /d/x.yaml and so decide what runs as root"), "{open:?}");
    assert_eq!(open.hint.as_deref(), Some("chown root /d /d/x.yaml; chmod go-w /d /d/x.yaml"));
    assert_eq!(folders::readable(&[]), None);
    let found = folders::readable(&["/d/x.yaml".to_owned()]).unwrap();
    assert_eq!((found.level, found.hint.as_deref()), (Severity::Warn, Some("chmod o-r /d/x.yaml")));
}

#[test]
fn the_exit_code_counts_what_is_bad_and_stays_a_code() {
    let report = |bad: usize| DoctorReport::new("n1", vec![Finding::bad("x", "y", "z"); bad]);
    assert_eq!((report(0).exit_code(), report(3).exit_code(), report(300).exit_code()), (0, 3, 100));
    let mixed =
        DoctorReport::new("n1", vec![Finding::ok("a", "b"), Finding::warn("c", "d", "e"), Finding::bad("f", "g", "h")]);
    assert_eq!((mixed.bad, mixed.warnings), (1, 1));
    for (problems, daemons, text) in [
        (1, 0, "runs, and reports 1 problem"),
        (0, 1, "runs, and reports 1 daemon that needs a look"),
        (2, 3, "runs, and reports 2 problems and 3 daemons that need a look"),
    ] {
        assert_eq!(agent(&AgentFinding::Runs { problems, daemons }, 2).text, text);
    }
    assert_eq!(
        [AgentFinding::Runs { problems: 0, daemons: 0 }, AgentFinding::Absent, AgentFinding::Unreachable("s".into())]
            .map(|a| agent(&a, 0).level),
        [Severity::Ok, Severity::Warn, Severity::Bad]
    );
    let dead = agent(&AgentFinding::Absent, 1);
    assert_eq!(dead.level, Severity::Bad);
    assert!(dead.text.contains("1 static pod here needs it"), "{dead:?}");
    let runtimes = [
        RuntimeFinding::Answers("c".into()),
        RuntimeFinding::NotConfigured,
        RuntimeFinding::Unreachable("s".into(), None),
    ];
    assert_eq!(runtimes.map(|r| runtime(&r).level), [Severity::Ok, Severity::Warn, Severity::Bad]);
    assert_eq!((secrets(None, "/s").level, secrets(Some("tpm2"), "/s").level), (Severity::Warn, Severity::Ok));
}

#[test]
fn what_this_user_may_not_read_is_not_judged() {
    let findings = vec![
        Finding::warn("foreign manifests", "a.yaml is no pod", "move it away"),
        Finding::bad("foreign manifests", "b.yaml is no pod", "move it away"),
        Finding::bad("clock", "90 s behind", "set it"),
    ];
    let closed = [("foreign manifests", "/m/a.yaml".to_owned()), ("API server", "/k".to_owned())].into();
    let left = skip(&closed, findings.clone());
    assert_eq!(left, [Finding::skipped("foreign manifests", "/m/a.yaml"), findings[2].clone()]);
    let report = DoctorReport::new("n1", left);
    assert_eq!((report.bad, report.warnings, report.skipped, report.exit_code()), (1, 0, 1, 1));
    assert_eq!(skip(&BTreeMap::new(), findings.clone()), findings);
}

#[test]
fn what_is_held_is_named_with_what_would_let_it_start() {
    let key = ObjectKey::new("a", "d");
    let daemon = |state, hints: &[&str]| DaemonStatus {
        hints: hints.iter().map(|hint| (*hint).to_owned()).collect(),
        ..DaemonStatus::bare(&key, Some(Source::Api), state, "port 22 (hint: grant it)")
    };
    let found = held(&[daemon(State::Running, &[]), daemon(State::Held, &["release it", "or not"])]);
    assert_eq!(found, [Finding::warn("held daemons", "a/d is held: port 22 (hint: grant it)", "release it; or not")]);
}

#[test]
fn what_was_set_aside_is_named_until_somebody_removes_it() {
    assert_eq!(set_aside(&[]), None);
    let files = ["/s/a.json.bad-1", "/s/b.json.bad-1"].map(str::to_owned);
    let Some(Finding { text: said, .. }) = set_aside(&files) else { panic!("it is named") };
    assert!(said.ends_with("set it aside: /s/a.json.bad-1 and 1 more"), "{said}");
}

#[test]
fn volumes_of_images_are_named_where_the_runtime_makes_them() {
    for (makes, is_named) in [(Some(true), true), (Some(false), false), (None, false)] {
        let found = image_volumes(makes);
        assert_eq!(found.is_some_and(|finding| finding.level == Severity::Warn), is_named, "{makes:?}");
    }
}
