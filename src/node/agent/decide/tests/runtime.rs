//! What the container runtime says, or does not.

use crate::core::record::Phase;

use super::*;

#[test]
fn an_api_server_that_comes_back_while_the_runtime_hangs_is_noticed_and_nothing_is_taken_for_gone() {
    let config = config();
    let mut state = state(&config);
    let down = |millis: i64, link: Link| {
        let mut observation = observation(Some(Snapshot::default()));
        observation.now = Timestamp::from_millis(millis);
        observation.runtime = Knowledge::Unreadable("the container runtime has not answered yet".to_owned().into());
        if let Some(api) = &mut observation.api {
            api.link = link;
        }
        observation
    };
    let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
    let since = Default::default();
    for (millis, link) in [(2_000_000, Link::Down { failure, since }), (2_000_500, Link::Up)] {
        let observation = down(millis, link);
        let decision = decided(&observation, &state, &config);
        assert_eq!(decision.daemon(&key()).unwrap().record.instances.len(), 1);
        let lines: Vec<&str> = decision.log.0.iter().map(|line| line.text.as_str()).collect();
        let expected = if observation.is_linked() { "answers again" } else { "unreachable" };
        assert!(lines.iter().any(|line| line.contains(expected)), "{lines:?}");
        assert!(!decision.requests.iter().any(|r| matches!(r, Request::RestartSandboxes { .. })));
        state = AgentState::commit(decision.state, &decision.plan, &EffectOutcome::default(), observation.now);
    }
}

#[test]
fn what_runs_without_a_record_ends_before_another_one_starts() {
    let config = config();
    let mut state = state(&config);
    (state.records, state.may_run_unrecorded) = (Default::default(), true);
    let found_with = |source: &str, unreadable: &[&str]| {
        let annotations = [
            ("kubernetes.io/config.source", source),
            (crate::core::model::OWNER_ANNOTATION, "kube-system/net"),
            (crate::core::model::INCARNATION_ANNOTATION, "6"),
        ];
        let sandbox = crate::node::cri::Sandbox {
            id: "s".to_owned(),
            uid: "lost".to_owned(),
            name: "net-xxxxx-n1".to_owned(),
            namespace: "kube-system".to_owned(),
            attempt: 0,
            state: crate::node::cri::SandboxState::Ready,
            created_at_ns: 0,
            annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let pods = crate::node::agent::runtime_pods::runtime_pods(&[sandbox], &[]);
        let link = || crate::node::fsx::FsError::reading("/m", std::io::Error::other("it is a link"));
        let unreadable = unreadable.iter().map(|name| ((*name).to_owned(), link())).collect();
        let manifests = Knowledge::Current(Arc::new(Scan { unreadable, ..Scan::default() }));
        let seen = Observation { runtime: Knowledge::Current(Arc::new(pods)), manifests, ..observation(None) };
        decided(&seen, &state, &config).state
    };
    let found = |source: &str| found_with(source, &[]);
    assert!(found("api").records.is_empty(), "the annotations of other pods are anybody's");
    let silent = |seconds| {
        let runtime = Knowledge::Unreadable("it has not answered yet".to_owned().into());
        let seen = Observation { runtime, steady: Span::from_secs(seconds), ..observation(None) };
        decided(&seen, &state, &config).state.may_run_unrecorded
    };
    assert!(silent(29) && !silent(30), "what is slow is waited for");
    let adopted = found("file");
    assert!(!adopted.may_run_unrecorded);
    let record = &adopted.records[&key()];
    let ending: Vec<_> = record.ending().map(|i| (i.uid.as_str(), i.pod_name.as_str())).collect();
    assert_eq!((ending.as_slice(), record.next_incarnation), ([("lost", "net-xxxxx")].as_slice(), 7));
    let linked = found_with("file", &["kube-system_net-xxxxx.yaml"]);
    let live: Vec<_> = linked.records[&key()].live().map(|i| (i.uid.as_str(), i.is_adopted)).collect();
    assert_eq!(live, [("lost", true)], "the kubelet may read its manifest");
    assert!(found_with("file", &["any.yaml"]).records.is_empty(), "whose manifest that is, nothing says");
}

#[test]
fn a_runtime_that_lists_nothing_of_ours_is_not_believed_where_the_kubelet_runs_pods() {
    let config = config();
    let mut state = state(&config);
    state.may_run_unrecorded = true;
    let waits = |state: &AgentState, uid: &str, may_have_run: bool, seconds: i64| {
        let runtime = Knowledge::Current(Arc::new(vec![RuntimePod::test(uid, true)]));
        let seen = Observation { runtime, may_have_run, steady: Span::from_secs(seconds), ..observation(None) };
        decided(&seen, state, &config).state.may_run_unrecorded
    };
    assert!(waits(&state, "another", true, 29));
    assert!(!waits(&state, "another", true, 30), "what has no manifest has ended");
    assert!(!waits(&state, "another", false, 0), "it has run none in this boot");
    assert!(!waits(&state, "uid-1", true, 0), "it is the kubelet's");
    state.records.clear();
    assert!(!waits(&state, "another", true, 0), "the kubelet was given nothing");
}

#[test]
fn while_another_programs_file_has_the_pod_of_an_instance_it_neither_ends_nor_is_replaced_nor_cleared() {
    let config = config();
    let after = |ends: bool, has_ended: bool, foreign: &[&str]| {
        let mut state = state(&config);
        let record = state.records.get_mut(&key()).unwrap();
        let since = Timestamp::from_secs(1_500);
        if ends {
            record.instances[0].phase = Phase::ending(since, "replaced");
        }
        if has_ended {
            record.instances.clear();
            record.ended.insert("uid-1".to_owned(), since);
        }
        let foreign = foreign.iter().map(|uid| ((*uid).to_owned(), "other.yaml".to_owned())).collect();
        let manifests = Knowledge::Current(Arc::new(Scan { foreign, ..Scan::default() }));
        let runtime = Knowledge::Current(Arc::new(vec![RuntimePod::test("another", true)]));
        let seen = Observation { manifests, runtime, ..observation(None) };
        let decision = decided(&seen, &state, &config);
        let daemon = decision.daemon(&key());
        let live = daemon.map_or(0, |daemon| daemon.record.live().count());
        let ending = daemon.map_or(0, |daemon| daemon.record.ending().count());
        (live, ending, decision.to_clear.len(), decision.due <= seen.now)
    };
    assert_eq!(after(false, false, &["uid-1"]), (1, 0, 0, false), "it runs on");
    assert_eq!(after(false, false, &["uid-2"]).0, 0, "its manifest was removed");
    assert_eq!(after(true, false, &["uid-1"]).1, 1, "its end is not recorded");
    assert_eq!(after(false, true, &["uid-2"]).2, 1);
    let (.., cleared, is_soon) = after(false, true, &["uid-1"]);
    assert!(cleared == 0 && !is_soon, "its folder is left, and the agent does not look again and again");
}
