//! Manifests that a kubelet at work does not accept.

use crate::core::health::PodFact;
use crate::core::health::SandboxFact;

use super::*;

/// How a kubelet that does not take a manifest shows itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shows {
    /// It answers at its healthz.
    Healthz,
    /// It makes sandboxes of other pods.
    Sandboxes,
    /// Its Node is Ready as it last was; others take it for alive.
    Nothing,
    /// It is at work, and has made a sandbox that failed.
    FailedSandbox,
}

/// A node whose kubelet accepts `i:1` and not `i:2`, in steps of 5 s: what each decision did, and when.
fn unaccepting(shows: Shows, link: &Link) -> (Vec<(i64, String)>, Decision) {
    let config = config();
    let mut state = state(&config);
    state.records.clear();
    let namespace = ObjectRef::new(Kind::Namespace, "", &key().namespace);
    let entry = Entry { version: 1, value: Arc::new(json!({})) };
    state.inputs.objects.insert(namespace, entry);
    let (mut history, mut last) = (Vec::new(), None);
    let mut ours: BTreeMap<String, (String, Arc<Manifest>)> = BTreeMap::new();
    let mut replies = Vec::new();
    for step in 0..120_i64 {
        let seconds = step * 5;
        state.inputs.daemon_sets.insert(key(), labelled(if seconds < 60 { "i:1" } else { "i:2" }));
        let mut snapshot = Snapshot::default();
        let ready = json!({"type": "Ready", "status": "True"});
        let node = json!({"metadata": {"name": "n1", "uid": "n"}, "status": {"conditions": [ready]}});
        snapshot.node = Some(Entry { version: 1, value: Arc::new(node) });
        let mut seen = observation(Some(snapshot));
        (seen.now, seen.steady) = (Timestamp::from_secs(2_000 + seconds), Span::from_secs(seconds));
        (seen.runtime_as_of, seen.replies) = (seen.now, std::mem::take(&mut replies));
        if let Some(api) = &mut seen.api {
            api.link = link.clone();
        }
        let scan = ours.values().map(|(_, manifest)| (manifest.file.clone(), Arc::clone(manifest))).collect();
        seen.manifests = Knowledge::Current(Arc::new(Scan { ours: scan, ..Default::default() }));
        let made = |image: &str| if image == "i:1" { seen.now } else { Timestamp::MIN };
        let pods = ours.iter().filter(|(_, (image, _))| image == "i:1" || shows == Shows::FailedSandbox);
        let pods = pods.map(|(uid, (image, _))| RuntimePod {
            running_since: (image == "i:1").then(|| made(image)),
            fact: PodFact { sandboxes: vec![SandboxFact { ready: false, made: seen.now }], containers: Vec::new() },
            ..RuntimePod::test(uid, image == "i:1")
        });
        seen.runtime = Knowledge::Current(Arc::new(pods.collect()));
        let decision = decided(&seen, &state, &config);
        let mut outcome = EffectOutcome::default();
        for daemon in &decision.plan.daemons {
            outcome.records.insert(daemon.key.clone(), RecordFate::OnDisk);
            for action in &daemon.actions {
                match action {
                    Action::Start { rendering, .. } => {
                        let rendered = rendering.result.as_ref().unwrap();
                        let image = rendered.pod.pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
                        let manifest = manifest(rendering);
                        history.push((seconds, format!("start {image}")));
                        outcome.written.insert(manifest.uid.clone(), rendering.data.all.clone());
                        ours.insert(manifest.uid.clone(), (image, Arc::new(manifest)));
                    }
                    Action::End { uid, .. } => {
                        let image = ours.remove(uid).map(|(image, _)| image).unwrap_or_default();
                        history.push((seconds, format!("end {image}")));
                    }
                    _ => {}
                }
            }
        }
        for request in &decision.requests {
            let Request::AskAboutLate { late, .. } = request else { continue };
            let other = format!("another-{}", if shows == Shows::Sandboxes { step } else { 0 });
            replies.push(Reply::LateAnswered(crate::node::agent::requests::LateAnswer {
                sandboxes: Some(Ok(BTreeSet::from([other]))),
                network_ready: Some(true),
                kubelet_answers: matches!(shows, Shows::Healthz | Shows::FailedSandbox),
                about: late.iter().map(|late| late.uid.clone()).collect(),
                ..Default::default()
            }));
        }
        state = AgentState::commit(decision.state.clone(), &decision.plan, &outcome, seen.now);
        last = Some(decision);
    }
    (history, last.unwrap())
}

#[test]
fn a_manifest_that_a_kubelet_at_work_does_not_accept_gives_way_to_the_revision_before_it() {
    let failure = crate::node::api::ApiFailure::new(crate::node::api::FailureKind::Unreachable, "refused");
    let down = Link::Down { failure, since: Default::default() };
    for (shows, link, bound) in
        [(Shows::Healthz, &Link::Up, 30), (Shows::Sandboxes, &Link::Up, 30), (Shows::Healthz, &down, 150)]
    {
        let (history, last) = unaccepting(shows, link);
        let what: Vec<&str> = history.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(what, ["start i:1", "end i:1", "start i:2", "end i:2", "start i:1"], "{shows:?}: {history:?}");
        let waited = history[3].0 - history[2].0;
        assert!((bound..bound + 30).contains(&waited), "{shows:?}: {history:?}");
        let summary = &last.daemon(&key()).unwrap().summary;
        let failed = summary.failed.as_ref().unwrap();
        assert_eq!(failed.failure.cause, crate::core::record::Cause::NotAccepted, "{summary:?}");
        assert!(
            summary.reasons.to_string().contains("is not accepted") && summary.wanted_revision.is_some(),
            "{summary:?}"
        );
    }
    // A controller that does not run leaves a dead kubelet's Node Ready: the kubelet's silence is no evidence.
    for (shows, link) in [(Shows::Nothing, &Link::Up), (Shows::Nothing, &down), (Shows::FailedSandbox, &down)] {
        let (history, last) = unaccepting(shows, link);
        let what: Vec<&str> = history.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(what, ["start i:1", "end i:1", "start i:2"], "{shows:?}: {history:?}");
        assert_eq!(last.daemon(&key()).unwrap().record.failed, None);
    }
}
