use serde_json::Value;
use serde_json::json;

use crate::core::model::Kind;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectMap;
use crate::core::model::ObjectRef;
use crate::core::model::ObjectSource;
use crate::core::model::TokenRequest;
use crate::core::render::PullMode;
use crate::core::render::fixture::Fixture;
use crate::core::render::fixture::files;
use crate::core::render::fixture::spec;
use crate::core::render::fixture::waiting;
use crate::core::render::fixture::with;
use crate::core::time::Span;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod_spec(more: Value) -> Fixture {
    Fixture::new(with(json!({"containers": [{"name": "main", "image": "main:1"}]}), more))
}

fn mounts_token(fixture: &Fixture) -> bool {
    spec(&fixture.rendered(), "/containers/0/volumeMounts/0/mountPath") == MOUNT_PATH
}

#[test]
fn the_pod_decides_about_the_token_then_the_account_then_upstreams_default() {
    let cases = [
        (Value::Null, Value::Null, true),
        (Value::Null, json!(false), false),
        (Value::Null, json!(true), true),
        (json!(false), json!(true), false),
        (json!(true), json!(false), true),
    ];
    for (of_pod, of_account, expected) in cases {
        let mut fixture = pod_spec(json!({"automountServiceAccountToken": of_pod}));
        fixture.put(Kind::ServiceAccount, "default", json!({"automountServiceAccountToken": of_account}));
        assert_eq!(mounts_token(&fixture), expected, "pod {of_pod}, account {of_account}");
    }
}

#[test]
fn the_account_is_waited_for_where_it_decides_or_its_token_is_mounted() {
    for (of_pod, absent, unknown) in [(json!(false), 0, 0), (json!(true), 1, 0), (Value::Null, 1, 1)] {
        let mut fixture = pod_spec(json!({"automountServiceAccountToken": of_pod}));
        fixture.objects.objects.retain(|reference, _| reference.kind != Kind::ServiceAccount);
        for (complete, expected) in [(true, absent), (false, unknown)] {
            fixture.objects.complete = complete;
            let waiting = waiting(&fixture.rendered());
            let found = waiting.iter().filter(|line| *line == "ServiceAccount kube-system/default").count();
            assert_eq!(found, expected, "pod {of_pod}, complete {complete}: {waiting:?}");
        }
    }
}

/// The objects of an instance that runs, of which the ServiceAccount was deleted.
struct WithoutAccount<'a>(&'a ObjectMap);

impl ObjectSource for WithoutAccount<'_> {
    fn lookup(&self, reference: &ObjectRef) -> Lookup<'_> {
        match self.0.lookup(reference) {
            Lookup::Present(account) if reference.kind == Kind::ServiceAccount => Lookup::Deleted(account),
            other => other,
        }
    }

    fn may_have_had(&self, _: &ObjectRef) -> bool {
        false
    }
}

#[test]
fn a_token_of_a_deleted_account_starts_nothing_and_stays_with_what_runs() {
    let mut fixture = pod_spec(json!({"automountServiceAccountToken": true}));
    let of_what_runs = fixture.render_with(&WithoutAccount(&fixture.objects)).unwrap();
    assert_eq!(waiting(&of_what_runs), [""; 0]);
    assert!(files(&of_what_runs, "kube-api-access").iter().any(|(path, text, _)| path == "token" && text == "TOKEN"));
    let notes: Vec<_> = of_what_runs.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["ServiceAccount kube-system/default: it was deleted: its tokens are invalid"]);

    fixture.objects.objects.retain(|reference, _| reference.kind != Kind::ServiceAccount);
    let new = fixture.rendered();
    assert_eq!(waiting(&new), ["ServiceAccount kube-system/default"]);
    assert!(!new.can_start());
    fixture.options.has_api = false;
    assert_eq!(waiting(&fixture.rendered()), [""; 0], "no API server says that it is gone");
}

#[test]
fn every_container_without_a_mount_there_gets_the_token() {
    let mut fixture = pod_spec(json!({
        "serviceAccount": "old",
        "serviceAccountName": "agent",
        "initContainers": [
            {"name": "init", "image": "i"},
            {"name": "own", "image": "i", "volumeMounts": [{"name": "x", "mountPath": MOUNT_PATH}]},
        ],
        "volumes": [{"name": "x", "emptyDir": {}}],
    }));
    fixture.put(Kind::ServiceAccount, "agent", json!({})).token("agent", "", 3607, "A");
    let pod = fixture.rendered();
    let mount = json!({"name": "kube-api-access", "mountPath": MOUNT_PATH, "readOnly": true});
    assert_eq!(spec(&pod, "/initContainers/0/volumeMounts"), &json!([mount]));
    assert_eq!(spec(&pod, "/initContainers/1/volumeMounts"), &json!([{"name": "x", "mountPath": MOUNT_PATH}]));
    assert_eq!(spec(&pod, "/containers/0/volumeMounts"), &json!([mount]));
    assert_eq!(spec(&pod, "/serviceAccountName"), &Value::Null);
    assert_eq!(spec(&pod, "/serviceAccount"), &Value::Null);
    let token = files(&pod, "kube-api-access").into_iter().find(|(path, ..)| path == "token");
    assert_eq!(token, Some(("token".to_owned(), "A".to_owned(), 0o644)));
}

#[test]
fn a_volume_that_admission_has_added_is_used_again() {
    let fixture = pod_spec(json!({"volumes": [{"name": "kube-api-access-x2b4z", "emptyDir": {}}]}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/containers/0/volumeMounts/0/name"), "kube-api-access-x2b4z");
    assert_eq!(spec(&pod, "/volumes").as_array().map(Vec::len), Some(1));
    let taken = pod_spec(json!({"volumes": [{"name": "kube-api-access", "emptyDir": {}}]})).rendered();
    assert_eq!(spec(&taken, "/containers/0/volumeMounts/0/name"), "kube-api-access-token");
    assert_eq!(spec(&taken, "/volumes/1/name"), "kube-api-access-token");
}

#[test]
fn a_token_that_was_never_issued_is_waited_for() {
    let mut fixture = pod_spec(json!({}));
    fixture.tokens.clear();
    let pod = fixture.rendered();
    assert_eq!(waiting(&pod), ["ServiceAccountToken kube-system/default"]);
    let service_account = ObjectKey::new("kube-system", "default");
    let request = TokenRequest { service_account, audience: String::new(), expiration_seconds: 3607 };
    assert!(pod.tokens.contains(&request));
    assert_eq!(files(&pod, "kube-api-access").len(), 2);
}

#[test]
fn the_clusters_ca_is_waited_for() {
    let mut fixture = pod_spec(json!({}));
    fixture.put(Kind::ConfigMap, "kube-root-ca.crt", json!({"data": {}}));
    assert_eq!(waiting(&fixture.rendered()), ["ConfigMap kube-system/kube-root-ca.crt ca.crt"]);
    let tokens = fixture.rendered().volumes[0].tokens_alone().unwrap();
    assert_eq!(tokens.files.into_keys().collect::<Vec<_>>(), ["token"], "it is renewed all the same");
    fixture.objects.objects.retain(|reference, _| reference.kind != Kind::ConfigMap);
    assert_eq!(waiting(&fixture.rendered()), ["ConfigMap kube-system/kube-root-ca.crt"]);
}

#[test]
fn pull_secrets_are_the_agents_with_a_note() {
    let mut fixture = pod_spec(json!({"imagePullSecrets": [{"name": "registry"}]}));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/imagePullSecrets"), &Value::Null);
    let note = pod.notes[0].to_string();
    assert!(
        note.starts_with("spec.template.spec.imagePullSecrets: pull secrets (registry): used by the agent"),
        "{note}"
    );
    assert_eq!(pod.pull_secrets, [ObjectRef::new(Kind::Secret, "kube-system", "registry")]);
    assert!(pod.references.iter().any(|r| r.kind == Kind::Secret && r.key.name == "registry"), "it is not watched");
    assert!(pod.waiting_for.is_empty(), "the kubelet would go on without it");
    assert!(pod.notes[0].hint.as_deref().unwrap().contains("credential-provider"));

    fixture.daemon_set.template["spec"]["imagePullSecrets"] = json!([]);
    fixture.put(Kind::ServiceAccount, "default", json!({"imagePullSecrets": [{"name": "inherited"}]}));
    let pod = fixture.rendered();
    assert!(pod.notes[0].reason.contains("ServiceAccount kube-system/default (inherited)"), "{:?}", pod.notes);
    assert_eq!(pod.pull_secrets, [ObjectRef::new(Kind::Secret, "kube-system", "inherited")]);

    fixture.options.pulls = PullMode::ByKubelet;
    let pod = fixture.rendered();
    assert!(pod.notes[0].reason.contains("only the kubelet pulls here"), "{:?}", pod.notes);
    assert!(pod.pull_secrets.is_empty() && pod.references.iter().all(|r| r.kind != Kind::Secret));
}

#[test]
fn the_accounts_name_is_written_where_a_variable_asks_for_it() {
    let variable = json!({"name": "SA", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}});
    let other = json!({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}});
    let fixture = pod_spec(json!({
        "serviceAccountName": "agent",
        "automountServiceAccountToken": false,
        "initContainers": [{"name": "init", "image": "i", "env": [variable, other]}],
    }));
    let pod = fixture.rendered();
    assert_eq!(spec(&pod, "/initContainers/0/env/0"), &json!({"name": "SA", "value": "agent"}));
    assert_eq!(spec(&pod, "/initContainers/0/env/1"), &other);
}

#[test]
fn the_added_token_lives_as_long_as_the_configuration_says_and_a_templates_own_as_it_says() {
    let asked = |fixture: &Fixture| -> Vec<i64> {
        fixture.rendered().tokens.iter().map(|request| request.expiration_seconds).collect()
    };
    let mut fixture = pod_spec(json!({}));
    fixture.options.token_expiration = Span::from_secs(86_400);
    assert_eq!(asked(&fixture), [86_400]);
    let volume = |name: &str, life: i64| {
        json!([{"name": name, "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": life}}]}}])
    };
    let own = |volumes: Value| {
        let mut fixture = pod_spec(json!({"volumes": volumes}));
        fixture.options.token_expiration = Span::from_secs(86_400);
        asked(&fixture)
    };
    assert_eq!(own(volume("kube-api-access-token", 3607)), [86_400], "as admission adds it");
    assert_eq!(own(volume("kube-api-access-mine", 7200)), [7200]);
    assert_eq!(own(volume("mine", 3607)), [3607, 86_400]);
}
