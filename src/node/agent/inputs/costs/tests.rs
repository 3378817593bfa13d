use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::core::model::FieldError;
use crate::core::model::Kind;
use crate::core::model::Mode;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::plan::Action;
use crate::core::plan::State;
use crate::core::policy::Policy;
use crate::core::policy::TooLarge;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::time::Timestamp;
use crate::core::validate;
use crate::core::volume::VolumeData;
use crate::core::volume::VolumeFile;
use crate::node::agent::decide::decide;
use crate::node::agent::decide::tests::config;
use crate::node::agent::decide::tests::manifests_of;
use crate::node::agent::decide::tests::observation;
use crate::node::agent::decide::tests::state as running;
use crate::node::agent::decision::Decision;
use crate::node::api::Definition;
use crate::node::api::Snapshot;
use crate::node::api::TokenSnapshot;
use crate::node::api::Unusable;

fn daemon_set(name: &str, image: &str) -> Arc<DaemonSet> {
    let container = json!({
        "name": "c", "image": image, "resources": {"limits": {"memory": "1Mi"}},
        "securityContext": {"readOnlyRootFilesystem": true},
    });
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}});
    let value = json!({
        "metadata": {"namespace": "a", "name": name, "uid": "u", "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    });
    Arc::new(validate::daemon_set(&value, Source::Api).unwrap())
}

/// What the API server shows.
fn shown(daemon_sets: &[&Arc<DaemonSet>], version: u64) -> Observation {
    let definitions = daemon_sets.iter().map(|d| (d.key.clone(), Definition::test(d, version)));
    let mut snapshot = Snapshot::default();
    (snapshot.version, snapshot.content, snapshot.daemon_sets) = (version, version, definitions.collect());
    observation(Some(snapshot))
}

/// An agent that covers the namespace `a` and does not trust it.
fn state() -> AgentState {
    let mut state = running(&config());
    state.records.clear();
    state.policy = Arc::new(Policy::new(None, "", vec!["a".to_owned()]).unwrap());
    state
}

/// One on which an instance of `daemon_set` runs.
fn running_here(daemon_set: &Arc<DaemonSet>) -> AgentState {
    let mut state = state();
    let mut record = DaemonRecord::new(daemon_set.key.clone(), 1);
    record.api_uid = Some("u".to_owned());
    let instance = Instance::new("uid-1", "x-11111", 0, "r", Timestamp::from_secs(1_000));
    record.instances.push(Instance { daemon_set: Some(Arc::clone(daemon_set)), started: true, ..instance });
    state.records.insert(record.key.clone(), record);
    state
}

thread_local! {
    static NOW: Cell<Span> = const { Cell::new(Span::ZERO) };
}

/// A clock by which every piece of work takes longer than the bound.
fn slow() -> Span {
    NOW.set(NOW.get() + TIME + Span::from_secs(1));
    NOW.get()
}

struct Process {
    costs: Costs,
    cache: RenderCache,
}

impl Process {
    fn new() -> Self {
        Self { costs: Costs::default(), cache: RenderCache::measured(slow) }
    }

    /// A pass, with what was marked before it.
    fn pass(&mut self, state: &mut AgentState, mut seen: Observation) -> (Vec<String>, Decision) {
        seen.manifests = manifests_of(state);
        let marked = self.costs.begin(&mut seen, state);
        let decision = decide(&seen, state, &config(), &mut self.cache);
        self.costs.end(&self.cache, state);
        let mut after = decision.state.clone();
        after.passes += 1;
        *state = after;
        (marked.into_iter().map(|version| version.key.name).collect(), decision)
    }
}

#[test]
fn what_is_set_aside_is_rendered_no_more_and_what_runs_of_it_stays() {
    let (offender, changed) = (daemon_set("x", "i:1"), daemon_set("x", "i:2"));
    let mut state = running_here(&offender);
    for start in 0..2 {
        let mut process = Process::new();
        assert_eq!(process.pass(&mut state, shown(&[&offender], 1)).0, ["x"], "start {start}");
        let (marked, decision) = process.pass(&mut state, shown(&[&offender], 1));
        assert!(marked.is_empty(), "it is marked once in a process");
        assert!(decision.log.0.iter().any(|line| line.text.contains("processor time")), "{:?}", decision.log);
    }
    let mut process = Process::new();
    let (marked, decision) = process.pass(&mut state, shown(&[&offender], 1));
    assert!(marked.is_empty() && process.costs.spent.is_empty(), "no work at all: {:?}", process.costs.spent);
    let daemon = decision.daemon(&offender.key).unwrap();
    assert!(daemon.actions.is_empty() && daemon.record.instances.len() == 1, "{:?}", daemon.actions);
    assert_eq!(daemon.summary.state, State::Refused);
    let reason = daemon.summary.reasons.to_string();
    assert!(reason.contains("2 times in a row; what runs stays as it is, and gets no new data but tokens"), "{reason}");
    assert!(daemon.summary.hint_lines()[0].contains("daemonlet retry a/x"), "{:?}", daemon.summary.hints);

    let (marked, _) = process.pass(&mut state.clone(), shown(&[&changed], 2));
    assert_eq!(marked, ["x"], "a new version is looked at");
    let of_new = [DefinitionVersion::of(&changed)];
    let spent: Vec<_> = process.costs.spent.iter().map(|spent| spent.version.clone()).collect();
    assert_eq!(spent, of_new, "and what runs is rendered no more all the same");

    let gone = observation(Some(Snapshot::default()));
    let (_, decision) = process.pass(&mut state.clone(), gone);
    let daemon = decision.daemon(&offender.key).unwrap();
    assert!(!daemon.actions.iter().any(|action| matches!(action, Action::Start { .. })), "{daemon:?}");

    state.policy = Arc::new(Policy::clone(&state.policy).with_rules(crate::core::policy::PodRules::trusting()));
    let (_, decision) = process.pass(&mut state, shown(&[&offender], 1));
    assert_ne!(decision.daemon(&offender.key).unwrap().summary.state, State::Refused, "it is trusted now");
}

#[test]
fn what_runs_of_what_is_set_aside_gets_its_tokens_and_nothing_else_is_rendered() {
    let container = json!({"name": "c", "image": "i:1", "securityContext": {"runAsUser": 7}, "volumeMounts": [
        {"name": "tokens", "mountPath": "/t"}, {"name": "inner", "mountPath": "/t/a/b"}, {"name": "plain", "mountPath": "/p"},
    ]});
    let volumes = json!([
        {"name": "plain", "configMap": {"name": "c"}},
        {"name": "inner", "emptyDir": {}},
        {"name": "tokens", "projected": {"defaultMode": 0o440, "sources": [
            {"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "own/t", "audience": "vault"}},
            {"configMap": {"name": "c"}},
        ]}},
    ]);
    let mut offender = DaemonSet::clone(&daemon_set("x", "i:1"));
    offender.template["spec"] =
        json!({"containers": [container], "volumes": volumes, "securityContext": {"fsGroup": 9}});
    let offender = Arc::new(offender);
    let mut state = running_here(&offender);
    for _ in 0..crate::core::set_aside::TIMES {
        state.set_aside.note_killed(vec![DefinitionVersion::of(&offender)]);
    }
    let request = |audience: &str, expiration_seconds| TokenRequest {
        service_account: ObjectKey::new("a", "default"),
        audience: audience.to_owned(),
        expiration_seconds,
    };
    let requests = [request("", 3607), request("vault", 3600)];
    let seen = |held: Vec<(TokenRequest, &str)>| {
        let mut seen = shown(&[&offender], 1);
        seen.tokens.held = TokenSnapshot::of(held);
        seen
    };
    let mut process = Process::new();
    let (marked, decision) = process.pass(&mut state, seen(Vec::new()));
    let daemon = decision.daemon(&offender.key).unwrap();
    assert!(marked.is_empty() && daemon.actions.is_empty(), "it has none to write: {:?}", daemon.actions);
    assert_eq!(daemon.tokens, BTreeSet::from(requests.clone()), "but asks for them");
    let account = ObjectRef::new(Kind::ServiceAccount, "a", "default");
    assert_eq!(daemon.references, BTreeSet::from([account]), "and reads neither ConfigMap nor Secret");

    let mut digests = BTreeSet::new();
    for tokens in [["one", "two"], ["one", "three"]] {
        let held = || requests.clone().into_iter().zip(tokens).collect();
        let (_, decision) = process.pass(&mut state, seen(held()));
        let daemon = decision.daemon(&offender.key).unwrap();
        let [Action::Refresh { rendering, volumes: true, manifest: false, kept } | Action::Verify { rendering, kept }] =
            &daemon.actions[..]
        else {
            panic!("{:?}", daemon.actions)
        };
        assert_eq!(rendering.identity.uid, "uid-1");
        let written = rendering.volumes_without(kept);
        let of = |volume: &VolumeData| (volume.name.clone(), volume.files.clone(), volume.keeps_others);
        let file = |token: &str| VolumeFile { data: token.as_bytes().into(), mode: 0o640, uid: Some(7) };
        let files = |path: &str, token| BTreeMap::from([(path.to_owned(), file(token))]);
        let expected = [
            ("tokens".to_owned(), files("own/t", tokens[1]), true),
            ("kube-api-access".to_owned(), files("token", tokens[0]), true),
        ];
        assert_eq!(written.iter().map(|volume| of(volume)).collect::<Vec<_>>(), expected);
        assert_eq!(written[0].fs_group, Some(9));
        assert_eq!(written[0].nested_mount_points, BTreeSet::from(["a/b".to_owned()]), "what it holds is left alone");

        state.written.insert("uid-1".to_owned(), rendering.data.without(kept));
        digests.insert(rendering.data.without(kept));
        let (marked, decision) = process.pass(&mut state, seen(held()));
        let daemon = decision.daemon(&offender.key).unwrap();
        assert!(daemon.actions.is_empty(), "they are on disk: {:?}", daemon.actions);
        assert_eq!(daemon.summary.state, State::Refused);
        assert!(
            daemon.summary.stale.is_empty() && !daemon.summary.reasons.to_string().contains("held back"),
            "{:?}",
            daemon.summary
        );
        assert!(marked.is_empty() && process.costs.spent.is_empty(), "that is no try: {:?}", process.costs.spent);
    }
    assert_eq!(digests.len(), 2);
}

#[test]
fn what_is_too_large_is_refused_by_its_field_and_what_runs_of_it_goes_on() {
    let before = daemon_set("x", "i:1");
    let error = FieldError {
        field: "spec".to_owned(),
        reason: "has more than 9 bytes".to_owned(),
        hint: Some("use fewer".to_owned()),
    };
    let mut definition = Definition::test(&before, 1);
    let covered = Covered::Yes(Mode::Static);
    definition.converted = Err(Unusable::TooLarge(TooLarge { errors: vec![error], covered }));
    let mut snapshot = Snapshot::default();
    (snapshot.version, snapshot.content) = (1, 1);
    snapshot.daemon_sets.insert(before.key.clone(), definition);
    for (mut state, instances) in [(state(), 0), (running_here(&before), 1)] {
        let mut process = Process { costs: Costs::default(), cache: RenderCache::default() };
        let (_, decision) = process.pass(&mut state, observation(Some(snapshot.clone())));
        let daemon = decision.daemon(&before.key).unwrap();
        assert_eq!(daemon.summary.state, State::Refused);
        assert!(
            daemon.summary.reasons.to_string().contains("spec: has more than 9 bytes"),
            "{}",
            daemon.summary.reasons
        );
        let is_change = |action: &&Action| matches!(action, Action::Start { .. } | Action::End { .. });
        assert_eq!(daemon.actions.iter().find(is_change), None);
        assert_eq!(daemon.record.live().count(), instances);
    }
}

#[test]
fn what_an_agent_was_killed_over_is_worked_on_alone_after_all_others() {
    let [a, b, c] = ["a", "b", "c"].map(|name| daemon_set(name, "i:1"));
    let mut state = state();
    state.set_aside.note_killed([&a, &b].map(|d| DefinitionVersion::of(d)).to_vec());
    let mut process = Process { costs: Costs::default(), cache: RenderCache::default() };
    let all = || shown(&[&a, &b, &c], 1);
    let is_refused =
        |decision: &Decision, d: &DaemonSet| decision.daemon(&d.key).unwrap().summary.state == State::Refused;
    let mut passes = Vec::new();
    for _ in 0..4 {
        let (marked, decision) = process.pass(&mut state, all());
        passes.push((marked, [&a, &b, &c].map(|d| is_refused(&decision, d)), decision.due == all().now));
    }
    let name = |name: &str| vec![name.to_owned()];
    assert_eq!(passes[0], (name("c"), [true, true, false], true));
    assert_eq!(passes[1], (name("b"), [true, false, false], true));
    assert_eq!(passes[2], (name("a"), [false, false, false], true));
    assert_eq!((&passes[3].0, passes[3].1), (&vec![], [false, false, false]));
}
