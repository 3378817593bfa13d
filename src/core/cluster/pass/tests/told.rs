//! That the status says what is so while nodes replace what they run.

use super::releases::released;
use super::releases::with_one_released;
use super::*;
use crate::core::cluster::steps::StepState;

/// A node that runs `image`, and claims `claim`.
fn claims(name: &str, image: &str, claim: &str) -> Value {
    report(name, image, json!({"replacing": hash(claim)}), approval(claim, &NOW.to_string()))
}

fn counters(plan: &ClusterPlan, fields: &[&str]) -> Vec<i64> {
    fields.iter().map(|field| status(plan)[*field].as_i64().unwrap_or(0)).collect()
}

#[test]
fn what_nodes_have_claimed_serves_no_more_before_they_say_that_it_ended() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, claims("a", "one", "two"));
    let plan = view.plan(NOW);
    let fields = ["numberReady", "numberAvailable", "numberUnavailable", "updatedNumberScheduled"];
    assert_eq!(counters(&plan, &fields), [3, 3, 1, 0]);
    assert_eq!(
        (condition(&plan, "Available").0.as_str(), condition(&plan, "Available").2.as_str()),
        ("False", "3 of 4 nodes")
    );
    let begun = json!({"replacing": hash("two")});
    view.put(WatchedKind::NodeDaemons, report("a", "two", begun, approval("two", &NOW.to_string())));
    assert_eq!(counters(&view.plan(NOW), &fields), [4, 4, 0, 1], "what it claims is there");
    // With other overlays it is another pod.
    let mut patched = claims("a", "two", "two");
    patched["status"]["daemons"][0]["replacing"] = json!(format!("{}.d1", hash("two")));
    view.put(WatchedKind::NodeDaemons, patched);
    assert_eq!(counters(&view.plan(NOW), &fields), [3, 3, 1, 1]);
    // Its disk takes nothing: what runs stays.
    let mut fails = claims("a", "one", "two");
    fails["status"]["daemons"][0]["phase"] = json!("failing");
    view.put(WatchedKind::NodeDaemons, fails);
    assert_eq!(counters(&view.plan(NOW), &fields), [4, 4, 0, 0]);
    // The old one of a surge serves until the new one does.
    let mut surges = daemon_set("two", json!({}), json!({}));
    surges["metadata"]["generation"] = json!(4);
    surges["spec"]["updateStrategy"]["rollingUpdate"] = json!({"maxUnavailable": 0, "maxSurge": 1});
    view.put(WatchedKind::DaemonSets, surges);
    view.put(WatchedKind::NodeDaemons, claims("a", "one", "two"));
    assert_eq!(counters(&view.plan(NOW), &fields), [4, 4, 0, 0]);
}

#[test]
fn nodes_that_go_on_to_a_revision_that_is_undone_do_not_have_the_current_one() {
    let mut view = with_one_released(json!({}));
    let before = view.view.daemons.values().next().unwrap().status.clone();
    let mut undone = daemon_set("one", json!({}), before);
    undone["metadata"]["generation"] = json!(4);
    view.put(WatchedKind::DaemonSets, undone);
    view.put(WatchedKind::Revisions, revision("one", 3));
    view.put(WatchedKind::NodeDaemons, claims("a", "one", "two"));
    let plan = view.plan(NOW);
    assert_eq!(counters(&plan, &["updatedNumberScheduled", "numberAvailable"]), [3, 3]);
    let message = format!("1 of 4 nodes is left: 1 node has claimed revision {} and replaces its pod", hash("two"));
    assert_eq!(condition(&plan, "Progressing"), ("True".to_owned(), "RollingOut".to_owned(), message));
    let mut odd = claims("a", "one", "two");
    odd["status"]["daemons"][0]["replacing"] = json!("x\n: all is well");
    view.put(WatchedKind::NodeDaemons, odd);
    let said = condition(&view.plan(NOW), "Progressing").2;
    assert_eq!(said, "1 of 4 nodes is left: 1 node has claimed another revision and replaces its pod");
}

#[test]
fn a_surge_is_released_once_nothing_older_ends() {
    let with_ending = |name: &str| {
        let instance =
            |image: &str| json!({"pod": image, "revision": hash(image), "created": FAILED_AT, "readySince": FAILED_AT});
        let mut old = instance("one");
        old["ending"] = json!(true);
        report(name, "two", json!({"instances": [old, instance("two")]}), json!([]))
    };
    let mut view = with_one_released(json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let mut young = with_ending("a");
    young["status"]["daemons"][0]["instances"][1]["readySince"] = json!(NOW.to_string());
    view.put(WatchedKind::NodeDaemons, young);
    let plan = view.plan(NOW);
    assert_eq!((released(&plan).1.as_str(), condition(&plan, "Progressing").1.as_str()), ("RollingOut", "RollingOut"));
    let late = view.plan(NOW + ms(600_000));
    assert_eq!(released(&late).1, "Complete", "one that does not end for the progress deadline keeps nothing");
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    assert_eq!(released(&view.plan(NOW)).1, "Complete");
}

#[test]
fn a_pod_that_restarts_while_paused_waits_for_no_overlays() {
    for hold in [json!({"daemonlet.dev/paused": "true"}), json!({"daemonlet.dev/window": "Mon 00:00-00:01"})] {
        let mut view = with_one_released(json!({}));
        let before = view.view.daemons.values().next().unwrap().status.clone();
        let mut held = daemon_set("one", hold.clone(), before);
        held["metadata"]["generation"] = json!(4);
        view.put(WatchedKind::DaemonSets, held);
        view.put(WatchedKind::Revisions, revision("one", 3));
        let ends = json!({"pod": "p", "revision": hash("one"), "created": FAILED_AT, "ending": true});
        view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"instances": [ends]}), json!([])));
        let (_, reason, message) = condition(&view.plan(NOW), "Progressing");
        assert_eq!((reason.as_str(), message.as_str()), ("Complete", "4 nodes have the current revision"), "{hold}");
    }
}

#[test]
fn a_step_that_is_reached_without_a_failed_node_is_not_held_while_it_begins() {
    let steps = "1, 10m; 2, 10m; 100%";
    let annotations = json!({"daemonlet.dev/steps": steps, "daemonlet.dev/max-failed": "4"});
    let mut view = with_one_released(json!({}));
    let before = view.view.daemons.values().next().unwrap().status.clone();
    let mut two = daemon_set("two", annotations, before);
    two["metadata"]["generation"] = json!(4);
    two["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = json!(2);
    view.put(WatchedKind::DaemonSets, two);
    let noted = StepState { step: 2, since: Some(NOW), size: 2, ..StepState::first(2, steps) };
    let mut revision = revision("two", 2);
    revision["metadata"]["annotations"] = json!({"daemonlet.dev/step": noted.annotation()});
    view.put(WatchedKind::Revisions, revision);
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::NodeDaemons, failing("b"));
    let plan = view.plan(NOW + ms(600_000));
    assert!(approved(&plan).is_empty(), "the step is noted first: {:?}", plan.writes);
    assert_eq!(condition(&plan, "Progressing").1, "RollingOut", "{}", status(&plan));
}

#[test]
fn nodes_that_boot_into_a_revision_that_is_undone_do_not_have_the_current_one() {
    let staged = |name: &str, more: Value| {
        let mut report = report(name, "one", json!({"staged": hash("two")}), more);
        report["status"]["daemons"][0]["phase"] = json!("running");
        report
    };
    let update = || json!({"daemonlet.dev/update": "boot"});
    let mut given = approval("two", &NOW.to_string());
    given[0]["when"] = json!("boot");
    let words = format!("; 1 node has staged revision {} and starts it at its next boot: a", hash("two"));
    // While it is rolled out, that is as it should be.
    let mut view = with_one_released(update());
    view.put(WatchedKind::NodeDaemons, staged("a", given.clone()));
    let message = condition(&view.plan(NOW), "Progressing").2;
    assert!(!message.contains("staged"), "{message}");
    // Its agent does not give it back, whatever is wanted now.
    for is_undone in [true, false] {
        let before = view.view.daemons.values().next().unwrap().status.clone();
        let aborted = json!({"daemonlet.dev/update": "boot", "daemonlet.dev/aborted": format!("net-{}", hash("two"))});
        let (image, annotations) = if is_undone { ("one", update()) } else { ("two", aborted) };
        let mut daemon = daemon_set(image, annotations, before);
        daemon["metadata"]["generation"] = json!(if is_undone { 8 } else { 9 });
        let mut other = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
        other.put(WatchedKind::DaemonSets, daemon);
        if is_undone {
            other.put(WatchedKind::Revisions, revision("one", 3));
        }
        other.put(WatchedKind::NodeDaemons, staged("a", json!([])));
        let plan = other.plan(NOW);
        let (_, reason, message) = condition(&plan, "Progressing");
        assert_eq!(reason, if is_undone { "RollingOut" } else { "RollingBack" });
        assert!(message.ends_with(&words), "{message}");
        let updated = counters(&plan, &["updatedNumberScheduled"]);
        assert_eq!(updated, [if is_undone { 3 } else { 0 }]);
    }
}
