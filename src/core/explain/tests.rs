//! The explanation of one daemon that has every kind of term.

use crate::core::time::at;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::core::model::ObjectKey;
use crate::core::model::Taint;
use crate::core::model::UpdateStrategy;
use crate::core::policy::NotCovered;

fn daemon_set(spec: Value) -> DaemonSet {
    DaemonSet {
        key: ObjectKey::new("kube-system", "cni"),
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
        source: Source::File { path: PathBuf::from("/etc/cni.yaml") },
    }
}

fn free(covered: &Covered) -> ExplainRules<'_> {
    const FREE: &Admission = &Admission::FREE;
    ExplainRules { covered, admission: FREE, namespace_selector: None }
}

fn taint_of(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: value.into(), effect: effect.into() }
}

#[test]
fn rules_and_namespaces_are_named() {
    let error = |hint: Option<&str>| FieldError {
        field: "spec.a".into(),
        reason: "policy.a is false".into(),
        hint: hint.map(str::to_owned),
    };
    let selector =
        NamespaceSelector { origin: "openshift.io/node-selector of namespace a".into(), text: "disk=ssd".into() };
    let rules = ExplainRules {
        covered: &Covered::Yes(Mode::Static),
        admission: &Admission::Refused(vec![error(Some("set it")), error(None)]),
        namespace_selector: Some(&selector),
    };
    let lines: Vec<_> = explain(&daemon_set(json!({})), &NodeView::default(), &rules)[2..]
        .iter()
        .map(|t| format!("{:?} {}: {}", t.holds, t.subject, t.text))
        .collect();
    assert_eq!(
        lines,
        [
            "Some(false) pod: spec.a: policy.a is false (hint: set it)",
            "Some(false) pod: spec.a: policy.a is false",
            "Some(false) node selector of the namespace: disk=ssd (openshift.io/node-selector of namespace a): the node \
             does not match",
            "Some(false) should run here: no: node selector of the namespace disk=ssd (openshift.io/node-selector of \
             namespace a): the node does not match",
            "Some(false) may continue running here: no",
        ]
    );
}

#[test]
fn every_kind_of_term() {
    let spec = json!({
        "nodeSelector": {"daemonlet.dev/static": "true", "os": "linux", "disk": "ssd"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux"]}]},
            {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["a"]}]},
            {},
        ]}}},
        "tolerations": [{"key": "own", "operator": "Exists"}],
    });
    let node = NodeView {
        name: "n1".into(),
        labels: [("os".to_owned(), "linux".to_owned())].into(),
        taints: vec![
            taint_of("own", "x", "NoExecute"),
            taint_of("node.kubernetes.io/unschedulable", "", "NoSchedule"),
            taint_of("soft", "", "PreferNoSchedule"),
            taint_of("hard", "", "NoSchedule"),
        ],
        ..NodeView::default()
    };
    let lines: Vec<_> = explain(&daemon_set(spec), &node, &free(&Covered::Yes(Mode::Static)))
        .into_iter()
        .map(|t| format!("{} {}: {}", t.holds.map_or("-", |h| if h { "yes" } else { "no" }), t.subject, t.text))
        .collect();
    assert_eq!(
        lines,
        [
            "- source: /etc/cni.yaml",
            "yes mode and policy: static: in place of the DaemonSet controller (from its folder)",
            "- node selector: daemonlet.dev/static=true: daemonlet's own gate, ignored",
            "no node selector: disk=ssd: the node has no such label",
            "yes node selector: os=linux: the node has \"linux\"",
            "yes node affinity: one term matches, and one is enough",
            "yes node affinity term 1: os In [linux]: the node has \"linux\"",
            "no node affinity term 2: cpu Gt [a]: invalid, so its term matches no node: cpu: operator Gt needs \
             exactly one whole number",
            "no node affinity term 3: empty, so it matches no node",
            "yes taint: own=x:NoExecute: tolerated by its toleration own op=Exists",
            "yes taint: node.kubernetes.io/unschedulable:NoSchedule: tolerated by every daemon's toleration \
             node.kubernetes.io/unschedulable:NoSchedule op=Exists",
            "- taint: soft:PreferNoSchedule: not tolerated, but without effect on daemons",
            "no taint: hard:NoSchedule: no toleration matches; running pods may stay",
            "no should run here: no: nodeSelector disk=ssd: the node has no such label",
            "no may continue running here: no",
        ]
    );
}

#[test]
fn what_its_start_depends_on_is_named_as_far_as_it_is_understood() {
    let said = |annotations: &[(&str, &str)]| {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let daemon_set = DaemonSet { annotations, ..daemon_set(json!({})) };
        let terms = explain(&daemon_set, &NodeView::default(), &free(&Covered::Yes(Mode::Static)));
        let of_start = terms.into_iter().filter(|term| term.subject.starts_with("start"));
        of_start.map(|term| format!("{}: {}", term.subject, term.text)).collect::<Vec<_>>()
    };
    assert_eq!(
        said(&[(AFTER, "kube-system/dns, a/b"), (AFTER_TIMEOUT, "90s"), ("daemonlet.dev/startup-taint", "true")]),
        [
            "start order: after a/b, kube-system/dns, or 90 s (daemonlet.dev/after-timeout)",
            "startup taint: the node is to carry daemonlet.dev/starting until it is Ready here",
        ]
    );
    assert_eq!(said(&[(AFTER, "dns"), ("daemonlet.dev/startup-taint", "yes")]), [""; 0]);
    assert_eq!(
        said(&[(AFTER, "a/b"), (AFTER_TIMEOUT, "soon")]),
        ["start order: after a/b, or 120 s (daemonlet.dev/after-timeout)"]
    );
}

#[test]
fn a_refusal_of_policy_is_the_reason() {
    let terms =
        explain(&daemon_set(json!({})), &NodeView::default(), &free(&Covered::No(NotCovered::UnknownMode("x".into()))));
    let text = "label daemonlet.dev/mode is \"x\", which is neither static nor bootstrap".to_owned();
    assert_eq!(terms[1], Term { subject: "mode and policy".into(), holds: Some(false), text });
}

#[test]
fn the_api_servers_word_has_its_revision_and_time() {
    let said = |said| AdmissionAnswer { revision: "5d5".into(), incarnation: 1, at: at(0), said };
    let refused = answer(&said(AdmissionVerdict::Refused("exceeded quota".into())), "then");
    assert_eq!((refused.holds, refused.text.as_str()), (Some(false), "exceeded quota (revision 5d5, then)"));
    let taken = answer(&said(AdmissionVerdict::Admitted(std::sync::Arc::new(daemon_set(json!({}))))), "then");
    assert_eq!((taken.holds, taken.text.as_str()), (Some(true), "it accepts the pod (revision 5d5, then)"));
}

#[test]
fn of_what_is_not_seen_the_selector_of_the_configuration_is_named_if_there_is_one() {
    assert_eq!(not_seen(None), []);
    let terms = not_seen(Some("team=infra"));
    assert_eq!(terms[0].text, "\"team=infra\" leaves out each DaemonSet of the API that it does not match");
}
