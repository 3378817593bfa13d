use proptest::prelude::*;
use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::render::RenderedPod;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;

use crate::core::render::fixture::waiting;
use crate::core::render::fixture::with;

#[test]
fn a_plain_daemon_gets_its_token_and_the_api_service() {
    let fixture = Fixture::new(json!({"containers": [{"name": "main", "image": "main:1"}]}));
    let mut pod = fixture.rendered();
    assert_eq!(waiting(&pod), Vec::<String>::new());
    // `scheduling` has them in its own test.
    pod.pod["spec"].as_object_mut().unwrap().remove("tolerations");
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
                        {"name": "KUBERNETES_SERVICE_PORT_HTTPS", "value": "443"},
                        {"name": "KUBERNETES_PORT", "value": "tcp://10.96.0.1:443"},
                        {"name": "KUBERNETES_PORT_443_TCP", "value": "tcp://10.96.0.1:443"},
                        {"name": "KUBERNETES_PORT_443_TCP_PROTO", "value": "tcp"},
                        {"name": "KUBERNETES_PORT_443_TCP_PORT", "value": "443"},
                        {"name": "KUBERNETES_PORT_443_TCP_ADDR", "value": "10.96.0.1"},
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
}

#[test]
fn a_mount_above_the_root_is_refused_by_its_field() {
    let fixture = |path: &str| {
        let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        let mounts = [mount("a", path), mount("b", "../../x"), mount("b", "/a/../../x"), mount("b", "..data")];
        let volumes =
            json!([{"name": "a", "configMap": {"name": "a", "optional": true}}, {"name": "b", "emptyDir": {}}]);
        Fixture::new(json!({"initContainers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes}))
    };
    for path in ["..", "../", "a/../.."] {
        let errors = fixture(path).render().unwrap_err().errors;
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        let expected = [(0, path), (1, "../../x")].map(|(index, path)| {
            let field = format!("spec.template.spec.initContainers[0].volumeMounts[{index}].mountPath");
            format!("{field}: {path:?} leads above the root of the container")
        });
        assert_eq!(texts, expected);
    }
}

/// Members that some pass looks at, beside one that none does.
const MEMBERS: &str = "name key path mode items value valueFrom env envFrom prefix volumes volumeMounts mountPath \
    containers initContainers ephemeralContainers configMap secret secretName optional projected sources \
    serviceAccountToken downwardAPI fieldRef fieldPath resourceFieldRef configMapRef secretRef configMapKeyRef \
    secretKeyRef persistentVolumeClaim emptyDir affinity nodeAffinity nodeSelector securityContext fsGroup runAsUser \
    serviceAccountName imagePullSecrets priorityClassName automountServiceAccountToken unknown";

fn any_json() -> impl Strategy<Value = Value> {
    let texts = prop::sample::select(vec!["conf", "s", "K", "$(A)", "../x", "", "metadata.name"]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    let members: Vec<&str> = MEMBERS.split_whitespace().collect();
    leaf.prop_recursive(7, 96, 5, move |inner| {
        let member = (prop::sample::select(members.clone()).prop_map(str::to_owned), inner.clone());
        let object =
            prop::collection::vec(member, 0..5).prop_map(|members| Value::Object(members.into_iter().collect()));
        prop_oneof![prop::collection::vec(inner, 0..4).prop_map(Value::from), object]
    })
}

/// A pod spec of the usual shape at the top and anything below.
fn any_spec() -> impl Strategy<Value = Value> {
    let from = prop::sample::select(vec!["configMapKeyRef", "secretKeyRef", "fieldRef", "resourceFieldRef"]);
    let env = prop_oneof![
        any_json(),
        (from, any_json()).prop_map(|(kind, reference)| json!([{"name": "V", "valueFrom": {kind: reference}}])),
    ];
    let kind = prop::sample::select(vec!["configMap", "secret", "projected", "hostPath", "csi"]);
    let volumes =
        prop_oneof![any_json(), (kind, any_json()).prop_map(|(kind, source)| json!([{"name": "data", kind: source}])),];
    (env, any_json(), any_json(), volumes, any_json()).prop_map(|(env, from, mounts, volumes, more)| {
        let container = json!({"name": "main", "env": env, "envFrom": from, "volumeMounts": mounts});
        with(json!({"containers": [container], "volumes": volumes}), more)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_template_panics_or_keeps_a_reference_that_no_pass_has_judged(spec in any_spec()) {
        let mut fixture = Fixture::new(spec);
        fixture.put(Kind::ConfigMap, "conf", json!({"data": {"K": "1"}}));
        fixture.put(Kind::Secret, "s", json!({"data": {"K": "MQ=="}}));
        let result = fixture.render();
        prop_assert_eq!(&fixture.render(), &result);
        match result {
            Err(refused) => {
                prop_assert!(!refused.errors.is_empty());
                let overlooked = refused.errors.iter().any(|error| error.reason.starts_with("this still refers"));
                prop_assert!(!overlooked, "{:?}", refused.errors);
            }
            Ok(pod) => {
                let mut paths = pod.volumes.iter().flat_map(|volume| volume.files.keys());
                prop_assert!(paths.all(|path| !path.starts_with('/') && !path.split('/').any(|part| part == "..")));
            }
        }
    }
}

#[test]
fn a_node_name_that_leaves_no_room_is_refused() {
    let mut fixture = Fixture::new(json!({"containers": [{"name": "main", "image": "main:1"}]}));
    fixture.options.node_name = "n".repeat(253);
    let refused = fixture.render().unwrap_err();
    assert!(refused.errors.iter().any(|e| e.field == "metadata.name"), "{refused:?}");
}

#[test]
fn what_nobody_has_said_anything_of_and_what_is_no_object_is_not_absent() {
    let lacks = |complete: bool| {
        let main = json!({"name": "main", "image": "main:1",
            "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "some", "key": "other"}}}],
            "envFrom": [{"secretRef": {"name": "gone"}}, {"secretRef": {"name": "optional", "optional": true}}]});
        let mut fixture = Fixture::new(json!({"priorityClassName": "class", "runtimeClassName": "runtime",
            "serviceAccountName": "account", "containers": [main]}));
        fixture.put(Kind::ConfigMap, "some", json!({"data": {"key": "x"}}));
        fixture.objects.complete = complete;
        let pod = fixture.rendered();
        assert!(waiting(&pod).contains(&"ServiceAccountToken kube-system/account".to_owned()), "{:?}", waiting(&pod));
        let waiting_for = pod.absent.clone();
        waiting(&RenderedPod { waiting_for, ..pod })
    };
    let key = "ConfigMap kube-system/some other";
    let all = [
        key,
        "PriorityClass /class",
        "RuntimeClass /runtime",
        "Secret kube-system/gone",
        "ServiceAccount kube-system/account",
    ];
    assert_eq!(lacks(true), all);
    assert_eq!(lacks(false), [key], "of the others no source has said that they do not exist");
}
