//! DaemonSets with very many of one thing, and how long each step of deciding takes for them.
//!
//! Shared by the bench, which prints the times, and by the test that they grow with the number and no faster.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use nix::time::ClockId;
use nix::time::clock_gettime;
use serde_json::Value;
use serde_json::json;

use daemonlet::core::input;
use daemonlet::core::model::DaemonSet;
use daemonlet::core::model::NodeView;
use daemonlet::core::model::ObjectMap;
use daemonlet::core::model::Source;
use daemonlet::core::model::Taint;
use daemonlet::core::placement;
use daemonlet::core::policy;
use daemonlet::core::policy::Policy;
use daemonlet::core::render::DEFAULT_TOKEN_EXPIRATION;
use daemonlet::core::render::PullMode;
use daemonlet::core::render::RenderOptions;
use daemonlet::core::rendering;
use daemonlet::core::rendering::Revision;

/// A DaemonSet of that many of one thing: a name, and the pod's spec and annotations.
pub(crate) type Shape = (&'static str, fn(usize) -> Value);

fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// A pod of one container with `container` in it, and with `pod` in it.
fn pod(container: Value, pod: Value) -> Value {
    let mut first = json!({"name": "c", "image": "a:1"});
    first.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let mut spec = json!({"containers": [first], "automountServiceAccountToken": false});
    spec.as_object_mut().unwrap().extend(pod.as_object().unwrap().clone());
    spec
}

fn config(index: usize) -> Value {
    json!({"name": format!("v-{index}"), "configMap": {"name": "few", "items": [{"key": "k", "path": "p"}]}})
}

fn secret(name: String, key: &str) -> Value {
    json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "few", "key": key}}})
}

/// Everything of which a pod can have many.
pub(crate) const SHAPES: &[Shape] = &[
    ("volumes", |n| pod(json!({}), json!({"volumes": list(n, config)}))),
    ("volumes and mounts", |n| {
        let mounts = list(n, |i| json!({"name": format!("v-{i}"), "mountPath": format!("/m/{i}")}));
        pod(json!({"volumeMounts": mounts}), json!({"volumes": list(n, config)}))
    }),
    ("mounts below each other", |n| {
        let n = n - 2;
        let mounts = list(n, |i| {
            let below = if i % 2 == 0 { "" } else { "/below" };
            json!({"name": format!("v-{}", i / 2), "mountPath": format!("/m/{}{below}", i / 2)})
        });
        let root = json!([{"name": "root", "configMap": {"name": "few"}}]);
        let mut volumes = list(n / 2 + 1, config);
        volumes.as_array_mut().unwrap().extend(root.as_array().unwrap().clone());
        let mut mounts = mounts;
        mounts.as_array_mut().unwrap().insert(0, json!({"name": "root", "mountPath": "/m"}));
        pod(json!({"volumeMounts": mounts}), json!({"volumes": volumes}))
    }),
    ("mounts of one volume", |n| {
        let mounts =
            list(n, |i| json!({"name": "v-0", "mountPath": format!("/m{}", "/b".repeat(i % 60) + &i.to_string())}));
        pod(json!({"volumeMounts": mounts}), json!({"volumes": [config(0)]}))
    }),
    ("mounts where the env file goes", |n| {
        let mounts = list(n, |i| {
            let end = if i == 0 { String::new() } else { format!("-{}", i + 1) };
            json!({"name": "v-0", "mountPath": format!("/.daemonlet-env{end}")})
        });
        pod(json!({"volumeMounts": mounts, "env": [secret("A".to_owned(), "k")]}), json!({"volumes": [config(0)]}))
    }),
    ("devices", |n| {
        let n = n / 2 - 1;
        let volumes = list(n, |i| json!({"name": format!("v-{i}"), "persistentVolumeClaim": {"claimName": "x"}}));
        let devices = list(n, |i| json!({"name": format!("v-{i}"), "devicePath": format!("/d/{i}")}));
        let mounts = list(n, |i| json!({"name": "e", "mountPath": format!("/m/{i}")}));
        let mut volumes = volumes;
        volumes.as_array_mut().unwrap().push(json!({"name": "e", "emptyDir": {}}));
        pod(json!({"volumeDevices": devices, "volumeMounts": mounts}), json!({"volumes": volumes}))
    }),
    ("items", |n| {
        let items = list(n, |i| json!({"key": "k", "path": format!("p/{i}")}));
        pod(json!({}), json!({"volumes": [{"name": "v", "configMap": {"name": "few", "items": items}}]}))
    }),
    ("items deep below each other", |n| {
        let items = list(n / 50, |i| json!({"key": "k", "path": format!("{}{i}", "p/".repeat(300))}));
        pod(json!({}), json!({"volumes": [{"name": "v", "configMap": {"name": "few", "items": items}}]}))
    }),
    ("items that are missing", |n| {
        let items = list(n, |i| json!({"key": format!("none-{i}"), "path": format!("p/{i}")}));
        pod(json!({}), json!({"volumes": [{"name": "v", "configMap": {"name": "few", "items": items}}]}))
    }),
    ("projected sources", |n| {
        let n = n / 2;
        let sources =
            list(n, |i| json!({"configMap": {"name": "few", "items": [{"key": "k", "path": format!("p/{i}")}]}}));
        pod(json!({}), json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}))
    }),
    ("tokens", |n| {
        let sources =
            list(n, |i| json!({"serviceAccountToken": {"audience": format!("a-{i}"), "path": format!("p/{i}")}}));
        pod(json!({}), json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}))
    }),
    ("volumes that miss their object", |n| {
        let volumes = list(n, |i| json!({"name": format!("v-{i}"), "configMap": {"name": format!("none-{i}")}}));
        pod(json!({}), json!({"volumes": volumes}))
    }),
    ("resources of containers in a volume", |n| {
        let one = |i| json!({"name": format!("c-{i}"), "image": "a:1", "resources": {"limits": {"cpu": "1"}}});
        let item = |i: usize| {
            let of = json!({"containerName": format!("c-{i}"), "resource": "limits.cpu"});
            json!({"path": format!("p/{i}"), "resourceFieldRef": of})
        };
        let sources = json!([{"configMap": {"name": "few"}}, {"downwardAPI": {"items": list(n / 2, item)}}]);
        let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
        json!({"containers": list(n / 2, one), "volumes": volumes})
    }),
    ("variables", |n| {
        let env = list(n, |i| json!({"name": format!("V_{i}"), "value": format!("$(V_{}) x", i / 2)}));
        pod(json!({"env": env}), json!({}))
    }),
    ("variables from a ConfigMap", |n| {
        let key = |i| json!({"name": "many", "key": format!("k-{i}")});
        let env = list(n, |i| json!({"name": format!("V_{i}"), "valueFrom": {"configMapKeyRef": key(i)}}));
        pod(json!({"env": env}), json!({}))
    }),
    ("variables from all keys", |n| {
        let env = list(n - 2, |i| json!({"name": format!("k-{i}"), "value": format!("$(k-{})", i / 2)}));
        let from = json!([{"configMapRef": {"name": "many"}}, {"configMapRef": {"name": "many"}}]);
        pod(json!({"env": env, "envFrom": from}), json!({}))
    }),
    ("variables from many sources", |n| {
        let from = list(n, |i| json!({"configMapRef": {"name": "few"}, "prefix": format!("P{i}_")}));
        pod(json!({"envFrom": from}), json!({}))
    }),
    ("variables from Secrets", |n| pod(json!({"env": list(n, |i| secret(format!("V_{i}"), "k"))}), json!({}))),
    ("variables from Secrets, of one name", |n| {
        pod(json!({"env": list(n, |_| secret("V".to_owned(), "k"))}), json!({}))
    }),
    ("variables that are missing", |n| {
        pod(json!({"env": list(n, |i| secret(format!("V_{i}"), &format!("none-{i}")))}), json!({}))
    }),
    ("references without an end", |n| {
        let from = json!([{"configMapRef": {"name": "few"}}]);
        pod(json!({"env": [{"name": "V", "value": "$(".repeat(n * 10)}], "envFrom": from}), json!({}))
    }),
    ("a name of many beginnings", |n| {
        let iscsi = json!({"targetPortal": "1.2.3.4:1", "iqn": "iqn.".repeat(n * 10), "lun": 1});
        pod(json!({}), json!({"volumes": [{"name": "v", "iscsi": iscsi}]}))
    }),
    ("containers with secrets", |n| {
        let one =
            |i| json!({"name": format!("c-{i}"), "image": format!("a:{i}"), "env": [secret("A".to_owned(), "k")]});
        json!({"initContainers": [], "containers": list(n, one)})
    }),
    ("containers that miss something", |n| {
        let one = |i| json!({"name": format!("c-{i}"), "image": "a:1", "env": [secret("A".to_owned(), &format!("none-{i}"))]});
        json!({"containers": list(n, one)})
    }),
    ("ports", |n| {
        let ports = list(
            n,
            |i| json!({"containerPort": 1 + i % 65_000, "hostPort": 1 + i % 65_000, "hostIP": format!("1.2.3.{i}")}),
        );
        pod(json!({"ports": ports}), json!({}))
    }),
    ("resources", |n| {
        let amounts: BTreeMap<String, &str> = (0..n).map(|i| (format!("example.com/r-{i}"), "1")).collect();
        pod(json!({"resources": {"requests": amounts, "limits": amounts}}), json!({}))
    }),
    ("resource claims", |n| {
        let claims = list(n, |i| json!({"name": format!("c-{i}")}));
        let of_pod = list(n, |i| json!({"name": format!("c-{i}"), "resourceClaimName": "x"}));
        pod(json!({"resources": {"claims": claims}}), json!({"resourceClaims": of_pod}))
    }),
    ("images of volumes", |n| {
        let volumes = list(n, |i| json!({"name": format!("v-{i}"), "image": {"reference": format!("a:{i}")}}));
        pod(json!({}), json!({"volumes": volumes}))
    }),
    ("host paths", |n| {
        let volumes = list(n, |i| json!({"name": format!("v-{i}"), "hostPath": {"path": format!("/h/{i}")}}));
        pod(json!({}), json!({"volumes": volumes}))
    }),
    ("capabilities", |n| {
        let add = list(n, |i| json!(format!("C{i}")));
        pod(json!({"securityContext": {"capabilities": {"add": add}}}), json!({}))
    }),
    ("tolerations", |n| {
        let all = list(n, |i| json!({"key": format!("k-{i}"), "operator": "Exists", "effect": "NoSchedule"}));
        pod(json!({}), json!({"tolerations": all}))
    }),
    ("affinity terms", |n| {
        let terms =
            list(n, |i| json!({"matchExpressions": [{"key": format!("k-{i}"), "operator": "In", "values": ["v"]}]}));
        let required = json!({"nodeSelectorTerms": terms});
        pod(
            json!({}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        )
    }),
    ("values of an affinity term", |n| {
        let term =
            json!({"matchExpressions": [{"key": "k", "operator": "In", "values": list(n, |i| json!(i.to_string()))}]});
        let required = json!({"nodeSelectorTerms": [term]});
        pod(
            json!({}),
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        )
    }),
    ("keys of a spread constraint", |n| {
        let expressions = list(n, |i| json!({"key": format!("k-{i}"), "operator": "Exists"}));
        let constraint = |of: Value, selector: Value| {
            let mut term = json!({"topologyKey": "t", "labelSelector": {"matchExpressions": selector}});
            term.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
            term
        };
        let keys = list(n, |i| json!(format!("a-{i}")));
        let other = list(n, |i| json!(format!("b-{i}")));
        let term = constraint(json!({"matchLabelKeys": keys, "mismatchLabelKeys": other}), expressions);
        let spread = list(
            n / 10,
            |i| json!({"maxSkew": 1, "topologyKey": format!("t-{i}"), "whenUnsatisfiable": "DoNotSchedule"}),
        );
        let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        pod(json!({}), json!({"affinity": anti, "topologySpreadConstraints": spread}))
    }),
    ("pull secrets", |n| pod(json!({}), json!({"imagePullSecrets": list(n, |i| json!({"name": format!("s-{i}")}))}))),
    ("host aliases", |n| {
        let aliases = list(n, |i| json!({"ip": "1.2.3.4", "hostnames": [format!("h-{i}")]}));
        pod(json!({}), json!({"hostAliases": aliases}))
    }),
    ("arguments", |n| pod(json!({"args": list(n, |i| json!(format!("--a={i}")))}), json!({}))),
    ("sysctls", |n| {
        let all = list(n, |i| json!({"name": format!("net.x{i}"), "value": "1"}));
        pod(json!({}), json!({"securityContext": {"sysctls": all}}))
    }),
    ("unknown fields", |n| {
        let fields: BTreeMap<String, usize> = (0..n).map(|i| (format!("field{i}"), i)).collect();
        pod(serde_json::to_value(fields).unwrap(), json!({}))
    }),
];

/// The DaemonSet of a shape.
fn daemon_set(spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "large", "namespace": "tenant", "labels": {"daemonlet.dev/mode": "static"}},
        "spec": {
            "selector": {"matchLabels": {"app": "large"}},
            "template": {"metadata": {"labels": {"app": "large"}}, "spec": spec},
        },
    })
}

/// What each step takes of this thread's processor time for `count` things of `shape`: validation, policy, revision,
/// placement, rendering.
pub(crate) fn times(shape: &Shape, count: usize) -> [Duration; 5] {
    let value = daemon_set((shape.1)(count));
    let keys =
        |count: usize| -> BTreeMap<String, String> { (0..count).map(|i| (format!("k-{i}"), "v".to_owned())).collect() };
    let object = |kind: &str, name: &str, data: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "tenant"}, "data": data});
    let objects = [
        object("ConfigMap", "few", json!({"k": "value"})),
        object("Secret", "few", json!({"k": "dmFsdWU="})),
        object("ConfigMap", "many", json!(keys(count))),
    ];
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let parsed = input::parse_file("objects.yaml".as_ref(), &text.join("\n---\n"));
    let objects = ObjectMap { objects: parsed.objects.into_iter().collect(), complete: true };
    let taints = (0..5).map(|i| Taint { key: format!("t-{i}"), value: String::new(), effect: "NoSchedule".to_owned() });
    let node =
        NodeView { name: "node-1".to_owned(), taints: taints.collect(), registered: true, ..NodeView::default() };
    let mut times = [Duration::ZERO; 5];
    let mut time = |step: usize, begun: Duration| times[step] = thread_time() - begun;

    let begun = thread_time();
    let checked = policy::checked(&value, Source::Api);
    time(0, begun);
    let daemon_set: Arc<DaemonSet> = match checked {
        Ok(daemon_set) => Arc::new(daemon_set),
        Err(errors) => {
            black_box(errors);
            return times;
        }
    };
    let begun = thread_time();
    black_box(Policy::default().forbids(&daemon_set));
    time(1, begun);
    let begun = thread_time();
    let revision = Revision::of(&daemon_set);
    time(2, begun);
    let begun = thread_time();
    black_box(placement::should_run(&node, &daemon_set, None));
    time(3, begun);
    let begun = thread_time();
    black_box(rendering::render(&daemon_set, &revision, 0, &objects, &BTreeMap::new(), &options()));
    time(4, begun);
    times
}

fn options() -> RenderOptions {
    RenderOptions {
        node_name: "node-1".to_owned(),
        kubelet_version: Some((1, 36)),
        api_endpoint: None,
        has_api: false,
        inline_secret_env: false,
        pulls: PullMode::default(),
        token_expiration: DEFAULT_TOKEN_EXPIRATION,
        rules: daemonlet::core::policy::PodRules::trusting(),
        topology: Default::default(),
    }
}

/// What this thread has used of a processor.
fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the thread's clock").into()
}
