use serde_json::json;

use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;

#[test]
fn labels_are_the_templates_and_upstreams_two() {
    let mut fixture = Fixture::container(json!({}));
    let generation = "deprecated.daemonset.template.generation".to_owned();
    fixture.daemon_set.annotations.insert(generation.clone(), "4".to_owned());
    let expected = json!({"app": "agent", "pod-template-generation": "4", "controller-revision-hash": "7d9f8c6b5"});
    assert_eq!(fixture.rendered().pod["metadata"]["labels"], expected);

    // The API server begins with 1.
    fixture.daemon_set.annotations.insert(generation.clone(), "-3".to_owned());
    assert_eq!(fixture.rendered().pod["metadata"]["labels"]["pod-template-generation"], "1");

    fixture.daemon_set.annotations.insert(generation, "four".to_owned());
    let expected = json!({"app": "agent", "controller-revision-hash": "7d9f8c6b5"});
    assert_eq!(fixture.rendered().pod["metadata"]["labels"], expected);
}

#[test]
fn a_template_cannot_pose_as_another_daemon_or_as_a_mirror_pod() {
    let mut fixture = Fixture::container(json!({}));
    fixture.daemon_set.template["metadata"]["annotations"] = json!({
        "kept": "yes",
        "daemonlet.dev/daemonset": "other/daemon",
        "kubernetes.io/config.mirror": "x",
        "kubernetes.io/config.source": "api",
    });
    let expected =
        json!({"kept": "yes", "daemonlet.dev/daemonset": "kube-system/agent", "daemonlet.dev/incarnation": "3"});
    assert_eq!(fixture.rendered().pod["metadata"]["annotations"], expected);
}

#[test]
fn annotations_leave_room_for_those_that_come_later() {
    let mut fixture = Fixture::container(json!({}));
    let own = "daemonlet.dev/daemonset".len() + "kube-system/agent".len() + "daemonlet.dev/incarnation".len() + 1;
    let most = (256 << 10) - 512 - own - "main,".len() - 1;
    let mut with = |bytes: usize| {
        fixture.daemon_set.template["metadata"]["annotations"] = json!({"a": "x".repeat(bytes)});
        fixture.render().err().map(|refused| refused.errors[0].with_hint())
    };
    assert_eq!(with(most), None);
    assert_eq!(
        with(most + 1).as_deref(),
        Some(
            "spec.template.metadata.annotations: must be no more than 262144 bytes with those that daemonlet and the \
             kubelet add (hint: shorten them by 1 bytes)"
        )
    );
}

#[test]
fn nothing_else_of_the_templates_metadata_is_carried_over() {
    let mut fixture = Fixture::container(json!({}));
    fixture.daemon_set.template["metadata"] = json!({
        "labels": null,
        "name": "x",
        "generateName": "x-",
        "finalizers": ["a/b"],
        "ownerReferences": [{"name": "x"}],
        "creationTimestamp": null,
    });
    let pod = fixture.rendered().pod;
    let members: Vec<_> = pod["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["annotations", "labels", "name", "namespace", "uid"]);
}

#[test]
fn zone_and_region_of_the_node_are_labels_from_1_35_on() {
    let mut fixture = Fixture::container(json!({}));
    let zone = "topology.kubernetes.io/zone";
    fixture.options.topology = [(zone.to_owned(), "a".to_owned())].into();
    let label = |fixture: &Fixture| fixture.rendered().pod["metadata"]["labels"][zone].clone();
    fixture.daemon_set.template["metadata"]["labels"][zone] = json!("b");
    assert_eq!(label(&fixture), "a", "as the API server overwrites it");
    for version in [Some((1, 34)), None] {
        fixture.options.kubelet_version = version;
        assert_eq!(label(&fixture), "b", "{version:?}");
    }
    let file = json!({"path": "zone", "fieldRef": {"fieldPath": format!("metadata.labels['{zone}']")}});
    let sources = json!([{"downwardAPI": {"items": [file]}}, {"configMap": {"name": "kube-root-ca.crt"}}]);
    let mut fixture = Fixture::volume(json!({"projected": {"sources": sources}}));
    fixture.options.topology = [(zone.to_owned(), "a".to_owned())].into();
    assert_eq!(files(&fixture.rendered(), "data")[1].1, "a");
}
