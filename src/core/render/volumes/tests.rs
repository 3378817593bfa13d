use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::render::Part;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;

fn config_map(source: Value) -> Fixture {
    let mut fixture = Fixture::volume(json!({"configMap": source}));
    let object = json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "/wA="}, "immutable": true});
    fixture.put(Kind::ConfigMap, "conf", object);
    fixture
}

fn file(path: &str, data: &str, mode: u32) -> (String, String, u32) {
    (path.to_owned(), data.to_owned(), mode)
}

#[test]
fn a_converted_volume_is_an_empty_dir_that_is_mounted_read_only() {
    let mut fixture = config_map(json!({"name": "conf"}));
    fixture.daemon_set.template["spec"]["initContainers"] = json!([{
        "name": "init", "image": "init:1",
        "volumeMounts": [
            {"name": "data", "mountPath": "/x", "subPathExpr": "$(A)", "readOnly": false},
            {"name": "other", "mountPath": "/y"},
        ],
    }]);
    let volumes = fixture.daemon_set.template["spec"]["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "other", "emptyDir": {}}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/volumes/0"), &json!({"name": "data", "emptyDir": {}}));
    let mount = json!({"name": "data", "mountPath": "/data", "readOnly": true});
    assert_eq!(spec(&pod, "/containers/0/volumeMounts"), &json!([mount]));
    let mounts = json!([
        {"name": "data", "mountPath": "/x", "subPathExpr": "$(A)", "readOnly": true},
        {"name": "other", "mountPath": "/y"},
    ]);
    assert_eq!(spec(&pod, "/initContainers/0/volumeMounts"), &mounts);
    assert!(pod.references.contains(&ObjectRef::new(Kind::ConfigMap, "kube-system", "conf")));
}

#[test]
fn every_key_is_a_file_of_the_default_mode() {
    let pod = config_map(json!({"name": "conf", "defaultMode": 0o400})).rendered();
    let volume = &pod.volumes[0];
    assert_eq!(*volume.files["c"].data, [0xff, 0]);
    let modes: Vec<_> = volume.files.iter().map(|(path, file)| (path.as_str(), file.mode)).collect();
    assert_eq!(modes, [("a", 0o400), ("b", 0o400), ("c", 0o400)]);
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let items = json!([{"key": "b", "path": "x/./y", "mode": 0o755}, {"key": "a", "path": "z"}]);
    let pod = config_map(json!({"name": "conf", "items": items})).rendered();
    assert_eq!(files(&pod, "data"), [file("x/y", "2", 0o755), file("z", "1", 0o644)]);
}

#[test]
fn items_share_the_bytes_of_their_key_and_count_each() {
    let fixture = |items: usize| {
        let items: Value = (0..items).map(|index| json!({"key": "k", "path": index.to_string()})).collect();
        let mut fixture = Fixture::volume(json!({"configMap": {"name": "big", "items": items}}));
        fixture.put(Kind::ConfigMap, "big", json!({"data": {"k": "x".repeat(1 << 20)}}));
        fixture.options.rules.trusted_namespaces.clear();
        fixture
    };
    let pod = fixture(15).rendered();
    let files: Vec<_> = pod.volumes[0].files.values().collect();
    assert!(files.len() == 15 && files.iter().all(|file| file.data.as_ptr() == files[0].data.as_ptr()));
    let refused = fixture(17).refused().join("; ");
    assert!(refused.contains("items[15].path") && refused.contains("more than 16777216 bytes together"), "{refused}");
    let mut trusted = fixture(17);
    trusted.options.rules.trusted_namespaces.push("kube-system".to_owned());
    assert_eq!(trusted.rendered().volumes[0].files.len(), 17);
}

#[test]
fn data_over_the_bound_hold_no_token_back() {
    let items: Value = (0..17).map(|index| json!({"key": "k", "path": index.to_string()})).collect();
    let mut fixture = Fixture::volume(json!({"configMap": {"name": "big", "items": items}}));
    fixture.put(Kind::ConfigMap, "big", json!({"data": {"k": "x".repeat(1 << 20)}}));
    fixture.options.rules.trusted_namespaces.clear();
    fixture.daemon_set.template["spec"]["automountServiceAccountToken"] = true.into();
    let refused = fixture.render().unwrap_err();
    let held: Vec<_> = refused.held.iter().map(|held| &held.part).collect();
    assert_eq!(held, [&Part::Volume("data".to_owned())]);
    let token = refused.volumes.iter().find(|volume| volume.name == "kube-api-access").unwrap();
    assert_eq!(token.files.keys().collect::<Vec<_>>(), ["ca.crt", "namespace", "token"]);
}

#[test]
fn variables_count_too() {
    let reference = json!({"configMapKeyRef": {"name": "big", "key": "k"}});
    let env: Value = (0..17).map(|index| json!({"name": format!("V{index}"), "valueFrom": reference})).collect();
    let mut fixture = Fixture::container(json!({"env": env}));
    fixture.put(Kind::ConfigMap, "big", json!({"data": {"k": "x".repeat(4 << 20)}}));
    let refused = fixture.refused().join("; ");
    assert!(refused.contains("env[15]") && refused.contains("more than 67108864 bytes together"), "{refused}");
}

#[test]
fn a_secrets_values_are_decoded() {
    let mut fixture = Fixture::volume(json!({"secret": {"secretName": "s"}}));
    let object = json!({"data": {"a": "YWJj", "b": "ZGVm\n", "c": "!"}, "stringData": {"a": "over"}});
    fixture.put(Kind::Secret, "s", object);
    let pod = fixture.rendered();
    assert_eq!(files(&pod, "data"), [file("a", "over", 0o644), file("b", "def", 0o644)]);
    assert_eq!(waiting(&pod), ["Secret kube-system/s c"]);
}

#[test]
fn what_is_missing_is_waited_for_unless_it_is_optional() {
    let item = |optional: bool| json!({"name": "conf", "optional": optional, "items": [{"key": "no", "path": "no"}]});
    assert_eq!(waiting(&config_map(item(false)).rendered()), ["ConfigMap kube-system/conf no"]);
    assert!(waiting(&config_map(item(true)).rendered()).is_empty());

    let whole = |optional: bool| json!({"name": "gone", "optional": optional});
    assert_eq!(waiting(&config_map(whole(false)).rendered()), ["ConfigMap kube-system/gone"]);
    let pod = config_map(whole(true)).rendered();
    assert!(waiting(&pod).is_empty());
    assert!(files(&pod, "data").is_empty());
    assert!(pod.references.contains(&ObjectRef::new(Kind::ConfigMap, "kube-system", "gone")));
}

#[test]
fn an_optional_object_of_which_nothing_is_known_holds_only_daemons_of_the_api() {
    let mut fixture = config_map(json!({"name": "gone", "optional": true}));
    fixture.objects.complete = false;
    let waits = |fixture: &Fixture| waiting(&fixture.rendered()).contains(&"ConfigMap kube-system/gone".to_owned());
    assert!(waits(&fixture));
    assert!(!waits(fixture.in_folder()));
    let of_what_runs = fixture.render_with(&InDoubt(&fixture.objects)).unwrap();
    assert_eq!(waiting(&of_what_runs), ["ConfigMap kube-system/gone"], "it may have been made with it");
}

/// What is not known may be in what runs.
struct InDoubt<'a>(&'a ObjectMap);

impl ObjectSource for InDoubt<'_> {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        self.0.lookup(reference)
    }

    fn may_have_had(&self, _reference: &ObjectRef) -> bool {
        true
    }
}

#[test]
fn a_projection_of_fields_alone_stays_with_the_kubelet() {
    let items = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let source = json!({"projected": {"sources": [{"downwardAPI": {"items": items}}]}});
    let pod = Fixture::volume(source.clone()).rendered();
    assert_eq!(spec(&pod, "/volumes/0/projected"), &source["projected"]);
    assert_eq!(spec(&pod, "/containers/0/volumeMounts/0/readOnly"), &Value::Null);
    assert!(pod.volumes.is_empty());
}

#[test]
fn later_projected_sources_overwrite_earlier_ones() {
    let mut fixture = Fixture::volume(json!({"projected": {"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "conf"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "a", "mode": 0o600}]}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 100}},
    ]}}));
    fixture.put(Kind::ConfigMap, "conf", json!({"data": {"a": "1", "b": "2"}}));
    fixture.put(Kind::Secret, "s", json!({"data": {"k": "YWJj"}})).token("default", "vault", 600, "T");
    let pod = fixture.rendered();
    let expected = [file("a", "abc", 0o600), file("b", "2", 0o440), file("vault", "T", 0o440)];
    assert_eq!(files(&pod, "data"), expected);
    assert!(waiting(&pod).is_empty());
}

#[test]
fn the_group_widens_modes_and_a_token_is_its_users_alone() {
    let source = json!({"projected": {"defaultMode": 0o400, "sources": [
        {"configMap": {"name": "conf"}},
        {"serviceAccountToken": {"path": "token"}},
    ]}});
    let cases = [
        (json!({}), None, 0o400, 0o400, None),
        (json!({"runAsUser": 65532}), None, 0o400, 0o600, Some(65532)),
        (json!({"fsGroup": 2000}), Some(2000), 0o440, 0o640, None),
        (json!({"fsGroup": 2000, "runAsUser": 7}), Some(2000), 0o440, 0o640, Some(7)),
    ];
    for (context, group, config, token, user) in cases {
        let mut fixture = Fixture::volume(source.clone());
        fixture.put(Kind::ConfigMap, "conf", json!({"data": {"a": "1"}})).token("default", "", 3600, "T");
        fixture.daemon_set.template["spec"]["securityContext"] = context.clone();
        let pod = fixture.rendered();
        let volume = &pod.volumes[0];
        assert_eq!(volume.fs_group, group, "{context}");
        assert_eq!((volume.files["a"].mode, volume.files["a"].uid), (config, None), "{context}");
        assert_eq!((volume.files["token"].mode, volume.files["token"].uid), (token, user), "{context}");
    }
}

#[test]
fn paths_that_the_kubelet_would_not_write_are_refused() {
    for path in ["/a", "../a", "a/../b", "..a", "./..a", "a\0", "", ".", &"x".repeat(256)] {
        let items = json!([{"key": "a", "path": path}]);
        let refused = config_map(json!({"name": "conf", "items": items})).refused();
        let field = "spec.template.spec.volumes[0].configMap.items[0].path: ";
        assert!(refused.len() == 1 && refused[0].starts_with(field), "{path}: {refused:?}");
    }
    let items = json!([{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]);
    let refused = config_map(json!({"name": "conf", "items": items})).refused();
    assert!(refused[0].contains(r#"the path "x/y" needs the folder "x", which is a file"#), "{refused:?}");
}

#[test]
fn what_cannot_be_mounted_inside_a_volume_of_ours_is_refused_by_its_field() {
    let inside = |volume: Value, path: &str| {
        let mut fixture = Fixture::volume(volume);
        fixture.put(Kind::ConfigMap, "conf", json!({"data": {"a": "1"}}));
        let spec = &mut fixture.daemon_set.template["spec"];
        spec["volumes"].as_array_mut().unwrap().push(json!({"name": "other", "emptyDir": {}}));
        let mounts = spec["containers"][0]["volumeMounts"].as_array_mut().unwrap();
        mounts.push(json!({"name": "other", "mountPath": format!("/data/{path}")}));
        fixture
    };
    let conf = || json!({"configMap": {"name": "conf"}});
    let (long, deep) = ("x".repeat(256), "x/".repeat(2_100));
    for path in ["..data/x", "..x", &long, &deep] {
        let refused = inside(conf(), path).refused();
        let field = "spec.template.spec.containers[0].volumeMounts[1].mountPath: the path ";
        assert!(refused.len() == 1 && refused[0].starts_with(field), "{refused:?}");
        assert!(refused[0].contains("inside the volume data ") && refused[0].len() < 600, "{refused:?}");
        assert!(inside(json!({"emptyDir": {}}), path).render().is_ok(), "the kubelet makes it, or not");
    }
    let refused = inside(conf(), "..data/x").render().unwrap_err();
    let held: Vec<_> = refused.held.iter().map(|held| &held.part).collect();
    assert_eq!(held, [&Part::Volume("data".to_owned())], "what else runs with is refreshed");
    let nested = |path: &str| inside(conf(), path).rendered().volumes[0].nested_mount_points.clone();
    assert_eq!(nested("x/..y").into_iter().collect::<Vec<_>>(), ["x/..y"]);
}

#[test]
fn what_a_static_pod_cannot_carry_is_refused_with_a_hint() {
    let projected = |source: Value| json!({"projected": {"sources": [source, {"configMap": {"name": "conf"}}]}});
    let secret = json!({"secretRef": {"name": "s"}});
    let cases = [
        (json!({"persistentVolumeClaim": {"claimName": "x"}}), "persistentVolumeClaim"),
        (json!({"ephemeral": {}}), "ephemeral"),
        (json!({"csi": {"driver": "x"}}), "csi"),
        (json!({"azureFile": {}}), "azureFile"),
        (json!({"glusterfs": {}}), "glusterfs"),
        (json!({"cephfs": secret}), "cephfs.secretRef"),
        (json!({"rbd": secret}), "rbd.secretRef"),
        (json!({"iscsi": secret}), "iscsi.secretRef"),
        (json!({"flexVolume": secret}), "flexVolume.secretRef"),
        (json!({"newKind": {}}), "newKind"),
        (projected(json!({"clusterTrustBundle": {}})), "projected.sources[0].clusterTrustBundle"),
        (projected(json!({"podCertificate": {}})), "projected.sources[0].podCertificate"),
        (projected(json!({"newKind": {}})), "projected.sources[0].newKind"),
    ];
    for (source, field) in cases {
        let errors = Fixture::volume(source.clone()).render().expect_err(&source.to_string()).errors;
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, [format!("spec.template.spec.volumes[0].{field}")]);
        assert!(errors[0].hint.is_some());
    }
    let refused = Fixture::volume(json!({"emptyDir": {}, "secret": {"secretName": "s"}})).refused();
    assert_eq!(refused, ["spec.template.spec.volumes[0]: the volume has more than one source"]);
}

#[test]
fn other_volumes_are_untouched() {
    let kept = [
        json!({"hostPath": {"path": "/x", "type": "DirectoryOrCreate"}}),
        json!({"emptyDir": {"medium": "Memory", "new": 1}}),
        json!({"downwardAPI": {"items": []}}),
        json!({"nfs": {"server": "a", "path": "/"}}),
        json!({"image": {"reference": "a:1"}}),
        json!({"iscsi": {"targetPortal": "a:3260", "iqn": "iqn.2001-04.com.example:a", "secretRef": {"name": ""}}}),
        json!({"configMap": null}),
        json!({}),
    ];
    for source in kept {
        let fixture = Fixture::volume(source);
        let before = &fixture.daemon_set.template["spec"]["volumes"];
        assert_eq!(spec(&fixture.rendered(), "/volumes"), before);
    }
}

#[test]
fn the_data_version_follows_the_data_that_is_used() {
    let version = |object: Value| {
        let mut fixture = config_map(json!({"name": "conf", "items": [{"key": "a", "path": "a"}]}));
        fixture.put(Kind::ConfigMap, "conf", object).rendered().data_version
    };
    let base = version(json!({"data": {"a": "1"}}));
    assert_eq!(base.len(), 16);
    assert_eq!(version(json!({"data": {"a": "1", "unused": "x"}})), base);
    assert_ne!(version(json!({"data": {"a": "2"}})), base);
    assert_ne!(version(json!({"data": {}})), base);
}

#[test]
fn tokens_and_the_clusters_ca_are_not_the_daemons_data() {
    let version = |ca: &str, token: &str| {
        let mut fixture = Fixture::new(json!({"containers": [{"name": "main", "image": "main:1"}]}));
        fixture.put(Kind::ConfigMap, "kube-root-ca.crt", json!({"data": {"ca.crt": ca}}));
        fixture.token("default", "", 3607, token).rendered().data_version
    };
    assert_eq!(version("a", "a"), version("b", "b"));
}
