use serde_json::json;

use super::*;

mod bounds;
mod certificates;
mod revisions;

fn node(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

#[test]
fn only_the_end_of_a_list_tells_what_is_gone() {
    let mut view = ClusterSnapshot::default();
    let list = |view: &mut ClusterSnapshot, names: &[&str], ends: bool| {
        view.take(Change::Begin(WatchedKind::Nodes));
        for name in names {
            view.take(Change::Present(WatchedKind::Nodes, Box::new(node(name, json!({}))), true));
        }
        if ends {
            view.take(Change::Complete(WatchedKind::Nodes));
        }
    };
    list(&mut view, &["a", "b"], true);
    assert!(!view.is_complete(), "the other kinds are not known");
    list(&mut view, &["a"], false);
    assert_eq!(view.nodes.len(), 2);
    list(&mut view, &["a"], true);
    assert_eq!(view.nodes.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn nothing_is_complete_while_a_list_is_made_anew() {
    let mut view = ClusterSnapshot::default();
    for kind in KINDS {
        view.take(Change::Begin(kind));
        assert!(!view.is_complete());
        view.take(Change::Complete(kind));
    }
    assert!(view.is_complete());
    for kind in KINDS {
        view.take(Change::Begin(kind));
        view.take(Change::Present(kind, Box::new(node("a", json!({}))), true));
        assert!(!view.is_complete(), "half of {kind:?} is known");
        // A list that failed half-way is begun again.
        view.take(Change::Begin(kind));
        view.take(Change::Complete(kind));
        assert!(view.is_complete());
    }
}

/// What the agent of a node says: of DaemonSet `d` with UID `u`, and as much nonsense as there is in `noise`.
fn tells(name: &str, noise: &str) -> Value {
    let one = |daemon: &str, revision: &str| {
        json!({"namespace": "n", "name": daemon, "uid": "u", "replacing": "r1.d1", "previous": "r0", "phase": "running",
            "failed": {"revision": "r1", "cause": "image", "message": ""},
            "missing": {"revision": "r1", "message": "ConfigMap n/c"},
            "instances": [{"pod": "p", "revision": revision, "created": "2026-01-01T00:00:00Z"}]})
    };
    let approvals =
        json!([{"namespace": "n", "name": "d", "uid": "u", "revision": "r1", "approvedAt": "2026-01-01T00:00:00Z"}]);
    json!({"metadata": {"name": name, "uid": name}, "spec": {"approvals": approvals},
        "status": {"daemons": [one(&format!("noise-{noise}"), noise), one("d", "r0")]}})
}

#[test]
fn an_agent_that_says_something_new_each_time_fills_no_table() {
    let mut view = ClusterSnapshot::default();
    let mut released = daemon(json!({}));
    released["status"] = json!({"conditions": [{"type": "Released", "status": "True", "reason": "Complete",
        "message": "ControllerRevision d-r9 (hash r9) at generation 1"}]});
    view.put(WatchedKind::DaemonSets, released);
    view.put(WatchedKind::NodeDaemons, tells("a", "first"));
    let mut most = 0;
    for number in 0..10_000 {
        view.put(WatchedKind::NodeDaemons, tells("b", &format!("{number}")));
        most = most.max(view.names.count());
    }
    assert!(most < 5_000, "{most} strings");
    // Every renumbered name is the same string as before.
    let daemon = view.daemons.values().next().unwrap();
    let (key, uid) = (daemon.key, daemon.uid_name);
    assert_eq!((view.names.text(key), view.names.text(uid)), ("n/d", "u"));
    assert_eq!(view.names.text(daemon.wanted), daemon.hash);
    assert_eq!(daemon.released.map(|released| view.names.text(released)), Some("r9"));
    for name in ["a", "b"] {
        let report = view.report(name).unwrap();
        let (of, by, fact) = &report.approvals[0];
        assert_eq!((*of, *by, view.names.text(fact.revision)), (key, uid, "r1"));
        let reported = report.daemon(key).unwrap();
        let text = |name: Option<Name>| view.names.text(name.unwrap());
        assert_eq!(
            (reported.uid, text(reported.previous), text(reported.failed.map(|f| f.0))),
            (Some(uid), "r0", "r1")
        );
        let cause = reported.failed.and_then(|(_, cause)| cause);
        assert_eq!((cause, view.names.text(reported.instances[0].revision)), (Some(Cause::Image), "r0"));
        let missing = (text(reported.missing.map(|m| m.0)), text(reported.missing.map(|m| m.1)));
        let claim = reported.replacing.map(|(revision, overlays)| (text(Some(revision)), text(overlays)));
        assert_eq!((missing, claim), (("r1", "ConfigMap n/c"), Some(("r1", "d1"))));
    }
}

#[test]
fn one_report_is_taken_up_to_a_bound() {
    let mut view = ClusterSnapshot::default();
    let mut report = tells("a", &"x".repeat(100_000));
    let one = report["status"]["daemons"][1].clone();
    for number in 0..2_000 {
        let mut daemon = one.clone();
        daemon["name"] = json!(format!("d{number}"));
        daemon["instances"] = json!(vec![one["instances"][0].clone(); 100]);
        daemon["stockPod"] = json!("x".repeat(1_000));
        report["status"]["daemons"].as_array_mut().unwrap().push(daemon);
    }
    view.put(WatchedKind::NodeDaemons, report);
    assert!(view.names.count() < 1_000);
    let names: Vec<Name> = ["n/d7", "n/d1999"].map(|key| view.names.of(key)).to_vec();
    let report = view.report("a").unwrap();
    let reported = report.daemon(names[0]).unwrap();
    assert_eq!((reported.instances.len(), reported.stock_pod.is_none()), (16, true));
    assert!(view.names.text(reported.instances[0].revision).len() <= 320);
    assert!(report.daemon(names[1]).is_none());
    assert_eq!(report.left_out, 2_002 - 512);
}

#[test]
fn the_name_of_a_pod_is_no_path() {
    for name in ["../../nodes/n1", "x/log", "x?a=b", "x#y", "", "X", "x\u{0}"] {
        let mut report = tells("a", "noise");
        let daemons = report["status"]["daemons"].as_array_mut().unwrap();
        for daemon in daemons.iter_mut() {
            (daemon["stockPod"], daemon["instances"][0]["pod"]) = (json!(name), json!(name));
        }
        let mut view = ClusterSnapshot::default();
        view.put(WatchedKind::NodeDaemons, report);
        let daemon = view.names.of("n/d");
        let reported = view.report("a").unwrap().daemon(daemon).unwrap();
        assert_eq!((reported.stock_pod.as_deref(), reported.pod.as_deref()), (None, None), "{name:?}");
    }
}

#[test]
fn what_runs_is_taken_before_what_is_refused() {
    let mut report = tells("a", "noise");
    let daemons = report["status"]["daemons"].as_array_mut().unwrap();
    let refused = |number| json!({"namespace": "a", "name": format!("d{number}"), "phase": "refused", "instances": []});
    daemons.splice(0..0, (0..512).map(refused));
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::NodeDaemons, report);
    let name = view.names.of("n/d");
    let report = view.report("a").unwrap();
    assert!(report.daemon(name).is_some());
    assert_eq!(report.left_out, 2);
}

#[test]
fn a_list_that_began_before_our_own_write_takes_no_approval_back() {
    let mut view = ClusterSnapshot::default();
    let report = |version: &str, approvals: Value| json!({"metadata": {"name": "a", "uid": "n", "resourceVersion": version}, "spec": {"approvals": approvals}});
    let approval =
        json!([{"namespace": "n", "name": "d", "uid": "u", "revision": "r", "approvedAt": "2026-01-01T00:00:00Z"}]);
    view.put(WatchedKind::NodeDaemons, report("105", approval));
    view.take(Change::Present(WatchedKind::NodeDaemons, Box::new(report("100", json!([]))), true));
    assert_eq!(view.report("a").unwrap().spec.approvals.len(), 1);
    view.take(Change::Present(WatchedKind::NodeDaemons, Box::new(report("106", json!([]))), true));
    assert!(view.report("a").unwrap().spec.approvals.is_empty());
}

#[test]
fn a_node_and_its_report_come_and_go_by_themselves() {
    let mut view = ClusterSnapshot::default();
    let report = json!({"metadata": {"name": "a", "uid": "n", "resourceVersion": "1"}});
    view.take(Change::Present(WatchedKind::NodeDaemons, Box::new(report.clone()), false));
    view.take(Change::Present(WatchedKind::Nodes, Box::new(node("a", json!({}))), false));
    view.take(Change::Gone(WatchedKind::Nodes, Box::new(node("a", json!({})))));
    assert!(view.report("a").is_some());
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(report)));
    assert!(view.nodes.is_empty());
}

fn daemon(node_selector: Value) -> Value {
    json!({"metadata": {"namespace": "n", "name": "d", "uid": "u"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": node_selector}}}})
}

#[test]
fn an_outline_is_read_whole_where_an_agent_runs_it_or_a_condition_of_ours_is_left() {
    let at = |mut daemon_set: Value, version: &str| {
        daemon_set["metadata"]["resourceVersion"] = json!(version);
        daemon_set
    };
    let outline = |version: &str, conditions: Value| {
        let mut outline = at(daemon(json!({})), version);
        (outline["spec"], outline["status"]) = (Value::Null, json!({"conditions": conditions}));
        outline
    };
    let present = |object| Change::Present(WatchedKind::DaemonSets, Box::new(object), false);
    let runs = |uid: &str, mode: &str| {
        json!({"metadata": {"name": "a", "uid": "a"}, "spec": {}, "status": {"daemons": [
            {"namespace": "n", "name": "d", "uid": uid, "mode": mode, "phase": "running"}]}})
    };
    let mut view = ClusterSnapshot::default();
    assert!(!view.take(present(outline("3", json!([])))), "no decision depends on it");
    for (uid, mode) in [("another", "static"), ("u", "bootstrap")] {
        view.put(WatchedKind::NodeDaemons, runs(uid, mode));
        assert!(view.unread().next().is_none() && view.daemons.is_empty(), "{uid} {mode}");
    }
    view.put(WatchedKind::NodeDaemons, runs("u", "static"));
    assert_eq!(view.unread().count(), 1);
    view.take(Change::Read(WatchedKind::DaemonSets, Box::new(at(daemon(json!({})), "2"))));
    assert!(view.daemons.is_empty(), "the watch has come further");
    view.take(Change::Read(WatchedKind::DaemonSets, Box::new(at(daemon(json!({})), "3"))));
    assert!(view.unread().next().is_none() && view.daemons.len() == 1);
    view.take(Change::Read(WatchedKind::DaemonSets, Box::new(at(daemon(json!({"zone": "b"})), "4"))));
    let selector = &view.daemons.values().next().unwrap().daemon_set.template["spec"]["nodeSelector"];
    assert_eq!(*selector, json!({}), "the watch brings what comes then");
    assert!(view.take(present(outline("5", json!([])))), "an agent runs it");
    assert!(view.unread().count() == 1 && view.daemons.is_empty());
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(outline("6", json!([])))));
    assert!(view.unread().next().is_none());

    let mut view = ClusterSnapshot::default();
    let ours = json!([{"type": "Available", "status": "True", "reason": "AllAvailable"}]);
    assert!(view.take(present(outline("3", ours))));
    assert_eq!(view.unread().count(), 1);
}

fn should(view: &ClusterSnapshot, name: &str) -> bool {
    view.daemons.values().next().unwrap().should_run(&view.nodes[name])
}

#[test]
fn the_node_selector_of_a_namespace_counts_as_soon_as_it_is_known() {
    let mut view = ClusterSnapshot::new("zone=default".to_owned());
    view.put(WatchedKind::Nodes, node("a", json!({"zone": "one"})));
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    assert!(should(&view, "a"), "nothing is known of the namespace");
    let namespace = |annotations: Value| json!({"metadata": {"name": "n", "annotations": annotations}});
    for (annotations, expected) in [
        (json!({}), false),
        (json!({"openshift.io/node-selector": "zone=one"}), true),
        (json!({"openshift.io/node-selector": "zone=two"}), false),
        (json!({"openshift.io/node-selector": ""}), true),
    ] {
        view.put(WatchedKind::Namespaces, namespace(annotations.clone()));
        assert_eq!(should(&view, "a"), expected, "{annotations}");
    }
    view.put(WatchedKind::Namespaces, namespace(json!({})));
    view.put(WatchedKind::DaemonSets, daemon(json!({"zone": "one"})));
    assert!(!should(&view, "a"), "also of a DaemonSet that is new");
}

#[test]
fn a_placement_is_remembered_for_one_node_and_its_labels_alone() {
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::DaemonSets, daemon(json!({"run": "yes"})));
    view.put(WatchedKind::Nodes, node("a", json!({"run": "yes"})));
    assert!(should(&view, "a"));
    view.put(WatchedKind::Nodes, node("a", json!({})));
    assert!(!should(&view, "a"));
    // Another node takes the place of one that is gone.
    view.take(Change::Gone(WatchedKind::Nodes, Box::new(node("a", json!({})))));
    view.put(WatchedKind::Nodes, node("b", json!({"run": "yes"})));
    assert!(should(&view, "b"));
}
