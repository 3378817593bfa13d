//! Attempts by whoever may write objects of one namespace that is not trusted: each is refused by name, or is harmless.
//!
//! Owns the attempts that need no cluster. Those that need one are in `tests/cluster/suite/test_tenant.py`.

use std::collections::BTreeMap;
use std::sync::Arc;

use daemonlet::core::model::FieldError;
use daemonlet::core::model::Kind;
use daemonlet::core::model::Lookup;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::ObjectRef;
use daemonlet::core::model::Source;
use daemonlet::core::model::TokenRequest;
use daemonlet::core::policy;
use daemonlet::core::policy::Admission;
use daemonlet::core::policy::Grant;
use daemonlet::core::policy::PodRules;
use daemonlet::core::policy::Policy;
use daemonlet::core::render::Endpoint;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::Rendered;
use daemonlet::core::rendering::Revision;
use serde_json::Value;
use serde_json::json;

mod images;
mod references;
mod texts;
mod volumes;

/// What comes of an attempt.
pub(crate) enum Outcome {
    /// Why nothing starts.
    Refused(String),
    /// It would run as this.
    Runs(Box<Rendered>),
}

/// The namespace `a` of the attempts, its objects, and the node's rules.
pub(crate) struct World {
    pub(crate) rules: PodRules,
    pub(crate) namespace: Value,
    objects: ObjectMap,
}

impl World {
    /// One without trusted namespaces and without grants.
    pub(crate) fn new() -> Self {
        let rules = PodRules { trusted_namespaces: Vec::new(), ..PodRules::default() };
        Self {
            rules,
            namespace: json!({"metadata": {"name": "a"}}),
            objects: ObjectMap { complete: true, ..ObjectMap::default() },
        }
    }

    /// One that trusts the namespace.
    pub(crate) fn trusting() -> Self {
        let mut world = Self::new();
        world.rules.trusted_namespaces = vec!["a".to_owned()];
        world
    }

    fn granting(host_paths: &[&str]) -> Self {
        let host_paths = host_paths.iter().map(|path| (*path).to_owned()).collect();
        let mut world = Self::new();
        world.rules.grants = [("a".to_owned(), Grant { host_paths, ..Grant::default() })].into();
        world
    }

    pub(crate) fn put(&mut self, kind: Kind, name: &str, object: Value) {
        self.objects.objects.insert(ObjectRef::new(kind, "a", name), object);
    }

    /// What comes of `daemon_set`, written to the API server.
    pub(crate) fn attempt(&self, daemon_set: &Value) -> Outcome {
        let words = |errors: &[FieldError]| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let daemon_set = match policy::checked(daemon_set, Source::Api) {
            Ok(daemon_set) => Arc::new(daemon_set),
            Err(errors) => return Outcome::Refused(words(&errors)),
        };
        let policy = Policy::new(None, "", vec!["a".to_owned()]).expect("a policy").with_rules(self.rules.clone());
        match policy.admit(&daemon_set, Lookup::Present(&self.namespace)) {
            Admission::Refused(errors) => return Outcome::Refused(words(&errors)),
            Admission::Waits(missing) => return Outcome::Refused(format!("waits for {missing}")),
            Admission::Allowed(_) => {}
        }
        let options = RenderOptions {
            node_name: "node-1".to_owned(),
            kubelet_version: Some((1, 36)),
            api_endpoint: Some(Endpoint { host: "10.0.0.1".to_owned(), port: 6443 }),
            has_api: true,
            inline_secret_env: false,
            pulls: Default::default(),
            token_expiration: daemonlet::core::time::Span::from_secs(3607),
            rules: self.rules.clone(),
            topology: Default::default(),
        };
        let no_tokens: BTreeMap<TokenRequest, String> = BTreeMap::new();
        let revision = Revision::of(&daemon_set);
        match rendering::render(&daemon_set, &revision, 0, &self.objects, &no_tokens, &options).result {
            Ok(rendered) => Outcome::Runs(Box::new(rendered)),
            Err(refused) => Outcome::Refused(words(&refused.errors)),
        }
    }

    /// What comes of [`modest`] with `value` at `pointer`.
    fn changed(&self, pointer: &str, value: &Value) -> Outcome {
        self.attempt(&changed(pointer, value))
    }
}

/// A DaemonSet that obeys every rule.
pub(crate) fn modest() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "a", "name": "x", "labels": {"daemonlet.dev/mode": "static"}, "annotations": {}},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}, "annotations": {}},
                "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": {},
                    "volumes": [{"name": "v", "configMap": {"name": "settings", "optional": true}}],
                    "containers": [{
                        "name": "c", "image": "r.test/i:1", "env": [], "args": [],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                        "resources": {"limits": {"memory": "1Mi"}},
                        "securityContext": {"readOnlyRootFilesystem": true},
                    }],
                }
            }
        }
    })
}

/// [`modest`] with `value` at `pointer`, in which `~` stands for the pod's spec and `~c` for its container; a last `-`
/// appends to a list.
fn changed(pointer: &str, value: &Value) -> Value {
    let pointer = pointer.replace("~c/", "/spec/template/spec/containers/0/").replace("~/", "/spec/template/spec/");
    let mut object = modest();
    let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{pointer}"));
    match last {
        "-" => parent.as_array_mut().expect("a list").push(value.clone()),
        _ => parent[last.replace('|', "/")] = value.clone(),
    }
    object
}

/// Every attempt is refused, with these words.
fn are_refused(world: &World, attempts: &[(&str, Value, &str)]) {
    let mut wrong = Vec::new();
    for (pointer, value, words) in attempts {
        match world.changed(pointer, value) {
            Outcome::Refused(why) if why.contains(words) => {}
            Outcome::Refused(why) => wrong.push(format!("{pointer} {value}: not by {words:?}, but {why}")),
            Outcome::Runs(rendered) => wrong.push(format!("{pointer} {value}: it runs: {}", rendered.text)),
        }
    }
    assert!(wrong.is_empty(), "{} attempts:\n{}", wrong.len(), wrong.join("\n"));
}

fn volume(source: Value) -> Value {
    let mut volume = json!({"name": "w"});
    volume.as_object_mut().expect("an object").extend(source.as_object().cloned().unwrap_or_default());
    volume
}

#[test]
fn a_modest_one_runs() {
    assert!(matches!(World::new().attempt(&modest()), Outcome::Runs(_)));
}

/// What this version does not know, a newer kubelet may obey.
#[test]
fn no_unknown_field_reaches_the_kubelet() {
    let attempts = [
        ("~/fooBar", json!({"path": "/"}), "spec.template.spec.fooBar: unknown field"),
        ("~c/newField", json!(true), "newField: unknown field"),
        ("~c/securityContext/rootEverywhere", json!(true), "rootEverywhere: unknown field"),
    ];
    are_refused(&World::new(), &attempts);
}

/// The kubelet writes the files of a downwardAPI volume into the node's memory, which no container's limit counts.
#[test]
fn what_the_kubelet_writes_of_the_pod_itself_is_bounded_too() {
    let items: Vec<Value> = (0..60)
        .map(|n| json!({"path": format!("f{n}"), "fieldRef": {"fieldPath": "metadata.annotations['big']"}}))
        .collect();
    for source in [
        json!({"downwardAPI": {"items": items}}),
        json!({"projected": {"sources": [{"downwardAPI": {"items": items}}]}}),
    ] {
        let mut object = modest();
        let template = &mut object["spec"]["template"];
        template["metadata"]["annotations"]["big"] = json!("x".repeat(200_000));
        let volumes: Vec<Value> = (0..4)
            .map(|n| {
                let mut volume = source.clone();
                volume["name"] = json!(format!("d{n}"));
                volume
            })
            .collect();
        template["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "settings", "optional": true}}]);
        template["spec"]["volumes"].as_array_mut().expect("a list").extend(volumes);
        match World::new().attempt(&object) {
            Outcome::Refused(why) => {
                assert!(why.contains("the files and variables of the pod have more than"), "{why}")
            }
            Outcome::Runs(_) => panic!("51 MB"),
        }
    }
}

#[test]
fn no_name_is_a_path_an_option_or_the_name_of_another_object() {
    let attempts = [
        ("/metadata/name", json!("../x"), "metadata.name"),
        ("/metadata/name", json!("a/b"), "metadata.name"),
        ("/metadata/name", json!("a_b"), "metadata.name"),
        ("/metadata/name", json!("A"), "metadata.name"),
        ("/metadata/name", json!("x\n- y"), "metadata.name"),
        ("/metadata/name", json!("x".repeat(300)), "metadata.name"),
        ("/metadata/name", json!(""), "metadata.name"),
        ("/metadata/name", json!("-x"), "metadata.name"),
        ("~c/name", json!("../../etc"), "name"),
        ("~c/name", json!("c\u{1b}[2J"), "name"),
        ("~c/name", json!("x".repeat(64)), "name"),
        ("~/volumes/0/name", json!("../../../x"), "name"),
        ("~/volumes/0/name", json!("v/..data"), "name"),
        ("~c/env/-", json!({"name": "A=B\nC", "value": "x"}), "name"),
        ("~c/env/-", json!({"name": "", "value": "x"}), "name"),
        ("~c/env/-", json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "../s", "key": "k"}}}), "name"),
        ("~c/env/-", json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "../k"}}}), "key"),
        ("~/serviceAccountName", json!("../kube-system/admin"), "serviceAccountName"),
        ("~/runtimeClassName", json!("../x"), "runtimeClassName"),
        ("~/hostname", json!("x\ny"), "hostname"),
        ("~/subdomain", json!("../x"), "subdomain"),
        ("~/hostAliases", json!([{"ip": "10.0.0.1 evil\n127.0.0.1", "hostnames": ["x"]}]), "hostAliases"),
        ("~/hostAliases", json!([{"ip": "10.0.0.1", "hostnames": ["x\n127.0.0.1 y"]}]), "hostAliases"),
        ("~/dnsConfig", json!({"nameservers": ["10.0.0.1\noptions x"]}), "dnsConfig"),
        ("~/priorityClassName", json!("system-node-critical"), "priorityClassName"),
        ("~/priorityClassName", json!("system-anything"), "priorityClassName"),
        ("~/imagePullSecrets", json!([{"name": "registry"}]), "imagePullSecrets"),
        ("~/resourceClaims", json!([{"name": "gpu", "resourceClaimName": "g"}]), "resourceClaims"),
        ("~/initContainers", json!([{"name": "c", "image": "i"}]), "used twice"),
        ("~/ephemeralContainers", json!([{"name": "e", "image": "i"}]), "ephemeralContainers"),
    ];
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_number_is_out_of_its_bounds() {
    let mode = |mode: Value| volume(json!({"configMap": {"name": "s", "defaultMode": mode}}));
    let attempts = [
        ("~c/ports", json!([{"containerPort": 0}]), "containerPort"),
        ("~c/ports", json!([{"containerPort": 65_536}]), "containerPort"),
        ("~c/ports", json!([{"containerPort": -1}]), "containerPort"),
        ("~c/ports", json!([{"containerPort": 1, "hostPort": 1}]), "hostPort"),
        ("~c/ports", json!([{"containerPort": 1, "protocol": "RAW"}]), "protocol"),
        ("~/volumes/-", mode(json!(4_095)), "ode"),
        ("~/volumes/-", mode(json!(-1)), "ode"),
        ("~/volumes/-", mode(json!("0777")), "ode"),
        ("~c/securityContext/runAsUser", json!(-1), "runAsUser"),
        ("~c/securityContext/runAsUser", json!(4_294_967_296_u64), "runAsUser"),
        ("~c/securityContext/runAsGroup", json!(-5), "runAsGroup"),
        ("~/securityContext/fsGroup", json!(-1), "fsGroup"),
        ("~/securityContext/fsGroup", json!(1_u64 << 40), "fsGroup"),
        ("~/securityContext/supplementalGroups", json!([-1]), "supplementalGroups"),
        ("~/terminationGracePeriodSeconds", json!("x"), "terminationGracePeriodSeconds"),
        ("~/terminationGracePeriodSeconds", json!(1.5), "terminationGracePeriodSeconds"),
        ("~/activeDeadlineSeconds", json!(1), "activeDeadlineSeconds"),
        ("~/priority", json!(2_000_001_000), "priority"),
        ("~c/resources/limits/memory", json!("-1"), "memory"),
        ("~c/resources/limits/memory", json!("1e999999999"), "memory"),
        ("~c/resources/limits/memory", json!("NaN"), "memory"),
        ("~c/resources/limits/memory", json!(0), "memory"),
        ("~c/resources/requests", json!({"cpu": "1e30"}), "requests"),
        ("~c/resources/requests", json!({"hugepages-2Mi": "2Mi"}), "hugepages"),
        ("~c/resources/requests", json!({"ephemeral-storage": "1Gi"}), "ephemeral-storage"),
        ("~c/resources/limits/nvidia.com|gpu", json!(1), "nvidia.com/gpu"),
        (
            "~/volumes/-",
            volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}})),
            "expirationSeconds",
        ),
        ("/spec/minReadySeconds", json!(-1), "minReadySeconds"),
        ("/spec/revisionHistoryLimit", json!(-1), "revisionHistoryLimit"),
        (
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "1000%"}}),
            "maxUnavailable",
        ),
    ];
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_probe_and_no_hook_asks_another_host() {
    let get = |host: &str| json!({"httpGet": {"host": host, "path": "/", "port": 80}});
    let hosts = [
        "169.254.169.254",
        "169.254.169.254.",
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "::1",
        "[::1]",
        "metadata.google.internal",
        "10.0.0.1",
        "0x7f000001",
    ];
    let mut attempts: Vec<(&str, Value, &str)> =
        hosts.iter().map(|host| ("~c/livenessProbe", get(host), "probe")).collect();
    for hook in ["postStart", "preStop"] {
        attempts.push(("~c/lifecycle", json!({hook: get("169.254.169.254")}), "probe"));
        attempts.push(("~c/lifecycle", json!({hook: {"tcpSocket": {"host": "127.0.0.1", "port": 10250}}}), "probe"));
    }
    attempts.push(("~c/readinessProbe", json!({"tcpSocket": {"host": "127.0.0.1", "port": 2379}}), "probe"));
    attempts.push(("~c/startupProbe", get("127.0.0.1"), "probe"));
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_setting_of_a_pod_takes_it_out_of_its_sandbox() {
    let attempts = [
        ("~/hostNetwork", json!(true), "host namespaces"),
        ("~/hostPID", json!(true), "host namespaces"),
        ("~/hostIPC", json!(true), "host namespaces"),
        ("~c/securityContext/privileged", json!(true), "privileged"),
        ("~c/securityContext/allowPrivilegeEscalation", json!("true"), "allowPrivilegeEscalation"),
        ("~c/securityContext/procMount", json!("Unmasked"), "procMount"),
        ("~c/securityContext/capabilities", json!({"add": ["SYS_ADMIN"]}), "capabilities"),
        ("~c/securityContext/capabilities", json!({"add": ["CAP_SYS_ADMIN"]}), "capabilities"),
        ("~c/securityContext/capabilities", json!({"add": ["all"]}), "capabilities"),
        ("~c/securityContext/seccompProfile", json!({"type": "Unconfined"}), "seccompProfile"),
        ("~/securityContext/seccompProfile", json!({"type": "Unconfined"}), "seccompProfile"),
        ("~c/securityContext/appArmorProfile", json!({"type": "Unconfined"}), "AppArmor"),
        ("~c/securityContext/seLinuxOptions", json!({"type": "spc_t"}), "seLinuxOptions"),
        ("~/securityContext/sysctls", json!([{"name": "kernel.msgmax", "value": "1"}]), "sysctls"),
        ("~/securityContext/windowsOptions", json!({"hostProcess": true}), "hostProcess"),
        ("~c/securityContext/readOnlyRootFilesystem", json!(false), "readOnlyRootFilesystem"),
        (
            "/spec/template/metadata/annotations/container.apparmor.security.beta.kubernetes.io|c",
            json!("unconfined"),
            "AppArmor",
        ),
    ];
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_label_of_its_namespace_weakens_the_nodes_rules() {
    let mut world = World::new();
    for (label, value) in [
        ("pod-security.kubernetes.io/enforce", "privileged"),
        ("pod-security.kubernetes.io/enforce", ""),
        ("pod-security.kubernetes.io/enforce", "PRIVILEGED"),
        ("pod-security.kubernetes.io/enforce-version", "v1.0"),
        ("daemonlet.dev/trusted", "true"),
        ("kubernetes.io/metadata.name", "kube-system"),
    ] {
        world.namespace = json!({"metadata": {"name": "a", "labels": {label: value}, "annotations": {label: value}}});
        let attempts = [
            ("~/hostPID", json!(true), "host namespaces"),
            ("~c/securityContext/privileged", json!(true), "privileged"),
            ("~c/livenessProbe", json!({"httpGet": {"host": "169.254.169.254", "path": "/", "port": 80}}), "probe"),
        ];
        are_refused(&world, &attempts);
    }
}
