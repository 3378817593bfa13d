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
