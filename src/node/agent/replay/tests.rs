//! Passes that are recorded, and decided again from the recording.

use crate::core::plan::Reason;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use serde_json::Value as Json;
use serde_json::json;

use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::plan::Action;
use crate::core::policy::Policy;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::validate;
use crate::node::agent::boot::Boot;
use crate::node::agent::decide::tests::manifest;
use crate::node::agent::decision::Decision;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::agent::outcome::RecordFate;
use crate::node::agent::recorder::RecordedPass;
use crate::node::agent::recorder::config_text;
use crate::node::agent::recorder::fixture::misses;
use crate::node::agent::recorder::fixture::recording;
use crate::node::agent::render_cache::VersionedOptions;
use crate::node::agent::runtime_pods::RuntimePod;
use crate::node::agent::state::AgentState;
use crate::node::agent::state::Purpose;
use crate::node::agent::versioned_objects::Versioned;
use crate::node::agent::versioned_objects::restore;
use crate::node::api::Definition;
use crate::node::api::Snapshot;
use crate::node::manifests::Scan;
use crate::node::recording::export::ConfigMapValues;
use crate::node::recording::export::for_bundle;

use super::*;

mod secrets;

fn config(more: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(
        &file,
        format!("node-name = \"n1\"\nmanifest-dir = \"/m\"\n{more}[node]\nkubelet-version = \"v1.36.2\"\n"),
    )
    .unwrap();
    crate::config::load(Some(&file)).unwrap()
}

fn key() -> ObjectKey {
    ObjectKey::new("kube-system", "net")
}

fn daemon_set(image: &str, spec: Json) -> Arc<DaemonSet> {
    let mut container = json!({"name": "c", "image": image});
    let mut spec = spec;
    if let Some(own) = spec.as_object_mut().and_then(|spec| spec.remove("container")) {
        container.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    }
    spec["containers"] = json!([container]);
    spec["automountServiceAccountToken"] = json!(false);
    let value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "net", "namespace": "kube-system", "uid": "d", "annotations": {"daemonlet.dev/restart-on": "config"},
            "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {"selector": {"matchLabels": {"app": "net"}},
            "template": {"metadata": {"labels": {"app": "net"}}, "spec": spec}}});
    Arc::new(validate::daemon_set(&value, Source::Api).unwrap())
}

/// `objects`, and what every pod needs.
fn known(objects: Vec<(ObjectRef, Json)>) -> Versioned {
    let namespace = ObjectRef::new(Kind::Namespace, "", "kube-system");
    let service = ObjectRef::new(Kind::Service, "default", "kubernetes");
    let ports = json!([{"name": "https", "port": 443, "protocol": "TCP"}]);
    let needed = [
        (namespace, json!({"metadata": {"name": "kube-system"}})),
        (service, json!({"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": "10.0.0.1", "ports": ports}})),
    ];
    restore(needed.into_iter().chain(objects).collect())
}

/// An agent that remembers `daemon_set` and has made a pass.
fn state(config: &Config, daemon_set: &Arc<DaemonSet>) -> AgentState {
    let options = VersionedOptions::new(RenderOptions {
        node_name: "n1".to_owned(),
        kubelet_version: Some((1, 36)),
        api_endpoint: None,
        has_api: true,
        inline_secret_env: true,
        pulls: PullMode::First,
        token_expiration: crate::core::time::Span::from_secs(3607),
        rules: crate::core::policy::PodRules::trusting(),
        topology: Default::default(),
    });
    let mut state = AgentState::new(config, Policy::default(), options, Timestamp::from_secs(1_000), Purpose::Work);
    (state.passes, state.may_run_unrecorded) = (1, false);
    state.inputs.daemon_sets.insert(key(), Arc::clone(daemon_set));
    state.inputs.objects = known(Vec::new());
    state.inputs_on_disk.saved = state.inputs.fingerprint(0);
    state
}

fn observation(api: Option<Snapshot>) -> Observation {
    let boot = Boot::new("b".to_owned(), Timestamp::from_secs(1));
    let manifests = Knowledge::Current(Arc::default());
    Observation { boot, manifests, ..Observation::of(api, Knowledge::NeverHeard, 2_000_000) }
}

fn decided(observation: &Observation, state: &AgentState, config: &Config) -> (Decision, RenderCache) {
    let mut cache = RenderCache::default();
    let decision = decide::decide(observation, state, config, &mut cache);
    (decision, cache)
}

fn pass(
    config: &Config,
    state: AgentState,
    observation: Observation,
    change: impl FnOnce(&mut Decision),
) -> RecordedPass {
    let (mut decision, cache) = decided(&observation, &state, config);
    change(&mut decision);
    let recorded = RecordedDecision::of(&decision, observation.now);
    RecordedPass::new(config_text(config), state, observation, recorded, EffectOutcome::default(), cache.used())
}

fn starts(decision: &Decision) -> bool {
    let actions = decision.plan.daemons.iter().flat_map(|daemon| &daemon.actions);
    actions.into_iter().any(|action| matches!(action, Action::Start { .. }))
}

#[test]
fn a_pass_that_comes_while_the_recorder_rests_is_missing_and_counted() {
    let config = config("");
    let one = || {
        let state = state(&config, &daemon_set("i:1", json!({})));
        pass(&config, state, observation(Some(Snapshot::default())), |_| {})
    };
    assert!(misses(one(), Duration::from_secs(3_600)));
    assert!(!misses(one(), Duration::ZERO));
}

#[test]
fn a_pass_is_decided_as_it_was_and_what_differs_is_named() {
    let config = config("");
    let daemon_set = daemon_set("i:1", json!({}));
    let same = pass(&config, state(&config, &daemon_set), observation(Some(Snapshot::default())), |decision| {
        assert!(starts(decision), "{:?}", decision.plan)
    });
    let other = pass(&config, state(&config, &daemon_set), observation(Some(Snapshot::default())), |decision| {
        Arc::make_mut(&mut decision.plan).daemons[0].summary.reasons = [Reason::Recorded("another".to_owned())].into();
        Arc::make_mut(&mut decision.plan).daemons[0].actions.clear();
    });
    let report = replay(&recording(&[same])).unwrap();
    assert_eq!((report.passes, report.differences, report.unreadable), (1, vec![], vec![]));
    let report = replay(&recording(&[other])).unwrap();
    let paths: Vec<&str> = report.differences.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(paths, ["daemons.kube-system/net.actions[0]", "daemons.kube-system/net.summary.reason"]);
    assert_eq!(report.differences[1].recorded, "another");
}

#[test]
fn what_is_no_recording_is_refused_and_never_panics() {
    let config = config("");
    let daemon_set = daemon_set("i:1", json!({}));
    let good = recording(&[pass(&config, state(&config, &daemon_set), observation(Some(Snapshot::default())), |_| {})]);
    assert!(matches!(replay(b"nonsense"), Err(ReadError::NotOne(_))));
    let mut file: crate::node::recording::export::RecordingFile = ciborium::from_reader(&*good).unwrap();
    file.format = 9;
    let mut other = Vec::new();
    ciborium::into_writer(&file, &mut other).unwrap();
    let error = replay(&other).unwrap_err().to_string();
    assert!(error.contains("format is 9"), "{error}");
    for at in (0..good.len()).step_by(7) {
        let mut damaged = good.clone();
        damaged[at] ^= 0x5a;
        let _ = replay(&damaged);
        let _ = replay(&good[..at]);
    }
    // A piece that is made of itself twice.
    let name = Value::Bytes(vec![1; 16]);
    let part = Value::Tag(crate::node::recording::tags::PIECE, Box::new(name.clone()));
    let mut bytes = Vec::new();
    ciborium::into_writer(&Value::Array(vec![part.clone(), part]), &mut bytes).unwrap();
    let mut deflated = Vec::new();
    flate2::read::DeflateEncoder::new(&*bytes, flate2::Compression::fast()).read_to_end(&mut deflated).unwrap();
    file.format = 1;
    file.frames = vec![(Timestamp::MIN, name.clone())];
    file.pieces = vec![(name, Value::Bytes(deflated))];
    let mut endless = Vec::new();
    ciborium::into_writer(&file, &mut endless).unwrap();
    assert!(matches!(replay(&endless), Err(ReadError::TooLarge)));
}

fn update() -> Vec<RecordedPass> {
    update_seen_by(|_, _, _| {})
}

/// A life in which a new revision takes the place of an instance, as the API tells of it and the runtime shows it; `look`
/// sees each pass before it is decided.
pub(in crate::node::agent) fn update_seen_by(
    mut look: impl FnMut(&Observation, &AgentState, &Config),
) -> Vec<RecordedPass> {
    let config = config("update-jitter = \"0s\"\n");
    let [old, new] = ["i:1", "i:2"].map(|image| daemon_set(image, json!({})));
    let mut now = state(&config, &daemon_set("i:1", json!({})));
    let mut files = Scan::default();
    let mut passes = Vec::new();
    for number in 0..8 {
        let mut snapshot = Snapshot::default();
        snapshot.version = if number < 3 { 1 } else { 2 };
        snapshot.daemon_sets.insert(key(), Definition::test(if number < 3 { &old } else { &new }, snapshot.version));
        let mut seen = observation(Some(snapshot));
        seen.now = Timestamp::from_secs(2_000 + 3 * number);
        seen.steady = seen.now - Timestamp::from_secs(1_000);
        seen.runtime_as_of = seen.now;
        seen.runtime = Knowledge::Current(Arc::new(
            files.ours.values().map(|manifest| RuntimePod::test(&manifest.uid, true)).collect(),
        ));
        seen.manifests = Knowledge::Current(Arc::new(Scan { ours: files.ours.clone(), ..Scan::default() }));
        look(&seen, &now, &config);
        let (decision, cache) = decided(&seen, &now, &config);
        let mut outcome = EffectOutcome::default();
        for daemon in &decision.plan.daemons {
            outcome.records.insert(daemon.key.clone(), RecordFate::OnDisk);
            for action in &daemon.actions {
                match action {
                    Action::Start { rendering, .. } => {
                        let manifest = manifest(rendering);
                        outcome.written.insert(manifest.uid.clone(), rendering.data.all.clone());
                        files.ours.insert(manifest.file.clone(), Arc::new(manifest));
                    }
                    Action::End { uid, .. } => files.ours.retain(|_, manifest| manifest.uid != *uid),
                    Action::Finish { uid, .. } => drop(outcome.finished.insert(uid.clone())),
                    _ => {}
                }
            }
        }
        let recorded = RecordedDecision::of(&decision, seen.now);
        let next = AgentState::commit(decision.state, &decision.plan, &outcome, seen.now);
        let before = std::mem::replace(&mut now, next);
        passes.push(RecordedPass::new(config_text(&config), before, seen, recorded, outcome, cache.used()));
    }
    let record = &now.records[&key()];
    assert!(record.instances.len() == 1 && record.instances[0].incarnation == 1, "{record:?}");
    passes
}

#[test]
fn a_life_with_an_update_is_decided_as_it_was() {
    let report = replay(&recording(&update())).unwrap();
    assert_eq!((report.passes, report.differences, report.unreadable), (8, vec![], vec![]));
}

/// A recording as it lies in a bundle is decided as it was, and a decision that was changed in it is found. Writes both
/// files below `$DAEMONLET_RECORDINGS` too, for when the form of a recording changes: `tests`, as an absolute path.
#[test]
fn recordings_of_a_bundle_are_replayed_and_a_change_is_found() {
    let config = config("");
    let daemon_set = daemon_set("i:1", json!({}));
    let changed = pass(&config, state(&config, &daemon_set), observation(Some(Snapshot::default())), |decision| {
        Arc::make_mut(&mut decision.plan).daemons[0].summary.reasons = [Reason::Recorded("another".to_owned())].into();
    });
    for (path, passes, differences) in
        [("replay/update.cbor", update(), 0), ("golden/cli/changed.cbor", vec![changed], 1)]
    {
        let bytes = for_bundle(&recording(&passes), ConfigMapValues::Kept).unwrap();
        let report = replay(&bytes).unwrap();
        assert_eq!((report.differences.len(), report.unreadable.len()), (differences, 0), "{path}: {report:?}");
        if let Some(folder) = std::env::var_os("DAEMONLET_RECORDINGS") {
            std::fs::write(std::path::Path::new(&folder).join(path), bytes).unwrap();
        }
    }
}
