//! Nodes that join while they are kept on the released revision, and cannot have it.

use super::*;
use crate::core::cluster::events::TroubleCause;

const CAUSE: &str = "cannot start the released revision, and NodeDaemons says why, on 1 node: e";

/// The world of [`with_one_released`], paused, with a node that has nothing and waits.
fn with_a_joining_node(awaits_rollout: bool) -> ClusterWorld {
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    view.put(WatchedKind::Nodes, node("e", "True"));
    let waits = json!({"phase": "waiting", "instances": [], "awaitsRollout": awaits_rollout});
    view.put(WatchedKind::NodeDaemons, report("e", "one", waits, json!([])));
    view
}

fn is_event(plan: &ClusterPlan) -> bool {
    plan.troubles.keys().any(|trouble| trouble.cause == TroubleCause::ReleasedNotStarted)
}

#[test]
fn a_node_that_joins_without_the_released_controller_revision_is_named_at_once() {
    let mut view = with_a_joining_node(true);
    let plan = view.plan(NOW);
    let degraded = condition(&plan, "Degraded");
    assert_eq!((degraded.0.as_str(), is_event(&plan)), ("False", false), "the released one is not for this node");
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("one", 1))));
    let plan = view.plan(NOW);
    assert_eq!((condition(&plan, "Degraded").2.as_str(), is_event(&plan)), (CAUSE, true));
    view.put(
        WatchedKind::DaemonSets,
        wanted("two", json!({}), view.view.daemons.values().next().unwrap().status.clone()),
    );
    assert!(!condition(&view.plan(NOW), "Degraded").2.contains("the released revision"), "it starts the newest");
}

#[test]
fn a_node_that_joins_and_lacks_an_object_of_the_released_revision_is_named_after_a_minute() {
    let mut view = with_a_joining_node(false);
    let plan = view.plan(NOW);
    assert_eq!((condition(&plan, "Degraded").0.as_str(), is_event(&plan)), ("False", false));
    let late = NOW + rollout::UNCLAIMED;
    assert!(plan.look_again.is_some_and(|at| at <= late));
    assert_eq!(condition(&view.plan(late - ms(1)), "Degraded").0, "False");
    let plan = view.plan(late);
    assert_eq!((condition(&plan, "Degraded").2.as_str(), is_event(&plan)), (CAUSE, true));
    view.put(WatchedKind::NodeDaemons, report("e", "one", json!({}), json!([])));
    assert_eq!(condition(&view.plan(late), "Degraded").0, "False", "it has started");
}
