use serde_json::Value;
use serde_json::json;

use super::REQUIRED;
use crate::core::model::Kind;
use crate::core::model::ObjectRef;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;
use crate::core::render::fixture::with;

fn pod_spec(more: Value) -> Fixture {
    let base = json!({"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "main:1"}]});
    Fixture::new(with(base, more))
}

#[test]
fn what_placement_has_decided_is_left_out() {
    let fixture = pod_spec(json!({
        "nodeSelector": {"a": "b"},
        "nodeName": "other",
        "schedulingGates": [{"name": "x"}],
        "schedulingGroup": {"podGroupName": "p"},
        "workloadRef": {"name": "w", "podGroup": "g"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    }));
    let pod = fixture.rendered();
    for member in ["nodeSelector", "nodeName", "schedulingGates", "schedulingGroup", "workloadRef", "affinity"] {
        assert_eq!(pod.pod["spec"].get(member), None, "{member}");
    }
    assert_eq!(
        pod.notes.iter().map(|note| note.field.as_str()).collect::<Vec<_>>(),
        ["schedulingGates", "schedulingGroup", "workloadRef"].map(|field| format!("spec.template.spec.{field}"))
    );
    let unset = pod_spec(json!({"schedulingGates": [], "schedulingGroup": null, "workloadRef": null}));
    assert_eq!(unset.rendered().notes, []);
    let fixture = pod_spec(json!({"affinity": {"nodeAffinity": {}, "podAntiAffinity": {"x": 1}}}));
    assert_eq!(spec(&fixture.rendered(), "/affinity"), &json!({"podAntiAffinity": {"x": 1}}));
}

#[test]
fn what_only_a_scheduler_enforces_is_noted_once_for_each_kind() {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}});
    let of = |required: Value, preferred: Value| json!({REQUIRED: required, "preferredDuringSchedulingIgnoredDuringExecution": preferred});
    let spread = |otherwise: &str| json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": otherwise, "labelSelector": {"matchLabels": {"a": "b"}}});
    let notes = |spec: Value| -> Vec<String> {
        let notes = pod_spec(spec).rendered().notes;
        assert!(notes.iter().all(|note| note.reason.contains("only a scheduler enforces this")));
        notes.into_iter().map(|note| note.field.trim_start_matches("spec.template.spec.").to_owned()).collect()
    };
    let enforced = json!({
        "affinity": {"podAffinity": of(json!([term, term]), json!([])), "podAntiAffinity": of(json!([term]), json!([]))},
        "topologySpreadConstraints": [spread("ScheduleAnyway"), spread("DoNotSchedule")],
    });
    let affinities = ["podAffinity", "podAntiAffinity"].map(|kind| format!("affinity.{kind}.{REQUIRED}"));
    assert_eq!(notes(enforced), [&affinities[0], &affinities[1], "topologySpreadConstraints"]);
    let preferred = json!([{"weight": 1, "podAffinityTerm": term}]);
    assert_eq!(
        notes(
            json!({"affinity": {"podAffinity": of(json!([]), preferred)}, "topologySpreadConstraints": [spread("ScheduleAnyway")]})
        ),
        [""; 0]
    );
}

#[test]
fn upstreams_tolerations_are_added_after_the_templates_own() {
    let own = json!({"key": "example.com/x", "operator": "Exists"});
    let keys = |more: Value| -> Vec<String> {
        let pod = pod_spec(with(json!({"tolerations": [own]}), more)).rendered();
        let tolerations = spec(&pod, "/tolerations").as_array().unwrap();
        tolerations.iter().map(|toleration| toleration["key"].as_str().unwrap().to_owned()).collect()
    };
    let node = |name: &str| format!("node.kubernetes.io/{name}");
    let always = ["not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"];
    let mut expected = vec!["example.com/x".to_owned()];
    expected.extend(always.map(node));
    assert_eq!(keys(json!({})), expected);
    expected.push(node("network-unavailable"));
    assert_eq!(keys(json!({"hostNetwork": true})), expected);
}

#[test]
fn system_classes_are_known_without_an_api() {
    let mut fixture = pod_spec(json!({"priorityClassName": "system-node-critical", "priority": 5}));
    fixture.objects.complete = false;
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/priority"), &json!(2_000_001_000));
    assert_eq!(spec(&pod, "/priorityClassName"), &json!("system-node-critical"));
    assert_eq!(spec(&pod, "/preemptionPolicy"), &json!("PreemptLowerPriority"));
    assert!(pod.references.iter().all(|reference| reference.kind != Kind::PriorityClass));
    assert_eq!(
        pod.notes[0].to_string(),
        "spec.template.spec.priority: replaced by that of PriorityClass system-node-critical: the API accepts no other"
    );
    let fixture = pod_spec(json!({"priorityClassName": "system-cluster-critical"}));
    assert_eq!(spec(&fixture.rendered(), "/priority"), &json!(2_000_000_000));
}

#[test]
fn other_classes_come_from_the_api() {
    let mut fixture = pod_spec(json!({"priorityClassName": "low"}));
    let pod = fixture.rendered();
    assert!(waiting(&pod).contains(&"PriorityClass /low".to_owned()));
    assert_eq!(spec(&pod, "/priority"), &Value::Null);
    let class = ObjectRef::new(Kind::PriorityClass, "", "low");
    assert!(pod.references.contains(&class));

    fixture.objects.objects.insert(class.clone(), json!({"value": -5, "preemptionPolicy": "Never"}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/priority"), &json!(-5));
    assert_eq!(spec(&pod, "/preemptionPolicy"), &json!("Never"));
    fixture.objects.objects.insert(class, json!({"value": null, "preemptionPolicy": null}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/priority"), &json!(0));
    assert_eq!(spec(&pod, "/preemptionPolicy"), &json!("PreemptLowerPriority"));
}

#[test]
fn a_priority_without_a_class_is_left_out_with_a_note() {
    let pod = pod_spec(json!({"priority": 2_000_001_000})).rendered();
    assert_eq!(spec(&pod, "/priority"), &Value::Null);
    assert_eq!(pod.notes[0].field, "spec.template.spec.priority");
    let pod = pod_spec(json!({"preemptionPolicy": "Never"})).rendered();
    assert_eq!(spec(&pod, "/preemptionPolicy"), &Value::Null);
    assert_eq!(pod.notes[0].field, "spec.template.spec.preemptionPolicy");
}

#[test]
fn a_group_of_pods_is_no_matter_of_a_kubelet() {
    for group in [json!({}), json!({"podGroupName": "A"}), json!({"podGroupName": "workers"})] {
        let pod = pod_spec(json!({"schedulingGroup": group})).rendered();
        assert_eq!(spec(&pod, "/schedulingGroup"), &Value::Null);
        let pod = pod_spec(json!({"workloadRef": group})).rendered();
        assert_eq!(spec(&pod, "/workloadRef"), &Value::Null);
    }
}

#[test]
fn a_tenants_priority_ends_no_daemon_of_others() {
    let of = |value: i64| {
        let mut fixture = pod_spec(json!({"priorityClassName": "own"}));
        let class = ObjectRef::new(Kind::PriorityClass, "", "own");
        fixture.objects.objects.insert(class, json!({"value": value, "preemptionPolicy": "Never"}));
        fixture.options.rules.trusted_namespaces.clear();
        fixture
    };
    let pod = of(1).rendered();
    for field in ["/priority", "/priorityClassName", "/preemptionPolicy"] {
        assert_eq!(spec(&pod, field), &Value::Null, "{field}");
    }
    assert_eq!(pod.notes[0].field, "spec.template.spec.priorityClassName");
    for value in [0, -5] {
        assert_eq!(spec(&of(value).rendered(), "/priority"), &json!(value), "it gives way, and ends no pod");
    }
    let mut trusted = of(1000);
    trusted.options.rules.trusted_namespaces.push("*".to_owned());
    assert_eq!(spec(&trusted.rendered(), "/priority"), &json!(1000));
}

#[test]
fn the_runtime_class_gives_the_overhead() {
    let mut fixture = pod_spec(json!({"runtimeClassName": "kata"}));
    assert!(waiting(&fixture.rendered()).contains(&"RuntimeClass /kata".to_owned()));
    let class = ObjectRef::new(Kind::RuntimeClass, "", "kata");
    fixture.objects.objects.insert(class.clone(), json!({"overhead": {"podFixed": {"cpu": "250m"}}}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/overhead"), &json!({"cpu": "250m"}));
    assert_eq!(spec(&pod, "/runtimeClassName"), &json!("kata"));
    assert!(pod.notes.is_empty());
    let nodes = |selector: Value| json!({"scheduling": {"nodeSelector": selector}});
    for (selector, notes) in [(json!({"kata": "yes"}), 1), (json!({}), 0)] {
        fixture.objects.objects.insert(class.clone(), nodes(selector));
        let pod = fixture.rendered();
        assert_eq!(pod.notes.len(), notes, "{:?}", pod.notes);
    }
    assert!(waiting(&pod).is_empty());

    fixture.objects.objects.insert(class, json!({"handler": "kata"}));
    fixture.daemon_set.template["spec"]["overhead"] = json!({"cpu": "1"});
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/overhead"), &Value::Null);
    assert_eq!(pod.notes[0].field, "spec.template.spec.overhead");
}

#[test]
fn an_overhead_that_the_kubelet_does_not_decode_is_refused() {
    let mut fixture = pod_spec(json!({"runtimeClassName": "kata"}));
    let class = ObjectRef::new(Kind::RuntimeClass, "", "kata");
    fixture.objects.objects.insert(class, json!({"overhead": {"podFixed": {"cpu": "many"}}}));
    let refused = fixture.refused();
    let expected = "spec.template.spec.runtimeClassName: overhead.podFixed[cpu] of RuntimeClass kata: must be a";
    assert!(refused[0].starts_with(expected), "{refused:?}");
}

#[test]
fn what_no_kubelet_takes_of_a_class_is_refused_by_its_field() {
    let class = ObjectRef::new(Kind::RuntimeClass, "", "kata");
    for (overhead, place) in [
        (json!({"foo": 1}), "[foo]"),
        (json!({"cpu": -1}), "[cpu]"),
        (json!({"pods": 1}), "[pods]"),
        (json!({"a b": 1}), "[a b]"),
        (json!({"": 1}), "[]"),
        (json!({"requests.cpu": 1}), "[requests.cpu]"),
        (json!({"example.com/x": "0.5"}), "[example.com/x]"),
        (json!({"cpu": 1, "hugepages-2Mi": "3Mi"}), "[hugepages-2Mi]"),
        (json!({"hugepages-2Mi": "4Mi"}), ""),
    ] {
        let mut fixture = pod_spec(json!({"runtimeClassName": "kata"}));
        fixture.objects.objects.insert(class.clone(), json!({"overhead": {"podFixed": overhead}}));
        let refused = fixture.refused();
        let expected = format!("spec.template.spec.runtimeClassName: overhead.podFixed{place} of RuntimeClass kata: ");
        assert!(refused.len() == 1 && refused[0].starts_with(&expected), "{refused:?}");
    }
    for (policy, why) in [
        (json!("never"), "must be PreemptLowerPriority or Never, not \"never\""),
        (json!(""), "must be PreemptLowerPriority or Never, not \"\""),
        (json!(5), "must be a string, not the number 5"),
    ] {
        let mut fixture = pod_spec(json!({"priorityClassName": "low"}));
        let class = ObjectRef::new(Kind::PriorityClass, "", "low");
        fixture.objects.objects.insert(class, json!({"value": 5, "preemptionPolicy": policy}));
        let field = "spec.template.spec.priorityClassName: preemptionPolicy of PriorityClass low: ";
        assert_eq!(fixture.refused(), [format!("{field}{why}")]);
    }
}

#[test]
fn whole_numbers_of_other_objects_are_written_as_such() {
    let classes = json!({"runtimeClassName": "kata", "priorityClassName": "low"});
    let mut fixture = pod_spec(classes);
    let class = ObjectRef::new(Kind::RuntimeClass, "", "kata");
    fixture.objects.objects.insert(class, json!({"overhead": {"podFixed": {"cpu": 1.0}}}));
    fixture.objects.objects.insert(ObjectRef::new(Kind::PriorityClass, "", "low"), json!({"value": 7.0}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/overhead"), &json!({"cpu": 1}));
    assert_eq!(spec(&pod, "/priority"), &json!(7));
}

#[test]
fn resource_claims_are_refused() {
    let refused = pod_spec(json!({"resourceClaims": [{"name": "gpu"}]})).refused();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].starts_with("spec.template.spec.resourceClaims: a static pod cannot"), "{refused:?}");
    assert!(pod_spec(json!({"resourceClaims": []})).render().is_ok());
}
