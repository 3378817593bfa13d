//! Nodes whose agents say that the wanted revision needs an object which does not exist.

use super::releases::released;
use super::releases::with_one_released;
use super::*;

const CAUSE: &str = "needs an object that does not exist";

/// A node that runs the first revision and lacks an object of the one with `image`.
fn lacks(name: &str, image: &str, objects: &str, approvals: Value) -> Value {
    let missing = json!({"revision": hash(image), "message": objects});
    report(name, "one", json!({"previous": hash("one"), "missing": missing}), approvals)
}

fn config(name: &str) -> Value {
    lacks(name, "two", "ConfigMap kube-system/config", json!([]))
}

fn troubles(plan: &ClusterPlan) -> Vec<(String, usize)> {
    plan.troubles.iter().map(|(trouble, nodes)| (trouble.cause.note(), *nodes)).collect()
}

#[test]
fn a_node_that_lacks_an_object_gets_no_approval_and_takes_no_slot_and_is_named() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, config("a"));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))]);
    let (_, reason, message) = condition(&plan, "Degraded");
    assert_eq!((reason.as_str(), message), ("Failing", format!("{CAUSE} (ConfigMap kube-system/config) on 1 node: a")));
    assert_eq!(troubles(&plan), [(CAUSE.to_owned(), 1)], "the event names no object");
    // Its old instance is not ready: that is no reason for others to wait.
    let mut unready = config("a");
    unready["status"]["daemons"][0]["instances"][0]["readySince"] = Value::Null;
    view.put(WatchedKind::NodeDaemons, unready);
    assert_eq!(approved(&view.plan(NOW)), [("b".to_owned(), hash("two"))]);
    // What another revision lacked does not matter for this one.
    view.put(WatchedKind::NodeDaemons, lacks("a", "three", "ConfigMap kube-system/other", json!([])));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), troubles(&plan)), (vec![("a".to_owned(), hash("two"))], vec![]));
}

#[test]
fn its_approval_is_withdrawn_at_once_unless_it_is_claimed() {
    let given = || approval("two", &NOW.to_string());
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, lacks("a", "two", "x", given()));
    let plan = view.plan(NOW + ms(1_000));
    let of_a = plan.writes.iter().find(|w| matches!(w, ObjectWrite::Approvals { node, .. } if node == "a"));
    assert_eq!(of_a, Some(&ObjectWrite::Approvals { node: "a".to_owned(), spec: Spec::default() }));
    assert_eq!(plan.unclaimed, [], "it is no agent that does not answer");
    assert_eq!(approved(&plan), [], "it may be claimed before it is withdrawn");
    let mut claimed = lacks("a", "two", "x", given());
    claimed["status"]["daemons"][0]["replacing"] = json!(hash("two"));
    view.put(WatchedKind::NodeDaemons, claimed);
    let plan = view.plan(NOW + ms(1_000));
    assert!(!plan.writes.iter().any(|write| matches!(write, ObjectWrite::Approvals { .. })), "{:?}", plan.writes);
}

#[test]
fn where_all_nodes_lack_it_the_rollout_stands_still_until_it_exists() {
    let mut view = with_one_released(json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, config(name)));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), []);
    let (status, reason, message) = condition(&plan, "Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert_eq!(message, "4 of 4 nodes are left: 4 nodes cannot take it");
    assert_eq!(
        condition(&plan, "Degraded").2,
        format!("{CAUSE} (ConfigMap kube-system/config) on 4 nodes: a, b, c, d")
    );
    assert_eq!(troubles(&plan), [(CAUSE.to_owned(), 4)], "one event");
    let (_, reason, revision) = released(&plan);
    assert!(reason != "Complete" && revision.contains(&hash("one")), "{reason} {revision}");
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([]))));
    let plan = view.plan(NOW + ms(1_000));
    assert_eq!(approved(&plan), [("a".to_owned(), hash("two"))]);
    assert_eq!(condition(&plan, "Degraded").0, "False");
}

#[test]
fn a_few_nodes_that_have_it_do_not_speak_for_many_that_lack_an_object() {
    for (lacking, reason) in [(1, "Complete"), (3, "RollingOut")] {
        let mut view = with_one_released(json!({}));
        for (number, name) in NODES.iter().enumerate() {
            view.put(WatchedKind::NodeDaemons, if number < lacking { config(name) } else { on_two(name) });
        }
        let plan = view.plan(NOW);
        assert_eq!(released(&plan).1, reason, "{lacking}");
        assert_eq!(condition(&plan, "Progressing").1, "Held");
    }
}

#[test]
fn a_step_is_not_done_because_nodes_lack_an_object() {
    let of = |approved: usize| {
        let mut view = with_one_released(json!({"daemonlet.dev/steps": "2; 3; 100%"}));
        NODES[approved..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, config(name)));
        NODES[..approved].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        let steps: Vec<usize> = view.plan(NOW).writes.iter().filter_map(step).collect();
        steps
    };
    assert_eq!((of(1), of(2)), (vec![1], vec![2]));
}

fn step(write: &ObjectWrite) -> Option<usize> {
    match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Step { state, .. }, .. } => Some(state.step),
        _ => None,
    }
}

#[test]
fn what_one_agent_says_of_objects_is_bounded_and_no_agent_speaks_for_the_others() {
    let mut view = with_one_released(json!({}));
    let hostile = format!("a\u{1b}[2J\n{}", "x".repeat(5_000));
    view.put(WatchedKind::NodeDaemons, lacks("a", "two", &hostile, json!([])));
    let message = condition(&view.plan(NOW), "Degraded").2;
    assert!(message.starts_with(&format!("{CAUSE} (a\\u001b[2J\\nxx")), "{message}");
    assert!(message.len() < 400 && message.ends_with(" bytes more)) on 1 node: a"), "{message}");
    ["b", "c"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, config(name)));
    let message = condition(&view.plan(NOW), "Degraded").2;
    assert_eq!(message, format!("{CAUSE} (ConfigMap kube-system/config, elsewhere others) on 3 nodes: a, b, c"));
    // Of an earlier DaemonSet of that name.
    for name in ["b", "c"] {
        let mut earlier = config(name);
        earlier["status"]["daemons"][0]["uid"] = json!("earlier");
        view.put(WatchedKind::NodeDaemons, earlier);
    }
    view.put(WatchedKind::NodeDaemons, lacks("a", "two", "Secret kube-system/key", json!([])));
    let message = condition(&view.plan(NOW), "Degraded").2;
    assert!(message.contains(&format!("{CAUSE} (Secret kube-system/key) on 1 node: a")), "{message}");
}

#[test]
fn a_way_back_that_lacks_an_object_stands_still_says_why_and_is_tried_again() {
    let lacking = |name: &str, approvals| {
        let missing = json!({"revision": hash("one"), "message": "ConfigMap kube-system/old"});
        report(name, "two", json!({"previous": hash("one"), "missing": missing}), approvals)
    };
    let back = |name: &str| report(name, "one", json!({"previous": hash("two")}), json!([]));
    let mut view = with_one_released(json!({"daemonlet.dev/aborted": format!("net-{}", hash("two"))}));
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    // An agent looks for the object only while it is approved to go back.
    for (seconds, name) in [(0, "a"), (10, "b")] {
        let now = NOW + ms(seconds * 1_000);
        assert_eq!(approved(&view.plan(now)), [(name.to_owned(), hash("one"))]);
        view.put(WatchedKind::NodeDaemons, lacking(name, approval("one", &now.to_string())));
        let plan = view.plan(now + ms(1_000));
        assert_eq!((approved(&plan), plan.unclaimed.len()), (vec![], 0), "it is withdrawn at once");
        view.put(WatchedKind::NodeDaemons, on_two(name));
    }
    let plan = view.plan(NOW + ms(20_000));
    assert_eq!(approved(&plan), []);
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(reason, "Held");
    let left = format!("it was aborted: 2 nodes left to go back to revision {}: 2 nodes cannot take it", hash("one"));
    assert_eq!(message, left);
    let degraded = condition(&plan, "Degraded").2;
    assert_eq!(degraded, format!("{CAUSE} (ConfigMap kube-system/old) on 2 nodes: a, b"));
    // Two minutes after the last of them has said so.
    let again = NOW + ms(131_000);
    assert!(plan.look_again.is_some_and(|at| at <= again));
    assert_eq!(approved(&view.plan(again - ms(1))), []);
    let plan = view.plan(again);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("one"))]);
    assert_eq!(condition(&plan, "Degraded").2, degraded, "it is not known yet");
    view.put(WatchedKind::NodeDaemons, back("a"));
    let plan = view.plan(again + ms(5_000));
    assert_eq!(approved(&plan), [("b".to_owned(), hash("one"))], "the object is there");
    view.put(WatchedKind::NodeDaemons, back("b"));
    let plan = view.plan(again + ms(9_000));
    assert_eq!((condition(&plan, "Progressing").1.as_str(), plan.lacking.len()), ("RolledBack", 0));
    assert_eq!(condition(&plan, "Degraded").0, "False");
}
