use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;

use super::*;

fn gated(pod: Value, version: Option<(u32, u32)>) -> Fixture {
    let mut fixture = Fixture::new(pod);
    (fixture.daemon_set.gate, fixture.options.kubelet_version) = (StartGate::Wanted, version);
    fixture
}

fn pod(init: &[&str]) -> Value {
    let container = |name: &&str| json!({"name": name, "image": "i:1"});
    let init: Vec<Value> = init.iter().map(container).collect();
    let containers: Vec<Value> = ["a", "b"].iter().map(container).collect();
    json!({"automountServiceAccountToken": false, "initContainers": init, "containers": containers})
}

#[test]
fn the_first_init_container_or_else_every_container_has_the_gate() {
    let reference = json!({"volumeName": "daemonlet-gate", "path": "gate", "key": "OPEN"});
    for (init, with, without) in [
        (&["x", "y"][..], &["/initContainers/0"][..], &["/initContainers/1", "/containers/0"][..]),
        (&[], &["/containers/0", "/containers/1"], &[]),
    ] {
        let rendered = gated(pod(init), Some((1, 35))).rendered();
        for container in with {
            let last = spec(&rendered, &format!("{container}/env")).as_array().unwrap().last().unwrap().clone();
            assert_eq!(last, json!({"name": "DAEMONLET_GATE", "valueFrom": {"fileKeyRef": reference}}));
            let mount = spec(&rendered, &format!("{container}/volumeMounts/0/name"));
            assert_eq!(mount, GATE);
        }
        for container in without {
            assert!(!spec(&rendered, container).to_string().contains("gate"), "{container}");
        }
        assert_eq!(files(&rendered, GATE), [("gate".to_owned(), "OPEN='1'\n".to_owned(), 0o400)]);
    }
}

#[test]
fn an_older_kubelet_gets_none_and_that_is_reported() {
    let older = gated(pod(&[]), Some((1, 34))).rendered();
    assert!(older.notes[0].reason.contains("only first starts"), "{:?}", older.notes);
    let mut made = gated(pod(&[]), None);
    let unknown = made.rendered();
    made.daemon_set.gate = StartGate::Has;
    assert!(made.rendered().has_gate, "what runs stays as it is until the kubelet's version is known");
    let plain = Fixture::new(pod(&[])).rendered();
    assert_eq!((&older.pod, &unknown.pod), (&plain.pod, &plain.pod));
}

#[test]
fn names_of_the_pods_own_stay() {
    let mut own = pod(&[]);
    own["containers"][0]["env"] = json!([{"name": "DAEMONLET_GATE", "value": "mine"}]);
    let rendered = gated(own.clone(), Some((1, 36))).rendered();
    let variables = spec(&rendered, "/containers/0/env").as_array().unwrap().clone();
    let names: Vec<_> = variables.iter().filter_map(|variable| variable["name"].as_str()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("DAEMONLET_GATE", "DAEMONLET_GATE_"));
    own["volumes"] = json!([{"name": GATE, "emptyDir": {}}]);
    let rendered = gated(own, Some((1, 36))).rendered();
    assert!(!rendered.has_gate && rendered.notes[0].reason.contains("a volume daemonlet-gate of its own"));
}
