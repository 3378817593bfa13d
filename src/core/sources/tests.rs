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
use crate::core::record::RestartCause;
use crate::core::record::RestartOrder;
use crate::core::rendering::Revision;

use super::*;

mod held;
mod overridden;
mod refused;
mod remembered;

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
    is_changing: bool,
    policy: Policy,
}

impl<'a> SourcesCase<'a> {
    fn new(folder: FolderState<'a>, api: ApiState<'a>) -> Self {
        let has_file = matches!(folder, FolderState::Present { .. });
        let policy = Policy::default();
        Self {
            folder,
            api,
            remembered: None,
            confirmation: Confirmation::Unasked,
            has_file,
            is_changing: false,
            policy,
        }
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
            is_changing: self.is_changing,
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
            Desired::Held { mode, why: Hold::Refused(_) | Hold::Overlays(_), .. } => {
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

/// The record of one that runs `daemon_set`.
fn running(daemon_set: &Arc<DaemonSet>) -> DaemonRecord {
    let mut record = record(Some("ds-uid"), true);
    record.instances[0].daemon_set = Some(Arc::clone(daemon_set));
    record
}

#[test]
fn what_was_ended_to_return_comes_back_as_it_was_whatever_its_file_says_no_more() {
    let unsure = FolderState::Unsure { reason: Unproven::FileEmpty };
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
    let cause = RestartCause::NotAccepted { reason: String::new() };
    let restart = Some(RestartOrder { cause, at: at(0), due: at(0) });
    runs.instances = vec![Instance { restart, daemon_set: Some(file()), ..Instance::new("u", "p", 0, "r", at(0)) }];
    runs.last = None;
    assert_eq!(desired(&runs), "held, Static, ask=false", "another one is to replace it");
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
    let unread = FolderState::Unsure { reason: Unproven::FolderUnread };
    let absent = || ApiState::Absent { by_event: true };
    let case = |folder| SourcesCase::new(folder, absent()).confirmed(Confirmation::Gone);
    assert_eq!(case(unread).desired(&ended), "gone by_list=false ignore=Some(\"f1\")");
    assert_eq!(case(FolderState::Absent).desired(&ended), "gone by_list=false ignore=None");
}

#[test]
fn what_ended_for_a_restart_returns_though_its_newest_definition_is_refused() {
    let mut ended = record(Some("ds-uid"), false);
    let refused = || ApiState::Invalid(RefusedVersion::HeldBack(HeldBack::AwaitsTurn));
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
    let unsure = FolderState::Unsure { reason: Unproven::FolderMissing };
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
    assert_eq!(absent().confirmed(Confirmation::Failed(NoAnswer::Failed("timeout".into()))).desired(&runs), "unsure");
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
    assert_eq!(case().confirmed(Confirmation::Failed(NoAnswer::AnotherCluster)).desired(&runs), "unsure");
}

#[test]
fn what_a_file_selected_ends_with_the_file_and_not_with_its_folder() {
    let plain = daemon_set(Source::Api, None);
    let record = running(&plain);
    let case = |folder| SourcesCase { has_file: true, ..SourcesCase::new(folder, ApiState::Present(&plain)) };
    assert_eq!(case(FolderState::Absent).desired(&record), "confirm");
    let gone = case(FolderState::Absent).confirmed(Confirmation::NotCovered);
    assert!(gone.desired(&record).starts_with("gone"));
    let lost = FolderState::Unsure { reason: Unproven::FolderMissing };
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
fn where_nothing_runs_and_no_file_defines_it_nobody_is_asked() {
    let gone = KnownDefinition {
        folder: FolderState::Absent,
        api: ApiState::Absent { by_event: true },
        remembered: None,
        confirmation: Confirmation::Unasked,
        has_file: false,
        is_superseded: false,
        is_changing: false,
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
fn what_the_api_had_is_not_said_to_be_missing_from_a_file() {
    let reason = |has_file: bool| {
        let known = KnownDefinition {
            folder: FolderState::Absent,
            api: ApiState::Absent { by_event: false },
            remembered: None,
            confirmation: Confirmation::Unasked,
            has_file,
            is_superseded: false,
            is_changing: false,
        };
        match resolve(&known, &record(None, false), &Policy::default(), &namespaces()) {
            Desired::Gone { reason, .. } => reason.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([true, false].map(reason), ["no file defines it any more", "nothing defines it any more"]);
}
