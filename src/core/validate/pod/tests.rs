use serde_json::Value;
use serde_json::json;

use super::check;

/// What is wrong with a template of one container and `spec`.
fn errors(spec: Value) -> String {
    let mut pod = json!({"containers": [{"name": "c", "image": "i"}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    told(&json!({"spec": pod}))
}

fn told(template: &Value) -> String {
    let mut errors = Vec::new();
    check(template, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_pod_itself_is_judged_too() {
    assert!(errors(json!({"dnsPolicy": "none"})).starts_with("spec.template.spec.dnsPolicy: must be "));
}

#[test]
fn labels_and_annotations_are_those_of_the_api() {
    let good = json!({"metadata": {"labels": {"a.b/C_d": "E.f", "n": null}, "annotations": {"A.B/c": "any thing"}}});
    assert_eq!(told(&good), "");
    let bad = json!({"metadata": {"labels": {"a b": "", "c": "d e"}, "annotations": {"/x": ""}}});
    let fields: Vec<String> =
        told(&bad).split("; ").map(|error| error.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(
        fields,
        [
            "spec.template.metadata.labels[a b]",
            "spec.template.metadata.labels[c]",
            "spec.template.metadata.annotations[/x]"
        ]
    );
}
