use serde_json::Value;
use serde_json::json;

use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::with;

fn terms(terms: Value) -> Value {
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    json!({"affinity": {"nodeAffinity": required}})
}

fn os(operator: &str, values: Value) -> Value {
    json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": operator, "values": values}]})
}

#[test]
fn windows_pods_are_refused_by_name() {
    let host_process = json!({"windowsOptions": {"hostProcess": true}});
    let cases = [
        (json!({"os": {"name": "windows"}}), "spec.template.spec.os.name"),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "spec.template.spec.nodeSelector[kubernetes.io/os]"),
        (
            json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}),
            "spec.template.spec.nodeSelector[beta.kubernetes.io/os]",
        ),
        (terms(json!([os("In", json!(["windows"]))])), "spec.template.spec.affinity.nodeAffinity"),
        (json!({"securityContext": host_process}), "spec.template.spec.securityContext.windowsOptions.hostProcess"),
        (
            json!({"containers": [{"name": "main", "securityContext": host_process}]}),
            "spec.template.spec.containers[0].securityContext.windowsOptions.hostProcess",
        ),
    ];
    for (more, field) in cases {
        let fixture = Fixture::new(with(json!({"containers": [{"name": "main", "image": "main:1"}]}), more.clone()));
        let errors = fixture.render().expect_err(&more.to_string()).errors;
        assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), [field], "{more}");
    }
}

#[test]
fn pods_that_may_run_on_linux_are_not() {
    let cases = [
        json!({"os": {"name": "linux"}}),
        json!({"nodeSelector": {"kubernetes.io/os": "linux"}}),
        terms(json!([])),
        terms(json!([os("In", json!(["windows", "linux"]))])),
        terms(json!([os("NotIn", json!(["windows"]))])),
        terms(json!([os("In", json!(["windows"])), os("In", json!(["linux"]))])),
    ];
    for more in cases {
        let fixture = Fixture::new(with(json!({"containers": [{"name": "main", "image": "main:1"}]}), more.clone()));
        assert!(fixture.render().is_ok(), "{more}");
    }
}
