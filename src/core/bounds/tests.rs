use serde_json::json;

use super::*;

type Shape<'a> = &'a dyn Fn(usize) -> Value;

fn list(count: usize, item: &Value) -> Value {
    vec![item.clone(); count].into()
}

#[test]
fn what_runs_is_not_pushed_out_of_a_namespace_by_what_is_new() {
    let keys: Vec<ObjectKey> = (0..=DAEMON_SETS).map(|n| ObjectKey::new("a", format!("d-{n:03}"))).collect();
    let other = ObjectKey::new("b", "z");
    let all = |runs: &'static [usize]| {
        let of = keys.iter().enumerate().map(move |(number, key)| (key, runs.contains(&number)));
        of.chain([(&other, false)])
    };
    let last = keys.last().expect("a key");
    assert_eq!(beyond(all(&[])), [last].into(), "the first by name");
    assert_eq!(beyond(all(&[DAEMON_SETS])), [&keys[DAEMON_SETS - 1]].into(), "what runs, then by name");
    assert_eq!(beyond(all(&[]).filter(|(key, _)| *key != last)), [].into());
    assert_eq!(beyond(keys.iter().map(|key| (key, true))), [].into(), "what runs stays");
}

#[test]
fn each_thing_has_a_bound_that_is_named_with_the_count() {
    let empty = json!({});
    let pod = |spec: Value| json!({"spec": spec});
    let container = |field: &str, count, item: &Value| pod(json!({"containers": [{field: list(count, item)}]}));
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let shapes: [(&str, usize, Shape<'_>); 12] = [
        ("containers: has 101 containers", 100, &|n| pod(json!({"containers": list(n, &empty)}))),
        ("volumes: has 257 volumes", 256, &|n| pod(json!({"volumes": list(n, &empty)}))),
        ("volumeMounts: has 513 mounts", 512, &|n| container("volumeMounts", n, &empty)),
        ("items: has 257 sources and items", 256, &|n| {
            let projected = json!({"projected": {"sources": [{"secret": {"items": list(n - 1, &empty)}}]}});
            pod(json!({"volumes": [projected]}))
        }),
        ("volumeMounts: has 769 folders", 768, &|n| {
            container("volumeMounts", 1, &json!({"mountPath": "/v".repeat(n - 3), "subPath": "a/b/c"}))
        }),
        ("volumeMounts: has 769 folders", 768, &|n| {
            let token = json!({"serviceAccountToken": {"path": "a/token"}});
            let item = json!({"path": format!("{}file", "a/".repeat(n - 2))});
            let projected = json!({"projected": {"sources": [{"configMap": {"items": [item]}}, token]}});
            pod(json!({"volumes": [projected], "containers": [{"workingDir": "/w"}]}))
        }),
        ("env: has 513 variables", 512, &|n| container("env", n, &empty)),
        ("args: has 1025 arguments", 1024, &|n| container("args", n, &empty)),
        ("ports: has 129 ports", 128, &|n| container("ports", n, &empty)),
        ("tolerations: has 65 tolerations", 64, &|n| pod(json!({"tolerations": list(n, &empty)}))),
        ("affinity: has 65 terms", 64, &|n| {
            let terms = json!({required: {"nodeSelectorTerms": list(n, &empty)}});
            pod(json!({"affinity": {"nodeAffinity": terms}}))
        }),
        ("spec.template: has 8193 values", 8192, &|n| list(n - 1, &Value::Null)),
    ];
    for (expected, most, shape) in shapes {
        assert_eq!(TENANT.exceeded_by(&shape(most)), [], "{expected}");
        let errors: Vec<_> = TENANT.exceeded_by(&shape(most + 1)).iter().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{expected}: {errors:?}");
        assert_eq!(EVERYONE.exceeded_by(&shape(most + 1)), [], "{expected}");
    }
    let text = |bytes: usize| json!({"k": "x".repeat(bytes - 1)});
    assert_eq!(TENANT.exceeded_by(&text(256 << 10)), []);
    let errors = TENANT.exceeded_by(&text((256 << 10) + 1));
    assert_eq!(errors[0].reason, "has 262145 bytes; at most 262144 are allowed");
}
