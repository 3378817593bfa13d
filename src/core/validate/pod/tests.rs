use serde_json::Value;
use serde_json::json;

use super::check;

/// What is wrong with a template of one container and `spec`.
fn errors(spec: Value) -> String {
    let mut pod = json!({"containers": [{"name": "c", "image": "i"}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    errors_of(&json!({"spec": pod}))
}

fn errors_of(template: &Value) -> String {
    let mut errors = Vec::new();
    check(template, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_pod_itself_is_judged_too() {
    assert!(errors(json!({"dnsPolicy": "none"})).starts_with("spec.template.spec.dnsPolicy: must be "));
}

#[test]
fn annotations_that_mean_something_are_read_as_upstream_reads_them() {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
    let field = |key: &str, value: Value, node: Value| {
        let template = json!({
            "metadata": {"annotations": {key: value}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        });
        errors_of(&template)
            .split(": ")
            .next()
            .unwrap()
            .trim_start_matches("spec.template.metadata.annotations")
            .to_owned()
    };
    assert_eq!(field(MIRROR, json!(""), Value::Null), format!("[{MIRROR}]"));
    assert_eq!(field(MIRROR, json!("x"), json!("node-1")), "");
    for (text, place) in [
        ("", ""),
        ("null", ""),
        (" [] ", ""),
        (r#"[{"operator": "Exists", "tolerationSeconds": null, "other": {}}]"#, ""),
        (r#"[{"key": "a", "tolerationSeconds": 5, "effect": "NoExecute"}]"#, ""),
        ("x", "|"),
        ("{}", "|"),
        ("[[]]", "|"),
        (r#"[{"operator": "Exists"}] x"#, "|"),
        ("[null]", "|[0].operator"),
        (r#"[{"key": "a b"}]"#, "|[0].key"),
        ("[{\"\u{212a}ey\": \"a b\"}]", "|[0].key"),
        (r#"[{"key": "a", "KEY": "a b"}]"#, "|[0].key"),
        (r#"[{"key": 1}]"#, "|[0].key"),
        (r#"[{"key": "a"}, {"key": "a", "effect": "x"}]"#, "|[1].effect"),
        (r#"[{"key": "a", "effect": "NoExecute", "TolerationSeconds": 5.0}]"#, "|[0].tolerationSeconds"),
    ] {
        let expected = place.replace('|', &format!("[{TOLERATIONS}]"));
        assert_eq!(field(TOLERATIONS, json!(text), Value::Null), expected, "{text}");
    }
}

#[test]
fn labels_and_annotations_are_those_of_the_api() {
    let good = json!({"metadata": {"labels": {"a.b/C_d": "E.f", "n": null}, "annotations": {"A.B/c": "any thing"}}});
    assert_eq!(errors_of(&good), "");
    let bad = json!({"metadata": {"labels": {"a b": "", "c": "d e"}, "annotations": {"/x": ""}}});
    let fields: Vec<String> =
        errors_of(&bad).split("; ").map(|error| error.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(
        fields,
        [
            "spec.template.metadata.labels[a b]",
            "spec.template.metadata.labels[c]",
            "spec.template.metadata.annotations[/x]"
        ]
    );
}
