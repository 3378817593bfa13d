use crate::core::time::at;
use std::collections::BTreeMap;

use serde_json::json;

use crate::core::model::IntOrPercent;
use crate::core::model::Kind;
use crate::core::model::MODE_LABEL;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::UpdateStrategy;
use crate::core::policy::PodRules;
use crate::core::policy::Policy;
use crate::core::record::EndConfirmation;
use crate::core::record::Instance;
use crate::core::record::LastRun;
use crate::core::record::Phase;
use crate::core::rendering::Revision;

use super::*;

fn daemon_set(source: Source, mode: Option<&str>) -> Arc<DaemonSet> {
    let labels = mode.map(|m| (MODE_LABEL.to_owned(), m.to_owned())).into_iter().collect();
    Arc::new(DaemonSet {
        key: ObjectKey::new("kube-system", "net"),
        uid: (source == Source::Api).then(|| "ds-uid".to_owned()),
        generation: None,
        labels,
        annotations: BTreeMap::new(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({}),
        template: json!({}),
        update_strategy: UpdateStrategy::RollingUpdate {
            max_unavailable: IntOrPercent::Int(1),
            max_surge: IntOrPercent::Int(0),
        },
        min_ready_seconds: 0,
        admitted: None,
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source,
    })
}

fn namespaces() -> ObjectMap {
    enforcing("privileged")
}

/// The namespace of them all, with what it enforces.
fn enforcing(level: &str) -> ObjectMap {
    let namespace = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
    let reference = ObjectRef::new(Kind::Namespace, "", "kube-system");
    ObjectMap { objects: [(reference, namespace)].into(), complete: false }
}

fn file() -> Arc<DaemonSet> {
    daemon_set(Source::File { path: "/etc/daemonlet/daemonsets.d/net.yaml".into() }, None)
}

fn record(api_uid: Option<&str>, runs: bool) -> DaemonRecord {
    let mut record = DaemonRecord::new(ObjectKey::new("kube-system", "net"), 0);
    record.api_uid = api_uid.map(str::to_owned);
    if runs {
        record.instances.push(Instance { started: true, ..Instance::new("u", "net-aaaaa", 0, "r", at(0)) });
    }
    record
}

struct SourcesCase<'a> {
    folder: FolderState<'a>,
    api: ApiState<'a>,
    remembered: Option<&'a Arc<DaemonSet>>,
    confirmation: Confirmation,
    has_file: bool,
    policy: Policy,
}

impl<'a> SourcesCase<'a> {
    fn new(folder: FolderState<'a>, api: ApiState<'a>) -> Self {
        let has_file = matches!(folder, FolderState::Present { .. });
        let policy = Policy::default();
        Self { folder, api, remembered: None, confirmation: Confirmation::Unasked, has_file, policy }
    }

    fn confirmed(mut self, confirmation: Confirmation) -> Self {
        self.confirmation = confirmation;
        self
    }

    fn desired(self, record: &DaemonRecord) -> String {
        let known = KnownDefinition {
            folder: self.folder,
            api: self.api,
            remembered: self.remembered,
            confirmation: self.confirmation,
            has_file: self.has_file,
            is_superseded: false,
        };
        match resolve(&known, record, &self.policy, &namespaces()) {
            Desired::Wanted { daemon_set, mode, note } => {
                let note = note.map(|_| " with a note").unwrap_or_default();
                let from = if daemon_set.source == Source::Api { "API" } else { "file" };
                format!("wanted from {from}, {mode:?}{note}")
            }
            Desired::Left { taken_away: true, .. } => "left, and forgotten".into(),
            Desired::Left { .. } => "left".into(),
            Desired::SetAside { .. } => "set aside".into(),
            Desired::Refused { mode, errors } => format!("refused, {mode:?}: {}", errors[0]),
            Desired::Gone { by_list, ignore_file, .. } => format!("gone by_list={by_list} ignore={ignore_file:?}"),
            Desired::Orphaned { .. } => "orphaned".into(),
            Desired::Confirm { .. } => "confirm".into(),
            Desired::Held { mode, why: Hold::Refused(_) | Hold::TooLarge(_) | Hold::Overlays(_), .. } => {
                format!("held as refused, {mode:?}")
            }
            Desired::Held { mode, why: Hold::Narrowed(_) | Hold::Forbidden(_) | Hold::Undefined(_), ask, .. } => {
                format!("held, {mode:?}, ask={ask}")
            }
            Desired::Kept { .. } => "kept".into(),
            Desired::Unsure { .. } => "unsure".into(),
        }
    }
}

#[test]
fn what_was_ended_to_return_comes_back_as_it_was_whatever_its_file_says_no_more() {
    let unsure = FolderState::Unsure { reason: "its file has no document" };
    let desired = |record: &DaemonRecord| SourcesCase::new(unsure, ApiState::None).desired(record);
    let mut runs = record(None, true);
    runs.instances[0].daemon_set = Some(file());
    assert_eq!(desired(&runs), "kept");
    for (returns, expected) in [(true, "held, Static, ask=false"), (false, "kept")] {
        let (since, confirmed_by) = (at(0), EndConfirmation::ByTime);
        let (reason, boot) = (String::new(), String::new());
        runs.instances[0].phase = Phase::Ending { since, reason, boot, confirmed_by, returns };
        assert_eq!(desired(&runs), expected);
    }
    runs.instances.clear();
    assert_eq!(desired(&runs), "kept", "nothing is to return");
    runs.last = Some(LastRun { revision: "r".to_owned(), daemon_set: file(), claimed: false });
    assert_eq!(desired(&runs), "held, Static, ask=false");
}

#[test]
fn a_folder_replaces_nothing_that_an_api_server_may_have_defined_which_has_not_answered_yet() {
    let file = file();
    let present = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let mut runs = record(None, true);
    assert_eq!(SourcesCase::new(present, ApiState::Unknown).desired(&runs), "unsure");
    assert_eq!(SourcesCase::new(present, ApiState::Unread).desired(&runs), "unsure");
    assert_eq!(SourcesCase::new(present, ApiState::Unread).desired(&record(None, false)), "unsure", "not for a moment");
    assert_eq!(SourcesCase::new(present, ApiState::None).desired(&runs), "wanted from file, Static");
    runs.instances[0].revision = Revision::of(&file).hash;
    assert_eq!(
        SourcesCase::new(present, ApiState::Unknown).desired(&runs),
        "wanted from file, Static",
        "it is the file's"
    );
    (runs.instances[0].revision, runs.instances[0].daemon_set) = ("r".to_owned(), Some(Arc::clone(&file)));
    assert_eq!(
        SourcesCase::new(present, ApiState::Unknown).desired(&runs),
        "wanted from file, Static",
        "a file defined it"
    );
}

#[test]
fn a_file_that_cannot_be_read_for_a_while_does_not_bring_back_what_was_deleted() {
    let mut ended = record(Some("ds-uid"), false);
    ended.ignored_file = Some("f1".to_owned());
    let unread = FolderState::Unsure { reason: "its folder cannot be read" };
    let absent = || ApiState::Absent { by_event: true };
    let case = |folder| SourcesCase::new(folder, absent()).confirmed(Confirmation::Gone);
    assert_eq!(case(unread).desired(&ended), "gone by_list=false ignore=Some(\"f1\")");
    assert_eq!(case(FolderState::Absent).desired(&ended), "gone by_list=false ignore=None");
}

#[test]
fn what_ended_for_a_restart_returns_though_its_newest_definition_is_refused() {
    let mut ended = record(Some("ds-uid"), false);
    let refused = || ApiState::Invalid { reason: "no such mode" };
    assert_eq!(SourcesCase::new(FolderState::Absent, refused()).desired(&ended), "unsure");
    let daemon_set = daemon_set(Source::Api, Some("static"));
    ended.last = Some(crate::core::record::LastRun { revision: "r".to_owned(), daemon_set, claimed: false });
    assert_eq!(SourcesCase::new(FolderState::Absent, refused()).desired(&ended), "held as refused, Static");
}

#[test]
fn a_folder_daemon_runs_as_static_without_api_and_before_the_api_has_answered() {
    let file = file();
    let present = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    for api in [ApiState::None, ApiState::Unknown, ApiState::Absent { by_event: false }] {
        assert_eq!(SourcesCase::new(present, api).desired(&record(None, false)), "wanted from file, Static");
    }
}

#[test]
fn a_file_that_went_is_evidence_only_where_its_folder_says_so() {
    let runs = record(None, true);
    assert!(SourcesCase::new(FolderState::Absent, ApiState::None).desired(&runs).starts_with("gone"));
    let unsure = FolderState::Unsure { reason: "the folder is missing" };
    assert_eq!(SourcesCase::new(unsure, ApiState::None).desired(&runs), "kept");
    let from_api = record(Some("ds-uid"), true);
    assert_eq!(SourcesCase::new(FolderState::Absent, ApiState::Unknown).desired(&from_api), "unsure");
    assert_eq!(SourcesCase::new(FolderState::Absent, ApiState::None).desired(&from_api), "kept");
}

#[test]
fn the_apis_version_replaces_the_folders_and_inherits_its_mode() {
    let (file, api) = (file(), daemon_set(Source::Api, None));
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    assert_eq!(
        SourcesCase::new(folder, ApiState::Present(&api)).desired(&record(None, true)),
        "wanted from API, Static"
    );
}

#[test]
fn an_absence_needs_a_get_that_says_so() {
    let runs = record(Some("ds-uid"), true);
    let absent = || SourcesCase::new(FolderState::Absent, ApiState::Absent { by_event: false });
    assert_eq!(absent().desired(&runs), "confirm");
    assert_eq!(absent().confirmed(Confirmation::Failed("timeout".into())).desired(&runs), "unsure");
    assert_eq!(absent().confirmed(Confirmation::StillThere).desired(&runs), "unsure");
    assert_eq!(absent().confirmed(Confirmation::Gone).desired(&runs), "gone by_list=true ignore=None");
    let deleted = SourcesCase::new(FolderState::Absent, ApiState::Absent { by_event: true });
    assert_eq!(deleted.confirmed(Confirmation::Gone).desired(&runs), "gone by_list=false ignore=None");
}

#[test]
fn a_daemon_deleted_in_the_api_does_not_come_back_from_its_file_until_that_changes() {
    let file = file();
    let folder = FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    let mut gone = record(Some("ds-uid"), true);
    let case = SourcesCase::new(folder, ApiState::Absent { by_event: true }).confirmed(Confirmation::Gone);
    assert_eq!(case.desired(&gone), "gone by_list=false ignore=Some(\"f1\")");
    gone.ignored_file = Some("f1".into());
    gone.instances.clear();
    for api in [ApiState::Absent { by_event: false }, ApiState::Unknown, ApiState::None] {
        assert!(SourcesCase::new(folder, api).desired(&gone).starts_with("gone"), "the file counts again too early");
    }
    let changed = FolderState::Present { daemon_set: &file, fingerprint: "f2" };
    let again = SourcesCase::new(changed, ApiState::Absent { by_event: false });
    assert_eq!(again.desired(&gone), "wanted from file, Static");
}

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
    // What ends for good was deleted, whether its file is ignored or there is none.
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

#[test]
fn the_node_owners_override_counts_until_the_api_has_something_newer() {
    let annotations = BTreeMap::from([(OVERRIDE_ANNOTATION.to_owned(), "true".to_owned())]);
    let file = Arc::new(DaemonSet { annotations, ..DaemonSet::clone(&file()) });
    let api = daemon_set(Source::Api, Some("static"));
    let newer = Arc::new(DaemonSet { template: json!({"spec": {}}), ..DaemonSet::clone(&api) });
    let folder = || FolderState::Present { daemon_set: &file, fingerprint: "f1" };
    for (of_api, expected) in [
        (ApiState::Unknown, "wanted from file, Static"),
        (ApiState::Present(&api), "wanted from file, Static"),
        (ApiState::Present(&newer), "wanted from API, Static"),
    ] {
        let case = SourcesCase { remembered: Some(&api), ..SourcesCase::new(folder(), of_api) };
        assert_eq!(case.desired(&record(Some("ds-uid"), true)), expected);
    }
}

#[test]
fn a_label_taken_away_counts_when_a_get_shows_it() {
    let (api, before) = (daemon_set(Source::Api, None), daemon_set(Source::Api, Some("static")));
    let case =
        || SourcesCase { remembered: Some(&before), ..SourcesCase::new(FolderState::Absent, ApiState::Present(&api)) };
    let stopped = record(Some("ds-uid"), false);
    assert_eq!(case().desired(&stopped), "left, and forgotten");
    let narrower = Policy::new(None, "", vec!["other".to_owned()]).unwrap();
    assert_eq!(SourcesCase { policy: narrower, ..case() }.desired(&stopped), "left", "the label is not all");
    let typo = daemon_set(Source::Api, Some("Static"));
    let mistyped =
        SourcesCase { remembered: Some(&before), ..SourcesCase::new(FolderState::Absent, ApiState::Present(&typo)) };
    assert_eq!(mistyped.desired(&stopped), "left", "a typing error takes nothing away");
    let runs = record(Some("ds-uid"), true);
    assert_eq!(case().desired(&runs), "confirm");
    assert!(case().confirmed(Confirmation::NotCovered).desired(&runs).starts_with("gone"));
    assert_eq!(case().confirmed(Confirmation::Failed("403".into())).desired(&runs), "unsure");
}

/// The policy of another configuration.
fn policy(default_mode: Option<Mode>, selector: &str, namespaces: &[&str]) -> Policy {
    Policy::new(default_mode, selector, namespaces.iter().map(|&n| n.to_owned()).collect()).unwrap()
}

/// The record of one that runs `daemon_set`.
fn running(daemon_set: &Arc<DaemonSet>) -> DaemonRecord {
    let mut record = record(Some("ds-uid"), true);
    record.instances[0].daemon_set = Some(Arc::clone(daemon_set));
    record
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
        for answer in [Confirmation::NotCovered, Confirmation::StillThere, Confirmation::Failed("403".into())] {
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
        (ApiState::Invalid { reason: "x" }, "wanted from file, Static with a note"),
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
    let unread = FolderState::Unsure { reason: "it is not mounted" };
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
    let lost = FolderState::Unsure { reason: "the folder is missing" };
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
fn what_a_file_selected_ends_with_the_file_and_not_with_its_folder() {
    let plain = daemon_set(Source::Api, None);
    let record = running(&plain);
    let case = |folder| SourcesCase { has_file: true, ..SourcesCase::new(folder, ApiState::Present(&plain)) };
    assert_eq!(case(FolderState::Absent).desired(&record), "confirm");
    let gone = case(FolderState::Absent).confirmed(Confirmation::NotCovered);
    assert!(gone.desired(&record).starts_with("gone"));
    let lost = FolderState::Unsure { reason: "the folder is missing" };
    assert_eq!(case(lost).confirmed(Confirmation::NotCovered).desired(&record), "kept");
}

#[test]
fn deletion_in_progress_follows_its_finalizers() {
    let deleting = |finalizer: &str| {
        let mut daemon_set = DaemonSet::clone(&daemon_set(Source::Api, Some("static")));
        daemon_set.deleting = true;
        daemon_set.finalizers = vec![finalizer.to_owned()];
        Arc::new(daemon_set)
    };
    let runs = record(Some("ds-uid"), true);
    for (finalizer, expected) in
        [("foregroundDeletion", "gone by_list=false ignore=None"), ("orphan", "orphaned"), ("other/thing", "unsure")]
    {
        let api = deleting(finalizer);
        assert_eq!(
            SourcesCase::new(FolderState::Absent, ApiState::Present(&api)).desired(&runs),
            expected,
            "{finalizer}"
        );
    }
}

#[test]
fn an_orphaning_deletion_that_was_over_at_once_keeps_what_runs_all_the_same() {
    let known = SourcesCase::new(FolderState::Absent, ApiState::Orphaned);
    assert_eq!(known.desired(&record(Some("u"), true)), "orphaned");
}

#[test]
fn an_invalid_version_keeps_what_runs() {
    let file = file();
    let invalid = || ApiState::Invalid { reason: "spec.selector: empty" };
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
    let unlabelled = too_large(Covered::No("no label".to_owned()));
    let case = || SourcesCase::new(FolderState::Absent, ApiState::TooLarge(&unlabelled));
    assert_eq!(case().desired(&record(None, false)), "left");
    assert_eq!(case().desired(&running(&labelled)), "confirm");
    assert_eq!(
        case().confirmed(Confirmation::NotCovered).desired(&running(&labelled)),
        "gone by_list=false ignore=None"
    );
}

#[test]
fn where_nothing_runs_and_no_file_defines_it_nobody_is_asked() {
    let gone = KnownDefinition {
        folder: FolderState::Absent,
        api: ApiState::Absent { by_event: true },
        remembered: None,
        confirmation: Confirmation::Unasked,
        has_file: false,
        is_superseded: false,
    };
    let policy = Policy::default();
    let resolved = resolve(&gone, &record(Some("ds-uid"), false), &policy, &namespaces());
    assert!(matches!(resolved, Desired::Gone { by_list: false, .. }), "{resolved:?}");
    let resolved = resolve(&gone, &record(Some("ds-uid"), true), &policy, &namespaces());
    assert!(matches!(resolved, Desired::Confirm { .. }), "{resolved:?}");
    let file = file();
    let defined = FolderState::Present { daemon_set: &file, fingerprint: "f" };
    let resolved =
        resolve(&KnownDefinition { folder: defined, ..gone }, &record(Some("ds-uid"), false), &policy, &namespaces());
    assert!(matches!(resolved, Desired::Confirm { .. }), "{resolved:?}");
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
    };
    let present = known(ApiState::Present(&changed));
    let mut running = record(Some("ds-uid"), true);
    let unknown = running.clone();
    running.instances[0].daemon_set = Some(Arc::clone(&folder));
    let desired = |record: &DaemonRecord, objects: &ObjectMap| {
        let Desired::Wanted { daemon_set, note, .. } = resolve(&present, record, &Policy::default(), objects) else {
            panic!("it is wanted")
        };
        (daemon_set.source == Source::Api, note.unwrap_or_default())
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
    // Nor is the revision of the API that runs: the folder's would be a step back that nobody approved.
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
    assert!(note.is_some_and(|note| note.starts_with("the API's new version is not used, what runs stays: ")));
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
