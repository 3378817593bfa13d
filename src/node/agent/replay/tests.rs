//! Passes that are recorded, and decided again from the recording.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;
use serde_json::Value as Json;
use serde_json::json;

use crate::core::knowledge::Knowledge;
use crate::core::model::DaemonSet;
use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::model::Source;
use crate::core::model::TokenRequest;
use crate::core::plan::Action;
use crate::core::policy::Policy;
use crate::core::record::DaemonRecord;
use crate::core::record::Good;
use crate::core::record::Instance;
use crate::core::render::PullMode;
use crate::core::render::RenderOptions;
use crate::core::rendering;
use crate::core::validate;
use crate::node::agent::boot::Boot;
use crate::node::agent::decide::tests::manifest;
use crate::node::agent::decision::Decision;
use crate::node::agent::evidence::RuntimePod;
use crate::node::agent::executor::EffectOutcome;
use crate::node::agent::executor::RecordFate;
use crate::node::agent::inputs::Purpose;
use crate::node::agent::objects::Versioned;
use crate::node::agent::objects::restore;
use crate::node::agent::recorder::RecordedPass;
use crate::node::agent::recorder::config_text;
use crate::node::agent::recorder::fixture::misses;
use crate::node::agent::recorder::fixture::recording;
use crate::node::agent::render_cache::VersionedOptions;
use crate::node::agent::rollback_data::RollbackData;
use crate::node::agent::state::AgentState;
use crate::node::api::Definition;
use crate::node::api::Snapshot;
use crate::node::api::TokenSnapshot;
use crate::node::manifests::Scan;
use crate::node::recording::export::ConfigMapValues;
use crate::node::recording::export::for_bundle;

use super::*;

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
        Arc::make_mut(&mut decision.plan).daemons[0].summary.reason = "another".to_owned();
        Arc::make_mut(&mut decision.plan).daemons[0].actions.clear();
    });
    let report = replay(&recording(&[same])).unwrap();
    assert_eq!((report.passes, report.differences, report.unreadable), (1, vec![], vec![]));
    let report = replay(&recording(&[other])).unwrap();
    let paths: Vec<&str> = report.differences.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(paths, ["daemons.kube-system/net.actions[0]", "daemons.kube-system/net.summary.reason"]);
    assert_eq!(report.differences[1].recorded, "another");
}

/// Secrets that no bundle may have, each with where it is.
const SECRETS: [&str; 9] = [
    "of-the-api-4711-hunter2",
    "of-a-folder-4712-hunter2",
    "remembered-4713-hunter2",
    "rolled-back-4714-hunter2",
    "sealed-4715-hunter2",
    "of-a-token-4716-hunter2",
    "docker-password-4717-hunter2",
    "an-annotation-4718-hunter2",
    "of-it's-quote-4719-hunter2",
];

fn secret(value: &str) -> Json {
    let docker = json!({"auths": {"r": {"auth": STANDARD.encode(format!("u:{}", SECRETS[6]))}}}).to_string();
    json!({"metadata": {"name": "s", "namespace": "kube-system",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRETS[7]}},
        "type": "Opaque",
        "data": {"k": STANDARD.encode(value), "quote": STANDARD.encode(SECRETS[8]),
            ".dockerconfigjson": STANDARD.encode(docker)}})
}

fn versioned(value: &str) -> Versioned {
    restore(vec![(ObjectRef::new(Kind::Secret, "kube-system", "s"), secret(value))])
}

/// A pass with a secret in every place that can have one, and the digests of what was rendered from them.
fn secret_pass(config: &Config) -> (RecordedPass, [String; 3]) {
    let of = |name: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": name}}});
    let daemon_set = daemon_set(
        "i:1",
        json!({
            "imagePullSecrets": [{"name": "s"}],
            "container": {"env": [of("k"), of("quote")], "envFrom": [{"secretRef": {"name": "s"}}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "t", "mountPath": "/t"}]},
            "volumes": [{"name": "v", "secret": {"secretName": "s"}},
                {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        }),
    );
    let request = TokenRequest {
        service_account: ObjectKey::new("kube-system", "default"),
        audience: String::new(),
        expiration_seconds: 3600,
    };
    let mut snapshot = Snapshot::default();
    (snapshot.version, snapshot.objects) = (7, versioned(SECRETS[0]));
    let mut account = restore(vec![(ObjectRef::new(Kind::ServiceAccount, "kube-system", "default"), json!({}))]);
    snapshot.objects.append(&mut account);
    let mut state = state(config, &daemon_set);
    state.inputs.objects.append(&mut versioned(SECRETS[2]));
    let rollback = RollbackData { revision: "r".to_owned(), objects: versioned(SECRETS[3]) };
    state.inputs.rollback_data.insert(key(), rollback);
    let mut observation = observation(Some(snapshot));
    observation.folders.objects = Arc::new(versioned(SECRETS[1]));
    let sealed = json!({"objects": [[{"kind": "Secret", "namespace": "kube-system", "name": "other"}, secret(SECRETS[4])]],
        "tokens": [{"request": request, "token": SECRETS[5], "issued": 1, "expires": 2, "nodeUid": "u"}],
        "rollbackData": [{"daemon": key(), "revision": "x", "objects":
            [[{"kind": "Secret", "namespace": "kube-system", "name": "s"}, secret(SECRETS[4])]]}]});
    observation.seal.opened = Some(Arc::new(serde_json::from_value(sealed).unwrap()));
    observation.tokens.held = TokenSnapshot::of([(request, SECRETS[5])]);
    observation.can_ask_runtime = true;
    // It runs with what was rendered: a second pass has every digest in record, scan and decision.
    let (first, _) = decided(&observation, &state, config);
    let daemon = &first.plan.daemons[0];
    let rendering = daemon.pull.clone().unwrap_or_else(|| panic!("{:?}", daemon));
    let rendered = rendering.result.as_ref().unwrap();
    let at = Timestamp::from_secs(1_500);
    let mut record = DaemonRecord::new(key(), 1);
    let instance = Instance::new(&rendering.identity.uid, &rendering.identity.pod_name, 0, &rendering.revision, at);
    let data_version = rendered.pod.data_version.clone();
    record.instances.push(Instance { daemon_set: Some(daemon_set), data_version: data_version.clone(), ..instance });
    let good =
        Good { revision: "r".to_owned(), data_version, has_rollback_data: true, candidate: None, daemon_set: None };
    record.good = Some(good);
    state.records.insert(key(), record);
    state.written.insert(rendering.identity.uid.clone(), rendering.data.all.clone());
    let manifest = manifest(&rendering);
    let ours = [(manifest.file.clone(), Arc::new(manifest))].into();
    observation.manifests = Knowledge::Current(Arc::new(Scan { ours, ..Scan::default() }));
    let found = pass(config, state, observation, |_| {});
    let text = format!("{found:?}");
    assert!(text.contains(&rendered.digest) && text.contains(&rendering.data.all), "the test has its digests");
    (found, [rendered.digest.clone(), rendering.data.all.clone(), rendered.pod.data_version.clone()])
}

/// Every byte of a recording: as it is, and each piece inflated.
fn every_byte(recording: &[u8]) -> Vec<u8> {
    let mut all = recording.to_vec();
    let file: crate::node::recording::export::RecordingFile = ciborium::from_reader(recording).unwrap();
    for (_, piece) in file.pieces {
        DeflateDecoder::new(&**piece.as_bytes().unwrap()).read_to_end(&mut all).unwrap();
    }
    all
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_secret_is_in_a_recording_or_a_bundle_and_its_passes_are_decided_the_same() {
    let config = config("[policy]\ninline-secret-env = true\n");
    let (pass, digests) = secret_pass(&config);
    let recorded = recording(&[pass]);
    let bundle = for_bundle(&recorded, ConfigMapValues::Kept).unwrap();
    for (name, bytes) in [("recording", every_byte(&recorded)), ("bundle", every_byte(&bundle))] {
        assert!(has(&bytes, "kube-system"), "the search finds something");
        for secret in SECRETS {
            assert!(!has(&bytes, secret), "{secret} is in the {name}");
            for shift in 0..3 {
                // Base64 of it wherever it stands, but for its first and last characters.
                let encoded = STANDARD.encode(format!("{}{secret}", &"abc"[..shift]));
                assert!(!has(&bytes, &encoded[4..encoded.len() - 4]), "base64 of {secret} is in the {name}");
            }
            for text in [secret.to_owned(), STANDARD.encode(secret)] {
                let digest = rendering::digest(text.as_bytes());
                assert!(!has(&bytes, &digest[..16]), "the digest of {secret} is in the {name}");
            }
        }
        for digest in &digests {
            assert!(!has(&bytes, digest), "the digest {digest} is in the {name}");
            let raw: Vec<u8> = (0..8).map(|at| u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap()).collect();
            assert!(!bytes.windows(8).any(|window| window == raw), "the digest {digest} is in the {name}");
        }
    }
    assert_ne!(every_byte(&bundle), every_byte(&for_bundle(&recorded, ConfigMapValues::Kept).unwrap()), "keyed apart");
    for bytes in [recorded, bundle] {
        let report = replay(&bytes).unwrap();
        assert_eq!((report.passes, report.differences, report.unreadable), (1, vec![], vec![]));
    }
}

#[test]
fn values_of_config_maps_can_be_left_out() {
    let config = config("");
    let daemon_set = daemon_set(
        "i:1",
        json!({"container": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}}),
    );
    let mut state = state(&config, &daemon_set);
    let (value, reference) = ("level-4711".repeat(100), ObjectRef::new(Kind::ConfigMap, "kube-system", "c"));
    state.inputs.objects = known(vec![(reference, json!({"data": {"k": value}}))]);
    let recorded = recording(&[pass(&config, state, observation(Some(Snapshot::default())), |decision| {
        assert!(starts(decision), "{:?}", decision.plan)
    })]);
    for (values, is_in) in [(ConfigMapValues::Kept, true), (ConfigMapValues::LeftOut, false)] {
        let bundle = for_bundle(&recorded, values).unwrap();
        assert_eq!(has(&every_byte(&bundle), "level-4711"), is_in, "{values:?}");
        let report = replay(&bundle).unwrap();
        assert_eq!((report.differences, report.unreadable), (vec![], vec![]), "{values:?}");
    }
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

/// A life in which a new revision takes the place of an instance, as the API tells of it and the runtime shows it.
fn update() -> Vec<RecordedPass> {
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
        Arc::make_mut(&mut decision.plan).daemons[0].summary.reason = "another".to_owned();
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
