use serde_json::json;

use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;

#[test]
fn a_plain_daemon_gets_its_token_and_the_api_service() {
    let fixture = Fixture::new(json!({"containers": [{"name": "main", "image": "main:1"}]}));
    let pod = fixture.rendered();
    assert_eq!(waiting(&pod), Vec::<String>::new());
    assert_eq!(
        pod.pod,
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "agent-abcde",
                "namespace": "kube-system",
                "uid": "5f3c0b9e-0000-5000-8000-000000000000",
                "labels": {"app": "agent", "controller-revision-hash": "7d9f8c6b5"},
                "annotations": {"daemonlet.dev/daemonset": "kube-system/agent", "daemonlet.dev/incarnation": "3"},
            },
            "spec": {
                "containers": [{
                    "name": "main",
                    "image": "main:1",
                    "volumeMounts": [{
                        "name": "kube-api-access",
                        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                        "readOnly": true,
                    }],
                    "env": [
                        {"name": "KUBERNETES_SERVICE_HOST", "value": "10.96.0.1"},
                        {"name": "KUBERNETES_SERVICE_PORT", "value": "443"},
                    ],
                }],
                "volumes": [{"name": "kube-api-access", "emptyDir": {}}],
            },
        })
    );
    let expected = [("ca.crt", "CA", 0o644), ("namespace", "kube-system", 0o644), ("token", "TOKEN", 0o644)];
    let expected = expected.map(|(path, data, mode)| (path.to_owned(), data.to_owned(), mode));
    assert_eq!(files(&pod, "kube-api-access"), expected);
}

#[test]
fn the_same_inputs_give_the_same_pod() {
    let fixture = Fixture::new(json!({"containers": [{"name": "main", "image": "main:1"}]}));
    assert_eq!(fixture.rendered(), fixture.rendered());
    assert_eq!(fixture.rendered().pod.to_string(), fixture.rendered().pod.to_string());
}

#[test]
fn every_refused_field_is_named_at_once() {
    let fixture = Fixture::new(json!({
        "containers": [{"name": "main"}],
        "resourceClaims": [{"name": "gpu"}],
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "b", "csi": {"driver": "x"}},
        ],
    }));
    let fields: Vec<_> = fixture.render().unwrap_err().errors.into_iter().map(|error| error.field).collect();
    assert_eq!(
        fields,
        [
            "spec.template.spec.resourceClaims",
            "spec.template.spec.volumes[0].persistentVolumeClaim",
            "spec.template.spec.volumes[1].csi",
        ]
    );
    let _ = spec;
}
