//! What is remembered, and when it counts no more.

use super::*;

#[test]
fn a_cold_boot_without_api_runs_the_last_version_that_the_api_had() {
    let (file, api) = (file(), daemon_set(Source::Api, Some("static")));
    let mut case = SourcesCase::new(FolderState::Present { daemon_set: &file, fingerprint: "f1" }, ApiState::Unknown);
    case.remembered = Some(&api);
    assert_eq!(case.desired(&record(Some("ds-uid"), true)), "wanted from API, Static");
}

#[test]
fn a_checkpoint_that_is_behind_what_runs_takes_nothing_back() {
    let of = |generation, uid: &str| {
        let daemon_set = DaemonSet::clone(&daemon_set(Source::Api, Some("static")));
        Arc::new(DaemonSet { generation: Some(generation), uid: Some(uid.to_owned()), ..daemon_set })
    };
    let desired = |remembered: &Arc<DaemonSet>, runs: Arc<DaemonSet>| {
        let mut record = record(Some("ds-uid"), true);
        record.instances[0].daemon_set = Some(runs);
        let known = KnownDefinition {
            folder: FolderState::Absent,
            api: ApiState::Unknown,
            remembered: Some(remembered),
            confirmation: Confirmation::Unasked,
            has_file: false,
            is_superseded: false,
            is_changing: false,
        };
        match resolve(&known, &record, &Policy::default(), &namespaces()) {
            Desired::Wanted { daemon_set, .. } => (daemon_set.generation.unwrap(), daemon_set.uid.clone().unwrap()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(desired(&of(2, "ds-uid"), of(3, "ds-uid")).0, 3, "what runs is newer");
    assert_eq!(desired(&of(2, "ds-uid"), of(1, "ds-uid")).0, 2, "it waits for its turn");
    assert_eq!(desired(&of(7, "before"), of(1, "ds-uid")).1, "ds-uid", "it was made anew");
    assert_eq!(desired(&of(1, "ds-uid"), of(7, "before")).1, "ds-uid");
}

#[test]
fn with_nothing_remembered_what_runs_and_came_from_the_api_is_not_taken_back_to_a_file() {
    let (file, api) = (file(), daemon_set(Source::Api, Some("static")));
    let folder = || FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let mut runs = record(Some("ds-uid"), true);
    runs.instances[0].daemon_set = Some(Arc::clone(&api));
    assert_eq!(SourcesCase::new(folder(), ApiState::Unknown).desired(&runs), "wanted from API, Static");
    assert_eq!(
        SourcesCase::new(folder(), ApiState::None).desired(&runs),
        "wanted from file, Static",
        "no API is configured"
    );
    let mut newer = DaemonSet::clone(&api);
    newer.template = json!({"spec": {"containers": [{"name": "main", "image": "example.org/newer"}]}});
    let newer = Arc::new(newer);
    runs.instances[0].daemon_set = Some(Arc::clone(&newer));
    let unasked = || SourcesCase { remembered: Some(&newer), ..SourcesCase::new(folder(), ApiState::None) };
    assert_eq!(unasked().desired(&runs), "held, Static, ask=false", "a lost kubeconfig takes nothing back");
    let mut ended = record(Some("ds-uid"), false);
    assert_eq!(unasked().desired(&ended), "held, Static, ask=false", "it has never run here");
    ended.last = Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&api), claimed: false });
    assert_eq!(unasked().desired(&ended), "held, Static, ask=false", "it ended to return");
    let handed_over = DaemonRecord { bootstrap: true, ..record(Some("ds-uid"), false) };
    let no_file = || SourcesCase { folder: FolderState::Absent, has_file: false, ..unasked() };
    assert_eq!(no_file().desired(&handed_over), "held, Bootstrap, ask=false", "it bridges again at a boot");
    assert_eq!(no_file().desired(&record(Some("ds-uid"), false)), "kept");
    runs.released = true;
    assert!(unasked().desired(&runs).starts_with("gone"), "its owner lets it go");
    (runs.released, runs.instances[0].daemon_set) = (false, Some(Arc::clone(&api)));
    let mut ended = record(Some("ds-uid"), false);
    let run = || Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&api), claimed: false });
    ended.previous = run();
    assert_eq!(
        SourcesCase::new(folder(), ApiState::Unknown).desired(&ended),
        "wanted from API, Static",
        "it is replaced"
    );
    // A daemon that ends for good was deleted, whether its file is ignored or does not exist.
    let mut deleted = runs.clone();
    deleted.instances[0].phase = Phase::ending(at(0), "the DaemonSet was deleted");
    deleted.ignored_file = Some("f1".to_owned());
    let gone = "gone by_list=false ignore=Some(\"f1\")";
    assert_eq!(SourcesCase::new(folder(), ApiState::Unknown).desired(&deleted), gone);
    assert_eq!(SourcesCase::new(FolderState::Absent, ApiState::Unknown).desired(&deleted), "unsure");
    (ended.previous, ended.last) = (None, run());
    assert_eq!(SourcesCase::new(folder(), ApiState::Unknown).desired(&ended), "wanted from API, Static", "it returns");
    runs.api_uid = Some("another".to_owned());
    assert_eq!(
        SourcesCase::new(folder(), ApiState::Unknown).desired(&runs),
        "wanted from file, Static",
        "it was another one's"
    );
}
