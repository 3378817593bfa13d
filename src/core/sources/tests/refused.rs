//! Definitions that are invalid, too large or may not start.

use super::*;

#[test]
fn an_invalid_version_keeps_what_runs() {
    let file = file();
    let invalid = || ApiState::Invalid(RefusedVersion::HeldBack(HeldBack::AwaitsTurn));
    assert_eq!(SourcesCase::new(FolderState::Absent, invalid()).desired(&record(Some("ds-uid"), true)), "unsure");
    let labelled = daemon_set(Source::Api, Some("bootstrap"));
    let known = running(&labelled);
    assert_eq!(SourcesCase::new(FolderState::Absent, invalid()).desired(&known), "held as refused, Bootstrap");
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    assert_eq!(
        SourcesCase::new(folder, invalid()).desired(&record(None, true)),
        "unsure",
        "what runs is known by its manifest alone, and may be newer"
    );
    let mut own = record(None, true);
    own.instances[0].daemon_set = Some(Arc::clone(&file));
    assert_eq!(SourcesCase::new(folder, invalid()).desired(&own), "wanted from file, Static with a note");
}

#[test]
fn what_is_too_large_ends_nothing_and_without_its_label_it_is_not_ours() {
    let error = FieldError { field: "spec".to_owned(), reason: "has more".to_owned(), hint: None };
    let too_large = |covered| TooLarge { errors: vec![error.clone()], covered };
    let ours = too_large(Covered::Yes(Mode::Static));
    let case = || SourcesCase::new(FolderState::Absent, ApiState::TooLarge(&ours));
    assert_eq!(case().desired(&record(None, false)), "refused, Static: spec: has more");
    assert_eq!(case().desired(&record(Some("ds-uid"), true)), "refused, Static: spec: has more", "and is kept");
    let labelled = daemon_set(Source::Api, Some("static"));
    assert_eq!(case().confirmed(Confirmation::Gone).desired(&running(&labelled)), "held as refused, Static");
    let tenants = Policy::new(None, "", vec!["kube-system".to_owned()]).unwrap();
    let tenants = tenants.with_rules(PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() });
    let mut large = DaemonSet::clone(&labelled);
    large.template = json!({"spec": {"containers": [{"args": ["x".repeat(300 << 10)]}]}});
    let forbidden = SourcesCase { policy: tenants, ..case() };
    assert_eq!(forbidden.desired(&running(&Arc::new(large))), "held, Static, ask=false", "it can be let go");
    let file = file();
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let beside = SourcesCase::new(folder, ApiState::TooLarge(&ours));
    let mut own = record(None, true);
    own.instances[0].daemon_set = Some(Arc::clone(&file));
    assert_eq!(beside.desired(&own), "wanted from file, Static with a note");
    let unlabelled = too_large(Covered::No(NotCovered::ModeLabelled));
    let case = || SourcesCase::new(FolderState::Absent, ApiState::TooLarge(&unlabelled));
    assert_eq!(case().desired(&record(None, false)), "left");
    assert_eq!(case().desired(&running(&labelled)), "confirm");
    assert_eq!(
        case().confirmed(Confirmation::NotCovered).desired(&running(&labelled)),
        "gone by_list=false ignore=None"
    );
}

#[test]
fn a_change_of_a_folders_daemon_that_may_not_start_leaves_the_folders_in_force() {
    let folder = file();
    let with_host = |d: &DaemonSet| {
        let spec = json!({"hostPID": true, "containers": [{"name": "net", "image": "net:2"}]});
        Arc::new(DaemonSet { template: json!({ "spec": spec }), ..d.clone() })
    };
    let changed = with_host(&daemon_set(Source::Api, None));
    let defined = FolderState::Present { daemon_set: &folder, fingerprint: "f" };
    let known = |api| KnownDefinition {
        folder: defined,
        api,
        remembered: None,
        confirmation: Confirmation::Unasked,
        has_file: true,
        is_superseded: false,
        is_changing: false,
    };
    let present = known(ApiState::Present(&changed));
    let mut running = record(Some("ds-uid"), true);
    let unknown = running.clone();
    running.instances[0].daemon_set = Some(Arc::clone(&folder));
    let desired = |record: &DaemonRecord, objects: &ObjectMap| {
        let Desired::Wanted { daemon_set, note, .. } = resolve(&present, record, &Policy::default(), objects) else {
            panic!("it is wanted")
        };
        (daemon_set.source == Source::Api, note.map(|note| note.to_string()).unwrap_or_default())
    };
    assert_eq!(desired(&running, &namespaces()), (true, String::new()));
    assert_eq!(
        desired(&running, &enforcing("baseline")),
        (
            false,
            "the API's version is not used, the folder's stays in force: namespace kube-system: violates PodSecurity \
             \"baseline:latest\": host namespaces (hostPID=true) (hint: change the template, or let the namespace have \
             it, and all who create pods there: `kubectl label --overwrite namespace kube-system pod-security.kubernetes.io/enforce=privileged`)"
                .to_owned()
        )
    );
    let unseen = ObjectMap::default();
    let resolved = resolve(&present, &unknown, &Policy::default(), &unseen);
    assert!(matches!(resolved, Desired::Unsure { .. }), "what runs may be the API's: {resolved:?}");
    assert_eq!(
        desired(&running, &unseen).1,
        "the API's version is not used, the folder's stays in force: Namespace kube-system has not been read yet"
    );
    // What came to run while it was allowed is not replaced by the folder's.
    running.instances[0].daemon_set = Some(Arc::clone(&changed));
    assert_eq!(desired(&running, &enforcing("baseline")), (true, String::new()));
    assert_eq!(desired(&running, &unseen), (true, String::new()));
    // Nor is the revision of the API that runs: the folder's would be a step back without an approval.
    let spec = json!({"containers": [{"name": "net", "image": "net:1"}]});
    let earlier = DaemonSet { template: json!({ "spec": spec }), ..DaemonSet::clone(&daemon_set(Source::Api, None)) };
    running.instances[0].daemon_set = Some(Arc::new(earlier.clone()));
    let Desired::Wanted { daemon_set: kept, note, .. } =
        resolve(&present, &running, &Policy::default(), &enforcing("baseline"))
    else {
        panic!("it is wanted")
    };
    assert_eq!(*kept, earlier);
    // Nor what ran until it ended to be replaced.
    let mut ended = record(Some("ds-uid"), false);
    ended.previous = Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&kept), claimed: false });
    assert!(desired(&ended, &unseen).0, "its Namespace will be read");
    assert!(
        note.is_some_and(|note| note.to_string().starts_with("the API's new version is not used, what runs stays: "))
    );
    // Nor is a template that is the folder's own a change.
    let same = with_host(&folder);
    let defined = FolderState::Present { daemon_set: &same, fingerprint: "f" };
    let known = KnownDefinition { folder: defined, ..present };
    let desired = resolve(&known, &record(None, false), &Policy::default(), &enforcing("restricted"));
    assert!(matches!(desired, Desired::Wanted { daemon_set, note: None, .. } if daemon_set.source == Source::Api));
}

#[test]
fn what_runs_is_held_while_overlays_cannot_be_applied_to_the_newest_definition() {
    let error = crate::core::model::FieldError { field: "f".to_owned(), reason: "no".to_owned(), hint: None };
    let overlays = crate::core::overlays::Overlays {
        config_map: ObjectKey::new("kube-system", "o"),
        known: crate::core::overlays::KnownList::Refused(vec![error]),
        list: Default::default(),
        patches: Vec::new(),
        digest: "d".to_owned(),
        template: None,
    };
    let newer = daemon_set(Source::Api, Some("static"));
    let newer = Arc::new(DaemonSet { overlays: Some(Arc::new(overlays)), ..DaemonSet::clone(&newer) });
    let case = || SourcesCase::new(FolderState::Absent, ApiState::Present(&newer));
    let mut runs = record(Some("ds-uid"), true);
    assert_eq!(case().desired(&record(None, false)), "wanted from API, Static", "it is refused where it would start");
    runs.instances[0].daemon_set = Some(daemon_set(Source::Api, Some("static")));
    assert_eq!(case().desired(&runs), "held as refused, Static");
}
