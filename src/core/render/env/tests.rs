use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;

/// A container with `container`; ConfigMap `conf` and Secret `s` exist. No API, so that nothing is added.
fn fixture(container: Value) -> Fixture {
    let mut fixture = Fixture::container(container);
    fixture.options.has_api = false;
    fixture.objects.objects.retain(|reference, _| reference.kind != Kind::Service);
    let conf = json!({"data": {"B": "2", "A": "1 $(X)"}, "binaryData": {"BIN": "AAAA"}});
    fixture.put(Kind::ConfigMap, "conf", conf).put(Kind::Secret, "s", json!({"data": {"K": "c2VjcmV0"}}));
    fixture
}

fn env(fixture: &Fixture) -> Value {
    spec(&fixture.rendered(), "/containers/0/env").clone()
}

fn key_ref(kind: &str, object: &str, key: &str, optional: bool) -> Value {
    json!({"name": "V", "valueFrom": {kind: {"name": object, "key": key, "optional": optional}}})
}

fn plain(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn file_key(name: &str, key: &str) -> Value {
    let reference = json!({"volumeName": "daemonlet-env-main", "path": "env", "key": key});
    json!({"name": name, "valueFrom": {"fileKeyRef": reference}})
}

#[test]
fn a_config_maps_value_is_inlined_so_that_it_is_not_expanded() {
    let fixture = fixture(json!({"env": [plain("Z", "$(A)"), key_ref("configMapKeyRef", "conf", "A", false)]}));
    assert_eq!(env(&fixture), json!([plain("Z", "$(A)"), plain("V", "1 $$(X)")]));
}

#[test]
fn only_the_data_of_a_config_map_counts() {
    let fixture = fixture(json!({"env": [key_ref("configMapKeyRef", "conf", "BIN", false)]}));
    assert_eq!(waiting(&fixture.rendered()), ["ConfigMap kube-system/conf BIN"]);
}

#[test]
fn what_is_missing_is_waited_for_unless_it_is_optional() {
    let cases = [
        ("configMapKeyRef", "conf", "no", "ConfigMap kube-system/conf no"),
        ("configMapKeyRef", "gone", "no", "ConfigMap kube-system/gone"),
        ("secretKeyRef", "s", "no", "Secret kube-system/s no"),
        ("secretKeyRef", "gone", "no", "Secret kube-system/gone"),
    ];
    for (kind, object, key, expected) in cases {
        assert_eq!(waiting(&fixture(json!({"env": [key_ref(kind, object, key, false)]})).rendered()), [expected]);
        let optional = fixture(json!({"env": [key_ref(kind, object, key, true)]}));
        assert!(waiting(&optional.rendered()).is_empty(), "{expected}");
        assert_eq!(env(&optional), json!([]), "{expected}");
    }
    for (kind, object) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
        let from = |optional: bool| fixture(json!({"envFrom": [{kind: {"name": "gone", "optional": optional}}]}));
        assert_eq!(waiting(&from(false).rendered()), [format!("{object} kube-system/gone")]);
        assert!(waiting(&from(true).rendered()).is_empty());
        assert_eq!(env(&from(true)), Value::Null);
    }
}

#[test]
fn env_from_comes_first_sorted_and_later_sources_win() {
    let mut fixture = fixture(json!({
        "envFrom": [
            {"configMapRef": {"name": "conf"}},
            {"configMapRef": {"name": "more"}, "prefix": ""},
            {"configMapRef": {"name": "more"}, "prefix": "P_"},
            {"secretRef": {"name": "s"}},
        ],
        "env": [plain("OWN", "x")],
    }));
    fixture.put(Kind::ConfigMap, "more", json!({"data": {"A": "over"}}));
    let expected = [plain("B", "2"), plain("A", "over"), plain("P_A", "over"), file_key("K", "K"), plain("OWN", "x")];
    assert_eq!(env(&fixture), json!(expected));
    assert_eq!(spec(&fixture.rendered(), "/containers/0/envFrom"), &Value::Null);
}

#[test]
fn env_replaces_env_from_but_may_still_refer_to_it() {
    let from = json!([{"configMapRef": {"name": "conf"}}]);
    let replaced = fixture(json!({"envFrom": from, "env": [plain("B", "own")]}));
    assert_eq!(env(&replaced), json!([plain("A", "1 $$(X)"), plain("B", "own")]));
    let extended = fixture(json!({"envFrom": from, "env": [plain("B", "$(B) and more")]}));
    assert_eq!(env(&extended), json!([plain("A", "1 $$(X)"), plain("B", "2"), plain("B", "$(B) and more")]));
}

#[test]
fn a_secrets_value_that_is_replaced_is_neither_judged_nor_written() {
    let from = json!([{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "k"}}]);
    let mut by_source = fixture(json!({"envFrom": from}));
    by_source.put(Kind::Secret, "s", json!({"stringData": {"K": "it's"}}));
    by_source.put(Kind::ConfigMap, "k", json!({"data": {"K": "plain"}}));
    assert_eq!(env(&by_source), json!([plain("K", "plain")]));
    assert!(by_source.rendered().volumes.is_empty());
    let own = json!({"envFrom": [{"secretRef": {"name": "s"}}], "env": [plain("K", "own")]});
    let mut by_env = fixture(own);
    by_env.put(Kind::Secret, "s", json!({"stringData": {"K": "it's"}}));
    assert_eq!(env(&by_env), json!([plain("K", "own")]));
}

#[test]
fn a_secrets_value_is_in_a_file_of_the_container_alone() {
    let fixture = fixture(json!({"env": [key_ref("secretKeyRef", "s", "K", false)]}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/containers/0/env"), &json!([file_key("V", "V")]));
    let mount = json!({"name": "daemonlet-env-main", "mountPath": "/.daemonlet-env", "readOnly": true});
    assert_eq!(spec(&pod, "/containers/0/volumeMounts"), &json!([mount]));
    assert_eq!(spec(&pod, "/volumes"), &json!([{"name": "daemonlet-env-main", "emptyDir": {}}]));
    assert_eq!(files(&pod, "daemonlet-env-main"), [("env".to_owned(), "V='secret'\n".to_owned(), 0o400)]);
    assert!(!pod.pod.to_string().contains("secret'"));
}

#[test]
fn what_needs_no_api_is_untouched() {
    let kept = json!([
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "C", "valueFrom": {"fileKeyRef": {"volumeName": "x", "path": "y", "key": "z"}}},
        {"name": "D"},
        {"name": "D", "value": ""},
        {"name": "E", "value": "$(A) $$(B)", "new": 1},
    ]);
    let mut fixture = fixture(json!({"env": kept}));
    fixture.daemon_set.template["spec"]["volumes"] = json!([{"name": "x", "emptyDir": {}}]);
    assert_eq!(env(&fixture), kept);
}

#[test]
fn a_value_wins_over_its_source() {
    let both = json!({"name": "V", "value": "x", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}});
    let fixture = fixture(json!({"env": [both]}));
    assert_eq!(env(&fixture), json!([plain("V", "x")]));
    assert!(waiting(&fixture.rendered()).is_empty());
}

#[test]
fn names_that_an_older_kubelet_skips_are_left_out_with_a_note() {
    let mut fixture = fixture(json!({"envFrom": [{"configMapRef": {"name": "odd"}}]}));
    let data = json!({"1st": "a", "..x": "b", "a.b-c": "c"});
    fixture.put(Kind::ConfigMap, "odd", json!({"data": data}));
    assert_eq!(env(&fixture), json!([plain("..x", "b"), plain("1st", "a"), plain("a.b-c", "c")]));
    fixture.options.kubelet_version = Some((1, 34));
    assert_eq!(env(&fixture), json!([plain("a.b-c", "c")]));
    let notes: Vec<_> = fixture.rendered().notes.iter().map(ToString::to_string).collect();
    let expected = r#"spec.template.spec.containers[0].envFrom[0]: the key "1st" of ConfigMap odd is left out: "1st" is not a variable name"#;
    assert_eq!(notes.len(), 2);
    assert_eq!(notes[1], expected);
}

#[test]
fn a_variable_with_two_sources_is_refused() {
    let from = json!({"fieldRef": {"fieldPath": "status.hostIP"}, "secretKeyRef": {"name": "s", "key": "K"}});
    let refused = fixture(json!({"env": [{"name": "V", "valueFrom": from}]})).refused();
    assert_eq!(refused, ["spec.template.spec.containers[0].env[0].valueFrom: the variable has more than one source"]);
}

#[test]
fn what_a_tenants_variables_repeat_is_bounded_far_below_its_files_and_named() {
    let big = json!({"data": {"K": "x".repeat(10 << 10)}});
    let secret = json!({"stringData": {"K": "x".repeat(10 << 10)}});
    let repeated = |from: &str, kind: Kind, object: &Value| {
        let (count, last) = (16, 15);
        let sources: Vec<Value> =
            (0..count).map(|n| json!({from: {"name": "big"}, "prefix": format!("P{n}_")})).collect();
        let key = if from == "secretRef" { "secretKeyRef" } else { "configMapKeyRef" };
        let own: Vec<Value> = (0..count).map(|_| key_ref(key, "big", "K", false)).collect();
        for (container, field) in
            [(json!({"envFrom": sources}), format!("envFrom[{last}]")), (json!({"env": own}), format!("env[{last}]"))]
        {
            let mut tenant = fixture(container.clone());
            tenant.put(kind, "big", object.clone()).options.rules.trusted_namespaces.clear();
            let errors = tenant.render().unwrap_err().errors;
            let wanted = format!(
                "spec.template.spec.containers[0].{field}: with the key \"K\" of {kind} kube-system/big the variables that \
                 the pod has from ConfigMaps and Secrets have more than 163840 bytes together (hint: mount it as a volume, \
                 use fewer, or add the namespace to policy.trusted-namespaces, whose bounds are higher, and where whoever writes \
                 DaemonSets is root on the node)"
            );
            assert_eq!(errors.iter().map(|error| error.with_hint()).collect::<Vec<_>>(), [wanted]);
            let mut trusted = fixture(container);
            trusted.put(kind, "big", object.clone());
            assert!(trusted.render().is_ok(), "{field}");
        }
    };
    repeated("configMapRef", Kind::ConfigMap, &big);
    repeated("secretRef", Kind::Secret, &secret);
}

#[test]
fn of_containers_beyond_the_bound_no_environment_is_half_written() {
    let from = |name: &str| json!({"name": name, "image": "i", "envFrom": [{"secretRef": {"name": "big"}}]});
    let mut tenant = fixture(json!({}));
    tenant.daemon_set.template["spec"]["containers"] = json!([from("a"), from("b"), from("c")]);
    tenant.put(Kind::Secret, "big", json!({"stringData": {"A": "x", "K": "x\n".repeat(45 << 10)}}));
    tenant.options.rules.trusted_namespaces.clear();
    let refused = tenant.render().unwrap_err();
    let held: Vec<String> = refused.held.iter().map(|held| format!("{:?}", held.part)).collect();
    assert!(held.len() == 2 && held[0].contains("\"b\"") && held[1].contains("\"c\""), "{held:?}");
    assert_eq!(refused.errors.len(), 2, "{:?}", refused.errors);
}
