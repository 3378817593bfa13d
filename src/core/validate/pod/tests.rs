use serde_json::Value;
use serde_json::json;

use super::check;

/// What is wrong with a template of one container `c` changed by `container`, pod spec by `spec`.
fn errors(container: Value, spec: Value) -> String {
    let mut own = json!({"name": "c", "image": "i"});
    own.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut pod = json!({"containers": [own], "volumes": [{"name": "v", "emptyDir": {}}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    told(&json!({"spec": pod}))
}

fn told(template: &Value) -> String {
    let mut errors = Vec::new();
    check(template, &mut errors);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn what_the_kubelet_refuses_in_a_container_is_told_by_field() {
    const C: &str = "spec.template.spec.containers[0]";
    let mount = |mount: Value| json!({"volumeMounts": [mount]});
    let cases = [
        (json!({"env": [{"value": "x"}]}), "env[0].name: required"),
        (
            json!({"env": [{"name": "a=b"}]}),
            "env[0].name: \"a=b\" is not a variable name: only printable ASCII characters except '=' are allowed",
        ),
        (mount(json!({"name": "w", "mountPath": "/w"})), "volumeMounts[0].name: the pod has no volume w"),
        (json!({"env": [{"name": "a", "valueFrom": {}}]}), "env[0].valueFrom: must have a source"),
        (
            json!({"env": [{"name": "a", "valueFrom": {"fieldRef": {}}}]}),
            "env[0].valueFrom.fieldRef.fieldPath: required",
        ),
        (
            mount(json!({"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"})),
            "volumeMounts[0].mountPropagation: Bidirectional needs a privileged container",
        ),
        (mount(json!({"mountPath": "/w"})), "volumeMounts[0].name: required"),
        (mount(json!({"name": "v"})), "volumeMounts[0].mountPath: required"),
        (
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/v"}]}),
            "volumeMounts[1].mountPath: another volume is mounted at /v",
        ),
        (
            mount(json!({"name": "v", "mountPath": "/v", "subPath": "/x"})),
            "volumeMounts[0].subPath: must be a relative path",
        ),
        (
            mount(json!({"name": "v", "mountPath": "/v", "subPathExpr": "x/../y"})),
            "volumeMounts[0].subPathExpr: must not contain '..'",
        ),
        (
            mount(json!({"name": "v", "mountPath": "/v", "subPathExpr": "x", "subPath": "y"})),
            "volumeMounts[0].subPathExpr: may not be set beside subPath",
        ),
        (json!({"ports": [{}]}), "ports[0].containerPort: must be a number from 1 to 65535"),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 65536}]}),
            "ports[0].hostPort: must be a number from 1 to 65535",
        ),
        (
            json!({"ports": [{"containerPort": 1, "protocol": "tcp"}]}),
            "ports[0].protocol: must be TCP or UDP or SCTP, not \"tcp\"",
        ),
        (
            json!({"ports": [{"containerPort": 1, "name": "metrics-and-more"}]}),
            "ports[0].name: must be at most 15 lower case letters, digits and single '-' between them, with a letter",
        ),
        (
            json!({"ports": [{"containerPort": 1, "name": "m"}, {"containerPort": 2, "name": "m"}]}),
            "ports[1].name: m is used twice",
        ),
        (
            json!({"ports": [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}]}),
            "ports[1].hostPort: host port 5/TCP is used twice in this pod",
        ),
        (
            json!({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": "1001m"}}}),
            "resources.requests[cpu]: must not be more than the limit",
        ),
        (json!({"resources": {"limits": {"cpu": "-1"}}}), "resources.limits[cpu]: must not be negative"),
        (
            json!({"imagePullPolicy": "always"}),
            "imagePullPolicy: must be Always or IfNotPresent or Never, not \"always\"",
        ),
        (
            json!({"livenessProbe": {"periodSeconds": 1}}),
            "livenessProbe: must have exactly one of exec, httpGet, tcpSocket, grpc",
        ),
        (
            json!({"lifecycle": {"preStop": {"exec": {}, "sleep": {}}}}),
            "lifecycle.preStop: must have exactly one of exec, httpGet, tcpSocket, sleep",
        ),
    ];
    for (container, expected) in cases {
        assert_eq!(errors(container, json!({})), format!("{C}.{expected}"));
    }
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
        "lifecycle": {"postStart": null},
    });
    let dns = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}});
    assert_eq!(errors(good.clone(), dns), "");
    assert_eq!(errors(good, json!({"hostNetwork": true})), "");
}

#[test]
fn the_pod_itself_is_judged_too() {
    let two = json!([
        {"name": "a", "ports": [{"containerPort": 80}]},
        {"name": "b", "ports": [{"containerPort": 80}]},
        {"name": "c", "ports": [{"containerPort": 81, "hostPort": 82}]},
    ]);
    assert_eq!(errors(json!({}), json!({"containers": two})), "");
    assert_eq!(
        errors(json!({}), json!({"hostNetwork": true, "containers": two})),
        "spec.template.spec.containers[1].ports[0].hostPort: host port 80/TCP is used twice in this pod; \
         spec.template.spec.containers[2].ports[0].hostPort: must be the containerPort with hostNetwork"
    );
    assert!(errors(json!({}), json!({"dnsPolicy": "none"})).starts_with("spec.template.spec.dnsPolicy: must be "));
    let unnamed = json!({"volumes": [{"name": "v", "secret": {}}, {}], "tolerations": [{}]});
    assert_eq!(
        errors(json!({}), unnamed),
        "spec.template.spec.volumes[0].secret.secretName: required; spec.template.spec.volumes[1].name: required; \
         spec.template.spec.tolerations[0].operator: must be Exists without a key"
    );
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
