//! Daemons that rules and configuration hold, and which source may end which.

use super::*;

/// The policy of another configuration.
fn policy(default_mode: Option<Mode>, selector: &str, namespaces: &[&str]) -> Policy {
    Policy::new(default_mode, selector, namespaces.iter().map(|&n| n.to_owned()).collect()).unwrap()
}

#[test]
fn a_configuration_that_selects_less_holds_what_runs() {
    let (plain, labelled) = (daemon_set(Source::Api, None), daemon_set(Source::Api, Some("static")));
    let narrower = [
        (&plain, policy(None, "", &["kube-system"])),
        (&labelled, policy(None, "tier=node", &["kube-system"])),
        (&labelled, policy(Some(Mode::Static), "", &["a"])),
    ];
    for (daemon_set, policy) in narrower {
        let record = running(daemon_set);
        let case = |api| SourcesCase { policy: policy.clone(), ..SourcesCase::new(FolderState::Absent, api) };
        for api in [ApiState::Present(daemon_set), ApiState::Unknown] {
            for remembered in [None, Some(daemon_set)] {
                let case = SourcesCase { remembered, ..case(api.clone()) };
                assert_eq!(case.desired(&record), "held, Static, ask=false", "{api:?}");
            }
        }
        // The selector hides it from the watch: only a GET tells whether it is there.
        let absent = || case(ApiState::Absent { by_event: false });
        assert_eq!(absent().desired(&record), "held, Static, ask=true");
        for answer in [Confirmation::NotCovered, Confirmation::StillThere, Confirmation::Failed(NoAnswer::NoUid)] {
            assert_eq!(absent().confirmed(answer).desired(&record), "held, Static, ask=false");
        }
        assert!(absent().confirmed(Confirmation::Gone).desired(&record).starts_with("gone"));
        let mut stopped = record.clone();
        stopped.instances.clear();
        assert_eq!(case(ApiState::Present(daemon_set)).desired(&stopped), "left");
        let mut bootstrap = record.clone();
        bootstrap.bootstrap = true;
        let expected = if daemon_set.mode_label().is_some() { "Static" } else { "Bootstrap" };
        let goes_on = case(ApiState::Present(daemon_set)).desired(&bootstrap);
        assert_eq!(goes_on, format!("held, {expected}, ask=false"));
    }
}

#[test]
fn a_folder_that_is_no_longer_configured_holds_what_came_from_it() {
    let (file, plain) = (file(), daemon_set(Source::Api, None));
    let gone = FolderState::Unsure { reason: Unproven::FolderNotConfigured };
    let mut record = record(None, true);
    let none = SourcesCase::new(gone, ApiState::None);
    assert_eq!(none.desired(&record), "kept", "it is not known what runs");
    record.instances[0].daemon_set = Some(Arc::clone(&file));
    let apis = || [ApiState::None, ApiState::Unknown, ApiState::Absent { by_event: false }, ApiState::Present(&plain)];
    for api in apis() {
        let case = || SourcesCase { has_file: true, ..SourcesCase::new(gone, api.clone()) };
        assert_eq!(case().desired(&record), "held, Static, ask=false", "{api:?}");
        let released = |pattern: &str| {
            let release = Policy::default().with_release(vec![pattern.to_owned()]);
            SourcesCase { policy: release, ..case() }.desired(&record)
        };
        assert_eq!(released("kube-system/net"), "gone by_list=false ignore=None");
        let by_many = released("kube-system/*").starts_with("gone");
        assert_eq!(by_many, api != ApiState::Unknown, "the API may have it, too: {api:?}");
        let missing = FolderState::Unsure { reason: Unproven::FolderMissing };
        assert_eq!(SourcesCase { folder: missing, ..case() }.desired(&record), "kept", "{api:?}");
    }
    let known = |folder| KnownDefinition {
        folder,
        api: ApiState::None,
        remembered: None,
        confirmation: Confirmation::Unasked,
        has_file: true,
        is_superseded: false,
        is_changing: false,
    };
    let desired = resolve(&known(gone), &record, &Policy::default(), &namespaces());
    let Desired::Held { why: Hold::Narrowed(why), .. } = &desired else { panic!("{desired:?}") };
    assert_eq!(why.to_string(), "its folder is no longer configured");
    record.instances.clear();
    record.last = Some(LastRun { revision: "r".to_owned(), daemon_set: file, claimed: false });
    assert_eq!(SourcesCase::new(gone, ApiState::None).desired(&record), "held, Static, ask=false", "it returns");
}

#[test]
fn a_selector_that_hides_what_a_file_defines_too_ends_and_restarts_nothing() {
    let (file, labelled) = (file(), daemon_set(Source::Api, Some("static")));
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let hiding = policy(None, "tier=node", &["kube-system"]);
    let case = |answer| {
        let absent = SourcesCase::new(folder, ApiState::Absent { by_event: false }).confirmed(answer);
        SourcesCase { policy: hiding.clone(), remembered: Some(&labelled), ..absent }
    };
    let runs = running(&labelled);
    assert_eq!(case(Confirmation::Unasked).desired(&runs), "held, Static, ask=true");
    assert_eq!(case(Confirmation::NotCovered).desired(&runs), "held, Static, ask=false");
    assert!(case(Confirmation::Gone).desired(&runs).starts_with("gone"));
    let all = SourcesCase { policy: Policy::default(), ..case(Confirmation::NotCovered) };
    assert!(all.desired(&runs).starts_with("gone"), "its label was taken away");
}

#[test]
fn the_api_replaces_nothing_unknown_while_a_change_of_its_file_is_read() {
    let (file, labelled) = (file(), daemon_set(Source::Api, Some("static")));
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let case = || SourcesCase { is_changing: true, ..SourcesCase::new(folder, ApiState::Present(&labelled)) };
    assert_eq!(case().desired(&record(Some("ds-uid"), true)), "unsure");
    assert_eq!(case().desired(&running(&labelled)), "wanted from API, Static");
    assert_eq!(case().desired(&record(Some("ds-uid"), false)), "wanted from API, Static");
    let is_read = SourcesCase { is_changing: false, ..case() };
    assert_eq!(is_read.desired(&record(Some("ds-uid"), true)), "wanted from API, Static");
}

#[test]
fn what_a_narrower_configuration_holds_returns_after_its_end() {
    let plain = daemon_set(Source::Api, None);
    let case = || SourcesCase {
        policy: policy(None, "", &["kube-system"]),
        ..SourcesCase::new(FolderState::Absent, ApiState::Present(&plain))
    };
    let mut ended = running(&plain);
    ended.instances.clear();
    assert_eq!(case().desired(&ended), "left");
    ended.last = Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&plain), claimed: false });
    assert_eq!(case().desired(&ended), "held, Static, ask=false");
}

#[test]
fn what_runs_without_a_record_stays_where_the_policy_lacks_its_namespace() {
    let labelled = daemon_set(Source::Api, Some("static"));
    let case = |namespaces: &[&str], answer| {
        let policy = policy(None, "", namespaces);
        SourcesCase { policy, ..SourcesCase::new(FolderState::Absent, ApiState::Present(&labelled)) }.confirmed(answer)
    };
    let adopted = record(None, true);
    for answer in [Confirmation::Unasked, Confirmation::NotCovered, Confirmation::StillThere] {
        assert_eq!(case(&["a"], answer).desired(&adopted), "kept");
    }
    assert_eq!(case(&["a"], Confirmation::Unasked).desired(&record(None, false)), "left");
    let released = DaemonRecord { released: true, ..adopted };
    assert!(case(&["a"], Confirmation::NotCovered).desired(&released).starts_with("gone"));
}

#[test]
fn rules_that_became_stricter_hold_what_runs_until_a_version_obeys_them() {
    let with_image = |image: &str| {
        let spec = json!({"containers": [{"name": "c", "image": image}]});
        let labelled = DaemonSet::clone(&daemon_set(Source::Api, Some("static")));
        Arc::new(DaemonSet { template: json!({ "spec": spec }), ..labelled })
    };
    let (old, other, allowed) = (with_image("old:1"), with_image("old:2"), with_image("registry.example/new:1"));
    let rules = crate::core::policy::PodRules { images: vec!["registry.example/*".to_owned()], ..Default::default() };
    let desired = |api, runs| {
        // A pattern that was meant for something else lets nothing go.
        let policy = Policy::default().with_rules(rules.clone()).with_release(vec!["kube-system/*".to_owned()]);
        SourcesCase { policy, ..SourcesCase::new(FolderState::Absent, ApiState::Present(api)) }.desired(&running(runs))
    };
    assert_eq!(desired(&old, &old), "held, Static, ask=false");
    assert_eq!(desired(&other, &old), "held, Static, ask=false");
    assert_eq!(desired(&allowed, &old), "wanted from API, Static");
    assert_eq!(desired(&old, &allowed), "wanted from API, Static", "the new version alone is refused");
}

#[test]
fn who_may_not_define_a_daemon_of_a_folder_may_not_end_it() {
    let file = file();
    let theirs = daemon_set(Source::Api, Some("bootstrap"));
    let present = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let runs = DaemonRecord { api_uid: None, ..running(&file) };
    let case = |api, confirmation| {
        SourcesCase { policy: policy(None, "", &["other"]), ..SourcesCase::new(present, api) }.confirmed(confirmation)
    };
    let deleted = Arc::new(DaemonSet {
        deleting: true,
        finalizers: vec!["foregroundDeletion".to_owned()],
        ..DaemonSet::clone(&theirs)
    });
    for (api, expected) in [
        (ApiState::Present(&theirs), "wanted from file, Static with a note"),
        (ApiState::Present(&deleted), "wanted from file, Static with a note"),
        (ApiState::Invalid(RefusedVersion::HeldBack(HeldBack::AwaitsTurn)), "wanted from file, Static with a note"),
        (ApiState::Absent { by_event: true }, "wanted from file, Static"),
        (ApiState::Absent { by_event: false }, "wanted from file, Static"),
        (ApiState::Orphaned, "wanted from file, Static"),
        (ApiState::Unknown, "wanted from file, Static"),
    ] {
        assert_eq!(case(api.clone(), Confirmation::Gone).desired(&runs), expected, "{api:?}");
        let mut former = runs.clone();
        former.api_uid = Some("ds-uid".to_owned());
        assert_eq!(case(api.clone(), Confirmation::Gone).desired(&former), expected, "{api:?}");
    }
    // Its file alone ends it.
    let gone = SourcesCase { has_file: true, ..case(ApiState::Present(&theirs), Confirmation::Unasked) };
    assert_eq!(SourcesCase { folder: FolderState::Absent, ..gone }.desired(&runs), "gone by_list=false ignore=None");
    // Nor does it end while what was remembered and the folder cannot be read.
    let unread = FolderState::Unsure { reason: Unproven::NotMounted };
    let lost =
        SourcesCase { has_file: false, folder: unread, ..case(ApiState::Present(&theirs), Confirmation::NotCovered) };
    assert_eq!(lost.desired(&runs), "kept");
    // What an earlier policy let the API define does not step back.
    let mut of_api = DaemonSet::clone(&theirs);
    of_api.template = json!({"spec": {"hostname": "x"}});
    assert_eq!(
        case(ApiState::Present(&theirs), Confirmation::Unasked).desired(&running(&Arc::new(of_api))),
        "wanted from API, Static with a note"
    );
}

#[test]
fn what_is_released_ends_where_nothing_but_caution_keeps_it() {
    let plain = daemon_set(Source::Api, None);
    let key = |entry: &str| Policy::default().with_release(vec![entry.to_owned()]);
    let lost = FolderState::Unsure { reason: Unproven::FolderMissing };
    let mut record = running(&plain);
    for (entry, held, kept) in [
        ("kube-system/net", "gone by_list=false ignore=None", "gone by_list=false ignore=None"),
        ("kube-system/*", "gone by_list=false ignore=None", "kept"),
        ("kube-system/other", "held, Static, ask=false", "kept"),
    ] {
        let case =
            SourcesCase { policy: key(entry), ..SourcesCase::new(FolderState::Absent, ApiState::Present(&plain)) };
        assert_eq!(case.desired(&record), held, "{entry}");
        assert_eq!(
            SourcesCase { policy: key(entry), ..SourcesCase::new(lost, ApiState::None) }.desired(&record),
            kept,
            "{entry}"
        );
    }
    record.released = true;
    let held = || SourcesCase::new(FolderState::Absent, ApiState::Present(&plain));
    assert!(held().desired(&record).starts_with("gone"));
    assert!(SourcesCase::new(lost, ApiState::None).desired(&record).starts_with("gone"));
    let labelled = daemon_set(Source::Api, Some("static"));
    let selected = SourcesCase::new(FolderState::Absent, ApiState::Present(&labelled));
    assert_eq!(selected.desired(&record), "wanted from API, Static", "it is selected again");
    let silent =
        SourcesCase { policy: key("kube-system/net"), ..SourcesCase::new(FolderState::Absent, ApiState::Unknown) };
    assert_eq!(silent.desired(&running(&labelled)), "wanted from API, Static");
}

#[test]
fn what_ends_for_the_apis_definition_returns_to_no_override_that_is_not_read_any_more() {
    let annotations = BTreeMap::from([(OVERRIDE_ANNOTATION.to_owned(), "true".to_owned())]);
    let file = Arc::new(DaemonSet { annotations, ..DaemonSet::clone(&file()) });
    let api = daemon_set(Source::Api, Some("static"));
    let unsure = FolderState::Unsure { reason: Unproven::FolderChanging };
    let case = || SourcesCase { remembered: Some(&api), has_file: true, ..SourcesCase::new(unsure, ApiState::Unknown) };
    let mut record = running(&file);
    let (since, confirmed_by) = (at(0), EndConfirmation::Reported);
    let (reason, boot) = (String::new(), String::new());
    record.instances[0].phase = Phase::Ending { since, reason, boot, returns: true, confirmed_by };
    assert_eq!(case().desired(&record), "held, Static, ask=false", "it ended to return");
    record.last = Some(LastRun { revision: "r".to_owned(), daemon_set: Arc::clone(&api), claimed: false });
    assert_eq!(case().desired(&record), "wanted from API, Static");
}
