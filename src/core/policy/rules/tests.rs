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
        overlays: None,
        gate: Default::default(),
        rollout: Default::default(),
        source: crate::core::model::Source::Api,
    }
}

fn said(rules: &PodRules, namespace: &str, spec: &Value) -> Vec<String> {
    rules.violations(&daemon_set(namespace, spec.clone())).iter().map(ToString::to_string).collect()
}

/// A pod that a namespace without any grant may run.
fn modest() -> Value {
    json!({
        "volumes": [
            {"name": "settings", "configMap": {"name": "b"}},
            {"name": "key", "secret": {"secretName": "b"}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "me", "downwardAPI": {"items": []}},
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "tool", "image": {"reference": "r.test/tool:1"}},
        ],
        "priorityClassName": "mine",
        "initContainers": [container()],
        "containers": [container()],
    })
}

fn container() -> Value {
    json!({
        "name": "c", "image": "i",
        "ports": [{"containerPort": 8080}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
        "resources": {"limits": {"memory": "1Mi"}},
        "securityContext": {
            "readOnlyRootFilesystem": true,
            "privileged": false,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
    })
}

/// [`modest`] with `value` at `pointer`; a last `-` appends to a list.
fn changed(pointer: &str, value: Value) -> Value {
    let mut spec = modest();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = spec.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match last {
        "-" => parent.as_array_mut().unwrap().push(value),
        _ => parent[last.replace("~1", "/")] = value,
    }
    spec
}

fn none() -> PodRules {
    PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() }
}

fn granting(grant: Grant) -> PodRules {
    PodRules { grants: [("a".to_owned(), grant)].into(), ..none() }
}

#[test]
fn a_modest_pod_breaks_no_rule() {
    assert_eq!(said(&PodRules::default(), "a", &modest()), Vec::<String>::new());
}

/// Every attempt to reach the host, another namespace or the cloud's metadata, or to take what is others'.
#[test]
fn what_a_namespace_without_grants_cannot_have() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        source.as_object().unwrap().iter().for_each(|(key, value)| volume[key] = value.clone());
        volume
    };
    let handler = |host: &str| json!({"httpGet": {"host": host, "path": "/latest/meta-data", "port": 80}});
    let of_container = [
        ("/securityContext/privileged", json!(true), "privileged"),
        ("/securityContext/procMount", json!("Unmasked"), "procMount"),
        ("/securityContext/seccompProfile", json!({"type": "Unconfined"}), "seccompProfile"),
        ("/securityContext/appArmorProfile", json!({"type": "Unconfined"}), "AppArmor"),
        ("/securityContext/seLinuxOptions", json!({"type": "spc_t"}), "seLinuxOptions"),
        ("/securityContext/seLinuxOptions", json!({"user": "system_u"}), "seLinuxOptions"),
        ("/securityContext/windowsOptions", json!({"hostProcess": true}), "hostProcess"),
        ("/securityContext/capabilities/add/-", json!("SYS_ADMIN"), "capabilities"),
        ("/securityContext/capabilities/add/-", json!("ALL"), "capabilities"),
        ("/securityContext/capabilities/add/-", json!("NET_RAW"), "capabilities"),
        ("/ports/-", json!({"containerPort": 1, "hostPort": 22}), "host-ports"),
        ("/ports/-", json!({"containerPort": 1, "hostPort": 10250, "hostIP": "127.0.0.1"}), "host-ports"),
        ("/ports/-", json!({"containerPort": 1, "hostPort": "22"}), "host-ports"),
        (
            "/env",
            json!([{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "scratch", "path": "p", "key": "k"}}}]),
            "fileKeyRef: is only for trusted namespaces",
        ),
        ("/livenessProbe/terminationGracePeriodSeconds", json!(601), "policy.max-grace-period"),
        ("/livenessProbe", handler("169.254.169.254"), "probe"),
        ("/readinessProbe", handler("127.0.0.1"), "probe"),
        ("/startupProbe", json!({"tcpSocket": {"host": "127.0.0.1", "port": 10250}}), "probe"),
        ("/lifecycle", json!({"postStart": handler("169.254.169.254")}), "probe"),
        ("/lifecycle", json!({"preStop": handler("localhost")}), "probe"),
        ("/lifecycle", json!({"preStop": {"tcpSocket": {"host": "::1", "port": 1}}}), "probe"),
        ("/resources", json!({}), "resources.limits.memory"),
        ("/resources/limits", json!({"memory": null}), "resources.limits.memory"),
        ("/resources/limits", json!({"memory": "0"}), "resources.limits.memory"),
        ("/resources/limits", json!({"memory": 0}), "resources.limits.memory"),
        ("/resources/limits/nvidia.com~1gpu", json!(8), "nvidia.com/gpu is only"),
        ("/resources/requests", json!({"ephemeral-storage": "900Gi"}), "ephemeral-storage is only"),
        ("/resources/limits/hugepages-2Mi", json!("2Mi"), "hugepages-2Mi is only"),
        ("/securityContext/readOnlyRootFilesystem", json!(false), "readOnlyRootFilesystem"),
        ("/securityContext/readOnlyRootFilesystem", json!("true"), "readOnlyRootFilesystem"),
    ];
    let of_pod = [
        ("/terminationGracePeriodSeconds", json!(601), "policy.max-grace-period"),
        ("/terminationGracePeriodSeconds", json!(i64::MAX), "policy.max-grace-period"),
        ("/hostNetwork", json!(true), "hostNetwork"),
        ("/hostPID", json!(true), "hostPID"),
        ("/hostIPC", json!(true), "hostIPC"),
        ("/priorityClassName", json!("system-node-critical"), "trusted namespaces"),
        ("/priorityClassName", json!("system-cluster-critical"), "trusted namespaces"),
        ("/priority", json!(2_000_001_000), "trusted namespaces"),
        ("/imagePullSecrets", json!([{"name": "registry"}]), "every pod's"),
        ("/securityContext", json!({"seccompProfile": {"type": "Unconfined"}}), "seccompProfile"),
        ("/securityContext", json!({"seLinuxOptions": {"role": "x"}}), "seLinuxOptions"),
        ("/securityContext", json!({"appArmorProfile": {"type": "Unconfined"}}), "AppArmor"),
        ("/securityContext", json!({"sysctls": [{"name": "kernel.core_pattern", "value": "|/x"}]}), "sysctls"),
        ("/securityContext", json!({"windowsOptions": {"hostProcess": true}}), "hostProcess"),
        ("/volumes/-", volume(json!({"emptyDir": {}})), "sizeLimit"),
        ("/volumes/-", volume(json!({"emptyDir": {"sizeLimit": "1Mi"}})), "sizeLimit"),
        ("/volumes/-", volume(json!({"emptyDir": {"medium": "Memory"}})), "sizeLimit"),
        ("/volumes/-", volume(json!({"emptyDir": {"medium": "Memory", "sizeLimit": 0}})), "sizeLimit"),
        ("/volumes/-", volume(json!({"emptyDir": {"medium": "HugePages", "sizeLimit": "1Mi"}})), "sizeLimit"),
        ("/volumes/-", volume(json!({"hostPath": {"path": "/"}})), "host-paths"),
        ("/volumes/-", volume(json!({"hostPath": {"path": "/var/log/../../etc"}})), "host-paths"),
        ("/volumes/-", volume(json!({"hostPath": {}})), "host-paths"),
        ("/volumes/-", volume(json!({"somethingNew": {"path": "/"}})), "volume-types"),
    ];
    let mut attempts: Vec<(Value, String)> = Vec::new();
    for (pointer, value, words) in of_container {
        for kind in ["containers", "initContainers"] {
            attempts.push((changed(&format!("/{kind}/0{pointer}"), value.clone()), words.to_owned()));
        }
    }
    attempts.extend(of_pod.into_iter().map(|(pointer, value, words)| (changed(pointer, value), words.to_owned())));
    for kind in VOLUME_TYPES {
        attempts.push((changed("/volumes/-", volume(json!({(kind): {}}))), format!("{kind} is not one of")));
    }
    for (spec, words) in attempts {
        let errors = PodRules::default().violations(&daemon_set("a", spec.clone()));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains(&words)), "{words}: {texts:?} {spec}");
        for error in errors {
            let hint = error.hint.unwrap();
            assert!(
                hint.ends_with(
                    "or add \"a\" to policy.trusted-namespaces, where whoever writes DaemonSets is root on the node"
                ),
                "{hint}"
            );
        }
        assert_eq!(said(&PodRules::default(), "kube-system", &spec), Vec::<String>::new(), "it is trusted: {spec}");
        assert_eq!(said(&PodRules::trusting(), "a", &spec), Vec::<String>::new());
    }
}

#[test]
fn annotations_are_judged_too() {
    let mut set = daemon_set("a", modest());
    for (key, value, words) in [
        ("seccomp.security.alpha.kubernetes.io/pod", "unconfined", "seccomp"),
        ("container.apparmor.security.beta.kubernetes.io/c", "unconfined", "AppArmor"),
    ] {
        set.template["metadata"] = json!({"annotations": {(key): value}});
        let errors = none().violations(&set);
        // An annotation of seccomp means nothing since 1.27, for the kubelet and for PodSecurity's newest version.
        assert_eq!(errors.iter().any(|e| e.reason.contains(words)), words == "AppArmor", "{errors:?}");
    }
}

#[test]
fn what_a_runtime_obeys_needs_a_grant_and_a_webhook_may_write_it() {
    let annotated = |name: &str| {
        let mut set = daemon_set("a", modest());
        set.template["metadata"] = json!({"annotations": {"a.test/own": "x", (name): "x"}});
        set
    };
    let errors = none().violations(&annotated("devices.nri.io/container.c"));
    assert_eq!(
        errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "spec.template.metadata.annotations[\"devices.nri.io/container.c\"]: container runtimes or their plugins obey it, \
          and it matches none of policy.grants.\"a\".annotations (none)"
        ]
    );
    let granted = granting(Grant { annotations: vec!["devices.nri.io/*".to_owned()], ..Grant::default() });
    assert_eq!(granted.violations(&annotated("devices.nri.io/container.c")), []);
    assert_eq!(granted.violations(&annotated("devices.nri.iox/container.c")), []);
    assert_eq!(granted.violations(&annotated("mounts.nri.io/container.c")).len(), 1);
    let webhook = annotated("io.kubernetes.cri-o.Devices");
    let added = DaemonSet { template: json!({"spec": modest()}), admitted: Some(webhook.template.into()), ..webhook };
    assert_eq!(none().violations(&added), []);
}

#[test]
fn the_longest_grace_period_is_by_key() {
    let rules = |seconds| PodRules { max_grace_period: Duration::from_secs(seconds), ..none() };
    for (period, most, is_refused) in [(30, 30, false), (31, 30, true), (600, 600, false), (-5, 0, false), (1, 0, true)]
    {
        let spec = changed("/terminationGracePeriodSeconds", json!(period));
        assert_eq!(!said(&rules(most), "a", &spec).is_empty(), is_refused, "{period} {most}");
    }
}

#[test]
fn the_stricter_level_by_key() {
    let rules = PodRules { pod_security: PodSecurityLevel::Restricted, ..none() };
    let errors = said(&rules, "a", &modest());
    assert!(errors.iter().any(|text| text.contains("runAsNonRoot")), "{errors:?}");
}

#[test]
fn rules_that_name_no_level_are_not_read() {
    let mut value = json!(PodRules::default());
    assert_eq!(serde_json::from_value::<PodRules>(value.clone()).unwrap(), PodRules::default());
    value.as_object_mut().unwrap().remove("pod_security");
    assert!(serde_json::from_value::<PodRules>(value).is_err(), "they would allow everything");
}

#[test]
fn grants_lift_what_they_name_in_their_namespace_alone() {
    let path =
        |path: &str, kind: &str| changed("/volumes/-", json!({"name": "v", "hostPath": {"path": path, "type": kind}}));
    let port = |port: u16| changed("/containers/0/ports/-", json!({"containerPort": 1, "hostPort": port}));
    let rules = granting(Grant {
        host_ports: vec![PortRange { first: 9100, last: 9110 }],
        host_paths: vec!["/var/log".to_owned()],
        volume_types: vec!["nfs".to_owned()],
        ..Grant::default()
    });
    for spec in [
        path("/var/log/pods", ""),
        path("/var/log", "Directory"),
        path("/var/log", "File"),
        path("/var/log/pods", "Directory"),
        port(9105),
        changed("/volumes/-", json!({"name": "v", "nfs": {}})),
    ] {
        assert_eq!(said(&rules, "a", &spec), Vec::<String>::new());
        assert!(!said(&rules, "b", &spec).is_empty(), "{spec}");
    }
    for (spec, words) in [
        (port(9111), "hostPort: 9111 is not one of policy.grants.\"a\".host-ports (9100-9110)"),
        (path("/var/logs", ""), "\"/var/logs\" is not below a path of policy.grants.\"a\".host-paths (/var/log)"),
        (path("/var/log/x", "Socket"), "\"Socket\" is only for trusted namespaces"),
        (path("/var/log/x", "CharDevice"), "\"CharDevice\" is only"),
        (path("/var/log/x", "BlockDevice"), "\"BlockDevice\" is only"),
        (path("/var/log/x", "DirectoryOrCreate"), "\"DirectoryOrCreate\" is only"),
        (path("/var/log/x", "FileOrCreate"), "\"FileOrCreate\" is only"),
        (path("/var/log/x", "File"), "a file below the granted \"/var/log\" may be missing"),
    ] {
        let texts = said(&rules, "a", &spec);
        assert!(texts.iter().any(|text| text.contains(words)), "{words} {texts:?}");
    }
    for (asked, is_safe) in
        [("/", false), ("/run/x.sock", false), ("/var", false), ("/dev/null", false), ("/runs", true)]
    {
        let errors = rules.violations(&daemon_set("a", path(asked, "")));
        let hint = if is_safe { "add \"/runs\" to policy.grants" } else { "no grant makes a path of sockets" };
        assert!(errors.iter().any(|e| e.hint.as_ref().is_some_and(|text| text.contains(hint))), "{asked} {errors:?}");
    }
    let mut propagating = path("/var/log", "");
    propagating["containers"][0]["volumeMounts"] =
        json!([{"name": "v", "mountPath": "/l", "mountPropagation": "HostToContainer"}]);
    assert_eq!(said(&rules, "a", &propagating).len(), 1);
    let none = PodRules { local_storage: true, shared_pulls: true, ..none() };
    let mut lifted = changed("/volumes/-", json!({"name": "v", "emptyDir": {}}));
    lifted["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = false.into();
    lifted["imagePullSecrets"] = json!([{"name": "x"}]);
    assert_eq!(said(&none, "a", &lifted), Vec::<String>::new());
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
    assert_eq!(found[0].hint.as_deref(), Some("add \"evil.test/x@*\" to policy.images, for every namespace"));
}
