use serde_json::Value;
use serde_json::json;

use super::go_quote;
use crate::core::model::Kind;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;

fn mixed(items: Value) -> Fixture {
    let sources = json!([{"configMap": {"name": "conf"}}, {"downwardAPI": {"items": items}}]);
    let mut fixture = Fixture::volume(json!({"projected": {"sources": sources}}));
    fixture.put(Kind::ConfigMap, "conf", json!({}));
    fixture
}

fn field(path: &str) -> Fixture {
    mixed(json!([{"path": "x", "mode": 0o600, "fieldRef": {"fieldPath": path}}]))
}

#[test]
fn fields_of_the_instance_are_written_as_the_kubelet_would() {
    let cases = [
        ("metadata.name", "agent-abcde-node-1"),
        ("metadata.namespace", "kube-system"),
        ("metadata.uid", "5f3c0b9e-0000-5000-8000-000000000000"),
        ("metadata.labels", "app=\"agent\"\ncontroller-revision-hash=\"7d9f8c6b5\""),
        ("metadata.labels['app']", "agent"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['daemonlet.dev/incarnation']", "3"),
        (
            "metadata.annotations",
            "daemonlet.dev/daemonset=\"kube-system/agent\"\ndaemonlet.dev/incarnation=\"3\"\n\
             kubernetes.io/config.hash=\"5f3c0b9e-0000-5000-8000-000000000000\"\nkubernetes.io/config.source=\"file\"",
        ),
    ];
    for (path, expected) in cases {
        let pod = field(path).rendered();
        assert_eq!(files(&pod, "data"), [("x".to_owned(), expected.to_owned(), 0o600)], "{path}");
        assert_eq!(spec(&pod, "/volumes/0"), &json!({"name": "data", "emptyDir": {}}));
    }
}

#[test]
fn fields_that_only_the_kubelet_knows_are_refused() {
    for path in ["status.podIP", "metadata.finalizers['x']", ""] {
        let refused = field(path).refused();
        let expected =
            "spec.template.spec.volumes[0].projected.sources[1].downwardAPI.items[0].fieldRef: only the kubelet";
        assert!(refused.len() == 1 && refused[0].starts_with(expected), "{path}: {refused:?}");
    }
}

#[test]
fn strings_are_quoted_as_go_does() {
    assert_eq!(go_quote("a\"\\\n\t\r\u{7}\u{1b}é\u{a0}\u{2028}"), r#""a\"\\\n\t\r\a\x1bé\u00a0\u2028""#);
}

#[test]
fn resources_of_containers_are_computed_as_the_kubelet_does() {
    let resources = json!({
        "limits": {"cpu": "1500m", "memory": "100M", "hugepages-2Mi": "4Mi", "ephemeral-storage": "0"},
        "requests": {"memory": 1000},
    });
    let cases = [
        ("limits.cpu", "0", Some("2")),
        ("limits.cpu", "1m", Some("1500")),
        ("requests.cpu", "1", Some("2")),
        ("limits.memory", "1Mi", Some("96")),
        ("requests.memory", "1", Some("1000")),
        ("requests.ephemeral-storage", "1", Some("0")),
        ("limits.ephemeral-storage", "1", None),
        ("limits.hugepages-2Mi", "1Mi", Some("4")),
        ("limits.hugepages-1Gi", "1", Some("0")),
        ("limits.example.com/gpu", "1", None),
    ];
    for (resource, divisor, expected) in cases {
        let reference = json!({"containerName": "main", "resource": resource, "divisor": divisor});
        let mut fixture = mixed(json!([{"path": "x", "resourceFieldRef": reference}]));
        fixture.daemon_set.template["spec"]["containers"][0]["resources"] = resources.clone();
        let found = fixture.render().ok().map(|pod| files(&pod, "data")[0].1.clone());
        assert_eq!(found.as_deref(), expected, "{resource} in {divisor}");
        let hint = fixture.render().err().and_then(|refused| refused.errors[0].hint.clone());
        assert!(hint.is_none_or(|hint| hint.starts_with("set the container's limit, or ")), "{resource}");
    }
    let reference = json!({"containerName": "nope", "resource": "limits.cpu"});
    let refused = mixed(json!([{"path": "x", "resourceFieldRef": reference}])).render().err().unwrap();
    assert_eq!(refused.errors[0].reason, "the pod has no container \"nope\"");
}
