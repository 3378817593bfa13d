use serde_json::json;

use super::*;
use crate::core::model::ObjectKey;
use crate::core::model::UpdateStrategy;

fn daemon_set(namespace: &str, spec: Value) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new(namespace, "x"),
        uid: None,
        generation: None,
        labels: Default::default(),
        annotations: Default::default(),
        deleting: false,
        finalizers: Vec::new(),
        selector: json!({}),
        template: json!({ "spec": spec }),
        update_strategy: UpdateStrategy::OnDelete,
        min_ready_seconds: 0,
        admitted: None,
        rollout: Default::default(),
        source: crate::core::model::Source::Api,
    }
}

fn said(rules: &PodRules, namespace: &str, spec: &Value) -> Vec<String> {
    rules.violations(&daemon_set(namespace, spec.clone())).iter().map(ToString::to_string).collect()
}

/// Each rule: a pod that breaks it, what is said by default, the hint, and rules that allow it.
#[test]
fn each_rule_names_its_field_and_how_to_allow_it() {
    let none = PodRules::default;
    let container =
        |key: &str, context: Value| json!({ key: [{"name": "c", "image": "i", "securityContext": context}] });
    let volume = |source: Value| json!({"volumes": [source]});
    let table = [
        (
            json!({"hostNetwork": true}),
            "hostNetwork: policy.host-namespaces does not contain \"network\"",
            "add \"network\" to policy.host-namespaces",
            PodRules { host_namespaces: vec![HostNamespace::Network], ..none() },
        ),
        (
            json!({"hostPID": true}),
            "hostPID: policy.host-namespaces does not contain \"pid\"",
            "add \"pid\" to policy.host-namespaces",
            PodRules { host_namespaces: vec![HostNamespace::Pid], ..none() },
        ),
        (
            json!({"hostIPC": true}),
            "hostIPC: policy.host-namespaces does not contain \"ipc\"",
            "add \"ipc\" to policy.host-namespaces",
            PodRules { host_namespaces: HostNamespace::ALL.to_vec(), ..none() },
        ),
        (
            container("containers", json!({"privileged": true})),
            "containers[c].securityContext.privileged: policy.privileged is false",
            "set policy.privileged = true",
            PodRules { privileged: true, ..none() },
        ),
        (
            container("initContainers", json!({"capabilities": {"add": ["CHOWN", "CAP_net_admin"]}})),
            "initContainers[c].securityContext.capabilities.add: policy.capabilities does not contain CAP_net_admin",
            "add \"NET_ADMIN\" to policy.capabilities",
            PodRules { capabilities: vec!["CHOWN".into(), "NET_ADMIN".into()], ..none() },
        ),
        (
            container("containers", json!({"capabilities": {"add": ["ALL"]}})),
            "containers[c].securityContext.capabilities.add: policy.capabilities does not contain ALL",
            "add \"*\" to policy.capabilities",
            PodRules { capabilities: vec!["*".into()], ..none() },
        ),
        (
            volume(json!({"name": "logs", "hostPath": {"path": "/var/log/"}})),
            "volumes[logs].hostPath.path: \"/var/log/\" is not below a path of policy.host-paths (none)",
            "add \"/var/log/\" to policy.host-paths",
            PodRules { host_paths: vec!["/run".into(), "/var/log".into()], ..none() },
        ),
    ];
    for (spec, reason, hint, allowing) in table {
        let errors = PodRules::default().violations(&daemon_set("a", spec.clone()));
        assert_eq!(said(&PodRules::default(), "a", &spec), [format!("spec.template.spec.{reason}")]);
        let hint = format!("{hint}, or add \"a\" to policy.trusted-namespaces");
        assert_eq!(errors[0].hint.as_deref(), Some(hint.as_str()));
        assert_eq!(said(&allowing, "a", &spec), Vec::<String>::new(), "{spec}");
        assert_eq!(said(&PodRules::default(), "kube-system", &spec), Vec::<String>::new(), "it is trusted: {spec}");
        let all = PodRules { trusted_namespaces: vec!["*".into()], ..none() };
        assert_eq!(said(&all, "a", &spec), Vec::<String>::new());
    }
}

#[test]
fn an_ordinary_pod_breaks_no_rule() {
    let spec = json!({
        "hostNetwork": false,
        "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "b"}}],
        "containers": [{"name": "c", "image": "i", "securityContext":
            {"privileged": false, "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}}}],
    });
    assert_eq!(said(&PodRules::default(), "a", &spec), Vec::<String>::new());
}

#[test]
fn what_lies_below_a_path() {
    for (path, prefix, below) in [
        ("/var/log", "/var/log", true),
        ("/var/log/pods", "/var/log/", true),
        ("/var//log/./pods", "/var/log", true),
        ("/var/logs", "/var/log", false),
        ("/var", "/var/log", false),
        ("/", "/", true),
        ("/etc", "/", true),
        ("/var/log/../../etc", "/var/log", false),
        ("/..", "/", false),
    ] {
        assert_eq!(is_below(path, prefix), below, "{path} {prefix}");
    }
}

#[test]
fn images_are_written_out_and_bind_every_namespace() {
    let rules =
        |images: &[&str]| PodRules { images: images.iter().map(|&i| i.to_owned()).collect(), ..PodRules::default() };
    let spec = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
    for (image, pattern, fits) in [
        ("busybox", "docker.io/library/busybox:latest", true),
        ("busybox:1", "docker.io/*", true),
        ("registry.k8s.io/kube-proxy:v1.36.2", "registry.k8s.io/kube-*:v1.*", true),
        ("registry.k8s.io/kube-proxy:v1.36.2", "registry.k8s.io/kube-*:v2.*", false),
        ("registry.k8s.io.evil.test/x:1", "registry.k8s.io/*", false),
        ("evil.test/registry.k8s.io/x:1", "registry.k8s.io/*", false),
        ("r.test/a@sha256:ab", "r.test/a@sha256:*", true),
        ("r.test/a:1", "*", true),
        ("r.test/aa:1", "r.test/a*a:1", true),
        ("r.test/a:1", "r.test/a*a:1", false),
    ] {
        let said = said(&rules(&[pattern]), "kube-system", &spec(image));
        assert_eq!(said.is_empty(), fits, "{image} {pattern} {said:?}");
    }
    let volume = json!({"volumes": [{"name": "v", "image": {"reference": "evil.test/x@sha256:1"}}]});
    let found = rules(&["r.test/*", "s.test/*"]).violations(&daemon_set("kube-system", volume));
    assert_eq!(
        found[0].to_string(),
        "spec.template.spec.volumes[v].image.reference: evil.test/x@sha256:1 matches none of policy.images (r.test/*, s.test/*)"
    );
    assert_eq!(found[0].hint.as_deref(), Some("add \"evil.test/x@*\" to policy.images"));
}
