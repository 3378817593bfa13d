//! Daemons that are refused or wait, and which of their objects are requested nevertheless.

use super::*;

#[test]
fn a_new_revision_that_is_refused_or_waits_leaves_the_old_instance() {
    let mut bench = Bench::running("a");
    bench.world.refused = Some(FieldError {
        field: "spec.template.spec.volumes[0].persistentVolumeClaim".to_owned(),
        reason: "a static pod cannot use it".to_owned(),
        hint: Some("use a hostPath".to_owned()),
    });
    let desired = wanted(&daemon_set("b"));
    assert_eq!(bench.pass(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.state, summary.hint_lines()), (State::Refused, vec!["use a hostPath".to_owned()]));
    bench.world.refused = None;
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: "c".into() }];
    assert_eq!(bench.pass(&desired), NONE);
    let reason = bench.plan(&desired).summary.reasons.to_string();
    assert!(reason.contains("key c of ConfigMap a/b"), "{reason}");
}

#[test]
fn a_daemon_that_waits_or_is_refused_writes_nothing() {
    let mut bench = Bench::new();
    bench.world.waiting_for =
        vec![Missing { kind: "Secret".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!(plan.summary.state, State::Waiting);
    assert_eq!(plan.actions, []);
}

#[test]
fn what_a_daemon_refers_to_is_asked_for_while_its_namespace_is_unknown() {
    let missing =
        |kind: &str| Missing { kind: kind.into(), namespace: "".into(), name: "a".into(), key: String::new() };
    let mut bench = Bench::new();
    bench.world.unjudged = Some(missing("Namespace"));
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!(
        (plan.summary.state, plan.actions),
        (State::Waiting, Vec::new()),
        "it is not known whether it may start"
    );
    bench.world.waiting_for = vec![missing("Secret")];
    let (config, secret) = (ObjectRef::new(Kind::ConfigMap, "", "a"), ObjectRef::new(Kind::Secret, "", "a"));
    let other = ObjectRef::new(Kind::ConfigMap, "", "b");
    bench.world.references = [config.clone(), secret.clone(), other.clone()].into();
    bench.world.waiting_for.push(missing("ConfigMap"));
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert_eq!(plan.summary.waiting_for, [missing("Namespace"), missing("Secret"), missing("ConfigMap")]);
    assert!(plan.references.contains(&config));
    assert!(!plan.references.contains(&other), "what it does not wait for can be asked for later");
    assert!(!plan.references.contains(&secret), "nothing secret is read for a daemon that policy has not allowed");
    assert_eq!(plan.actions, []);
}
