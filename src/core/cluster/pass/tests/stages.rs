//! Steps, windows, and rollouts that people take back.

use super::releases::released;
use super::releases::renewed;
use super::releases::with_one_released;
use super::*;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::requests::SendError;
use crate::core::cluster::rollout::UNCLAIMED;
use crate::core::cluster::steps::StepState;

mod deadlines;
mod triggers;
mod windows;

fn step(plan: &ClusterPlan) -> Option<StepState> {
    let of = |write: &ObjectWrite| match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Step { state, .. }, .. } => Some(state.clone()),
        _ => None,
    };
    plan.writes.iter().find_map(of)
}

fn in_step(state: &StepState) -> Value {
    let mut revision = revision("two", 2);
    revision["metadata"]["annotations"] = json!({"daemonlet.dev/step": state.annotation()});
    revision
}

/// The DaemonSet with these annotations instead of those that it has.
fn annotate(view: &mut ClusterWorld, annotations: Value) {
    let status = view.view.daemons.values().next().unwrap().status.clone();
    let mut daemon = daemon_set("two", annotations, status);
    daemon["metadata"]["generation"] = json!(3);
    view.put(WatchedKind::DaemonSets, daemon);
}

const STEPS: &str = "1, 10m; 2, 10m; 100%";

#[test]
fn a_rollout_goes_by_steps_which_the_revision_keeps() {
    let mut view = with_one_released(json!({"daemonlet.dev/steps": STEPS}));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan).len(), 1);
    assert_eq!(step(&plan), Some(StepState::first(2, STEPS)));
    assert_eq!(released(&plan).1, "Held", "nodes that join take the released one");
    view.put(WatchedKind::Revisions, in_step(&step(&plan).unwrap()));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let plan = view.plan(NOW + ms(5_000));
    assert_eq!((approved(&plan).len(), step(&plan).unwrap().since), (0, Some(NOW + ms(5_000))));
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(reason, "Held");
    assert!(message.contains("step 1 of 3 (1 of 4 nodes) holds until"), "{message}");
    view.put(WatchedKind::Revisions, in_step(&step(&plan).unwrap()));
    // Its pod is restarted: nothing of it runs for a moment.
    let restarts = json!({"instances": [], "returning": hash("two")});
    view.put(WatchedKind::NodeDaemons, report("a", "two", restarts, json!([])));
    let plan = view.plan(NOW + ms(9_000));
    assert_eq!((approved(&plan).len(), step(&plan)), (0, None), "its place is given to no other node");
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    // Another coordinator, which remembers nothing.
    view.state = CoordinatorState::default();
    let plan = view.plan(NOW + ms(604_999));
    assert_eq!((approved(&plan).len(), step(&plan)), (0, None), "it holds for ten minutes");
    let plan = view.plan(NOW + ms(605_000));
    assert_eq!((approved(&plan).len(), step(&plan).unwrap().step), (1, 2));
}

#[test]
fn a_restart_that_does_not_come_back_holds_a_step_up_until_its_deadline() {
    let annotations = json!({"daemonlet.dev/steps": "2; 100%", "daemonlet.dev/progress-deadline": "1m"});
    let mut view = with_one_released(annotations);
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let restarts = json!({"instances": [], "returning": hash("two"), "phase": "replacing"});
    view.put(WatchedKind::NodeDaemons, report("b", "two", restarts, json!([])));
    for seconds in [0, 59] {
        let plan = view.plan(NOW + ms(seconds * 1_000));
        assert!(approved(&plan).is_empty() && step(&plan).is_none_or(|state| state.step == 1), "{seconds}");
    }
    assert_eq!(step(&view.plan(NOW + ms(60_000))).map(|state| state.step), Some(2));
}

#[test]
fn a_step_is_done_without_the_nodes_that_wait_for_the_last_one() {
    let steps = "50%, 10m; 100%";
    let mut view = with_one_released(json!({"daemonlet.dev/steps": steps}));
    view.put(WatchedKind::Revisions, in_step(&StepState::first(2, steps)));
    view.put(WatchedKind::NodeDaemons, on_two(NODES[0]));
    for name in &NODES[1..] {
        let waits = json!({"phase": "waiting", "instances": [], "awaitsRollout": true});
        view.put(WatchedKind::NodeDaemons, report(name, "one", waits, json!([])));
    }
    let plan = view.plan(NOW + ms(5_000));
    assert!(step(&plan).is_some_and(|state| state.since.is_some()), "{:?}", step(&plan));
    view.put(WatchedKind::Revisions, in_step(&step(&plan).unwrap()));
    let plan = view.plan(NOW + ms(605_000));
    assert_eq!((step(&plan).unwrap().step, released(&plan).1.as_str()), (2, "RollingOut"));
}

#[test]
fn the_first_template_has_no_steps_though_nodes_run_what_a_deleted_daemon_set_left() {
    let mut view = world(json!({}));
    ["one", "two"].into_iter().zip(1..).for_each(|(image, number)| {
        view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision(image, number))));
    });
    view.put(WatchedKind::Revisions, revision("two", 1));
    annotate(&mut view, json!({"daemonlet.dev/steps": STEPS}));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), step(&plan)), (vec![("b".to_owned(), hash("two"))], None), "within the budget");
    view.put(WatchedKind::Revisions, revision("two", 2));
    assert_eq!(approved(&view.plan(NOW + ms(1))), [], "the second template has them");
}

#[test]
fn a_hold_is_ended_by_hand_for_this_revision_and_step_alone() {
    let first = StepState { since: Some(NOW), size: 1, ..StepState::first(2, STEPS) };
    let promotions = [("two", "1/1", 2), ("two", "2/2", 0), ("one", "1/1", 0), ("two", "1", 0), ("two", "1/25%", 0)];
    for (image, step_of, wanted) in promotions {
        let promoted = revision_name(image, step_of);
        let annotations = json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/promoted": promoted});
        let mut view = with_one_released(annotations);
        view.put(WatchedKind::Revisions, in_step(&first));
        view.put(WatchedKind::NodeDaemons, on_two("a"));
        let plan = view.plan(NOW + ms(5_000));
        assert_eq!(step(&plan).map_or(0, |state| state.step), wanted, "{promoted}");
    }
    for (promoted, wanted) in [(revision_name("two", "canary"), 1), (revision_name("two", "1/1"), 0)] {
        let canary = json!({"daemonlet.dev/canary": "canary=yes", "daemonlet.dev/canary-hold": "10m",
            "daemonlet.dev/promoted": promoted});
        let mut view = with_one_released(canary);
        let mut canary = node("a", "True");
        canary["metadata"]["labels"]["canary"] = json!("yes");
        view.put(WatchedKind::Nodes, canary);
        let instance =
            json!([{"pod": "p", "revision": hash("two"), "created": NOW.to_string(), "readySince": NOW.to_string()}]);
        view.put(WatchedKind::NodeDaemons, report("a", "two", json!({"instances": instance}), json!([])));
        assert_eq!(approved(&view.plan(NOW + ms(5_000))).len(), wanted, "{promoted}");
    }
}

fn revision_name(image: &str, step: &str) -> String {
    format!("net-{}/2/{step}", hash(image))
}

#[test]
fn a_step_that_is_promoted_and_edited_then_is_another_step() {
    let promoted =
        |steps: &str| json!({"daemonlet.dev/steps": steps, "daemonlet.dev/promoted": revision_name("two", "2/2")});
    for (steps, wanted) in [("1, 10m; 2, 1h; 100%", 3), ("1, 10m; 3, 1h; 100%", 0), ("2, 1h; 100%", 0)] {
        let mut view = with_one_released(promoted(steps));
        let state = StepState { step: if steps.starts_with('2') { 1 } else { 2 }, ..StepState::first(2, steps) };
        let size = if steps.contains('3') { 3 } else { 2 };
        view.put(WatchedKind::Revisions, in_step(&StepState { since: Some(NOW), size, ..state }));
        ["a", "b", "c"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        let plan = view.plan(NOW + ms(5_000));
        assert_eq!(step(&plan).map_or(0, |state| state.step), wanted, "{steps}");
        let message = condition(&plan, "Progressing").2;
        assert_eq!(message.contains("names \"2/2\", which is none of these steps"), wanted == 0, "{message}");
    }
}

#[test]
fn what_is_not_understood_or_not_now_holds_and_says_so() {
    for (annotations, why) in [
        (json!({"daemonlet.dev/steps": "some"}), "the annotation daemonlet.dev/steps is not understood: \"some\""),
        (
            json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/partition": "1"}),
            "the annotation daemonlet.dev/steps excludes daemonlet.dev/partition",
        ),
        (
            json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/canary": "run=yes"}),
            "the annotation daemonlet.dev/steps excludes daemonlet.dev/canary",
        ),
        (
            json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/first-install": "1"}),
            "the annotation daemonlet.dev/steps excludes daemonlet.dev/first-install",
        ),
        (
            json!({"daemonlet.dev/widnow": "Tue 02:00-03:00"}),
            "this version does not know the annotation daemonlet.dev/widnow (did you mean daemonlet.dev/window?)",
        ),
        // It is a Tuesday evening.
        (json!({"daemonlet.dev/window": "Tue 02:00-03:00"}), "outside its window (Tue 02:00-03:00)"),
        (json!({"daemonlet.dev/window": "Die 02:00-03:00"}), "Die is no day"),
        (json!({"daemonlet.dev/window": "Tue Europe/Nowhere"}), "Europe/Nowhere is no time zone"),
    ] {
        let plan = with_one_released(annotations.clone()).plan(NOW);
        assert_eq!((approved(&plan), released(&plan).1.as_str()), (vec![], "Held"), "{annotations}");
        let message = condition(&plan, "Progressing").2;
        assert!(message.contains(why), "{annotations}: {message}");
    }
    let plan = with_one_released(json!({"daemonlet.dev/window": "Tue 22:00-23:00"})).plan(NOW);
    assert_eq!((approved(&plan).len(), released(&plan).1.as_str()), (1, "RollingOut"));
}

#[test]
fn an_abort_returns_to_the_released_revision_and_holds_for_this_revision_alone() {
    let aborted = |image: &str| json!({"daemonlet.dev/aborted": format!("net-{}", hash(image))});
    let mut view = with_one_released(json!({}));
    let two = report("a", "two", json!({"previous": hash("one")}), json!([]));
    view.put(WatchedKind::NodeDaemons, two);
    assert_eq!(approved(&view.plan(NOW)), [("b".to_owned(), hash("two"))]);
    annotate(&mut view, aborted("two"));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("one"))], "the node that has it goes back");
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!((reason.as_str(), released(&plan).1.as_str()), ("RollingBack", "Held"));
    assert!(message.starts_with("it was aborted: 1 node left to go back to revision"), "{message}");
    let (status, reason, _) = condition(&plan, "Halted");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Aborted"), "first instances heed it");
    // One that never ran the released revision goes there, too.
    let joined = report("a", "two", json!({"previous": hash("three")}), json!([]));
    view.put(WatchedKind::NodeDaemons, joined);
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("one"))]);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), condition(&plan, "Progressing").1), (vec![], "RolledBack".to_owned()));
    annotate(&mut view, aborted("one"));
    assert_eq!(approved(&view.plan(NOW)).len(), 1, "of another revision it is void");
}

#[test]
fn an_abort_outlives_the_name_of_its_controller_revision() {
    let aborted = json!({"daemonlet.dev/aborted": "net-as-the-controller-named-it"});
    let mut view = with_one_released(json!({}));
    let mut aborted_status = view.view.daemons.values().next().unwrap().status.clone();
    // The DaemonSet controller writes it, too.
    aborted_status["observedGeneration"] = json!(4);
    let message = crate::core::cluster::released::halted_message(&hash("two"), "aborted by hand");
    aborted_status["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "Halted", "status": "True", "reason": "Aborted", "message": message}));
    let put = |view: &mut ClusterWorld, generation: i64| {
        let mut daemon = daemon_set("two", aborted.clone(), aborted_status.clone());
        daemon["metadata"]["generation"] = json!(generation);
        view.put(WatchedKind::DaemonSets, daemon);
    };
    put(&mut view, 3);
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), condition(&plan, "Progressing").1), (vec![], "RolledBack".to_owned()));
    let mut third = daemon_set("three", aborted, aborted_status);
    third["metadata"]["generation"] = json!(4);
    view.put(WatchedKind::DaemonSets, third);
    view.put(WatchedKind::Revisions, revision("three", 3));
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("three"))], "of another template it is void");
}

#[test]
fn an_abort_begins_the_steps_anew_and_a_closed_window_does_not_keep_back_what_all_have() {
    let stopped = json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/aborted": format!("net-{}", hash("two"))});
    let mut view = with_one_released(stopped);
    view.put(WatchedKind::Revisions, in_step(&StepState { step: 3, ..StepState::first(2, STEPS) }));
    assert_eq!(step(&view.plan(NOW)), Some(StepState::first(2, STEPS)));
    let mut view = with_one_released(json!({"daemonlet.dev/window": "Sun"}));
    assert_eq!(released(&view.plan(NOW)).1, "Held");
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).1, "Complete");
}

/// No node has ever run the first revision.
fn never_installed(annotations: Value, status: Value) -> ClusterWorld {
    let mut view = world(json!({}));
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("two", 2))));
    view.put(WatchedKind::DaemonSets, daemon_set("one", annotations, status));
    for name in NODES {
        let waits = json!({"phase": "waiting", "instances": []});
        view.put(WatchedKind::NodeDaemons, report(name, "one", waits, json!([])));
    }
    view
}

#[test]
fn what_was_never_released_starts_on_so_many_nodes_at_a_time() {
    let install = |share: &str| json!({"daemonlet.dev/first-install": share});
    let at = |annotations| approved(&never_installed(annotations, json!({})).plan(NOW)).len();
    assert_eq!([at(json!({})), at(install("2")), at(install("30%"))], [0, 2, 2]);
    let plan = never_installed(install("some"), json!({})).plan(NOW);
    assert!(approved(&plan).is_empty());
    let message = condition(&plan, "Progressing").2;
    assert!(message.contains("the annotation daemonlet.dev/first-install is not understood: \"some\""), "{message}");
    let mut deleted = daemon_set("one", install("3"), json!({}));
    deleted["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    let mut view = never_installed(install("3"), json!({}));
    view.put(WatchedKind::DaemonSets, deleted.clone());
    assert_eq!(approved(&view.plan(NOW)).len(), 3, "a first instance is no update");
    deleted["spec"]["template"] = template("two");
    view.put(WatchedKind::Revisions, revision("two", 2));
    view.put(WatchedKind::DaemonSets, deleted);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let mut started: Vec<String> = approved(&view.plan(NOW)).into_iter().map(|(node, _)| node).collect();
    started.sort();
    assert_eq!(started, ["b", "c", "d"], "and an update waits for people");
    let message = format!("ControllerRevision net-{0} (hash {0}) at generation 3", hash("one"));
    let released =
        json!({"conditions": [{"type": "Released", "status": "True", "reason": "Complete", "message": message}]});
    assert!(approved(&never_installed(install("2"), released).plan(NOW)).is_empty(), "it was released once");
}

#[test]
fn what_is_held_in_its_first_step_is_not_released_because_the_others_cannot_take_it() {
    for annotations in [
        json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/window": "Sun"}),
        json!({"daemonlet.dev/steps": "some"}),
        json!({"daemonlet.dev/partition": "50 %"}),
        json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/max-failed": "some"}),
    ] {
        let mut view = with_one_released(annotations.clone());
        view.put(WatchedKind::NodeDaemons, on_two("a"));
        for name in &NODES[1..] {
            view.put(WatchedKind::NodeDaemons, report(name, "one", json!({"phase": "refused"}), json!([])));
        }
        let plan = view.plan(NOW);
        assert_eq!(released(&plan).1.as_str(), "Held", "{annotations}");
        assert!(step(&plan).is_none_or(|state| state.step == 1), "{annotations}");
    }
    // In its last one it may be.
    let mut view = with_one_released(json!({"daemonlet.dev/steps": STEPS, "daemonlet.dev/window": "Sun"}));
    view.put(WatchedKind::Revisions, in_step(&StepState { step: 3, ..StepState::first(2, STEPS) }));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).1, "Complete");
}

#[test]
fn a_step_does_not_end_because_the_agents_of_the_others_are_dead() {
    let mut view = with_one_released(json!({"daemonlet.dev/steps": STEPS}));
    let second = StepState { step: 2, ..StepState::first(2, STEPS) };
    view.put(WatchedKind::Revisions, in_step(&second));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let mut look = |second: i64, names: &[&str]| {
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&renewed(names), NOW + ms(second * 1_000));
        view.plan(NOW + ms(second * 1_000))
    };
    (0..45).step_by(15).for_each(|second| drop(look(second, &[])));
    look(45, &["a"]);
    let plan = look(60, &["a"]);
    assert_eq!(condition(&plan, "Degraded").2, "agent does not renew its Lease on 3 nodes: b, c, d");
    assert_eq!(step(&plan), None, "its hold does not begin with one node of two");
}

#[test]
fn a_step_that_cannot_be_noted_says_so_and_names_no_time() {
    let mut view = with_one_released(json!({"daemonlet.dev/steps": STEPS}));
    let name = format!("net-{}", hash("two"));
    view.put(WatchedKind::Revisions, in_step(&StepState::first(2, STEPS)));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let step = RequestTarget::Revision(ObjectKey::new("kube-system", "net"), RevisionChange::Step, name.clone());
    view.state.retries.failed(step, SendError::Refused("you may not".to_owned()), NOW);
    let plan = view.plan(NOW);
    let held = condition(&plan, "Progressing");
    assert_eq!(
        held.2,
        format!("3 of 4 nodes are left: step 1 cannot be noted on ControllerRevision {name}: you may not")
    );
    assert_eq!(
        condition(&plan, "Degraded").2,
        format!("its step cannot be noted on ControllerRevision {name}: you may not")
    );
    let causes: Vec<String> = plan.troubles.keys().map(|trouble| trouble.cause.note()).collect();
    let cause = format!("its step cannot be noted on ControllerRevision {name}; the condition Degraded says why");
    assert_eq!(causes, [cause], "another message of the API server makes no other event");
    assert_eq!(condition(&view.plan(NOW + ms(1_000)), "Progressing"), held, "a status is written once");
}

#[test]
fn no_node_is_approved_where_each_node_follows_by_itself() {
    let none = |more: Value| {
        let mut annotations = json!({"daemonlet.dev/coordination": "none"});
        annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with_one_released(annotations)
    };
    let mut view = none(json!({"daemonlet.dev/steps": STEPS}));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), step(&plan)), (vec![], None));
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(reason, "Held");
    assert!(message.ends_with("each node follows by itself (daemonlet.dev/coordination: none)"), "{message}");
    assert_eq!(condition(&view.plan(NOW + UNCLAIMED), "Degraded").1, "AsExpected");
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).1, "Complete", "no steps are gone through");
    // Agents would take an approval of what ran before.
    let mut view = none(json!({"daemonlet.dev/rollback": "auto"}));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), condition(&plan, "Halted").1.as_str()), (vec![], "Failed"));
}
