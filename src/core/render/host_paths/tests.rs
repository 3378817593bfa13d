use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::core::model::ObjectKey;
use crate::core::overlays::KnownList;
use crate::core::overlays::ListSource;
use crate::core::overlays::Overlays;
use crate::core::overlays::Patch;
use crate::core::policy::Grant;
use crate::core::policy::PodRules;
use crate::core::render::fixture::Fixture;

fn tenant(source: Value, mount: Value) -> Fixture {
    let mut fixture = Fixture::volume(json!({"hostPath": source}));
    let own = fixture.daemon_set.template.pointer_mut("/spec/containers/0/volumeMounts/0").unwrap();
    mount.as_object().unwrap().iter().for_each(|(key, value)| own[key] = value.clone());
    let grant = Grant { host_paths: vec!["/var".to_owned(), "/var/log/".to_owned()], ..Grant::default() };
    fixture.options.rules = PodRules {
        trusted_namespaces: Vec::new(),
        grants: [("kube-system".to_owned(), grant)].into(),
        ..PodRules::default()
    };
    fixture
}

fn rendered(fixture: &Fixture) -> (Value, Value) {
    let pod = fixture.render().unwrap().pod;
    (pod["spec"]["volumes"][0]["hostPath"].clone(), pod["spec"]["containers"][0]["volumeMounts"][0].clone())
}

#[test]
fn what_is_below_a_granted_path_is_resolved_beneath_it_and_read_only() {
    let plain = json!({"name": "data", "mountPath": "/data", "readOnly": true, "recursiveReadOnly": "IfPossible"});
    let with = |field: &str, value: &str| {
        let mut mount = plain.clone();
        mount[field] = value.into();
        mount
    };
    let table = [
        ("/var/log", json!({}), "/var/log/", plain.clone()),
        ("/var/log", json!({"subPath": "a"}), "/var/log/", with("subPath", "a")),
        ("/var/log/pods//x/", json!({}), "/var/log/", with("subPath", "pods/x")),
        ("/var/log/pods", json!({"subPath": "a/b"}), "/var/log/", with("subPath", "pods/a/b")),
        ("/var/lib/$(A)", json!({"subPathExpr": "$(B)"}), "/var", with("subPathExpr", "lib/$$(A)/$(B)")),
    ];
    for (path, mount, prefix, expected) in table {
        let fixture = tenant(json!({"path": path, "type": "Directory"}), mount);
        let (volume, mount) = rendered(&fixture);
        let is_prefix = path == "/var/log";
        let source = if is_prefix { json!({"path": prefix, "type": "Directory"}) } else { json!({"path": prefix}) };
        assert_eq!((volume, mount), (source, expected), "{path}");
        let notes = fixture.render().unwrap().notes;
        let unchecked = "spec.template.spec.volumes[data].hostPath.type";
        assert_eq!(notes.iter().any(|note| note.field == unchecked), !is_prefix, "{notes:?}");
        assert!(notes.iter().any(|note| note.reason.starts_with("is read only")), "{notes:?}");
    }
}

#[test]
fn what_was_never_granted_stays_as_it_runs() {
    let source = json!({"path": "/", "type": "Directory"});
    let mount = json!({"readOnly": true, "mountPropagation": "HostToContainer"});
    let (volume, mount) = rendered(&tenant(source.clone(), mount));
    assert_eq!(volume, source);
    assert_eq!(mount["recursiveReadOnly"], Value::Null, "the kubelet takes no manifest with both");
    let granted = tenant(json!({"path": "/var/log"}), json!({"mountPropagation": "HostToContainer"}));
    assert_eq!(rendered(&granted).1["recursiveReadOnly"], Value::Null);
}

#[test]
fn an_older_kubelet_is_not_given_what_it_does_not_know() {
    let mut fixture = tenant(json!({"path": "/var/log"}), json!({"readOnly": true}));
    fixture.options.kubelet_version = Some((1, 30));
    assert_eq!(rendered(&fixture).1, json!({"name": "data", "mountPath": "/data", "readOnly": true}));
    assert!(fixture.render().unwrap().notes.is_empty(), "the template says read only itself");
}

#[test]
fn folders_and_trusted_namespaces_mount_as_they_say() {
    let source = json!({"path": "/var/log/pods", "type": "Directory"});
    let mut of_folder = tenant(source.clone(), json!({}));
    of_folder.in_folder();
    let mut trusted = tenant(source.clone(), json!({}));
    trusted.options.rules.trusted_namespaces = vec!["kube-system".to_owned()];
    for fixture in [of_folder, trusted] {
        assert_eq!(rendered(&fixture), (source.clone(), json!({"name": "data", "mountPath": "/data"})));
    }
}

#[test]
fn what_the_api_patches_of_a_folder_is_confined_and_the_folders_own_is_not() {
    for (list, is_confined) in [(ListSource::Api, true), (ListSource::Folder, false)] {
        let mut fixture = tenant(json!({"path": "/var/log/evil"}), json!({}));
        fixture.in_folder();
        fixture.daemon_set.overlays = Some(Arc::new(Overlays {
            config_map: ObjectKey::new("kube-system", "o"),
            known: KnownList::Read,
            list,
            patches: vec![Patch { index: 0, patch: json!({}).into() }],
            digest: "d".to_owned(),
            template: None,
        }));
        let (volume, mount) = rendered(&fixture);
        let path = if is_confined { "/var/log/" } else { "/var/log/evil" };
        assert_eq!((volume["path"].as_str(), mount["readOnly"] == true), (Some(path), is_confined), "{list:?}");
    }
}
