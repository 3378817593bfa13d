use crate::core::orders::NoAnswer;
use crate::core::plan::Reason;
use serde_json::json;

use crate::core::knowledge::Knowledge;
use crate::core::model::MODE_LABEL;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::time::at;
use crate::node::agent::decide::tests::object;
use crate::node::api;
use crate::node::api::Definition;
use crate::node::api::ScopeState;

use crate::node::api::ApiFailure;
use crate::node::api::FailureKind;

use super::*;

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "net")
}

/// The guard after a pass at `millis` whose plan wants the daemon confirmed; the question that it sends, if any.
fn pass(guard: &mut RemovalGuard, definitions: &ApiDefinitions, millis: i64, replies: Vec<Reply>) -> Option<u64> {
    let wanted = [Action::Confirm { reason: Reason::MayBeHidden }];
    pass_of(&wanted, guard, definitions, millis, replies)
}

/// The same with a plan of these actions.
fn pass_of(
    actions: &[Action],
    guard: &mut RemovalGuard,
    definitions: &ApiDefinitions,
    millis: i64,
    replies: Vec<Reply>,
) -> Option<u64> {
    let api = Some(Snapshot::default());
    let observation = Observation { replies, ..Observation::of(api, Knowledge::NeverHeard, millis) };
    guard.observe(&observation, definitions);
    let mut record = DaemonRecord::new(key(), 1);
    record.api_uid = Some("u1".to_owned());
    let records = Records::from([(key(), record.clone())]);
    let mut daemon = DaemonPlan::new(record);
    daemon.actions.extend(actions.iter().cloned());
    let plan = Plan { daemons: vec![daemon], removals_held: false, ..Plan::default() };
    let known = QuestionInputs { records: &records, definitions, cluster: None, removals_delay: Span::from_secs(30) };
    let requests = guard.requests(&observation, &plan, &known, &mut Log::default());
    requests.into_iter().find_map(|request| match request {
        Request::ConfirmRemoval { about, .. } => Some(about),
        _ => None,
    })
}

fn answer(about: u64, confirmation: Confirmation) -> Vec<Reply> {
    vec![Reply::RemovalConfirmed { key: key(), about, cluster: None, confirmation }]
}

/// What the API shows: nothing, or the DaemonSet of this UID.
fn shown(uid: Option<&str>) -> Snapshot {
    let mut api = Snapshot::default();
    let definition = |uid| Definition::of(&object(uid, json!({MODE_LABEL: "static"})), 7);
    api.daemon_sets.extend(uid.map(|uid| (key(), definition(uid))));
    api
}

#[test]
fn what_a_get_said_of_a_deleted_daemon_is_not_believed_of_its_successor() {
    let (mut guard, mut definitions) = (RemovalGuard::default(), ApiDefinitions::default());
    let about = pass(&mut guard, &definitions, 0, Vec::new()).unwrap();
    assert_eq!(pass(&mut guard, &definitions, 1, answer(about, Confirmation::Gone)), None);
    definitions.update(&shown(Some("u2")));
    pass(&mut guard, &definitions, 2, Vec::new());
    definitions.update(&shown(None));
    assert!(pass(&mut guard, &definitions, 3, Vec::new()).is_some(), "a later absence is asked about anew");
}

#[test]
fn a_get_is_sent_once_and_again_when_it_gave_no_lasting_answer() {
    let (mut guard, definitions) = (RemovalGuard::default(), ApiDefinitions::default());
    let about = pass(&mut guard, &definitions, 0, Vec::new()).unwrap();
    assert_eq!(pass(&mut guard, &definitions, 1, Vec::new()), None, "it is under way");
    let failed = answer(about, Confirmation::Failed(NoAnswer::Failed("timeout".into())));
    assert_eq!(pass(&mut guard, &definitions, 2, failed), None);
    assert_eq!(guard.due(), Some(at(2) + ASK_AGAIN));
    let again = 2 + ASK_AGAIN.as_millis();
    assert!(pass(&mut guard, &definitions, again, Vec::new()).is_some());
    assert_eq!(pass(&mut guard, &definitions, 9_000, answer(about, Confirmation::Gone)), None);
    assert_eq!(pass(&mut guard, &definitions, 1_000_000, Vec::new()), None, "this answer lasts");
}

#[test]
fn an_answer_that_no_removal_waits_for_any_more_makes_no_pass() {
    let (mut guard, definitions) = (RemovalGuard::default(), ApiDefinitions::default());
    let about = pass(&mut guard, &definitions, 0, Vec::new()).unwrap();
    let failed = answer(about, Confirmation::Failed(NoAnswer::Failed("timeout".into())));
    assert_eq!(pass(&mut guard, &definitions, 1, failed), None);
    // Another cluster answers meanwhile: what is missing there is not asked about.
    let then = 1 + ASK_AGAIN.as_millis();
    assert_eq!(pass_of(&[], &mut guard, &definitions, then - 1, Vec::new()), None);
    assert_eq!(guard.due(), Some(at(then)));
    assert_eq!(pass_of(&[], &mut guard, &definitions, then, Vec::new()), None);
    assert_eq!(guard.due(), None);
    assert!(pass(&mut guard, &definitions, then, Vec::new()).is_some(), "asked about again, it is asked anew");
}

#[test]
fn a_reply_that_comes_late_or_twice_changes_nothing() {
    let (mut guard, mut definitions) = (RemovalGuard::default(), ApiDefinitions::default());
    let about = pass(&mut guard, &definitions, 0, Vec::new()).unwrap();
    definitions.update(&shown(Some("u2")));
    pass(&mut guard, &definitions, 1, answer(about, Confirmation::Gone));
    definitions.update(&shown(None));
    assert!(
        pass(&mut guard, &definitions, 2, Vec::new()).is_some(),
        "an answer that came while it was back is dropped"
    );
    let gone = answer(about, Confirmation::Gone);
    assert_eq!(pass(&mut guard, &definitions, 3, [gone.clone(), gone].concat()), None);
    assert_eq!(guard.confirmation(&key(), about, at(4)), Confirmation::Gone);
}

#[test]
fn another_cluster_under_the_same_address_proves_nothing() {
    let (mut guard, mut known) = (RemovalGuard::default(), Some("one".to_owned()));
    let reply = |uid: &str| vec![Reply::ClusterIdentity { connection: 1, cluster: Ok(uid.to_owned()) }];
    let observe = |guard: &mut RemovalGuard, known: &mut Option<String>, uid: &str| {
        let observation = Observation { replies: reply(uid), ..Observation::of(None, Knowledge::NeverHeard, 0) };
        guard.identify_cluster(&observation, known);
    };
    observe(&mut guard, &mut known, "two");
    assert!(guard.is_another_cluster() && known.as_deref() == Some("one") && guard.is_view_foreign(known.as_ref()));
    observe(&mut guard, &mut known, "one");
    assert!(!guard.is_another_cluster());
    assert!(guard.is_view_foreign(known.as_ref()), "what the other one showed is still known");
    let known = QuestionInputs {
        records: &Records::new(),
        definitions: &ApiDefinitions::default(),
        cluster: known.as_ref(),
        removals_delay: Span::from_secs(30),
    };
    let observation = Observation::of(None, Knowledge::NeverHeard, 0);
    let plan = Plan::default();
    let requests = guard.requests(&observation, &plan, &known, &mut Log::default());
    assert_eq!(requests, [Request::ForgetApiView]);
    assert!(!guard.is_view_foreign(known.cluster));
}

#[test]
fn until_the_cluster_has_said_who_it_is_on_this_connection_nothing_that_it_says_counts() {
    let (mut guard, mut known) = (RemovalGuard::default(), Some("one".to_owned()));
    let observe = |guard: &mut RemovalGuard, known: &mut Option<String>, connection: u64, replies: Vec<Reply>| {
        let mut observation = Observation::of(Some(shown(Some("u1"))), Knowledge::NeverHeard, 0);
        observation.api.as_mut().unwrap().connections_opened = connection;
        guard.identify_cluster(&Observation { replies, ..observation }, known);
        guard.is_view_foreign(known.as_ref())
    };
    let said = |connection, cluster: Result<&str, FailureKind>| {
        let cluster = cluster.map(str::to_owned).map_err(|kind| ApiFailure::new(kind, "no"));
        vec![Reply::ClusterIdentity { connection, cluster }]
    };
    assert!(observe(&mut guard, &mut known, 1, Vec::new()));
    assert!(observe(&mut guard, &mut known, 1, said(1, Err(FailureKind::Server))));
    let problems = guard.problems(known.as_ref(), Path::new("/inputs"), at(0));
    assert!(problems[0].reason.contains("does not say which cluster it is"), "{problems:?}");
    assert!(!observe(&mut guard, &mut known, 1, said(1, Ok("one"))));
    assert_eq!(guard.problems(known.as_ref(), Path::new("/inputs"), at(0)), []);
    assert!(observe(&mut guard, &mut known, 2, Vec::new()), "behind a new connection there may be another one");
    assert!(!observe(&mut guard, &mut known, 2, said(2, Err(FailureKind::Forbidden))), "it is believed");
    assert!(!observe(&mut guard, &mut known, 2, said(2, Err(FailureKind::Timeout))), "one failure does not undo that");
    assert!(!observe(&mut guard, &mut known, 2, said(1, Err(FailureKind::Timeout))), "nor does a late one");
    assert!(observe(&mut guard, &mut known, 3, Vec::new()));
    assert!(observe(&mut guard, &mut known, 4, Vec::new()));
    assert!(observe(&mut guard, &mut known, 4, said(4, Ok("one"))), "what connection 3 has shown is forgotten first");
    let mut first = None;
    assert!(!observe(&mut RemovalGuard::default(), &mut first, 1, Vec::new()), "no other one is known");
}

#[test]
fn an_api_server_that_does_not_say_which_cluster_it_is_is_reported_though_it_does_not_refuse() {
    let (mut check, mut known) = (cluster::ClusterIdentityCheck::default(), Some("one".to_owned()));
    let mut pass = |now: i64, connection: u64, says: Option<&str>| {
        let mut observation = Observation::of(Some(shown(None)), Knowledge::NeverHeard, now);
        observation.api.as_mut().unwrap().connections_opened = connection;
        let reply = |uid: &str| Reply::ClusterIdentity { connection, cluster: Ok(uid.to_owned()) };
        observation.replies.extend(says.map(reply));
        check.observe(&observation, &mut known);
        check.ask(at(now));
        check.is_silent(at(now))
    };
    assert_eq!((pass(0, 1, None), pass(999, 1, None), pass(1_000, 1, None)), (false, false, true));
    assert!(pass(5_000, 1, None) && pass(5_001, 1, None), "also while it is asked again");
    assert!(!pass(5_002, 2, None), "of a new connection nothing is known");
    assert!(pass(6_002, 2, None) && !pass(6_003, 2, Some("one")));
}

#[test]
fn a_refused_question_is_asked_again_soon_and_then_less_often() {
    let (mut check, mut known) = (cluster::ClusterIdentityCheck::default(), Some("one".to_owned()));
    let mut pass = |now: i64, connection: u64, refused: bool| {
        let mut observation = Observation::of(Some(shown(None)), Knowledge::NeverHeard, now);
        observation.api.as_mut().unwrap().connections_opened = connection;
        let failure = ApiFailure::new(FailureKind::Server, "starting");
        observation.replies.extend(refused.then_some(Reply::ClusterIdentity { connection, cluster: Err(failure) }));
        check.observe(&observation, &mut known);
        (check.ask(at(now)).is_some(), check.due().map(|due| due - at(now)))
    };
    let span = |millis| Some(Span::from_millis(millis));
    assert_eq!(pass(0, 1, false), (true, Some(ASK_AGAIN)), "no answer yet");
    assert_eq!(pass(0, 1, true), (false, span(300)));
    assert_eq!(pass(300, 1, false), (true, span(300)));
    assert_eq!(pass(300, 1, true), (false, span(600)));
    assert_eq!(pass(900, 1, false), (true, span(600)));
    let mut now = 900;
    for _ in 0..40 {
        let (_, due) = pass(now, 1, true);
        now += due.unwrap().as_millis();
        assert!(pass(now, 1, false).0);
    }
    assert_eq!(pass(now, 1, true), (false, Some(ASK_AGAIN)), "at the longest");
    assert_eq!(pass(now, 2, false), (true, Some(ASK_AGAIN)), "of a new connection nothing is known");
}

#[test]
fn only_a_view_that_shows_what_is_missing_ends_the_doubt_about_a_restored_backup() {
    let back = api::EtcdRollback { number: 1, from: 20, to: 10 };
    let mut guard = RemovalGuard::default();
    let mut doubts_with = |lists: u64, pods: Option<FailureKind>| {
        let mut api = Snapshot::default();
        let error = pods.map(|kind| (ApiFailure::new(kind, "refused"), at(0)));
        api.scopes.insert(Scope::DaemonSets, ScopeState { lists, ..ScopeState::default() });
        api.scopes.insert(Scope::Pods, ScopeState { error, ..ScopeState::default() });
        (api.etcd_rollback_detection.is_known, api.etcd_rollback_detection.rollback) = (true, Some(back));
        let observation = Observation::of(Some(api), Knowledge::NeverHeard, 0);
        let (definitions, records) = (ApiDefinitions::default(), Records::new());
        guard.observe(&observation, &definitions);
        let known =
            QuestionInputs { records: &records, definitions: &definitions, cluster: None, removals_delay: Span::ZERO };
        guard.requests(&observation, &Plan::default(), &known, &mut Log::default());
        guard.etcd_rollback.problem().is_some()
    };
    assert!(doubts_with(0, None), "its view was forgotten");
    assert!(doubts_with(1, Some(FailureKind::Forbidden)), "whether a missing DaemonSet was orphaned is unknown");
    assert!(!doubts_with(1, None));
}
