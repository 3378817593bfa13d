use serde_json::json;

use super::*;

fn enforced(level: PodSecurityLevel, minor: Option<u32>) -> Enforced {
    Enforced { level, version: minor.map_or(PodSecurityVersion::Latest, PodSecurityVersion::Minor) }
}

fn said(enforced: Enforced, spec: &Value) -> Vec<String> {
    violations(enforced, &json!({ "spec": spec })).iter().map(ToString::to_string).collect()
}

/// A pod that every level allows, with `changes` at the paths that they name.
fn pod(changes: &[(&str, Value)]) -> Value {
    let context = || {
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
               "seccompProfile": {"type": "RuntimeDefault"}})
    };
    let mut pod = json!({
        "metadata": {"annotations": {}},
        "spec": {
            "securityContext": {},
            "volumes": [],
            "initContainers": [{"name": "i", "securityContext": context()}],
            "containers": [{"name": "c", "securityContext": context()}],
        },
    });
    for (path, value) in changes {
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = pod.pointer_mut(parent).unwrap_or_else(|| panic!("no {path}"));
        match parent {
            Value::Array(items) => items.push(value.clone()),
            parent => parent[key.replace("~1", "/")] = value.clone(),
        }
    }
    pod
}

const LATEST: Option<u32> = None;

/// After upstream's `policy/check_*_test.go`: level, version, what is changed, what is said (nothing: it is allowed).
#[test]
fn each_check_in_its_versions() {
    use PodSecurityLevel::Baseline;
    use PodSecurityLevel::Restricted;
    let (spec, c, i) = ("/spec", "/spec/containers/0/securityContext", "/spec/initContainers/0/securityContext");
    let at = |base: &str, key: &str| format!("{base}/{key}");
    type Case = (PodSecurityLevel, Option<u32>, Vec<(String, Value)>, &'static str);
    let table: Vec<Case> = vec![
        (Restricted, LATEST, vec![], ""),
        (Restricted, Some(0), vec![], ""),
        (
            Baseline,
            LATEST,
            vec![
                (at(spec, "hostNetwork"), json!(true)),
                (at(spec, "hostPID"), json!(true)),
                (at(spec, "hostIPC"), json!(true)),
            ],
            "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
        ),
        (Baseline, LATEST, vec![(at(spec, "hostNetwork"), json!(false)), (at(spec, "hostPID"), json!(null))], ""),
        (
            Baseline,
            LATEST,
            vec![(at(c, "privileged"), json!(true)), (at(i, "privileged"), json!(true))],
            "privileged (containers \"i\", \"c\" must not set securityContext.privileged=true)",
        ),
        (
            Baseline,
            LATEST,
            vec![("/spec/volumes/-".into(), json!({"name": "v", "hostPath": {"path": "/a"}}))],
            "hostPath volumes (volume \"v\")",
        ),
        (
            Restricted,
            LATEST,
            vec![("/spec/volumes/-".into(), json!({"name": "v", "hostPath": {"path": "/a"}}))],
            "restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")",
        ),
        (
            Restricted,
            LATEST,
            vec![
                ("/spec/volumes/-".into(), json!({"name": "v"})),
                ("/spec/volumes/-".into(), json!({"name": "w", "secret": {}})),
            ],
            "",
        ),
        (
            Restricted,
            LATEST,
            vec![
                ("/spec/volumes/-".into(), json!({"name": "v", "nfs": {}})),
                ("/spec/volumes/-".into(), json!({"name": "w", "new": {}})),
            ],
            "restricted volume types (volumes \"v\", \"w\" use restricted volume types \"nfs\", \"unknown\")",
        ),
        (
            Baseline,
            LATEST,
            vec![("/spec/containers/0/ports".into(), json!([{"hostPort": 80}, {"hostPort": 0}, {"hostPort": 8080}]))],
            "hostPort (container \"c\" uses hostPorts 80, 8080)",
        ),
        // As the API fills them in.
        (
            Baseline,
            LATEST,
            vec![
                (at(spec, "hostNetwork"), json!(true)),
                ("/spec/containers/0/ports".into(), json!([{"containerPort": 80}])),
            ],
            "host namespaces (hostNetwork=true), hostPort (container \"c\" uses hostPort 80)",
        ),
        (
            Baseline,
            LATEST,
            vec![(at(c, "capabilities"), json!({"add": ["CHOWN", "NET_RAW", "SYS_ADMIN"]}))],
            "non-default capabilities (container \"c\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add)",
        ),
        (
            Restricted,
            LATEST,
            vec![
                (at(c, "capabilities"), json!({"add": ["CHOWN"]})),
                (at(i, "capabilities"), json!({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]})),
            ],
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (Restricted, Some(21), vec![(at(c, "capabilities"), json!({"add": ["CHOWN"]}))], ""),
        (
            Restricted,
            LATEST,
            vec![(at(c, "capabilities"), json!(null)), (at(spec, "os"), json!({"name": "windows"}))],
            "",
        ),
        (
            Restricted,
            Some(24),
            vec![(at(c, "capabilities"), json!(null)), (at(spec, "os"), json!({"name": "windows"}))],
            "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"])",
        ),
        (
            Baseline,
            LATEST,
            vec![
                ("/spec/containers/0/livenessProbe".into(), json!({"httpGet": {"host": "h"}})),
                ("/spec/containers/0/lifecycle".into(), json!({"preStop": {"tcpSocket": {"host": "g"}}})),
            ],
            "probe or lifecycle host (container \"c\" uses probe or lifecycle hosts \"g\", \"h\")",
        ),
        (Baseline, Some(33), vec![("/spec/containers/0/livenessProbe".into(), json!({"httpGet": {"host": "h"}}))], ""),
        (
            Baseline,
            Some(34),
            vec![("/spec/containers/0/startupProbe".into(), json!({"tcpSocket": {"host": "h"}}))],
            "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")",
        ),
        (
            Baseline,
            LATEST,
            vec![(at(c, "procMount"), json!("Unmasked"))],
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (Baseline, LATEST, vec![(at(c, "procMount"), json!("Unmasked")), (at(spec, "hostUsers"), json!(false))], ""),
        (
            Restricted,
            LATEST,
            vec![(at(c, "procMount"), json!("Unmasked")), (at(spec, "hostUsers"), json!(false))],
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            Baseline,
            Some(34),
            vec![(at(c, "procMount"), json!("Unmasked")), (at(spec, "hostUsers"), json!(false))],
            "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            Baseline,
            LATEST,
            vec![
                ("/spec/securityContext/seLinuxOptions".into(), json!({"type": "foo", "user": "u"})),
                (at(c, "seLinuxOptions"), json!({"role": "r", "type": "container_t"})),
            ],
            "seLinuxOptions (pod and container \"c\" set forbidden securityContext.seLinuxOptions: type \"foo\"; user may not be set; role may not be set)",
        ),
        (Baseline, Some(31), vec![(at(c, "seLinuxOptions"), json!({"type": "container_engine_t"}))], ""),
        (
            Baseline,
            Some(30),
            vec![(at(c, "seLinuxOptions"), json!({"type": "container_engine_t"}))],
            "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
        ),
        (
            Baseline,
            LATEST,
            vec![("/spec/securityContext/seccompProfile".into(), json!({"type": "Unconfined"}))],
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            Restricted,
            LATEST,
            vec![(at(c, "seccompProfile"), json!(null))],
            "seccompProfile (pod or container \"c\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            Restricted,
            LATEST,
            vec![
                (at(c, "seccompProfile"), json!(null)),
                ("/spec/securityContext/seccompProfile".into(), json!({"type": "Localhost"})),
            ],
            "",
        ),
        (
            Baseline,
            Some(18),
            vec![
                ("/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod".into(), json!("unconfined")),
                (
                    "/metadata/annotations/container.seccomp.security.alpha.kubernetes.io~1c".into(),
                    json!("localhost/a"),
                ),
            ],
            "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")",
        ),
        (
            Baseline,
            Some(19),
            vec![("/metadata/annotations/seccomp.security.alpha.kubernetes.io~1pod".into(), json!("unconfined"))],
            "",
        ),
        (
            Baseline,
            LATEST,
            vec![
                ("/spec/securityContext/appArmorProfile".into(), json!({"type": "Unconfined"})),
                ("/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1c".into(), json!("unconfined")),
            ],
            "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")",
        ),
        (
            Baseline,
            LATEST,
            vec![
                (at(c, "appArmorProfile"), json!({"type": "Localhost"})),
                (
                    "/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1c".into(),
                    json!("localhost/x"),
                ),
            ],
            "",
        ),
        (
            Baseline,
            LATEST,
            vec![(
                "/spec/securityContext/sysctls".into(),
                json!([{"name": "net.ipv4.tcp_rmem"}, {"name": "kernel.msgmax"}]),
            )],
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            Baseline,
            Some(31),
            vec![("/spec/securityContext/sysctls".into(), json!([{"name": "net.ipv4.tcp_rmem"}]))],
            "forbidden sysctls (net.ipv4.tcp_rmem)",
        ),
        (
            Baseline,
            Some(28),
            vec![(
                "/spec/securityContext/sysctls".into(),
                json!([{"name": "net.ipv4.tcp_fin_timeout"}, {"name": "net.ipv4.ip_local_reserved_ports"}]),
            )],
            "forbidden sysctls (net.ipv4.tcp_fin_timeout)",
        ),
        (
            Baseline,
            Some(26),
            vec![("/spec/securityContext/sysctls".into(), json!([{"name": "net.ipv4.ip_local_reserved_ports"}]))],
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports)",
        ),
        (
            Baseline,
            LATEST,
            vec![
                ("/spec/securityContext/windowsOptions".into(), json!({"hostProcess": true})),
                (at(c, "windowsOptions"), json!({"hostProcess": true})),
            ],
            "hostProcess (pod and container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            Restricted,
            LATEST,
            vec![(at(c, "allowPrivilegeEscalation"), json!(null))],
            "allowPrivilegeEscalation != false (container \"c\" must set securityContext.allowPrivilegeEscalation=false)",
        ),
        (Restricted, Some(7), vec![(at(c, "allowPrivilegeEscalation"), json!(true))], ""),
        (
            Restricted,
            LATEST,
            vec![(at(c, "runAsNonRoot"), json!(null))],
            "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)",
        ),
        (
            Restricted,
            LATEST,
            vec![(at(c, "runAsNonRoot"), json!(null)), ("/spec/securityContext/runAsNonRoot".into(), json!(true))],
            "",
        ),
        (Restricted, LATEST, vec![(at(c, "runAsNonRoot"), json!(false)), (at(spec, "hostUsers"), json!(false))], ""),
        (
            Restricted,
            Some(34),
            vec![(at(c, "runAsNonRoot"), json!(false)), (at(spec, "hostUsers"), json!(false))],
            "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)",
        ),
        (
            Restricted,
            LATEST,
            vec![("/spec/securityContext/runAsUser".into(), json!(0)), (at(i, "runAsUser"), json!(0))],
            "runAsUser=0 (pod and container \"i\" must not set runAsUser=0)",
        ),
        (Restricted, Some(22), vec![("/spec/securityContext/runAsUser".into(), json!(0))], ""),
        (
            Baseline,
            LATEST,
            vec![
                (at(c, "runAsUser"), json!(0)),
                (at(c, "allowPrivilegeEscalation"), json!(true)),
                (at(c, "capabilities"), json!(null)),
            ],
            "",
        ),
    ];
    for (level, minor, changes, expected) in table {
        let borrowed: Vec<(&str, Value)> = changes.iter().map(|(path, value)| (path.as_str(), value.clone())).collect();
        let found: Vec<String> =
            violations(enforced(level, minor), &pod(&borrowed)).iter().map(ToString::to_string).collect();
        assert_eq!(found.join(", "), expected, "{level:?} {minor:?} {changes:?}");
    }
}

#[test]
fn a_privileged_namespace_allows_everything() {
    let spec = json!({"hostPID": true, "containers": [{"securityContext": {"privileged": true}}]});
    assert_eq!(said(enforced(PodSecurityLevel::Privileged, None), &spec), Vec::<String>::new());
    assert_eq!(said(enforced(PodSecurityLevel::Baseline, None), &spec).len(), 2);
}

#[test]
fn what_labels_enforce() {
    for (level, version, default, expected) in [
        (None, None, PodSecurityLevel::Privileged, "privileged:latest"),
        (None, None, PodSecurityLevel::Baseline, "baseline:latest"),
        (Some("restricted"), None, PodSecurityLevel::Privileged, "restricted:latest"),
        (Some("privileged"), None, PodSecurityLevel::Restricted, "privileged:latest"),
        (Some("Baseline"), None, PodSecurityLevel::Privileged, "restricted:latest"),
        (Some(""), None, PodSecurityLevel::Privileged, "restricted:latest"),
        (Some("baseline"), Some("v1.25"), PodSecurityLevel::Privileged, "baseline:v1.25"),
        (Some("baseline"), Some("v1.0"), PodSecurityLevel::Privileged, "baseline:v1.0"),
        (None, Some("v1.25"), PodSecurityLevel::Baseline, "baseline:v1.25"),
        (Some("baseline"), Some("v1.05"), PodSecurityLevel::Privileged, "baseline:latest"),
        (Some("baseline"), Some("v1."), PodSecurityLevel::Privileged, "baseline:latest"),
        (Some("baseline"), Some("v1.+5"), PodSecurityLevel::Privileged, "baseline:latest"),
        (Some("baseline"), Some("1.25"), PodSecurityLevel::Privileged, "baseline:latest"),
        (Some("baseline"), Some("v2.1"), PodSecurityLevel::Privileged, "baseline:latest"),
    ] {
        let mut labels = serde_json::Map::new();
        labels.extend(level.map(|level| (LEVEL_LABEL.to_owned(), json!(level))));
        labels.extend(version.map(|version| (VERSION_LABEL.to_owned(), json!(version))));
        let namespace = json!({"metadata": {"labels": labels}});
        assert_eq!(Enforced::of_namespace(&namespace, default).to_string(), expected, "{level:?} {version:?}");
    }
}

#[test]
fn the_table_is_one() {
    let ids: Vec<_> = CHECKS.iter().map(|check| (check.level, check.id)).collect();
    assert!(ids.is_sorted(), "upstream words them by level, then by name");
    for check in &CHECKS {
        assert!(check.versions.is_sorted_by(|a, b| a.since < b.since), "{}", check.id);
        for replaced in check.versions.iter().filter_map(|v| v.instead_of) {
            assert!(CHECKS.iter().any(|c| c.id == replaced && c.level == PodSecurityLevel::Baseline), "{replaced}");
        }
    }
}

/// Whatever a template holds, judging it ends with an answer.
#[test]
fn odd_templates_are_judged() {
    for spec in [json!(null), json!([]), json!({"containers": {}, "volumes": 3}), json!({"containers": [1, null]})] {
        let template = json!({"metadata": 1, "spec": spec});
        for level in [PodSecurityLevel::Baseline, PodSecurityLevel::Restricted] {
            let _ = violations(enforced(level, None), &template);
        }
    }
}
