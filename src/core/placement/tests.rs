//! Upstream's cases: TestNodeShouldRunDaemonPod, TestPodMatchesNodeSelectorAndAffinityTerms,
//! TestNodeSelectorMatch, and what tainted nodes answer.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::core::model::Lookup;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::Taint;
use crate::core::model::UpdateStrategy;

fn daemon_set(spec: Value) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new("default", "x"),
        uid: None,
        generation: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
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
        source: Source::Api,
    }
}

/// The verdict on the whole template, which that on the part that is read of it must be too.
fn should_run(node: &NodeView, daemon_set: &DaemonSet, namespace: Option<&NamespaceSelector>) -> Placement {
    let part = DaemonSet { template: part_read(&daemon_set.template), ..daemon_set.clone() };
    let verdict = super::should_run(node, daemon_set, namespace);
    assert_eq!(super::should_run(node, &part, namespace), verdict);
    verdict
}

/// A node from `name` and `k=v` labels.
fn node(name: &str, labels: &[&str]) -> NodeView {
    let labels = labels.iter().filter_map(|label| label.split_once('='));
    NodeView {
        name: name.into(),
        labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        ..NodeView::default()
    }
}

fn taint(text: &str) -> Taint {
    let (label, effect) = text.split_once(':').expect("key:effect");
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    Taint { key: key.into(), value: value.into(), effect: effect.into() }
}

fn required(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

/// A term with one expression per `(key, operator, values)`.
fn labels(expressions: &[(&str, &str, &[&str])]) -> Value {
    json!({ "matchExpressions": requirements(expressions) })
}

fn requirements(expressions: &[(&str, &str, &[&str])]) -> Vec<Value> {
    expressions.iter().map(|(k, op, values)| json!({"key": k, "operator": op, "values": values})).collect()
}

fn named(names: &[&str]) -> Value {
    json!({ "matchFields": requirements(&[("metadata.name", "In", names)]) })
}

fn both(name: &str, expressions: &[(&str, &str, &[&str])]) -> Value {
    json!({"matchFields": requirements(&[("metadata.name", "In", &[name])]), "matchExpressions": requirements(expressions)})
}

#[test]
fn node_should_run_daemon_pod() {
    let resources = |memory: &str| json!([{"resources": {"requests": {"memory": memory, "cpu": "0.5"}}}]);
    let production = labels(&[("type", "In", &["production"])]);
    let table = [
        ("fits", json!({"containers": resources("50M")}), true),
        ("too little memory is not placement's", json!({"containers": resources("200M")}), true),
        ("another node's name", json!({"nodeName": "other-node", "containers": resources("50M")}), false),
        ("this node's name", json!({"nodeName": "test-node"}), true),
        ("a taken host port is not placement's", json!({"containers": [{"ports": [{"hostPort": 666}]}]}), true),
        ("node selector not met", json!({"nodeSelector": {"name": "simple-daemon", "type": "test"}}), false),
        ("node selector met", json!({"nodeSelector": {"name": "simple-daemon", "type": "production"}}), true),
        ("affinity not met", required(json!([labels(&[("type", "In", &["test"])])])), false),
        ("affinity met", required(json!([production])), true),
        ("our gate", json!({"nodeSelector": {"daemonlet.dev/static": "true"}}), true),
        ("our gate and another", json!({"nodeSelector": {"daemonlet.dev/static": "true", "x": "y"}}), false),
    ];
    let node = node("test-node", &["name=simple-daemon", "type=production"]);
    for (case, spec, fits) in table {
        let got = should_run(&node, &daemon_set(spec), None);
        assert_eq!((got.should_run, got.should_continue_running), (fits, fits), "{case}: {:?}", got.misfit);
        assert_eq!(got.misfit.is_none(), fits, "{case}: {:?}", got.misfit);
    }
}

#[test]
fn node_selector_and_affinity() {
    let gpu = ("GPU", "Exists", &[][..]);
    let old = |spec: Value, selector: Value| {
        let mut spec = spec;
        spec["nodeSelector"] = selector;
        spec
    };
    let exists = || required(json!([labels(&[("foo", "Exists", &[])])]));
    let bar = &["foo=bar"][..];
    let k1 = &["GPU=NVIDIA-GRID-K1"][..];
    let table = [
        ("no selector", json!({}), "", &[][..], true),
        ("missing label", json!({"nodeSelector": {"foo": "bar"}}), "", &[], false),
        ("same labels", json!({"nodeSelector": {"foo": "bar"}}), "", bar, true),
        ("superset", json!({"nodeSelector": {"foo": "bar"}}), "", &["foo=bar", "baz=blah"], true),
        ("subset", json!({"nodeSelector": {"foo": "bar", "baz": "blah"}}), "", bar, false),
        ("null is empty", json!({"nodeSelector": {"foo": null}}), "", &["foo="], true),
        ("In", required(json!([labels(&[("foo", "In", &["bar", "value2"])])])), "", bar, true),
        ("Gt", required(json!([labels(&[("kernel", "Gt", &["0204"])])])), "", &["kernel=0206"], true),
        ("Gt, equal", required(json!([labels(&[("kernel", "Gt", &["206"])])])), "", &["kernel=206"], false),
        ("Lt", required(json!([labels(&[("kernel", "Lt", &["7"])])])), "", &["kernel=6"], true),
        ("Lt, no number", required(json!([labels(&[("kernel", "Lt", &["7"])])])), "", &["kernel=x"], false),
        ("Gt, no label", required(json!([labels(&[("kernel", "Gt", &["7"])])])), "", &[], false),
        ("NotIn", required(json!([labels(&[("mem", "NotIn", &["DDR", "DDR2"])])])), "", &["mem=DDR3"], true),
        ("NotIn, no label", required(json!([labels(&[("mem", "NotIn", &["DDR"])])])), "", &[], true),
        ("Exists", required(json!([labels(&[gpu])])), "", k1, true),
        ("DoesNotExist", required(json!([labels(&[("GPU", "DoesNotExist", &[])])])), "", k1, false),
        ("In, other value", required(json!([labels(&[("foo", "In", &["value1", "value2"])])])), "", bar, false),
        ("null terms", required(json!(null)), "", bar, false),
        ("no terms", required(json!([])), "", bar, false),
        ("an empty term", required(json!([{"matchExpressions": []}])), "", bar, false),
        ("an empty term and a good one", required(json!([{}, labels(&[("foo", "Exists", &[])])])), "", bar, true),
        ("affinity without required", json!({"affinity": {"nodeAffinity": {}}}), "", bar, true),
        (
            "null required",
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": null}}}),
            "",
            bar,
            true,
        ),
        ("anded, both", required(json!([labels(&[gpu, ("GPU", "NotIn", &["AMD", "INTER"])])])), "", k1, true),
        ("anded, one", required(json!([labels(&[gpu, ("GPU", "In", &["AMD", "INTER"])])])), "", k1, false),
        (
            "ored",
            required(json!([labels(&[("foo", "In", &["bar", "v"])]), labels(&[("diffkey", "In", &["wrong"])])])),
            "",
            bar,
            true,
        ),
        ("selector and affinity", old(exists(), json!({"foo": "bar"})), "", bar, true),
        ("affinity without selector", old(exists(), json!({"foo": "bar"})), "", &["foo=barrrrrr"], false),
        ("invalid value", required(json!([labels(&[("foo", "NotIn", &["invalid value: ___@#$%^"])])])), "", bar, false),
        ("invalid key", required(json!([labels(&[("invalid key", "NotIn", &["x"])])])), "", bar, false),
        ("unknown operator", required(json!([labels(&[("foo", "invalid", &["5"])])])), "", bar, false),
        ("Exists with values", required(json!([labels(&[("foo", "Exists", &["bar"])])])), "", bar, false),
        ("field", required(json!([named(&["node_1"])])), "node_1", &[], true),
        ("field, other node", required(json!([named(&["node_1"])])), "node_2", &[], false),
        ("two names in a field", required(json!([named(&["node_1", "node_2"])])), "node_1", &[], false),
        (
            "field NotIn",
            required(json!([{"matchFields": requirements(&[("metadata.name", "NotIn", &["node_1"])])}])),
            "node_2",
            &[],
            true,
        ),
        (
            "field Exists",
            required(json!([{"matchFields": requirements(&[("metadata.name", "Exists", &[])])}])),
            "node_1",
            &[],
            false,
        ),
        (
            "unknown field",
            required(json!([{"matchFields": requirements(&[("metadata.uid", "In", &["x"])])}])),
            "node_1",
            &[],
            false,
        ),
        (
            "two terms, the second matches",
            required(json!([named(&["node_1"]), labels(&[("foo", "In", &["bar"])])])),
            "node_2",
            bar,
            true,
        ),
        (
            "one term, field not met",
            required(json!([both("node_1", &[("foo", "In", &["bar"])])])),
            "node_2",
            bar,
            false,
        ),
        ("one term, both met", required(json!([both("node_1", &[("foo", "In", &["bar"])])])), "node_1", bar, true),
        ("one term, label not met", required(json!([both("host_1", &[("l", "In", &["v"])])])), "host_1", &[], false),
        (
            "two terms, none",
            required(json!([named(&["node_1"]), labels(&[("foo", "In", &["not-match-to-bar"])])])),
            "node_2",
            bar,
            false,
        ),
        (
            "a broken term does not spoil a good one",
            required(json!([named(&["a", "b"]), labels(&[("invalid key", "In", &["x"])]), named(&["host_1"])])),
            "host_1",
            &[],
            true,
        ),
    ];
    for (case, spec, name, labels, fits) in table {
        let got = should_run(&node(name, labels), &daemon_set(spec), None);
        assert_eq!(got.should_run, fits, "{case}: {:?}", got.misfit);
    }
}

#[test]
fn tainted_nodes() {
    let own = json!({"tolerations": [{"key": "dedicated", "value": "user1", "effect": "NoSchedule"}]});
    let everything = json!({"tolerations": [{"operator": "Exists"}]});
    let table: [(&str, &[&str], Value, bool, bool); 11] = [
        ("NoSchedule", &["dedicated=user1:NoSchedule"], json!({}), false, true),
        ("NoExecute", &["dedicated=user1:NoExecute"], json!({}), false, false),
        ("NoSchedule and NoExecute", &["a:NoSchedule", "b:NoExecute"], json!({}), false, false),
        ("PreferNoSchedule", &["dedicated=user1:PreferNoSchedule"], json!({}), true, true),
        ("tolerated", &["dedicated=user1:NoSchedule"], own.clone(), true, true),
        ("other effect", &["dedicated=user1:NoExecute"], own, false, false),
        ("everything tolerated", &["a:NoSchedule", "b:NoExecute"], everything, true, true),
        ("not ready", &["node.kubernetes.io/not-ready:NoExecute"], json!({}), true, true),
        ("not ready, before it runs", &["node.kubernetes.io/not-ready:NoSchedule"], json!({}), false, true),
        ("no network", &["node.kubernetes.io/network-unavailable:NoSchedule"], json!({}), false, true),
        (
            "no network, host network",
            &["node.kubernetes.io/network-unavailable:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"],
            json!({"hostNetwork": true}),
            true,
            true,
        ),
    ];
    for (case, taints, spec, run, stay) in table {
        let mut node = node("n", &[]);
        node.taints = taints.iter().map(|text| taint(text)).collect();
        let got = should_run(&node, &daemon_set(spec), None);
        assert_eq!((got.should_run, got.should_continue_running), (run, stay), "{case}: {:?}", got.misfit);
    }
}

#[test]
fn reasons_are_one_line() {
    let mut tainted = node("n", &["os=linux"]);
    tainted.taints = vec![taint("a=b:NoSchedule")];
    let table = [
        (json!({"nodeName": "m"}), "spec.nodeName is m, this is n"),
        (json!({"nodeSelector": {"os": "windows"}}), "nodeSelector os=windows: the node has \"linux\""),
        (json!({"nodeSelector": {"gpu": "yes"}}), "nodeSelector gpu=yes: the node has no such label"),
        (required(json!([])), "required node affinity has no terms, so it matches no node"),
        (required(json!([{}])), "required node affinity: an empty term matches no node"),
        (
            required(json!([labels(&[("os", "In", &["windows", "beos"])])])),
            "required node affinity: os In [windows, beos]: the node has \"linux\"",
        ),
        (required(json!([named(&["a"]), named(&["b"])])), "required node affinity: none of its 2 terms matches"),
        (json!({}), "taint a=b:NoSchedule is not tolerated"),
    ];
    for (spec, reason) in table {
        assert_eq!(should_run(&tainted, &daemon_set(spec), None).misfit.unwrap().to_string(), reason);
    }
}

#[test]
fn the_node_selector_of_the_namespace() {
    let node = NodeView { labels: [("disk".to_owned(), "ssd".to_owned())].into(), ..NodeView::default() };
    let (upstream, openshift) = ("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector");
    // annotations, default: (run, stay), who says so
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, (bool, bool), &'a str);
    let table: [Case<'_>; 11] = [
        (&[], "", (true, true), ""),
        (&[], "disk=ssd", (true, true), ""),
        (&[], "disk=hdd", (false, false), "policy.default-node-selector"),
        (&[(upstream, "disk=hdd")], "", (false, false), upstream),
        (&[(openshift, "disk=hdd")], "", (false, false), openshift),
        (&[(openshift, " disk in (ssd, nvme),!gpu ")], "disk=hdd", (true, true), ""),
        (&[(openshift, "")], "disk=hdd", (true, true), ""),
        (&[(upstream, "")], "disk=hdd", (true, true), ""),
        (&[(upstream, "disk=ssd"), (openshift, "disk=hdd")], "", (true, true), ""),
        (&[(upstream, ""), (openshift, "disk=hdd")], "", (true, true), ""),
        // What cannot be read starts nothing and ends nothing.
        (&[(upstream, "disk in ssd")], "", (false, true), "invalid selector"),
    ];
    for (annotations, default, answers, reason) in table {
        let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
        let namespace = json!({"metadata": {"name": "a", "annotations": annotations}});
        assert_eq!(NamespaceSelector::is_in(&namespace), !annotations.is_empty(), "{annotations:?}");
        let selector = NamespaceSelector::of("a", Lookup::Present(&namespace), default);
        let got = should_run(&node, &daemon_set(json!({})), selector.as_ref());
        assert_eq!((got.should_run, got.should_continue_running), answers, "{annotations:?} {default}");
        let misfit = got.misfit.map(|misfit| misfit.to_string()).unwrap_or_default();
        assert!(misfit.contains(reason) && misfit.is_empty() == reason.is_empty(), "{misfit}");
    }
}

#[test]
fn a_namespace_that_nobody_has_seen_keeps_nothing_away() {
    assert_eq!(NamespaceSelector::of("a", Lookup::Unknown, "a=b"), None);
    assert!(NamespaceSelector::of("a", Lookup::Absent, "a=b").is_some(), "there is no annotation against it");
}

#[test]
fn where_a_taint_keeps_new_pods_away_the_namespace_is_not_asked() {
    let node = NodeView {
        taints: vec![Taint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() }],
        ..NodeView::default()
    };
    let selector = NamespaceSelector { origin: "x".into(), text: "a=b".into() };
    let got = should_run(&node, &daemon_set(json!({})), Some(&selector));
    assert_eq!((got.should_run, got.should_continue_running), (false, true), "as OpenShift's controller has it");
}

#[test]
fn what_belongs_on_a_node_does_so_before_the_node_is_well() {
    let mut joining = node("n1", &["gpu=yes"]);
    joining.taints = vec![taint("node.kubernetes.io/not-ready:NoSchedule")];
    let plain = daemon_set(json!({}));
    assert!(!should_run(&joining, &plain, None).should_run && belongs(&joining, &plain, None));
    assert!(!belongs(&joining, &daemon_set(json!({"nodeSelector": {"gpu": "no"}})), None), "labels count");
    joining.taints.push(taint("example.org/tenant:NoSchedule"));
    assert!(!belongs(&joining, &plain, None), "the node is for others");
}
