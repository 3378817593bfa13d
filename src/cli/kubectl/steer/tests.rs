use crate::core::model::COORDINATION;
use crate::core::model::FIRST_INSTALL;
use crate::core::model::MAX_FAILED;
use crate::core::model::PARTITION;
use crate::core::model::UPDATE;
use crate::core::model::WINDOW;
use crate::core::time::at;

use super::retry::FailedOn;
use super::*;

#[test]
fn a_rollout_that_begins_anew_holds_again() {
    for (promoted, is_void) in [
        (Some("net-a/3/1/1"), true),
        (Some("net-a/3/canary"), true),
        (Some("net-ab/3/1/1"), false),
        (Some("net-a"), false),
        (None, false),
    ] {
        let written = begins_anew(promoted, "net-a");
        assert_eq!(written.get(PROMOTED), is_void.then_some(&Value::Null), "{promoted:?}");
    }
}

#[test]
fn a_label_or_the_conditions_of_the_coordinator_say_who_obeys() {
    let ours = json!([{"type": "Available", "status": "True", "reason": "AllAvailable"}]);
    for (labels, conditions, wanted) in [
        (json!({MODE_LABEL: "static"}), json!([]), Obeyed::Coordinated),
        (json!({MODE_LABEL: "bootstrap"}), ours.clone(), Obeyed::Not),
        (json!({}), ours, Obeyed::Coordinated),
        (json!({}), json!([{"type": "Available", "status": "True", "reason": "Theirs"}]), Obeyed::Unknown),
        (Value::Null, Value::Null, Obeyed::Unknown),
    ] {
        let daemon_set = json!({"metadata": {"labels": labels}, "status": {"conditions": conditions}});
        assert_eq!(Obeyed::of(&daemon_set), wanted, "{daemon_set}");
    }
}

#[test]
fn a_canary_phase_without_canary_nodes_is_not_promoted() {
    let of = |reason: &str, seen: i64| {
        let condition = json!({"type": "Progressing", "status": "False", "reason": reason});
        let status = json!({"observedGeneration": seen, "conditions": [condition]});
        let metadata = json!({"generation": 2, "annotations": {CANARY: "canary=yes"}});
        let daemon_set = json!({"metadata": metadata, "status": status});
        let current = Current { daemon_set, revision: json!({}), name: "net-b".to_owned(), hash: "b".to_owned() };
        hold(&current, &ObjectKey::new("n", "net"))
    };
    let refusal = |reason, seen| of(reason, seen).map_err(|failure| failure.errors[0].0.clone());
    assert!(refusal("Held", 2).is_ok());
    assert!(refusal("NoCanaryNode", 2).is_err_and(|why| why.ends_with(rollout::NO_CANARY)));
    assert!(refusal("Held", 1).is_err_and(|why| why.contains("not looked at the newest generation yet")));
}

#[test]
fn a_canary_phase_is_promoted_beside_a_daemon_set_controller_once_the_coordinator_has_looked() {
    let of = |generation: i64| {
        let message = format!("ControllerRevision net-a (hash a) at generation {generation}");
        let conflict = "pod net-x of a DaemonSet controller is on node n1";
        let conditions = json!([{"type": "Released", "status": "False", "message": message},
            {"type": "Degraded", "status": "True", "reason": "Conflict", "message": conflict}]);
        let daemon_set = json!({"metadata": {"generation": 2, "annotations": {CANARY: "a=b"}},
            "status": {"observedGeneration": 2, "conditions": conditions}});
        let revision = json!({"metadata": {}, "revision": 3});
        let current = Current { daemon_set, revision, name: "net-b".to_owned(), hash: "b".to_owned() };
        hold(&current, &ObjectKey::new("n", "net")).map_err(|failure| failure.errors[0].0.clone())
    };
    assert!(of(2).is_ok());
    assert!(of(1).is_err_and(|why| why.ends_with("pod net-x of a DaemonSet controller is on node n1")));
}

#[test]
fn what_has_no_hold_is_not_promoted() {
    let of = |annotations: Value, marks: Value, released: &str| {
        let message = format!("ControllerRevision net-{released} (hash {released}) at generation 1");
        let condition = json!({"type": "Released", "status": "True", "message": message});
        let status = json!({"observedGeneration": 1, "conditions": [condition]});
        let daemon_set = json!({"metadata": {"generation": 1, "annotations": annotations}, "status": status});
        let revision = json!({"metadata": {"annotations": marks}, "revision": 3});
        let current = Current { daemon_set, revision, name: "net-b".to_owned(), hash: "b".to_owned() };
        hold(&current, &ObjectKey::new("n", "net"))
    };
    let steps = "1, 10m; 50%, 10m; 100%";
    let state = |step: usize| StepState { step, ..StepState::first(3, steps) }.annotation();
    let by_steps = || json!({STEPS: steps});
    let (step, words) = of(by_steps(), json!({}), "a").unwrap();
    assert_eq!((step.as_str(), words.as_str()), ("1/1", "step 1 (1)"));
    assert_eq!(of(by_steps(), json!({STEP_ANNOTATION: state(2)}), "a").unwrap().0, "2/50%");
    let respelled = json!({STEPS: "1,600s;50%, 10m; 100%"});
    assert_eq!(of(respelled, json!({STEP_ANNOTATION: state(2)}), "a").unwrap().0, "2/50%", "the same steps");
    assert_eq!(of(json!({CANARY: "a=b"}), json!({}), "a").unwrap().0, "canary");
    for (annotations, marks, released, why) in [
        (by_steps(), json!({STEP_ANNOTATION: state(3)}), "a", "step 3 (100%) is the last one"),
        (by_steps(), json!({}), "b", "every node that can take revision net-b has it"),
        (json!({CANARY: "a=b"}), json!({}), "b", "every node that can take revision net-b has it"),
        (by_steps(), json!({HALTED_ANNOTATION: "by hand"}), "a", "revision net-b is halted: by hand"),
        (json!({STEPS: steps, ABORTED: "net-b"}), json!({}), "a", "revision net-b is aborted"),
        (json!({}), json!({}), "a", "it has neither steps nor canary nodes"),
        (json!({STEPS: steps, MAX_FAILED: "many"}), json!({}), "a", "the annotation daemonlet.dev/max-failed is not"),
        (json!({STEPS: steps, PARTITION: "1"}), json!({}), "a", "daemonlet.dev/steps excludes daemonlet.dev/partition"),
    ] {
        let failure = of(annotations, marks, released).err().map(|failure| failure.errors);
        assert!(failure.as_ref().is_some_and(|errors| errors[0].0.contains(why)), "{why}: {failure:?}");
    }
}

#[test]
fn a_pause_says_with_what_nodes_that_join_start() {
    let message = "ControllerRevision net-a (hash a) at generation 1";
    let released = json!([{"type": "Released", "status": "True", "message": message}]);
    let (asks, none) = (json!({FIRST_INSTALL: "1"}), json!({COORDINATION: "none"}));
    for (strategy, conditions, annotations, join) in [
        ("RollingUpdate", released.clone(), asks.clone(), "start with the released revision"),
        ("RollingUpdate", json!([]), json!({}), "start with the newest revision, as none was released yet"),
        ("RollingUpdate", json!([]), asks.clone(), "wait (daemonlet.dev/first-install)"),
        ("OnDelete", json!([]), asks, "wait (daemonlet.dev/first-install)"),
        ("OnDelete", released.clone(), json!({}), "start with the newest revision (OnDelete)"),
        ("RollingUpdate", released, none, "start with the newest revision (daemonlet.dev/coordination: none)"),
    ] {
        let spec = json!({"updateStrategy": {"type": strategy}});
        let metadata = json!({"generation": 1, "annotations": annotations});
        let daemon_set = json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}});
        let said = follow::under_pause(&daemon_set);
        assert!(said.ends_with(&format!("nodes that join {join}")), "{said}");
    }
}

#[test]
fn a_retry_names_apart_where_the_revision_still_runs() {
    let daemon_set = json!({"metadata": {"uid": "u"}});
    let current = Current { daemon_set, revision: json!({}), name: "net-b".to_owned(), hash: "b".to_owned() };
    let report = |name: &str, uid: &str, instances: Value| {
        let daemon = json!({"uid": uid, "failed": {"revision": "b"}, "instances": instances});
        json!({"metadata": {"name": name}, "status": {"daemons": [daemon]}})
    };
    let reports = [
        report("n1", "u", json!([{"revision": "a"}])),
        report("n2", "u", json!([{"revision": "a"}, {"revision": "b"}])),
        report("n3", "u", json!([{"revision": "b", "ending": true}])),
        report("n4", "other", json!([])),
    ];
    let failed = FailedOn { went_back: vec!["n1", "n3"], still_run: vec!["n2"] };
    assert_eq!(FailedOn::of(&current, &reports), failed);
}

#[test]
fn a_promotion_says_what_nodes_wait_for_all_the_same() {
    let of = |strategy: &str, annotations: Value| {
        let daemon_set =
            json!({"metadata": {"annotations": annotations}, "spec": {"updateStrategy": {"type": strategy}}});
        // A Thursday.
        follow::when(&daemon_set, &ObjectKey::new("n", "net"), at(0))
    };
    let follow = "nodes follow once those that have it are available and nothing else holds the rollout";
    assert_eq!(of("RollingUpdate", json!({WINDOW: "Thu"})), follow);
    assert_eq!(
        of("RollingUpdate", json!({WINDOW: "Sun"})),
        format!("{follow}; it is outside its window (Sun), so that is not before it opens")
    );
    assert!(of("RollingUpdate", json!({UPDATE: "boot"})).ends_with("trigger comes (daemonlet.dev/update: boot)"));
    let on_delete = of("OnDelete", json!({PAUSED: "true", WINDOW: "Sun"}));
    let by_pod =
        "nodes follow; the update strategy is OnDelete, so that is for each only when its pod is deleted; it is paused";
    assert!(on_delete.starts_with(by_pod), "{on_delete}");
    assert!(on_delete.ends_with("after `kubectl daemonlet resume n/net`"), "{on_delete}");
}

#[test]
fn what_the_daemon_set_controller_has_observed_says_nothing_of_a_halt() {
    let of = |revision: &str| {
        let message = released::halted_message("b", "aborted by hand");
        let condition = |reason| json!({"type": "Halted", "status": "True", "reason": reason, "message": message});
        let status = json!({"observedGeneration": 3, "conditions": [condition("Aborted")]});
        let annotations = json!({STEPS: "1, 10m; 100%", ABORTED: "net-b"});
        let daemon_set = json!({"metadata": {"generation": 3, "annotations": annotations}, "status": status});
        let name = format!("net-{revision}");
        let current = Current { daemon_set, revision: json!({"revision": 3}), name, hash: revision.to_owned() };
        (current.is_aborted(), hold(&current, &ObjectKey::new("n", "net")).is_ok())
    };
    assert_eq!((of("b"), of("c")), ((true, false), (false, true)), "of another template it is void");
}

#[test]
fn an_abort_says_where_nodes_stay_as_they_are() {
    let released = Released { name: "net-a".to_owned(), hash: "a".to_owned(), generation: 1 };
    let key = ObjectKey::new("n", "net");
    let of = |strategy: &str, paused: &str| {
        let daemon_set = json!({"metadata": {"annotations": {PAUSED: paused}},
            "spec": {"updateStrategy": {"type": strategy}}});
        way_back(&daemon_set, Some(&released), &key)
    };
    assert!(of("RollingUpdate", "false").starts_with("nodes that have it go back to net-a"));
    assert!(of("RollingUpdate", "true").contains("until `kubectl daemonlet resume n/net`"));
    assert!(of("OnDelete", "false").ends_with("OnDelete: nodes keep what they have"));
    let drained = json!({"metadata": {"annotations": {UPDATE: "drain"}}});
    let said = way_back(&drained, Some(&released), &key);
    assert!(said.ends_with("each when its trigger comes (daemonlet.dev/update: drain)"), "{said}");
    assert!(way_back(&json!({}), None, &key).ends_with("nodes keep what they have"));
}
