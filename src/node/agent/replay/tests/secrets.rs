//! Recordings without secrets.

use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;

use crate::core::model::OVERLAYS;
use crate::core::model::TokenRequest;
use crate::core::overlays;
use crate::core::record::DaemonRecord;
use crate::core::record::Good;
use crate::core::record::Instance;
use crate::node::agent::rollback_data::RollbackData;
use crate::node::api::TokenSnapshot;

use super::*;

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
fn lists_of_overlays_stay_where_values_are_left_out() {
    let (config, plain) = (config(""), daemon_set("i:1", json!({})));
    let mut named = DaemonSet::clone(&plain);
    named.annotations.insert(OVERLAYS.to_owned(), "o".to_owned());
    let mut state = state(&config, &Arc::new(named));
    let reference = ObjectRef::new(Kind::ConfigMap, "kube-system", "o");
    let list = "- nodes: {}\n  patch: {spec: {containers: [{name: c, image: 'i:4711'}]}}\n".repeat(4);
    state.inputs.objects = known(vec![(reference, json!({"data": {overlays::KEY: list, "k": "level-4711"}}))]);
    let recorded = recording(&[pass(&config, state, observation(Some(Snapshot::default())), |decision| {
        let runs = decision.daemon(&key()).unwrap().record.instances[0].daemon_set.clone().unwrap();
        assert_eq!(runs.overlays.as_ref().map(|overlays| overlays.patches.len()), Some(4));
    })]);
    let bundle = for_bundle(&recorded, ConfigMapValues::LeftOut).unwrap();
    assert!(has(&every_byte(&bundle), "i:4711") && !has(&every_byte(&bundle), "level-4711"));
    let report = replay(&bundle).unwrap();
    assert_eq!((report.differences, report.unreadable), (vec![], vec![]));
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
