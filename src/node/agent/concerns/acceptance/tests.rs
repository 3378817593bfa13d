use std::sync::Arc;

use serde_json::json;

use crate::core::acceptance::BOUND;
use crate::core::acceptance::BOUND_WITHOUT_API;
use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::model::ObjectKey;
use crate::core::plan::ShownNothing;
use crate::core::plan::Unseen;
use crate::core::time::at;
use crate::core::time::ms;
use crate::node::agent::decide::tests as bench;
use crate::node::api::Entry;
use crate::node::api::Scope;
use crate::node::api::Snapshot;

use super::*;

const CREATED: Timestamp = Timestamp::from_secs(2_000_000);

/// The daemon, which requests a whole core of two, as it was written.
fn records() -> Records {
    let mut records = bench::state(&bench::config()).records;
    let record = records.get_mut(&bench::key()).unwrap();
    let definition = record.instances[0].daemon_set.as_deref().cloned().unwrap();
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let mut instance = Instance::new("uid-2", "net-22222", 2, "r", CREATED);
    instance.daemon_set = Some(Arc::new(DaemonSet { template, ..definition }));
    record.instances = vec![instance];
    records
}

/// What is seen so long after, where another pod requests that much, and one that does not matter may be there.
fn seen(after: Span, held: &str, others: usize) -> Observation {
    let mut api = Snapshot::default();
    for scope in [Scope::Pods, Scope::Node] {
        api.scopes.entry(scope).or_default().lists = 1;
    }
    let entry = |value| Entry { version: 1, value: Arc::new(value) };
    api.node = Some(entry(json!({"status": {"allocatable": {"cpu": "2", "pods": "110"}}})));
    let holder = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": held}}}]}});
    api.pods.insert(ObjectKey::new("default", "holder"), entry(holder));
    for other in 0..others {
        api.pods.insert(ObjectKey::new("default", format!("other-{other}")), entry(json!({})));
    }
    let mut state = bench::state(&bench::config());
    state.records = records();
    let manifests = bench::manifests_of(&state);
    Observation { now: CREATED + after, steady: after, manifests, ..bench::observation(Some(api)) }
}

fn rejected(observation: Observation) -> Observation {
    let reply = LateAnswer {
        about: BTreeSet::from(["uid-2".to_owned()]),
        events: BTreeMap::from([("uid-2".to_owned(), Some(KubeletReport::NoRoom("OutOfcpu".to_owned())))]),
        ..LateAnswer::default()
    };
    Observation { replies: vec![Reply::LateAnswered(reply)], ..observation }
}

fn lacks_cpu() -> Fingerprint {
    Fingerprint::Lacks(vec!["cpu".to_owned()])
}

/// One look: whether the API server is asked about the instance.
fn look(acceptance: &mut Acceptance, records: &Records, observation: &Observation) -> bool {
    acceptance.observe(observation, records, at(1), RuntimeChoice::OfKubelet, "n1");
    acceptance.requests().iter().any(|request| match request {
        Request::AskAboutLate { ask_api, .. } => ask_api.iter().any(|late| late.uid == "uid-2"),
        _ => false,
    })
}

#[test]
fn what_the_node_has_too_little_for_is_asked_about_soon_and_what_changes_elsewhere_does_not_matter() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    assert!(!look(&mut acceptance, &records, &seen(ms(0), "1500m", 0)));
    assert_eq!(acceptance.due(), Some(CREATED + SOON));
    assert!(look(&mut acceptance, &records, &seen(SOON, "1500m", 0)));
    assert!(!look(&mut acceptance, &records, &seen(SOON + ms(500), "1500m", 0)), "it was asked about just now");
    look(&mut acceptance, &records, &rejected(seen(SOON + ms(600), "1500m", 3)));
    let instance = &records[&bench::key()].instances[0];
    assert_eq!(acceptance.of(instance), Accepted::NoRoom("OutOfcpu".to_owned()));
    let Fingerprints { then, now } = acceptance.surroundings_of(instance);
    assert_eq!((then, now), (&lacks_cpu(), &lacks_cpu()), "more pods are no reason to try again");
    look(&mut acceptance, &records, &seen(ms(5_000), "1000m", 3));
    let Fingerprints { then, now } = acceptance.surroundings_of(instance);
    assert!(*then == lacks_cpu() && matches!(now, Fingerprint::OfApi(_)), "there is room: {now:?}");
}

#[test]
fn room_that_comes_before_the_rejection_is_known_is_asked_about_at_once() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    assert!(!look(&mut acceptance, &records, &seen(ms(0), "1500m", 0)));
    assert!(look(&mut acceptance, &records, &seen(ms(200), "500m", 0)));
}

#[test]
fn the_predecessor_that_ends_is_not_in_the_way() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    let mut now = seen(ms(0), "500m", 0);
    let mut old = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    old["metadata"] = json!({"deletionTimestamp": "t", "ownerReferences": [{"kind": "DaemonSet", "name": "net"}]});
    let api = Arc::make_mut(&mut now.api.as_mut().unwrap().snapshot);
    api.pods.insert(ObjectKey::new("kube-system", "net-11111-n1"), Entry { version: 1, value: Arc::new(old) });
    assert!(!look(&mut acceptance, &records, &now));
    assert_eq!(acceptance.due(), Some(CREATED + LATE));
}

#[test]
fn what_has_room_is_not_asked_about_before_it_is_late() {
    let (mut acceptance, mut records) = (Acceptance::default(), records());
    assert!(!look(&mut acceptance, &records, &seen(ms(0), "1000m", 0)));
    assert_eq!(acceptance.due(), Some(CREATED + LATE));
    assert!(!look(&mut acceptance, &records, &seen(SOON, "1000m", 4)));
    assert!(look(&mut acceptance, &records, &seen(LATE, "1000m", 0)));
    // The one before it was rejected for want of room: the kubelet may have seen it later than the API server.
    let record = records.get_mut(&bench::key()).unwrap();
    let cause = crate::core::record::RestartCause::NotAccepted { reason: "OutOfcpu".to_owned() };
    record.order_restart("uid-2", cause, CREATED, &lacks_cpu());
    record.instances[0].restart = None;
    let mut acceptance = Acceptance::default();
    assert!(!look(&mut acceptance, &records, &seen(ms(0), "1000m", 0)));
    assert!(look(&mut acceptance, &records, &seen(SOON, "1000m", 0)));
}

#[test]
fn an_api_server_that_does_not_let_pods_be_read_is_asked_about_what_is_late() {
    let mut forbidden = seen(LATE, "1000m", 0);
    let api = forbidden.api.as_mut().unwrap();
    let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Forbidden, "403");
    Arc::make_mut(&mut api.snapshot).scopes.entry(Scope::Pods).or_default().error = Some((failure, CREATED));
    assert!(look(&mut Acceptance::default(), &records(), &forbidden));
    forbidden.api.as_mut().unwrap().link = crate::node::api::Link::Connecting;
    assert!(!look(&mut Acceptance::default(), &records(), &forbidden), "there is no connection");
}

#[test]
fn a_sandbox_that_does_not_stand_shows_that_its_pod_was_accepted_if_it_is_of_this_boot() {
    let of = |made: Timestamp| {
        let (mut acceptance, records) = (Acceptance::default(), records());
        let mut observation = seen(LATE, "1000m", 0);
        let about = BTreeSet::from(["uid-2".to_owned()]);
        let fallen = BTreeMap::from([("uid-2".to_owned(), made)]);
        observation.replies = vec![Reply::LateAnswered(LateAnswer { about, fallen, ..LateAnswer::default() })];
        look(&mut acceptance, &records, &seen(LATE - ms(1), "1000m", 0));
        look(&mut acceptance, &records, &observation);
        acceptance.of(&records[&bench::key()].instances[0])
    };
    assert_eq!(of(CREATED), Accepted::Yes);
    assert_ne!(of(CREATED - ms(1)), Accepted::Yes);
}

#[test]
fn a_clock_that_is_set_back_makes_no_question_wait() {
    let (mut acceptance, mut records) = (Acceptance::default(), records());
    assert!(look(&mut acceptance, &records, &seen(SOON, "1500m", 0)));
    let set_back = |after: Span| Observation { steady: after, ..seen(after - Span::from_secs(3_600), "1500m", 0) };
    records.values_mut().for_each(|record| record.not_after(set_back(SOON).now));
    look(&mut acceptance, &records, &set_back(SOON));
    assert!(look(&mut acceptance, &records, &set_back(SOON + LATE)));
}

#[test]
fn while_the_api_server_does_not_answer_the_sandboxes_of_the_runtime_tell_what_ends() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    let down = |sandboxes: &[&str]| {
        let mut observation = seen(LATE + ms(5_000), "1500m", 0);
        let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
        observation.api.as_mut().unwrap().link = crate::node::api::Link::Down { failure, since: Default::default() };
        let sandboxes = Some(Ok(sandboxes.iter().map(|uid| (*uid).to_owned()).collect()));
        observation.replies = vec![Reply::LateAnswered(LateAnswer { sandboxes, ..LateAnswer::default() })];
        observation
    };
    look(&mut acceptance, &records, &seen(LATE, "1500m", 0));
    look(&mut acceptance, &records, &down(&["holder"]));
    let instance = &records[&bench::key()].instances[0];
    let Fingerprints { then, now } = acceptance.surroundings_of(instance);
    assert!(then == now && now.is_of_runtime(), "{then:?}, {now:?}");
    look(&mut acceptance, &records, &down(&[]));
    let Fingerprints { then, now } = acceptance.surroundings_of(instance);
    assert!(then != now && now.is_of_runtime(), "the holder has ended: {then:?}, {now:?}");
}

#[test]
fn a_runtime_that_was_merely_found_is_no_pod_status_source_before_it_has_listed_a_pod_of_ours() {
    let records = records();
    let record = &records[&bench::key()];
    let mut observation = seen(LATE, "0", 0);
    let sandboxes = Some(Ok(["of-another".to_owned()].into()));
    let about = BTreeSet::from(["uid-2".to_owned()]);
    observation.replies = vec![Reply::LateAnswered(LateAnswer { about, sandboxes, ..LateAnswer::default() })];
    let view = |runtime: RuntimeChoice| {
        let mut acceptance = Acceptance::default();
        acceptance.observe(&observation, &records, at(1), runtime, "n1");
        let evidence = acceptance.evidence(record, &record.instances[0], CREATED, &observation, "n1");
        evidence.no_runtime_view
    };
    assert_eq!(view(RuntimeChoice::OfKubelet), None);
    assert_eq!(view(RuntimeChoice::Found), Some(Unseen::AnotherRuntime));
}

/// What is answered where a kubelet at work has made nothing of it.
fn found_nothing() -> LateAnswer {
    LateAnswer {
        about: BTreeSet::from(["uid-2".to_owned()]),
        sandboxes: Some(Ok(BTreeSet::new())),
        network_ready: Some(true),
        kubelet_answers: true,
        ..LateAnswer::default()
    }
}

#[test]
fn a_clock_that_is_set_forward_makes_no_kubelet_look_long_at_work() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    let mut look = |seconds: i64, set: i64| {
        let replies = vec![Reply::LateAnswered(found_nothing())];
        let seen = seen(Span::from_secs(seconds), "1", 0);
        let seen = Observation { now: seen.now + Span::from_secs(set), replies, ..seen };
        acceptance.observe(&seen, &records, at(1), RuntimeChoice::OfKubelet, "n1");
        acceptance.of(&records[&bench::key()].instances[0])
    };
    look(35, 0);
    assert!(!matches!(look(40, 40), Accepted::No(_)), "it is at work for 5 s");
    assert!(!matches!(look(64, 10_000), Accepted::No(_)));
    assert!(matches!(look(66, 10_000), Accepted::No(_)));
}

#[test]
fn what_the_kubelet_cannot_read_it_has_not_rejected() {
    let (mut acceptance, records) = (Acceptance::default(), records());
    let cut_off = Observation { manifests: Knowledge::Current(Arc::default()), ..seen(LATE, "1000m", 0) };
    assert!(!look(&mut acceptance, &records, &cut_off));
    assert!(!look(&mut acceptance, &records, &seen(LATE + ms(1), "1000m", 0)), "it can be read since just now");
    assert!(look(&mut acceptance, &records, &seen(LATE + LATE, "1000m", 0)));
}

#[test]
fn a_mirror_pod_of_an_earlier_boot_shows_no_acceptance_before_the_kubelet_has_written_in_this_one() {
    let (boot, records) = (CREATED + Span::from_secs(3_600), records());
    let of = |status: Value, created: Timestamp, waited: Span| {
        let (mut acceptance, mut records) = (Acceptance::default(), records.clone());
        let record = records.get_mut(&bench::key()).unwrap();
        record.instances[0].created = created;
        let name = evidence::mirror_key("kube-system", "net-22222", "n1");
        let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "uid-2"}}, "status": status});
        let mut look = |waited: Span, replies| {
            let mut seen = seen(boot + waited - CREATED, "0", 0);
            seen.boot = crate::node::agent::boot::Boot::new("b".to_owned(), boot);
            let api = Arc::make_mut(&mut seen.api.as_mut().unwrap().snapshot);
            api.pods.insert(name.clone(), Entry { version: 1, value: Arc::new(mirror.clone()) });
            acceptance.observe(&Observation { replies, ..seen }, &records, at(1), RuntimeChoice::OfKubelet, "n1");
        };
        look(ms(0), Vec::new());
        look(LATE, vec![Reply::LateAnswered(found_nothing())]);
        look(waited, vec![Reply::LateAnswered(found_nothing())]);
        acceptance.of(&records[&bench::key()].instances[0])
    };
    let since =
        |kind: &str, is: &str, at: Timestamp| json!({"type": kind, "status": is, "lastTransitionTime": at.to_string()});
    let ready = |is: &str, at| json!({"conditions": [since("Ready", is, at)]});
    let before = boot - Span::from_secs(60);
    assert_eq!(of(ready("True", before), CREATED, BOUND + LATE), Accepted::NotYet, "it may wait for volumes");
    assert_eq!(
        of(ready("True", before), CREATED, BOUND_WITHOUT_API + LATE),
        Accepted::No(ShownNothing(BOUND_WITHOUT_API))
    );
    assert_eq!(of(ready("True", boot), CREATED, LATE), Accepted::Yes);
    assert_eq!(of(ready("False", boot), CREATED, LATE), Accepted::NotYet, "the Node controller may have written it");
    assert_eq!(of(ready("False", boot), boot, LATE), Accepted::Yes, "it is of this boot");
    let sandbox = json!({"conditions": [since("PodReadyToStartContainers", "False", boot)]});
    assert_eq!(of(sandbox, CREATED, LATE), Accepted::Yes);
    let ended =
        |at: Timestamp| json!({"containerStatuses": [{"lastState": {"terminated": {"finishedAt": at.to_string()}}}]});
    assert_eq!(of(ended(boot), CREATED, LATE), Accepted::Yes);
    assert_eq!(of(ended(before), CREATED, LATE), Accepted::NotYet);
}
