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
use daemonlet::core::yaml;
use serde_json::Value;
use serde_json::json;

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
    /// One that trusts nobody and grants nothing.
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

#[test]
fn no_type_of_volume_reaches_the_host_or_a_driver() {
    let none = json!({});
    let types = [
        ("awsElasticBlockStore", json!({"volumeID": "v"})),
        ("azureDisk", json!({"diskName": "d", "diskURI": "u"})),
        ("azureFile", json!({"secretName": "s", "shareName": "s"})),
        ("cephfs", json!({"monitors": ["m"]})),
        ("cinder", json!({"volumeID": "v"})),
        ("csi", json!({"driver": "d.example"})),
        ("fc", json!({"targetWWNs": ["5"], "lun": 0})),
        ("flexVolume", json!({"driver": "k/d"})),
        ("flocker", json!({"datasetName": "d"})),
        ("gcePersistentDisk", json!({"pdName": "p"})),
        ("gitRepo", json!({"repository": "https://r.test/x"})),
        ("glusterfs", json!({"endpoints": "e", "path": "p"})),
        ("hostPath", json!({"path": "/"})),
        ("iscsi", json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:s", "lun": 0})),
        ("nfs", json!({"server": "10.0.0.1", "path": "/"})),
        ("persistentVolumeClaim", json!({"claimName": "c"})),
        ("photonPersistentDisk", json!({"pdID": "p"})),
        ("portworxVolume", json!({"volumeID": "v"})),
        ("quobyte", json!({"registry": "r:1", "volume": "v"})),
        ("rbd", json!({"monitors": ["m"], "image": "i"})),
        ("scaleIO", json!({"gateway": "g", "system": "s", "secretRef": {"name": "s"}, "volumeName": "v"})),
        ("storageos", json!({"volumeName": "v"})),
        ("vsphereVolume", json!({"volumePath": "v"})),
        (
            "ephemeral",
            json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}}),
        ),
        ("madeUp", json!({"path": "/"})),
        ("emptyDir", none.clone()),
        ("emptyDir", json!({"medium": "HugePages"})),
        ("emptyDir", json!({"medium": "Memory"})),
    ];
    let mut attempts: Vec<(&str, Value, &str)> = types
        .iter()
        .map(|(kind, source)| ("~/volumes/-", volume(json!({*kind: source})), "spec.template.spec.volumes"))
        .collect();
    let bundle = json!({"clusterTrustBundle": {"name": "b", "path": "p"}});
    let certificate =
        json!({"podCertificate": {"signerName": "s.example/x", "keyType": "ED25519", "credentialBundlePath": "p"}});
    for source in [bundle, certificate] {
        attempts.push((
            "~/volumes/-",
            volume(json!({"projected": {"sources": [source]}})),
            "spec.template.spec.volumes",
        ));
    }
    // Without a type it is an emptyDir, which only the API server writes out.
    for source in [json!({}), json!({"emptyDir": null}), json!({"configMap": null})] {
        attempts.push((
            "~/volumes/-",
            volume(source),
            "spec.template.spec.volumes[w].emptyDir: must have medium Memory",
        ));
    }
    // Two types in one volume: the allowed one must not speak for the other.
    let two = json!({"configMap": {"name": "settings"}, "hostPath": {"path": "/"}});
    attempts.push(("~/volumes/-", volume(two), "spec.template.spec.volumes"));
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_path_leads_out_of_where_it_belongs() {
    let item = |path: &str| volume(json!({"configMap": {"name": "s", "items": [{"key": "k", "path": path}]}}));
    let source = |source: Value| volume(json!({"projected": {"sources": [source]}}));
    let mount = |path: &str| json!({"name": "v", "mountPath": "/m", "subPath": path});
    let field = json!({"fieldPath": "metadata.name"});
    let attempts = [
        ("~/volumes/-", item("../../etc/cron.d/x"), "path"),
        ("~/volumes/-", item("/etc/cron.d/x"), "path"),
        ("~/volumes/-", item("..data"), "path"),
        ("~/volumes/-", item("a/../../x"), "path"),
        ("~/volumes/-", item(""), "path"),
        ("~/volumes/-", source(json!({"serviceAccountToken": {"path": "../token"}})), "path"),
        ("~/volumes/-", source(json!({"serviceAccountToken": {"path": "/token"}})), "path"),
        ("~/volumes/-", source(json!({"secret": {"name": "s", "items": [{"key": "k", "path": "../k"}]}})), "path"),
        ("~/volumes/-", volume(json!({"downwardAPI": {"items": [{"path": "../n", "fieldRef": field}]}})), "path"),
        ("~c/volumeMounts/-", mount("../../etc"), "subPath"),
        ("~c/volumeMounts/-", mount("/etc"), "subPath"),
        ("~c/volumeMounts/-", mount("a/../../x"), "subPath"),
        ("~c/volumeMounts/-", json!({"name": "v", "mountPath": "/m", "subPathExpr": "../x"}), "subPathExpr"),
        ("~c/volumeMounts/-", json!({"name": "v", "mountPath": ""}), "mountPath"),
        ("~c/volumeMounts/-", json!({"name": "not-there", "mountPath": "/m"}), "not-there"),
        (
            "~c/volumeMounts/-",
            json!({"name": "v", "mountPath": "/m", "mountPropagation": "Bidirectional"}),
            "mountPropagation",
        ),
        ("~c/volumeDevices", json!([{"name": "v", "devicePath": "/dev/sda"}]), "volumeDevices"),
    ];
    are_refused(&World::new(), &attempts);
}

#[test]
fn no_way_of_writing_a_path_reaches_what_is_not_granted() {
    let world = World::granting(&["/granted"]);
    let path = |path: &str, kind: &str| volume(json!({"hostPath": {"path": path, "type": kind}}));
    let paths = [
        "/",
        "/etc",
        "/granted-not",
        "/grante",
        "/granted/../etc",
        "/granted/./../x",
        "",
        "/GRANTED",
        "/granted\u{0}/x",
        "/proc/self/root",
    ];
    let mut attempts: Vec<(&str, Value, &str)> =
        paths.iter().map(|it| ("~/volumes/-", path(it, ""), "hostPath")).collect();
    for kind in ["Socket", "CharDevice", "BlockDevice", "DirectoryOrCreate", "FileOrCreate", "Anything"] {
        attempts.push(("~/volumes/-", path("/granted/x", kind), "hostPath"));
    }
    are_refused(&world, &attempts);
    // Where it is granted, the kubelet resolves the rest beneath the grant, and nothing is written.
    let mut object = changed("~/volumes/-", &path("/granted/x/y", ""));
    object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "w", "mountPath": "/w", "subPath": "z", "readOnly": false}]);
    let Outcome::Runs(rendered) = world.attempt(&object) else { panic!("it is granted") };
    let spec = &rendered.pod.pod["spec"];
    let granted =
        spec["volumes"].as_array().and_then(|all| all.iter().find(|volume| volume["name"] == "w")).expect("it");
    assert_eq!(granted["hostPath"]["path"], "/granted", "{granted}");
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["subPath"], &mount["readOnly"]), (&json!("x/y/z"), &json!(true)), "{mount}");
}

/// Where a container's log is to be, the kubelet would make a folder, and the container would never start again.
#[test]
fn below_a_granted_path_nothing_is_made_where_logs_are_to_be() {
    let on = |path: &str, part: &str, expanded: &str| {
        let mut object = changed("~/volumes/-", &volume(json!({"hostPath": {"path": path}})));
        let mut mount = json!({"name": "w", "mountPath": "/w"});
        for (field, text) in [("subPath", part), ("subPathExpr", expanded)] {
            if !text.is_empty() {
                mount[field] = json!(text);
            }
        }
        object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
        object
    };
    let world = World::granting(&["/var/log", "/srv"]);
    let log = "kube-system_victim_1/main/2.log";
    let within = format!("pods/{log}");
    let below = format!("/var/log/pods/{log}");
    for (path, part, expanded) in [
        ("/var/log/pods", log, ""),
        ("/var/log", within.as_str(), ""),
        ("/var//log/./", ".//pods//x", ""),
        (below.as_str(), "", ""),
        ("/var/log/containers/x.log", "", ""),
        ("/var/log/pods", "", "$(P)"),
        ("/var/log", "", "$(P)"),
        ("/var/log", "", "pods/x"),
    ] {
        match world.attempt(&on(path, part, expanded)) {
            Outcome::Refused(why) => assert!(why.contains("log is to be"), "{path} {part}{expanded}: {why}"),
            Outcome::Runs(_) => panic!("{path} {part}{expanded}"),
        }
    }
    for (path, part, expanded) in [
        ("/var/log/pods", "", ""),
        ("/var/log", "pods", ""),
        ("/var/log", "journal/x", ""),
        ("/var/log/journal", "", "$(P)"),
        ("/srv", "", "$(P)"),
    ] {
        assert!(matches!(world.attempt(&on(path, part, expanded)), Outcome::Runs(_)), "{path} {part}{expanded}");
    }
}

/// What this version does not know, a newer kubelet may obey.
#[test]
fn no_field_that_nobody_judges_reaches_the_kubelet() {
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
fn no_name_is_a_path_an_option_or_somebody_elses() {
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

#[test]
fn no_image_gets_past_the_patterns() {
    for mut world in [World::new(), World::trusting()] {
        world.rules.images = vec!["r.test/team/*".to_owned()];
        no_image_gets_past(&world);
    }
}

fn no_image_gets_past(world: &World) {
    let images = [
        "evil.test/team/x:1",
        "r.test.evil.test/team/x:1",
        "r.test/teamx/y:1",
        "r.test/other/x",
        "busybox",
        "team/x:1",
        "evil.test/r.test/team/x:1",
        "R.TEST/team/x:1",
        "r.test:5000/team/x:1",
        "r.test/team/../other/x:1",
        "r.test/team/x:1\nevil.test/x",
        " r.test/team/x:1",
        "http://r.test/team/x:1",
    ];
    let attempts: Vec<(&str, Value, &str)> = images.iter().map(|image| ("~c/image", json!(image), "image")).collect();
    are_refused(world, &attempts);
    are_refused(world, &[("~/volumes/-", volume(json!({"image": {"reference": "evil.test/x:1"}})), "image")]);
}

#[test]
fn no_id_of_an_image_gets_past_the_patterns() {
    let full = "0123456789abcdef".repeat(4);
    let ids = [&format!("sha256:{full}"), &full, "sha256:0123456789ab", "0123456789ab", "sha512:00", "cafe"];
    let words = "a runtime takes it for the ID of any image on the node";
    for patterns in [&["r.test/team/*"][..], &["docker.io/library/*"], &["*:*", "docker.io/*"], &["sha256:*"], &[]] {
        for mut world in [World::new(), World::trusting()] {
            world.rules.images = patterns.iter().map(ToString::to_string).collect();
            for id in ids {
                let init = json!([{
                    "name": "i", "image": id, "resources": {"limits": {"memory": "1Mi"}},
                    "securityContext": {"readOnlyRootFilesystem": true},
                }]);
                are_refused(
                    &world,
                    &[
                        ("~c/image", json!(id), words),
                        ("~/initContainers", init, words),
                        ("~/volumes/-", volume(json!({"image": {"reference": id}})), words),
                    ],
                );
            }
        }
    }
    assert!(matches!(World::new().changed("~c/image", &json!("cafe")), Outcome::Runs(_)), "* allows all");
}

/// What daemonlet and the kubelet read in a manifest is daemonlet's own, whatever a template says.
#[test]
fn no_annotation_or_label_of_a_template_speaks_for_the_agent_or_the_kubelet() {
    [World::new(), World::trusting()].iter().for_each(nothing_speaks_for_the_agent);
}

fn nothing_speaks_for_the_agent(world: &World) {
    let mine = "kube-system/cni";
    for name in [
        "daemonlet.dev/daemonset",
        "daemonlet.dev/incarnation",
        "daemonlet.dev/overlays-digest",
        "kubernetes.io/config.mirror",
        "kubernetes.io/config.source",
        "kubernetes.io/config.hash",
        "kubernetes.io/config.seen",
    ] {
        let pointer = format!("/spec/template/metadata/annotations/{}", name.replace('/', "|"));
        match world.changed(&pointer, &json!(mine)) {
            Outcome::Refused(why) => assert!(why.contains("annotations"), "{name}: {why}"),
            Outcome::Runs(rendered) => {
                let annotations = &rendered.pod.pod["metadata"]["annotations"];
                assert_ne!(annotations[name], mine, "{name}: {annotations}");
            }
        }
    }
    let pointer = "/spec/template/metadata/labels/controller-revision-hash";
    let Outcome::Runs(rendered) = world.changed(pointer, &json!("mine")) else { panic!("it runs") };
    assert_ne!(rendered.pod.pod["metadata"]["labels"]["controller-revision-hash"], "mine");
}

/// A manifest is one document with one pod, whatever texts it has.
#[test]
fn no_text_leaves_its_place_in_a_manifest() {
    [World::new(), World::trusting()].iter().for_each(no_text_leaves_its_place);
}

fn no_text_leaves_its_place(world: &World) {
    for text in [
        "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: evil}\n",
        "x\n    hostPID: true",
        "\u{1b}]0;owned\u{7}",
        "\u{2028}\u{2029}\u{85}",
        "\u{202e}txt.exe",
        "*a",
        "&a b",
        "!!python/object/apply:os.system [x]",
        "{{ .Values.x }}",
        "<<: *x",
        "%YAML 1.2",
        "'\"`$(id)",
        "\t",
        "yes",
        "0o17",
        "1e3",
        "~",
        "null",
        "-",
        "? x",
        "# x",
        "\u{feff}x",
        "\r\nhostPID: true",
    ] {
        let object = changed("~c/args/-", &json!(text));
        let Outcome::Runs(rendered) = world.attempt(&object) else { panic!("{text:?} is refused") };
        let mut documents = yaml::read_documents(&rendered.text);
        assert_eq!(documents.len(), 1, "{text:?}");
        let pod = documents.remove(0).value.expect("YAML");
        assert_eq!(pod["spec"]["containers"][0]["args"][0], text, "{}", rendered.text);
        assert!(pod["spec"].get("hostPID").is_none(), "{}", rendered.text);
        assert!(!rendered.text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}: {:?}", rendered.text);
    }
}

#[test]
fn no_key_of_a_config_map_or_secret_is_a_path_out_of_its_volume() {
    for key in ["../x", "..", ".", "/etc/passwd", "a/b", "..data", "..2026_01_01", "x\u{0}", "", "a\nb"] {
        let mut world = World::new();
        world.put(
            Kind::ConfigMap,
            "settings",
            json!({"metadata": {"name": "settings", "namespace": "a"}, "data": {key: "x", "fine": "y"}}),
        );
        let Outcome::Runs(rendered) = world.attempt(&modest()) else { continue };
        for volume in &rendered.pod.volumes {
            for path in volume.files.keys() {
                let is_below = !path.starts_with('/')
                    && path.split('/').all(|part| !part.starts_with("..") && part != "." && !part.is_empty());
                assert!(is_below, "{key:?}: {path:?}");
            }
        }
    }
}

/// An API server that was taken over can serve classes that none would store.
#[test]
fn no_class_of_an_api_server_that_was_taken_over_takes_more_than_a_class_may_give() {
    let class = |kind: Kind, object: Value| {
        let mut world = World::new();
        let field = if kind == Kind::PriorityClass { "~/priorityClassName" } else { "~/runtimeClassName" };
        world.objects.objects.insert(ObjectRef::new(kind, "", "mine"), object);
        world.changed(field, &json!("mine"))
    };
    let attempts = [
        (Kind::PriorityClass, json!({"value": 1_000_000_001})),
        (Kind::PriorityClass, json!({"value": 2_000_001_000})),
        (Kind::PriorityClass, json!({"value": 2_000_001_000.0})),
        (Kind::PriorityClass, json!({"value": u64::MAX})),
        (Kind::PriorityClass, json!({"value": "2000001000"})),
        (Kind::PriorityClass, json!({"value": 0, "preemptionPolicy": "Always"})),
        (Kind::RuntimeClass, json!({"handler": "h", "overhead": {"podFixed": {"memory": "-1Gi"}}})),
        (Kind::RuntimeClass, json!({"handler": "h", "overhead": {"podFixed": {"memory": ["1Gi"]}}})),
    ];
    for (kind, object) in attempts {
        match class(kind, object.clone()) {
            Outcome::Refused(why) => assert!(why.contains("mine"), "{kind} {object}: {why}"),
            Outcome::Runs(rendered) => panic!("{kind} {object}: it runs: {}", rendered.text),
        }
    }
    let Outcome::Runs(rendered) = class(Kind::PriorityClass, json!({"value": 1_000_000_000})) else {
        panic!("refused")
    };
    assert_eq!(rendered.pod.pod["spec"]["priority"], Value::Null, "it would end daemons of others");
}

/// What a pod refers to is of its own namespace, whatever its names look like.
#[test]
fn no_reference_leaves_its_namespace() {
    let world = World::new();
    for name in ["../other/settings", "kube-system/root", "x,metadata.namespace=kube-system", "..", "a b"] {
        for source in [json!({"configMap": {"name": name}}), json!({"secret": {"secretName": name}})] {
            let Outcome::Runs(rendered) = world.changed("~/volumes/-", &volume(source)) else { continue };
            let is_data = |reference: &&ObjectRef| matches!(reference.kind, Kind::ConfigMap | Kind::Secret);
            let foreign = |reference: &&ObjectRef| is_data(reference) && reference.key.namespace != "a";
            assert!(rendered.pod.references.iter().find(foreign).is_none(), "{name}: {:?}", rendered.pod.references);
        }
    }
    let Outcome::Runs(rendered) = world.changed("~/nodeName", &json!("another-node")) else { return };
    assert_ne!(rendered.pod.pod["spec"]["nodeName"], "another-node");
}
