use serde_json::json;

use super::*;
use crate::core::model::UpdateStrategy;
use crate::core::model::joined;

fn daemon_set(namespace: &str, labels: &[(&str, &str)], image: &str) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new(namespace, "x"),
        uid: None,
        generation: None,
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        annotations: Default::default(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({}),
        template: json!({"spec": {"containers": [{"name": "x", "image": image}]}}),
        update_strategy: UpdateStrategy::OnDelete,
        min_ready_seconds: 0,
        admitted: None,
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source: Source::Api,
    }
}

fn policy(default_mode: Option<Mode>, selector: &str, namespaces: &[&str]) -> Policy {
    Policy::new(default_mode, selector, namespaces.iter().map(|&n| n.to_owned()).collect()).expect("a selector")
}

const STATIC: &[(&str, &str)] = &[(MODE_LABEL, "static")];
const BOOTSTRAP: &[(&str, &str)] = &[(MODE_LABEL, "bootstrap")];

#[test]
fn what_only_the_api_has() {
    let wrong: &[(&str, &str)] = &[(MODE_LABEL, "Static")];
    let table = [
        (Policy::default(), "kube-system", STATIC, Ok(Mode::Static)),
        (Policy::default(), "kube-system", BOOTSTRAP, Ok(Mode::Bootstrap)),
        (
            Policy::default(),
            "kube-system",
            &[],
            Err("it has no label daemonlet.dev/mode, and default-mode is labelled"),
        ),
        (Policy::default(), "a", STATIC, Err("namespace a is not among policy.namespaces (kube-system)")),
        (policy(None, "", &["*"]), "a", STATIC, Ok(Mode::Static)),
        (policy(Some(Mode::Bootstrap), "", &["a", "b"]), "b", &[], Ok(Mode::Bootstrap)),
        (policy(Some(Mode::Bootstrap), "", &["a"]), "a", STATIC, Ok(Mode::Static)),
        (policy(None, "tier=node", &["a"]), "a", STATIC, Err("its labels do not match selector tier=node")),
        (
            policy(Some(Mode::Static), "", &["*"]),
            "a",
            wrong,
            Err("label daemonlet.dev/mode is \"Static\", which is neither static nor bootstrap"),
        ),
    ];
    for (policy, namespace, labels, expected) in table {
        let covered = policy.covers(&daemon_set(namespace, labels, "x:1"), None);
        assert_eq!(said(covered), expected.map_err(str::to_owned), "{namespace} {labels:?}");
    }
}

#[test]
fn what_is_left_alone_has_a_hint_how_it_is_selected() {
    let hint = |policy: &Policy, namespace, labels| {
        let daemon_set = daemon_set(namespace, labels, "x:1");
        let cause = policy.mode_of(namespace, &daemon_set.labels, None).expect_err("it is left alone");
        (cause, policy.selecting(&daemon_set.key, cause))
    };
    let label = "to run it here: kubectl -n kube-system label --overwrite daemonset x daemonlet.dev/mode=static";
    let open = "add \"a\" to policy.namespaces in this node's configuration";
    let default = Policy::default();
    assert_eq!(hint(&default, "kube-system", &[]), (LeftAloneCause::ModeLabelled, label.to_owned()));
    let both = format!("{}; and {open}", label.replace("kube-system", "a"));
    assert_eq!(hint(&default, "a", &[]), (LeftAloneCause::ModeLabelled, both));
    let respelt = label.replace("to run it here", "the modes are static and bootstrap");
    let misspelt = &[("daemonlet.dev/mode", "statik")];
    assert_eq!(hint(&default, "kube-system", misspelt), (LeftAloneCause::UnknownMode, respelt));
    assert_eq!(hint(&default, "a", STATIC), (LeftAloneCause::Namespace, format!("to run it here: {open}")));
    let selector = policy(None, "tier=node", &["a"]);
    let wanted = "to run it here: label it as selector tier=node wants".to_owned();
    assert_eq!(hint(&selector, "a", STATIC), (LeftAloneCause::Selector, wanted));
}

/// Whether it is ours; why not, as it is printed.
fn said(covered: Covered) -> Result<Mode, String> {
    match covered {
        Covered::Yes(mode) => Ok(mode),
        Covered::No(why) => Err(why.to_string()),
    }
}

#[test]
fn what_a_folder_has_too() {
    let refused = Err("namespace a is not among policy.namespaces (kube-system)");
    let table = [
        ("kube-system", &[][..], &[][..], "x:1", Ok(Mode::Static)),
        ("kube-system", &[], BOOTSTRAP, "x:1", Ok(Mode::Bootstrap)),
        ("kube-system", STATIC, BOOTSTRAP, "x:1", Ok(Mode::Static)),
        ("kube-system", &[], &[], "x:2", Ok(Mode::Static)),
        // Not even the same template makes it one of the node's own.
        ("a", &[], &[], "x:1", refused),
        ("a", &[], &[], "x:2", refused),
    ];
    for (namespace, api, folder, image, expected) in table {
        let folder = Arc::new(daemon_set(namespace, folder, "x:1"));
        let mut api = daemon_set(namespace, api, image);
        api.template["spec"]["restartPolicy"] = json!("Always");
        let covered = said(Policy::default().covers(&api, Some(&folder)));
        assert_eq!(covered, expected.map_err(str::to_owned), "{namespace} {image}");
    }
}

#[test]
fn too_much_of_one_thing_is_refused_unless_the_namespace_is_trusted() {
    let with_volumes = |namespace: &str, count: usize| {
        let mut daemon_set = daemon_set(namespace, STATIC, "x:1");
        let volume = |index| json!({"name": format!("v-{index}"), "configMap": {"name": "x"}});
        daemon_set.template["spec"]["volumes"] = (0..count).map(volume).collect();
        let container = &mut daemon_set.template["spec"]["containers"][0];
        container["resources"] = json!({"limits": {"memory": "1Mi"}});
        container["securityContext"] = json!({"readOnlyRootFilesystem": true});
        daemon_set
    };
    let refused = joined(&Policy::default().forbids(&with_volumes("a", 257)).expect("a refusal"));
    assert!(refused.starts_with("spec.template.spec.volumes: has 257 volumes; at most 256 are allowed"), "{refused}");
    let none = json!({});
    let admitted = Policy::default().admit(&with_volumes("a", 257), Lookup::Present(&none));
    assert!(matches!(admitted, Admission::Refused(errors) if errors.len() == 1), "it does not start, either");
    assert_eq!(Policy::default().forbids(&with_volumes("a", 256)), None);
    let mut many = with_volumes("a", 256);
    let volume = |index| json!({"name": format!("v-{index}"), "hostPath": {"path": "/"}});
    many.template["spec"]["volumes"] = (0..200).map(volume).collect();
    let errors = Policy::default().forbids(&many).expect("a refusal");
    let last = errors.last().expect("a refusal");
    assert_eq!(last.to_string(), "spec.template: breaks 188 more rules of [policy]");
    assert!(last.hint.is_some());
    assert_eq!(Policy::default().refusals(&many, Lookup::Present(&none)).len(), 200, "a person sees all");
    assert_eq!(Policy::default().forbids(&with_volumes("kube-system", 257)), None);
}

#[test]
fn a_selector_that_is_none() {
    let error = Policy::new(None, "a in b", Vec::new()).expect_err("no selector");
    assert_eq!(error.to_string(), "found \"b\", expected '('");
}
