//! Halts: where they are written, what outlives them, and what ends them.

use crate::core::cluster::released;
use crate::core::cluster::requests::RevisionChange;

use super::*;

/// The message of the condition `Halted` about the second revision.
/// The halt that is written, as a condition has it: of one that is known from there no more is known.
fn in_words(plan: &ClusterPlan) -> Option<String> {
    halt(plan).map(|halted| halted.to_string())
}

fn halted_message(halted: &Halted) -> String {
    released::halted_message(&hash("two"), &halted.to_string())
}

#[test]
fn a_halt_outlives_the_nodes_on_which_it_failed_and_is_about_one_revision() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    assert_eq!(halt(&view.plan(NOW)), None, "one may fail");
    view.put(WatchedKind::NodeDaemons, failing("b"));
    let plan = view.plan(NOW);
    let halted = halt(&plan).expect("it is noted");
    assert_eq!(
        (halted.cause.to_string().as_str(), halted.nodes.join(",").as_str()),
        ("the revision failed on 2 nodes", "a,b")
    );
    let (status, reason, halt_message) = condition(&plan, "Halted");
    assert_eq!((status.as_str(), reason.as_str(), halt_message), ("True", "Failed", halted_message(&halted)));
    assert_eq!(released(&plan).1, "Held");
    view.put(WatchedKind::Revisions, halted_revision(&halted));
    // The nodes go, their replacements have the released revision.
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    view.state = CoordinatorState::default();
    let plan = view.plan(NOW + ms(60_000));
    assert!(approved(&plan).is_empty(), "{:?}", approved(&plan));
    assert_eq!(
        (halt(&plan), condition(&plan, "Halted").0.as_str(), released(&plan).1.as_str()),
        (None, "True", "Held")
    );
    // All nodes may have it by another way: it is not released while it is halted.
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).2, message("one"));
    // Another template is another rollout, and the condition goes.
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([]))));
    let other = wanted("three", json!({}), view.view.daemons.values().next().unwrap().status.clone());
    view.put(WatchedKind::DaemonSets, other);
    view.put(WatchedKind::Revisions, revision("three", 3));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("three"))]);
    assert!(!self::status(&plan)["conditions"].to_string().contains("Halted"));
    // When the DaemonSet comes back to it, it is halted still; removing the annotation ends that.
    let status = view.view.daemons.values().next().unwrap().status.clone();
    view.put(WatchedKind::DaemonSets, wanted("two", json!({}), status));
    assert!(approved(&view.plan(NOW)).is_empty());
    let mut ended = revision("two", 4);
    ended["metadata"]["uid"] = json!("r2");
    view.put(WatchedKind::Revisions, ended);
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("two"))]);
}

#[test]
fn a_halt_that_was_ended_comes_back_only_with_the_next_failure() {
    let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0"}));
    let mut retried = revision("two", 2);
    retried["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "a"});
    view.put(WatchedKind::Revisions, retried.clone());
    view.put(WatchedKind::NodeDaemons, failing("a"));
    let plan = view.plan(NOW);
    assert_eq!((halt(&plan), approved(&plan).len()), (None, 0), "a has the slot");
    // Its agent tries it again: the next failure counts.
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let plan = view.plan(NOW);
    let noted = plan.writes.iter().find_map(|write| match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Retried { nodes, .. }, .. } => Some(nodes.clone()),
        _ => None,
    });
    assert_eq!((noted, approved(&plan)), (Some(BTreeSet::new()), vec![("b".to_owned(), hash("two"))]));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    assert!(halt(&view.plan(NOW)).is_some());
}

#[test]
fn a_retry_outlives_a_takeover_before_the_status_says_that_the_halt_is_ended() {
    let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0"}));
    let mut retried = revision("two", 2);
    retried["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "gone"});
    view.put(WatchedKind::Revisions, retried);
    let before = view.view.daemons.values().next().unwrap().status.clone();
    let said = Halted { nodes: vec!["gone".to_owned()], ..Halted::by_hand("no".to_owned()) };
    let mut with_halt = before.clone();
    with_halt["observedGeneration"] = json!(3);
    with_halt["conditions"].as_array_mut().unwrap().iter_mut().filter(|c| c["type"] == "Released").for_each(|c| {
        let message = c["message"].as_str().unwrap().rsplit_once(' ').unwrap().0;
        c["message"] = json!(format!("{message} 3"));
    });
    with_halt["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "Halted", "status": "True", "reason": "Failed", "message": halted_message(&said)}));
    let is_forgotten = |plan: &ClusterPlan| {
        let write =
            |w: &ObjectWrite| matches!(w, ObjectWrite::Revision { write: history::RevisionWrite::Retried { .. }, .. });
        plan.writes.iter().any(write)
    };
    let annotations = json!({"daemonlet.dev/max-failed": "0"});
    view.put(WatchedKind::DaemonSets, wanted("two", annotations.clone(), with_halt));
    for _ in 0..2 {
        let mut other = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
        let plan = other.plan(NOW);
        assert_eq!((halt(&plan), is_forgotten(&plan)), (None, false));
    }
    view.put(WatchedKind::DaemonSets, wanted("two", annotations, before));
    assert!(is_forgotten(&view.plan(NOW)));
}

#[test]
fn a_retry_forgives_all_nodes_that_are_cut_off_however_many() {
    let mut view = with_one_released(json!({"daemonlet.dev/progress-deadline": "1m"}));
    let names: Vec<String> = (0..50).map(|number| format!("n{number:02}")).collect();
    let fresh = || json!({"instances": [{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z"}]});
    for name in &names {
        view.put(WatchedKind::NodeDaemons, report(name, "two", fresh(), json!([])));
        view.put(WatchedKind::Nodes, node(name, "Unknown"));
    }
    let now = NOW + ms(60_000);
    let halted = halt(&view.plan(now)).expect("it is noted");
    assert_eq!((halted.cause.to_string().as_str(), halted.nodes.len()), ("the revision failed on 50 nodes", 10));
    // What `kubectl daemonlet retry` writes.
    let retried = |names: &str| {
        let mut two = revision("two", 2);
        two["metadata"]["annotations"] = json!({"daemonlet.dev/retried": names});
        two
    };
    let noted = |plan: &ClusterPlan| {
        plan.writes.iter().find_map(|write| match write {
            ObjectWrite::Revision { write: history::RevisionWrite::Retried { nodes, .. }, .. } => Some(nodes.clone()),
            _ => None,
        })
    };
    view.put(WatchedKind::Revisions, retried(&format!("*,{}", halted.nodes.join(","))));
    let plan = view.plan(now + ms(1));
    let all = noted(&plan).unwrap();
    assert_eq!((halt(&plan), all.iter().cloned().collect::<Vec<_>>()), (None, names.clone()));
    view.put(WatchedKind::Revisions, retried(&Vec::from_iter(all).join(",")));
    let plan = view.plan(now + ms(2));
    assert_eq!((halt(&plan), noted(&plan)), (None, None));
    // The next failure of each counts.
    for name in ["n00", "n01"] {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, on_two(name));
    }
    let left = noted(&view.plan(now + ms(3))).unwrap();
    assert_eq!(left.len(), 48);
    view.put(WatchedKind::Revisions, retried(&Vec::from_iter(left).join(",")));
    ["n00", "n01"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    assert_eq!(halt(&view.plan(now + ms(4))).map(|halted| halted.nodes.len()), Some(2));
}

#[test]
fn nothing_more_is_approved_while_a_retry_of_all_cannot_be_noted() {
    let mut view = with_one_released(json!({}));
    let mut retried = revision("two", 2);
    retried["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "*"});
    let name = format!("net-{}", hash("two"));
    view.put(WatchedKind::Revisions, retried);
    assert_eq!(approved(&view.plan(NOW)).len(), 1);
    let key = ObjectKey::new("kube-system", "net");
    let target = RequestTarget::Revision(key, RevisionChange::Halt, name.clone());
    view.state.retries.failed(target.clone(), SendError::Refused("you may not".to_owned()), NOW);
    let plan = view.plan(NOW + ms(1));
    assert_eq!(approved(&plan), vec![]);
    let why = format!("the nodes that are retried cannot be named on ControllerRevision {name}: you may not");
    assert!(condition(&plan, "Progressing").2.ends_with(&why), "{:?}", condition(&plan, "Progressing"));
    // Another coordinator has not tried yet.
    view.state = CoordinatorState::default();
    let plan = view.plan(NOW + ms(2));
    assert!(approved(&plan).is_empty() && plan.writes.iter().any(|write| requests::target(write) == target));
    assert_eq!(approved(&view.plan(NOW + ms(3))).len(), 1, "it was not refused");
}

#[test]
fn a_halt_is_noted_whoever_keeps_the_history_and_is_the_same_in_each_pass() {
    let mut view = with_one_released(json!({}));
    let mut gated = wanted("two", json!({}), view.view.daemons.values().next().unwrap().status.clone());
    gated["spec"]["template"]["spec"]["nodeSelector"]["daemonlet.dev/static"] = json!("true");
    gated["metadata"]["generation"] = json!(9);
    let data = history::data(&gated["spec"]["template"]);
    let mut of_it = revision("two", 3);
    (of_it["metadata"]["name"], of_it["data"]) = (json!("net-gated"), data.clone());
    view.put(WatchedKind::DaemonSets, gated);
    let failing = |name: &str| {
        let hash = history::RevisionFact::hash_of(&data);
        let failed = json!({"revision": hash, "cause": "image", "message": "no"});
        report(name, "one", json!({"failed": failed}), json!([]))
    };
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    // Its ControllerRevision does not exist yet: the condition is the same a second later.
    let message = condition(&view.plan(NOW), "Halted").2;
    assert_eq!(condition(&view.plan(NOW + ms(1_000)), "Halted").2, message);
    view.put(WatchedKind::Revisions, of_it);
    let hash = history::RevisionFact::hash_of(&data);
    let of_halt = |halted: Halted| released::halted_message(&hash, &halted.to_string());
    assert_eq!(halt(&view.plan(NOW + ms(2_000))).map(of_halt), Some(message));
}

#[test]
fn a_daemon_set_that_is_made_again_is_not_halted_by_what_its_former_one_did() {
    let mut view = with_one_released(json!({}));
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    assert_eq!(view.plan(NOW).halts.len(), 1);
    let mut again = wanted("two", json!({}), json!({}));
    again["metadata"]["uid"] = json!("again");
    view.put(WatchedKind::DaemonSets, again);
    assert!(view.plan(NOW + ms(1)).halts.is_empty());
}

#[test]
fn a_halt_in_the_status_counts_whenever_its_nodes_report() {
    let mut view = with_one_released(json!({}));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    let plan = view.plan(NOW);
    let halted = halt(&plan).expect("it is noted");
    live(&mut view, "two", json!({}), &plan);
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    // Another coordinator does not know yet that agents run it, and decides about others.
    let daemon_set = view.view.daemons.values().next().unwrap().daemon_set.clone();
    let mut stock = wanted("two", json!({}), view.view.daemons.values().next().unwrap().status.clone());
    stock["metadata"]["labels"] = json!({});
    view.state = CoordinatorState::default();
    view.put(WatchedKind::DaemonSets, stock.clone());
    NODES
        .iter()
        .for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", json!({"mode": ""}), json!([]))));
    assert_eq!(approved(&view.plan(NOW + ms(1))), []);
    assert!(!view.state.decided.contains_key(&daemon_set.key));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([]))));
    let plan = view.plan(NOW + ms(2));
    assert_eq!((in_words(&plan), approved(&plan)), (Some(halted.to_string()), vec![]));
}

#[test]
fn a_halt_that_cannot_be_written_stands_until_it_is_ended() {
    let mut view = with_one_released(json!({}));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    let plan = view.plan(NOW);
    let halted = halt(&plan).expect("it is noted");
    let name = format!("net-{}", hash("two"));
    let target = RequestTarget::Revision(ObjectKey::new("kube-system", "net"), RevisionChange::Halt, name.clone());
    view.state.retries.failed(target, SendError::Refused("you may not".to_owned()), NOW);
    let plan = view.plan(NOW + ms(1));
    let message = condition(&plan, "Degraded").2;
    assert!(
        message.ends_with(&format!("; its halt cannot be noted on ControllerRevision {name}: you may not")),
        "{message}"
    );
    live(&mut view, "two", json!({}), &plan);
    // Other machines come in place of both.
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    let plan = view.plan(NOW + ms(2));
    assert_eq!((halt(&plan), approved(&plan)), (Some(halted.clone()), vec![]), "it is written again");
    // Another coordinator has the status alone.
    view.state = CoordinatorState::default();
    let plan = view.plan(NOW + ms(3));
    assert_eq!((in_words(&plan), approved(&plan)), (Some(halted.to_string()), vec![]));
    let plan = view.plan(NOW + ms(4));
    assert_eq!((in_words(&plan), approved(&plan)), (Some(halted.to_string()), vec![]));
    // `kubectl daemonlet retry` names the nodes that count no more.
    let mut retried = revision("two", 2);
    retried["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "a,b"});
    view.put(WatchedKind::Revisions, retried);
    let plan = view.plan(NOW + ms(5));
    assert_eq!((halt(&plan), approved(&plan).len()), (None, 1));
    view.put(WatchedKind::Revisions, revision("two", 2));
    assert_eq!(approved(&view.plan(NOW + ms(6))).len(), 1, "this coordinator has written the status itself by now");
}

#[test]
fn without_coordination_first_instances_start_the_newest_revision_whatever_is_written() {
    for annotations in [json!({}), json!({"daemonlet.dev/partition": "2"})] {
        let mut uncoordinated = annotations;
        uncoordinated["daemonlet.dev/coordination"] = json!("none");
        let mut view = with_one_released(uncoordinated);
        assert_eq!(released(&view.plan(NOW)), ("False".to_owned(), "RollingOut".to_owned(), message("one")));
    }
}
