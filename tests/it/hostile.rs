//! Values that no field was made for, at every place of a DaemonSet and of what it refers to: a tenant writes them, or an
//! API server that was taken over serves them.
//!
//! Owns what must hold whatever is written: nothing panics, and what runs is one pod within the node's rules.

use daemonlet::core::model::Kind;
use daemonlet::core::node;
use daemonlet::core::rendering::Rendered;
use daemonlet::core::yaml;
use serde_json::Value;
use serde_json::json;

use crate::attempts::Outcome;
use crate::attempts::World;
use crate::attempts::modest;

/// A DaemonSet with a field of every kind that a pod has: paths, names, numbers, hosts, users.
fn rich() -> Value {
    let mut object = modest();
    let spec = &mut object["spec"]["template"]["spec"];
    let of_pod = json!({
        "hostname": "x", "subdomain": "s", "nodeSelector": {"disk": "ssd"}, "terminationGracePeriodSeconds": 5,
        "activeDeadlineSeconds": null, "dnsPolicy": "None", "enableServiceLinks": false, "shareProcessNamespace": true,
        "dnsConfig": {"nameservers": ["10.0.0.1"], "searches": ["a.test"], "options": [{"name": "ndots", "value": "2"}]},
        "hostAliases": [{"ip": "10.0.0.2", "hostnames": ["h.test"]}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
        ]}}},
        "securityContext": {"runAsUser": 7, "runAsGroup": 7, "fsGroup": 7, "supplementalGroups": [7]},
        "volumes": [
            {"name": "v", "configMap": {"name": "settings", "optional": true, "items": [{"key": "k", "path": "p", "mode": 256}]}},
            {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "d", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "p", "projected": {"defaultMode": 256, "sources": [
                {"secret": {"name": "s", "optional": true}},
                {"serviceAccountToken": {"path": "t", "audience": "a", "expirationSeconds": 600}},
                {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels['app']"}}]}},
            ]}},
        ],
        "initContainers": [{
            "name": "i", "image": "r.test/i:1", "command": ["a"], "resources": {"limits": {"memory": "1Mi"}},
            "securityContext": {"readOnlyRootFilesystem": true},
        }],
    });
    spec.as_object_mut().expect("an object").extend(of_pod.as_object().cloned().expect("an object"));
    let container = json!({
        "command": ["c"], "workingDir": "/w", "imagePullPolicy": "IfNotPresent", "stdin": false, "tty": false,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "env": [
            {"name": "A", "value": "$(B)"}, {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Ki"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k", "optional": true}}},
        ],
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "settings", "optional": true}}],
        "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "p", "readOnly": true}, {"name": "m", "mountPath": "/m"}],
        "livenessProbe": {"httpGet": {"path": "/", "port": "web", "httpHeaders": [{"name": "X", "value": "y"}]}, "periodSeconds": 5},
        "readinessProbe": {"exec": {"command": ["true"]}}, "startupProbe": {"grpc": {"port": 8080, "service": "s"}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "resources": {"limits": {"memory": "1Mi", "cpu": "1"}, "requests": {"cpu": "1m"}},
        "securityContext": {
            "readOnlyRootFilesystem": true, "privileged": false, "allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}, "seccompProfile": {"type": "RuntimeDefault"},
            "procMount": "Default", "seLinuxOptions": {"level": "s0"},
        },
    });
    let first = &mut object["spec"]["template"]["spec"]["containers"][0];
    first.as_object_mut().expect("an object").extend(container.as_object().cloned().expect("an object"));
    object["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}});
    object["spec"]["minReadySeconds"] = json!(1);
    object["spec"]["revisionHistoryLimit"] = json!(1);
    object
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

fn values() -> Vec<Value> {
    let mut values = vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(u64::MAX),
        json!(1e308),
        json!([]),
        json!([null]),
        json!({}),
        json!({"name": "x", "hostPath": {"path": "/"}, "privileged": true, "hostPort": 22}),
        nested(90),
        nested(200),
    ];
    let texts = [
        "",
        "\u{0}",
        "/",
        "../../etc/passwd",
        "169.254.169.254",
        "Unconfined",
        "Bidirectional",
        "\n---\nkind: Pod",
        "\u{1b}[2J\u{7}",
        "\u{202e}\u{2066}x",
        "1e999999999",
        "9223372036854775808",
        "٣",
    ];
    values.extend(texts.iter().map(|text| json!(text)));
    values.push(json!("x".repeat(70_000)));
    values
}

/// The pointers to `value` and to everything in it.
fn places(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                places(inner, format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                places(inner, format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
    found.push(at);
}

/// The types of volumes that a pod without any grant has once it is rendered.
const VOLUMES: [&str; 4] = ["downwardAPI", "emptyDir", "image", "projected"];
/// The capabilities that PodSecurity's baseline lets a container add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// What of `spec`, a rendered pod's, a pod without any grant does not have.
fn reaches_out(spec: &Value) -> Option<String> {
    let is_set = |value: &Value| !value.is_null() && *value != json!("") && *value != json!(0);
    let namespaces = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| spec[name] == json!(true));
    let mut found: Vec<String> = namespaces.map(str::to_owned).collect();
    found.extend(
        ["serviceAccountName", "imagePullSecrets"].into_iter().filter(|name| is_set(&spec[name])).map(str::to_owned),
    );
    let is_unconfined = |context: &Value| context["seccompProfile"]["type"] == json!("Unconfined");
    found.extend(is_unconfined(&spec["securityContext"]).then(|| "seccompProfile".to_owned()));
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    for volume in list(spec, "volumes") {
        let kinds = volume.as_object().into_iter().flat_map(|volume| volume.keys().cloned());
        found.extend(kinds.filter(|kind| kind != "name" && !VOLUMES.contains(&kind.as_str())));
    }
    for container in list(spec, "initContainers").into_iter().chain(list(spec, "containers")) {
        let context = &container["securityContext"];
        found.extend((context["privileged"] == json!(true)).then(|| "privileged".to_owned()));
        found.extend((context["procMount"] == json!("Unmasked")).then(|| "procMount".to_owned()));
        found.extend(is_unconfined(context).then(|| "seccompProfile".to_owned()));
        let added = list(&context["capabilities"], "add").into_iter();
        found.extend(
            added.filter(|name| !CAPABILITIES.iter().any(|known| *name == json!(known))).map(|name| name.to_string()),
        );
        found.extend(list(&container, "volumeDevices").iter().map(|_| "volumeDevices".to_owned()));
        found.extend(
            list(&container, "ports").iter().filter(|port| is_set(&port["hostPort"])).map(|_| "hostPort".to_owned()),
        );
        let mounts = list(&container, "volumeMounts");
        let is_shared = |mount: &&Value| mount["mountPropagation"] == json!("Bidirectional");
        found.extend(mounts.iter().filter(is_shared).map(|_| "mountPropagation".to_owned()));
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hosts = hooks
            .iter()
            .chain(&probes)
            .flat_map(|handler| [&handler["httpGet"]["host"], &handler["tcpSocket"]["host"]]);
        found.extend(hosts.filter(|host| is_set(host)).map(|host| format!("host {host}")));
    }
    found.pop()
}

/// What is wrong with what runs.
fn wrong(rendered: &Rendered) -> Option<String> {
    let mut documents = yaml::read_documents(&rendered.text);
    let pod = match (documents.len(), documents.pop().map(|document| document.value)) {
        (1, Some(Ok(pod))) => pod,
        (count, _) => return Some(format!("{count} documents")),
    };
    if pod != rendered.pod.pod {
        return Some("the manifest says something else than the pod".to_owned());
    }
    if rendered.text.chars().any(|c| c.is_control() && c != '\n') {
        return Some("a control character in the manifest".to_owned());
    }
    if rendered.file.contains(['/', '\0', '\n']) {
        return Some(format!("the file is {:?}", rendered.file));
    }
    let paths = rendered.pod.volumes.iter().flat_map(|volume| volume.files.keys());
    let leads_out =
        |path: &&String| path.starts_with('/') || path.split('/').any(|part| part == ".." || part.is_empty());
    if let Some(path) = paths.clone().find(leads_out) {
        return Some(format!("a file {path:?}"));
    }
    // Of metadata nothing is the kubelet's to obey but the annotations that it reads.
    reaches_out(&pod["spec"])
}

#[test]
fn the_rich_one_runs_so_that_each_change_counts() {
    match World::new().attempt(&rich()) {
        Outcome::Runs(rendered) => assert_eq!(wrong(&rendered), None, "{}", rendered.text),
        Outcome::Refused(why) => panic!("{why}"),
    }
}

#[test]
fn no_value_in_any_field_leads_out_of_the_pod_or_panics() {
    let world = World::new();
    let object = rich();
    let mut pointers = Vec::new();
    places(&object, String::new(), &mut pointers);
    let (mut found, mut refused, mut run) = (Vec::new(), 0, 0);
    for pointer in &pointers {
        for value in values() {
            let mut changed = object.clone();
            *changed.pointer_mut(pointer).expect("a place") = value.clone();
            match world.attempt(&changed) {
                Outcome::Refused(why) if why.is_empty() => found.push(format!("{pointer}: refused for nothing")),
                Outcome::Refused(_) => refused += 1,
                Outcome::Runs(rendered) => {
                    run += 1;
                    let value = value.to_string();
                    let shown: String = value.chars().take(80).collect();
                    found.extend(wrong(&rendered).map(|what| format!("{pointer} {shown}: {what}")));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} of {}:\n{}", found.len(), refused + run, found.join("\n"));
    assert!(pointers.len() > 150 && refused > 2_000 && run > 300, "{}, {refused}, {run}", pointers.len());
}

/// Annotations and labels that this program, the kubelet, the DaemonSet controller, admission or the container runtime
/// reads.
const NAMES: [&str; 52] = [
    "daemonlet.dev/mode",
    "daemonlet.dev/static",
    "daemonlet.dev/daemonset",
    "daemonlet.dev/incarnation",
    "daemonlet.dev/override",
    "daemonlet.dev/overlays",
    "daemonlet.dev/overlays-digest",
    "daemonlet.dev/after",
    "daemonlet.dev/after-timeout",
    "daemonlet.dev/startup-taint",
    "daemonlet.dev/startup-taint-timeout",
    "daemonlet.dev/starting",
    "daemonlet.dev/node-condition",
    "daemonlet.dev/restart-on",
    "daemonlet.dev/resync",
    "daemonlet.dev/retry",
    "daemonlet.dev/retried",
    "daemonlet.dev/rollback",
    "daemonlet.dev/paused",
    "daemonlet.dev/halted",
    "daemonlet.dev/released",
    "daemonlet.dev/broken",
    "daemonlet.dev/aborted",
    "daemonlet.dev/promoted",
    "daemonlet.dev/partition",
    "daemonlet.dev/canary",
    "daemonlet.dev/canary-hold",
    "daemonlet.dev/steps",
    "daemonlet.dev/step",
    "daemonlet.dev/window",
    "daemonlet.dev/update",
    "daemonlet.dev/pre-pull",
    "daemonlet.dev/progress-deadline",
    "daemonlet.dev/max-failed",
    "daemonlet.dev/max-unreachable",
    "daemonlet.dev/first-install",
    "daemonlet.dev/coordination",
    "daemonlet.dev/waiting-containers",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "kubernetes.io/config.hash",
    "kubernetes.io/config.seen",
    "controller-revision-hash",
    "pod-template-generation",
    "deprecated.daemonset.template.generation",
    "scheduler.alpha.kubernetes.io/node-selector",
    "scheduler.alpha.kubernetes.io/tolerations",
    "openshift.io/node-selector",
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/enforce-version",
    "container.seccomp.security.alpha.kubernetes.io/c",
    "seccomp.security.alpha.kubernetes.io/pod",
];

/// What they are given.
fn marks() -> Vec<Value> {
    let texts = ["true", "kube-system/cni", "privileged", "99999999999999999999", "\n- x: \u{1b}]0;x\u{7}", ""];
    texts.iter().map(|text| json!(text)).chain([json!(7), json!({"a": "b"})]).collect()
}

#[test]
fn no_annotation_and_no_label_of_any_object_leads_out_of_the_pod() {
    let plain = |world: &World| match world.attempt(&modest()) {
        Outcome::Runs(rendered) => rendered,
        Outcome::Refused(why) => panic!("{why}"),
    };
    let (mut found, mut count) = (Vec::new(), 0);
    let modest_one = plain(&World::new());
    let (expected, annotations) = (&modest_one.text, &modest_one.pod.pod["metadata"]["annotations"]);
    for name in NAMES {
        for (value, of) in marks().into_iter().flat_map(|value| ["annotations", "labels"].map(|of| (value.clone(), of)))
        {
            let mut report = |place: &str, what: String| found.push(format!("{place} {of} {name}={value}: {what}"));
            for place in ["/metadata", "/spec/template/metadata"] {
                let mut object = modest();
                object.pointer_mut(place).expect("a place")[of][name] = value.clone();
                count += 1;
                let Outcome::Runs(rendered) = World::new().attempt(&object) else { continue };
                if let Some(what) = wrong(&rendered) {
                    report(place, what);
                }
                // What is read of a manifest is this program's own.
                for own in ["daemonlet.dev/daemonset", "daemonlet.dev/incarnation", "kubernetes.io/config.mirror"] {
                    let is = &rendered.pod.pod["metadata"]["annotations"][own];
                    if *is != annotations[own] {
                        report(place, format!("{own} is {is}"));
                    }
                }
            }
            // An object that it refers to says nothing by them.
            for kind in [Kind::ConfigMap, Kind::Secret, Kind::ServiceAccount] {
                let mut world = World::new();
                world.put(
                    kind,
                    "settings",
                    json!({"metadata": {"name": "settings", "namespace": "a", of: {name: value}}}),
                );
                world.put(
                    kind,
                    "default",
                    json!({"metadata": {"name": "default", "namespace": "a", of: {name: value}}}),
                );
                count += 1;
                if plain(&world).text != *expected {
                    report(kind.as_str(), "another manifest".to_owned());
                }
            }
            let mut world = World::new();
            world.namespace = json!({"metadata": {"name": "a", of: {name: value}}});
            count += 1;
            match world.attempt(&modest()) {
                Outcome::Runs(rendered) if rendered.text != *expected => {
                    report("Namespace", "another manifest".to_owned())
                }
                _ => {}
            }
            let object = json!({"metadata": {"name": "n", of: {name: value}}, "spec": {}, "status": {}});
            let without = json!({"metadata": {"name": "n"}, "spec": {}, "status": {}});
            count += 1;
            if of == "annotations"
                && let (Ok(mut with), Ok(without)) = (node::view(&object), node::view(&without))
            {
                // Annotations that it has are compared, and say nothing.
                with.labels.clone_from(&without.labels);
                if with != without {
                    report("Node", "another view".to_owned());
                }
            }
        }
    }
    assert!(found.is_empty(), "{} of {count}:\n{}", found.len(), found.join("\n"));
    assert!(count > 4_000, "{count}");
}
