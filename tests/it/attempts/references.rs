//! What a pod refers to.

use super::*;

/// An API server that was taken over can serve classes that none would store.
#[test]
fn no_class_of_an_api_server_that_was_taken_over_takes_more_than_a_class_may_give() {
    let class = |kind: Kind, object: Value| {
        let mut world = World::new();
        let field = if kind == Kind::PriorityClass { "~/priorityClassName" } else { "~/runtimeClassName" };
        world.objects.objects.insert(ObjectRef::new(kind, "", "mine"), object);
        world.changed(field, &json!("mine"))
    };
    let attempts = [
        (Kind::PriorityClass, json!({"value": 1_000_000_001})),
        (Kind::PriorityClass, json!({"value": 2_000_001_000})),
        (Kind::PriorityClass, json!({"value": 2_000_001_000.0})),
        (Kind::PriorityClass, json!({"value": u64::MAX})),
        (Kind::PriorityClass, json!({"value": "2000001000"})),
        (Kind::PriorityClass, json!({"value": 0, "preemptionPolicy": "Always"})),
        (Kind::RuntimeClass, json!({"handler": "h", "overhead": {"podFixed": {"memory": "-1Gi"}}})),
        (Kind::RuntimeClass, json!({"handler": "h", "overhead": {"podFixed": {"memory": ["1Gi"]}}})),
    ];
    for (kind, object) in attempts {
        match class(kind, object.clone()) {
            Outcome::Refused(why) => assert!(why.contains("mine"), "{kind} {object}: {why}"),
            Outcome::Runs(rendered) => panic!("{kind} {object}: it runs: {}", rendered.text),
        }
    }
    let Outcome::Runs(rendered) = class(Kind::PriorityClass, json!({"value": 1_000_000_000})) else {
        panic!("refused")
    };
    assert_eq!(rendered.pod.pod["spec"]["priority"], Value::Null, "it would end daemons of others");
}

/// What a pod refers to is of its own namespace, whatever its names look like.
#[test]
fn no_reference_leaves_its_namespace() {
    let world = World::new();
    for name in ["../other/settings", "kube-system/root", "x,metadata.namespace=kube-system", "..", "a b"] {
        for source in [json!({"configMap": {"name": name}}), json!({"secret": {"secretName": name}})] {
            let Outcome::Runs(rendered) = world.changed("~/volumes/-", &volume(source)) else { continue };
            let is_data = |reference: &&ObjectRef| matches!(reference.kind, Kind::ConfigMap | Kind::Secret);
            let foreign = |reference: &&ObjectRef| is_data(reference) && reference.key.namespace != "a";
            assert!(rendered.pod.references.iter().find(foreign).is_none(), "{name}: {:?}", rendered.pod.references);
        }
    }
    let Outcome::Runs(rendered) = world.changed("~/nodeName", &json!("another-node")) else { return };
    assert_ne!(rendered.pod.pod["spec"]["nodeName"], "another-node");
}
