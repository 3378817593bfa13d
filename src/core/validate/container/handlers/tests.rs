use serde_json::Value;
use serde_json::json;

use crate::core::validate::container::tests::errors;
use crate::core::validate::container::tests::judged;
use crate::core::validate::container::tests::specs_judged;
use crate::core::validate::container::tests::with;

/// A probe that no rule refuses, changed by `fields`.
fn probe(kind: &str, fields: Value) -> Value {
    let mut probe = json!({"tcpSocket": {"port": 1}});
    probe.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    with(kind, probe)
}

#[test]
fn there_is_exactly_one_handler() {
    judged([
        (
            json!({"livenessProbe": {"periodSeconds": 1}}),
            "livenessProbe: must have exactly one of exec, httpGet, tcpSocket, grpc",
        ),
        (
            json!({"readinessProbe": {"tcpSocket": {"port": 1}, "grpc": {"port": 1}}}),
            "readinessProbe: must have exactly one of exec, httpGet, tcpSocket, grpc",
        ),
        (
            json!({"lifecycle": {"preStop": {"exec": {}, "sleep": {}}}}),
            "lifecycle.preStop: must have exactly one of exec, httpGet, tcpSocket, sleep",
        ),
        (
            json!({"lifecycle": {"postStart": {}}}),
            "lifecycle.postStart: must have exactly one of exec, httpGet, tcpSocket, sleep",
        ),
        (json!({"lifecycle": {"postStart": {"exec": {"command": ["x"]}, "grpc": {}}}}), ""),
        (json!({"lifecycle": {"stopSignal": "SIGNONE"}}), ""),
    ]);
}

#[test]
fn handlers_are_judged_by_field() {
    let startup = |kind: &str, action: Value| json!({"startupProbe": with(kind, action)});
    let http = |action: Value| startup("httpGet", action);
    const NAME: &str = "must be at most 15 lower case letters, digits and single '-' between them, with a letter";
    judged([
        (startup("exec", json!({"command": []})), "startupProbe.exec.command: required"),
        (startup("exec", json!({"command": [""]})), ""),
        (startup("tcpSocket", json!({})), "startupProbe.tcpSocket.port: must be a number from 1 to 65535"),
        (startup("tcpSocket", json!({"port": "http"})), ""),
        (startup("grpc", json!({"port": 0})), "startupProbe.grpc.port: must be a number from 1 to 65535"),
        (startup("grpc", json!({"port": 65535})), ""),
        (http(json!({"port": 65536})), "startupProbe.httpGet.port: must be a number from 1 to 65535"),
        (http(json!({"port": "80"})), format!("startupProbe.httpGet.port: {NAME}").as_str()),
        (http(json!({"port": ""})), format!("startupProbe.httpGet.port: {NAME}").as_str()),
        (http(json!({"port": 1, "path": "", "scheme": ""})), ""),
        (
            http(json!({"port": 1, "scheme": "https"})),
            "startupProbe.httpGet.scheme: must be HTTP or HTTPS, not \"https\"",
        ),
        (http(json!({"port": 1, "scheme": "HTTPS", "httpHeaders": [{"name": "-X-1", "value": ""}]})), ""),
        (
            http(json!({"port": 1, "httpHeaders": [{"name": "X_1", "value": ""}]})),
            "startupProbe.httpGet.httpHeaders[0].name: must be letters, digits and '-'",
        ),
        (
            http(json!({"port": 1, "httpHeaders": [{"value": ""}]})),
            "startupProbe.httpGet.httpHeaders[0].name: required",
        ),
    ]);
}

#[test]
fn counts_of_probes_are_judged() {
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        let expected = format!("readinessProbe.{field}: must not be negative");
        judged([(probe("readinessProbe", with(field, json!(-1))), expected.as_str())]);
        judged([(probe("readinessProbe", with(field, json!(0))), "")]);
    }
    for kind in ["livenessProbe", "startupProbe"] {
        let expected = format!("{kind}.successThreshold: must be 1 in a {kind}");
        judged([
            (probe(kind, json!({"successThreshold": 2})), expected.as_str()),
            (probe(kind, json!({"successThreshold": 1})), ""),
            (probe(kind, json!({"successThreshold": 0})), ""),
        ]);
    }
    judged([
        (probe("readinessProbe", json!({"successThreshold": 2})), ""),
        (
            probe("livenessProbe", json!({"terminationGracePeriodSeconds": 0})),
            "livenessProbe.terminationGracePeriodSeconds: must be more than 0",
        ),
        (probe("livenessProbe", json!({"terminationGracePeriodSeconds": 1})), ""),
        (
            probe("readinessProbe", json!({"terminationGracePeriodSeconds": 1})),
            "readinessProbe.terminationGracePeriodSeconds: not allowed in a readinessProbe",
        ),
    ]);
}

#[test]
fn a_hook_sleeps_no_longer_than_the_pod_has() {
    let sleep = |seconds: i64| json!({"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}});
    let refused = |grace: i64| {
        format!("lifecycle.preStop.sleep.seconds: must be from 0 to the pod's terminationGracePeriodSeconds, {grace}")
    };
    judged([(sleep(0), ""), (sleep(30), ""), (sleep(-1), refused(30).as_str()), (sleep(31), refused(30).as_str())]);
    let grace = json!({"terminationGracePeriodSeconds": 5});
    assert_eq!(errors(sleep(5), grace.clone()), "");
    assert_eq!(errors(sleep(6), grace), format!("spec.template.spec.containers[0].{}", refused(5)));
}

#[test]
fn only_sidecars_among_init_containers_have_them() {
    let init = |policy: Value, field: &str| {
        let mut container = with(field, json!({"exec": {"command": ["x"]}}));
        container["restartPolicy"] = policy;
        json!({"initContainers": [container]})
    };
    for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
        let expected =
            format!("initContainers[0].{field}: only allowed in an init container with restartPolicy Always");
        specs_judged([
            (init(json!("Always"), field), ""),
            (init(json!("OnFailure"), field), expected.as_str()),
            (init(json!(null), field), expected.as_str()),
        ]);
    }
    specs_judged([
        (
            json!({"initContainers": [{"restartPolicy": "Always", "livenessProbe": {}}]}),
            "initContainers[0].livenessProbe: must have exactly one of exec, httpGet, tcpSocket, grpc",
        ),
        (json!({"initContainers": [{"lifecycle": {"stopSignal": "SIGHUP"}}]}), ""),
        (
            json!({"initContainers": [{"lifecycle": {}}]}),
            "initContainers[0].lifecycle: only allowed in an init container with restartPolicy Always",
        ),
    ]);
}
