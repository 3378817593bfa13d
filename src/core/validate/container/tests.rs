use serde_json::Value;
use serde_json::json;

use crate::core::validate::pod;

/// Where the container of [`errors`] is.
const PLACE: &str = "spec.template.spec.containers[0]";

/// What is wrong with a template of one container `c` changed by `container`, pod spec by `spec`.
pub(super) fn errors(container: Value, spec: Value) -> String {
    let mut own = json!({"name": "c", "image": "i"});
    own.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let mut pod = json!({"containers": [own], "volumes": [
        {"name": "v", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "own-claim", "ephemeral": {"volumeClaimTemplate": claim}},
        {"name": "host", "hostPath": {"path": "/h"}},
        {"name": "unset"},
    ]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let mut errors = Vec::new();
    pod::check(&json!({"spec": pod}), &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// That each container is refused with an error below it, or accepted where the error is empty.
pub(super) fn judged<'a>(cases: impl IntoIterator<Item = (Value, &'a str)>) {
    for (container, expected) in cases {
        let expected = if expected.is_empty() { String::new() } else { format!("{PLACE}.{expected}") };
        assert_eq!(errors(container.clone(), json!({})), expected, "{container}");
    }
}

/// As [`judged`], for pod specs that have the container.
pub(super) fn specs_judged<'a>(cases: impl IntoIterator<Item = (Value, &'a str)>) {
    for (spec, expected) in cases {
        let expected = if expected.is_empty() { String::new() } else { format!("spec.template.spec.{expected}") };
        assert_eq!(errors(json!({}), spec.clone()), expected, "{spec}");
    }
}

/// An object of one `field`.
pub(super) fn with(field: &str, value: Value) -> Value {
    Value::Object([(field.to_owned(), value)].into_iter().collect())
}

#[test]
fn what_the_kubelet_takes_is_left_alone() {
    let good = json!({
        "env": [{"name": "1 a.b-c"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a..b"}, {"name": "v", "mountPath": "/v/"}],
        "ports": [
            {"containerPort": 53, "name": "dns", "protocol": "UDP"},
            {"containerPort": 53, "name": "dns-tcp"},
            {"containerPort": 1, "hostPort": 0, "protocol": ""},
        ],
        "resources": {"limits": {"memory": "1Gi", "x.y/z": 1}, "requests": {"memory": 1e9, "cpu": 0.5}},
        "livenessProbe": {"httpGet": {"port": 1}, "exec": null}, "readinessProbe": null,
        "lifecycle": {"postStart": null}, "securityContext": null, "terminationMessagePolicy": "",
    });
    assert_eq!(errors(good.clone(), json!({"dnsPolicy": "Default"})), "");
    assert_eq!(errors(good, json!({"hostNetwork": true})), "");
}

#[test]
fn words_are_those_of_the_api() {
    judged([
        (
            json!({"imagePullPolicy": "always"}),
            "imagePullPolicy: must be Always or IfNotPresent or Never, not \"always\"",
        ),
        (json!({"imagePullPolicy": ""}), ""),
        (
            json!({"terminationMessagePolicy": "Log"}),
            "terminationMessagePolicy: must be File or FallbackToLogsOnError, not \"Log\"",
        ),
        (json!({"terminationMessagePolicy": "FallbackToLogsOnError"}), ""),
    ]);
}

#[test]
fn ports_are_judged_by_field() {
    const NAME: &str =
        "ports[0].name: must be at most 15 lower case letters, digits and single '-' between them, with a letter";
    judged([
        (json!({"ports": [{}]}), "ports[0].containerPort: must be a number from 1 to 65535"),
        (json!({"ports": [{"containerPort": 65535, "hostPort": 65535}]}), ""),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 65536}]}),
            "ports[0].hostPort: must be a number from 1 to 65535",
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": -1}]}),
            "ports[0].hostPort: must be a number from 1 to 65535",
        ),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "tcp"}]}),
            "ports[0].protocol: must be TCP or UDP or SCTP, not \"tcp\"",
        ),
        (json!({"ports": [{"containerPort": 1, "name": "metrics-and-more"}]}), NAME),
        (json!({"ports": [{"containerPort": 1, "name": "80"}]}), NAME),
        (json!({"ports": [{"containerPort": 1, "name": "metrics-and-mor"}]}), ""),
        (
            json!({"ports": [{"containerPort": 1, "name": "m"}, {"containerPort": 2, "name": "m"}]}),
            "ports[1].name: m is used twice",
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
            "ports[1].hostPort: host port 5/TCP is used twice in this pod",
        ),
        (
            json!({"ports": [
                {"containerPort": 1, "hostPort": 5},
                {"containerPort": 1, "hostPort": 5, "protocol": "UDP"},
                {"containerPort": 1, "hostPort": 5, "hostIP": "127.0.0.1"},
            ]}),
            "",
        ),
    ]);
}

#[test]
fn host_ports_are_those_of_the_containers_together_and_of_each_init_container() {
    let two = json!([
        {"name": "a", "ports": [{"containerPort": 80}]},
        {"name": "b", "ports": [{"containerPort": 80}]},
        {"name": "c", "ports": [{"containerPort": 81, "hostPort": 82}]},
    ]);
    assert_eq!(errors(json!({}), json!({"containers": two, "initContainers": two})), "");
    assert_eq!(errors(json!({}), json!({"hostNetwork": true, "initContainers": two})), "");
    assert_eq!(
        errors(json!({}), json!({"hostNetwork": true, "containers": two})),
        "spec.template.spec.containers[1].ports[0].hostPort: host port 80/TCP is used twice in this pod; \
         spec.template.spec.containers[2].ports[0].hostPort: must be the containerPort with hostNetwork"
    );
    let twice =
        json!([{"name": "a", "ports": [{"containerPort": 8, "hostPort": 9}, {"containerPort": 9, "hostPort": 9}]}]);
    specs_judged([(
        json!({"initContainers": twice}),
        "initContainers[0].ports[1].hostPort: host port 9/TCP is used twice in this pod",
    )]);
}

#[test]
fn a_container_says_how_it_restarts_by_field() {
    let rules = |rules: Value| json!({"restartPolicy": "Never", "restartPolicyRules": rules});
    let rule = |action: &str, operator: &str, values: usize| json!({"action": action, "exitCodes": {"operator": operator, "values": vec![1; values]}});
    judged([
        (json!({"restartPolicy": "OnFailure"}), ""),
        (json!({"restartPolicy": ""}), "restartPolicy: must be Always or Never or OnFailure, not \"\""),
        (json!({"restartPolicyRules": [rule("Restart", "In", 1)]}), "restartPolicy: required with restartPolicyRules"),
        (rules(vec![rule("RestartAllContainers", "NotIn", 255); 20].into()), ""),
        (rules(vec![rule("Restart", "In", 1); 21].into()), "restartPolicyRules: must be no more than 20"),
        (
            rules(json!([rule("Stop", "In", 1)])),
            "restartPolicyRules[0].action: must be Restart or RestartAllContainers, not \"Stop\"",
        ),
        (rules(json!([rule("", "In", 1)])), "restartPolicyRules[0].action: required"),
        (rules(json!([{"action": "Restart"}])), "restartPolicyRules[0].exitCodes: required"),
        (
            rules(json!([rule("Restart", "in", 1)])),
            "restartPolicyRules[0].exitCodes.operator: must be In or NotIn, not \"in\"",
        ),
        (
            rules(json!([rule("Restart", "In", 256)])),
            "restartPolicyRules[0].exitCodes.values: must be no more than 255",
        ),
    ]);
}

#[test]
fn a_container_says_how_it_is_resized_by_field() {
    let policy = |name: &str, policy: &str| json!({"resourceName": name, "restartPolicy": policy});
    judged([
        (with("resizePolicy", json!([policy("cpu", "NotRequired"), policy("memory", "RestartContainer")])), ""),
        (with("resizePolicy", json!([policy("", "NotRequired")])), "resizePolicy[0].resourceName: required"),
        (
            with("resizePolicy", json!([policy("gpu", "NotRequired")])),
            "resizePolicy[0].resourceName: must be cpu or memory, not \"gpu\"",
        ),
        (with("resizePolicy", json!([policy("cpu", "")])), "resizePolicy[0].restartPolicy: required"),
        (
            with("resizePolicy", json!([policy("cpu", "NotRequired"), policy("cpu", "NotRequired")])),
            "resizePolicy[1].resourceName: cpu is used twice",
        ),
    ]);
    let init = |kind: Value| {
        json!({"initContainers": [
            {"name": "i", "image": "i", "restartPolicy": kind, "resizePolicy": [policy("cpu", "RestartContainer")]},
        ]})
    };
    specs_judged([(init(json!(null)), ""), (init(json!("Always")), "")]);
}
