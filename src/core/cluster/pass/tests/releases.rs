//! What is released, what is halted, and which nodes a rollout waits for.

use super::*;
use crate::core::cluster::requests;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::SendError;

mod agents;
mod halts;
mod joining;
mod lost_nodes;
mod orphaned;

/// The DaemonSet with this template, each at a generation of its own.
fn wanted(image: &str, annotations: Value, status: Value) -> Value {
    let mut daemon = daemon_set(image, annotations, status);
    daemon["metadata"]["generation"] = json!(["one", "two", "three"].iter().position(|i| *i == image).unwrap() + 2);
    daemon
}

/// The world with this of the live status, as the API server would show it.
fn live(world: &mut ClusterWorld, image: &str, annotations: Value, plan: &ClusterPlan) {
    let mut written = status(plan);
    // It drops what is empty.
    for condition in written["conditions"].as_array_mut().unwrap() {
        condition.as_object_mut().unwrap().retain(|_, value| *value != json!(""));
    }
    world.put(WatchedKind::DaemonSets, wanted(image, annotations, written));
}

/// The condition, without the number of the generation.
pub(super) fn released(plan: &ClusterPlan) -> (String, String, String) {
    let (status, reason, message) = condition(plan, "Released");
    (status, reason, message.rsplit_once(' ').unwrap().0.to_owned())
}

fn message(image: &str) -> String {
    format!("ControllerRevision net-{0} (hash {0}) at generation", hash(image))
}

/// Every node runs and has the first revision, which is released, and the second is wanted.
pub(super) fn with_one_released(annotations: Value) -> ClusterWorld {
    let mut view = world(json!({}));
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("two", 2))));
    view.put(WatchedKind::DaemonSets, wanted("one", json!({}), json!({})));
    let first = view.plan(NOW);
    assert_eq!(released(&first), ("True".to_owned(), "Complete".to_owned(), message("one")));
    live(&mut view, "one", json!({}), &first);
    view.put(WatchedKind::Revisions, marked("one", 1, 2));
    assert_eq!(view.plan(NOW + ms(1)).writes, [], "what the API server stores of it is what is wanted");
    live(&mut view, "two", annotations, &first);
    view.put(WatchedKind::Revisions, revision("two", 2));
    view
}

/// A revision that was released at this generation.
fn marked(image: &str, number: i64, generation: i64) -> Value {
    let mut revision = revision(image, number);
    revision["metadata"]["annotations"] = json!({"daemonlet.dev/released": format!("u/{generation}")});
    revision
}

/// The revisions that a plan marks as released, with the generations.
fn marks(plan: &ClusterPlan) -> Vec<(&str, i64)> {
    let of = |write| match write {
        &ObjectWrite::Revision { write: history::RevisionWrite::Released { ref name, generation }, .. } => {
            Some((name.as_str(), generation))
        }
        _ => None,
    };
    plan.writes.iter().filter_map(of).collect()
}

#[test]
fn the_released_revision_is_known_though_another_client_replaces_the_conditions() {
    // It is marked once, and again when it is released again after another one.
    let mut view = with_one_released(json!({}));
    assert_eq!(marks(&view.plan(NOW)), []);
    view.put(WatchedKind::Revisions, revision("one", 1));
    let name = format!("net-{}", hash("one"));
    assert_eq!(marks(&view.plan(NOW)), [(name.as_str(), 3)]);
    view.put(WatchedKind::Revisions, marked("one", 1, 2));
    view.put(WatchedKind::Revisions, marked("two", 2, 7));
    assert_eq!(marks(&view.plan(NOW)), [(name.as_str(), 8)]);
    // The status is lost: the revision is held, as it would be, and nothing is approved before that is written again.
    let paused = json!({"daemonlet.dev/paused": "true"});
    for (annotations, status) in [
        (json!({}), json!({})),
        (json!({}), json!({"conditions": [{"type": "StatusUpdate", "status": "True"}]})),
        (paused, json!({})),
    ] {
        let mut view = with_one_released(json!({}));
        view.put(WatchedKind::DaemonSets, wanted("two", annotations.clone(), status));
        view.state = CoordinatorState::default();
        let plan = view.plan(NOW);
        assert_eq!(released(&plan), ("False".to_owned(), "Held".to_owned(), message("one")));
        assert_eq!((approved(&plan), marks(&plan)), (vec![], vec![]));
        live(&mut view, "two", annotations.clone(), &plan);
        assert_eq!(approved(&view.plan(NOW + ms(1))).len(), usize::from(annotations == json!({})));
    }
}

fn halt(plan: &ClusterPlan) -> Option<Halted> {
    let of = |write: &ObjectWrite| match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Halt { halted, .. }, .. } => Some(halted.clone()),
        _ => None,
    };
    plan.writes.iter().find_map(of)
}

fn halted_revision(halted: &Halted) -> Value {
    let mut revision = revision("two", 2);
    revision["metadata"]["annotations"] = json!({"daemonlet.dev/halted": halted.annotation()});
    revision
}

#[test]
fn a_revision_is_released_once_every_node_that_can_take_it_has_it() {
    let mut view = with_one_released(json!({}));
    let plan = view.plan(NOW);
    assert_eq!(released(&plan), ("False".to_owned(), "RollingOut".to_owned(), message("one")), "nothing holds it");
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).2, message("one"), "one node still has the old one");
    // It cannot take it: it is unreachable, or refuses it for reasons of its own.
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    assert_eq!(released(&view.plan(NOW)), ("True".to_owned(), "Complete".to_owned(), message("two")));
    view.put(WatchedKind::Nodes, node("a", "True"));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"phase": "refused"}), json!([])));
    assert_eq!(released(&view.plan(NOW)).2, message("two"));
    // It has failed there, and too few did to halt it.
    let mut view = with_one_released(json!({}));
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    assert_eq!(released(&view.plan(NOW)), ("True".to_owned(), "Complete".to_owned(), message("two")));
}

#[test]
fn what_keeps_nodes_on_the_old_revision_keeps_new_ones_there() {
    for annotations in [
        json!({"daemonlet.dev/paused": "true"}),
        json!({"daemonlet.dev/partition": "1"}),
        json!({"daemonlet.dev/canary": "run=yes", "daemonlet.dev/canary-hold": "10m"}),
        json!({"daemonlet.dev/canary": "no=node"}),
    ] {
        let mut view = with_one_released(annotations.clone());
        assert_eq!(released(&view.plan(NOW)), ("False".to_owned(), "Held".to_owned(), message("one")), "{annotations}");
    }
    let mut view = with_one_released(json!({}));
    let mut on_delete = wanted("two", json!({}), view.view.daemons.values().next().unwrap().status.clone());
    on_delete["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    on_delete["metadata"]["generation"] = json!(9);
    view.put(WatchedKind::DaemonSets, on_delete);
    assert_eq!(released(&view.plan(NOW)).1, "RollingOut", "as upstream: a new pod is of the newest");
}

#[test]
fn nothing_is_released_before_a_node_has_it() {
    let mut view = ClusterWorld::default();
    view.put(WatchedKind::DaemonSets, wanted("one", json!({}), json!({})));
    view.put(WatchedKind::Revisions, revision("one", 1));
    let none = |plan: &ClusterPlan| !status(plan)["conditions"].to_string().contains("Released");
    assert!(none(&view.plan(NOW)));
    view.put(WatchedKind::Nodes, node("a", "True"));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"instances": []}), json!([])));
    assert!(none(&view.plan(NOW)));
}

#[test]
fn the_released_revision_is_never_pruned() {
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    let mut limited = wanted("two", json!({}), view.view.daemons.values().next().unwrap().status.clone());
    limited["spec"]["revisionHistoryLimit"] = json!(0);
    limited["metadata"]["generation"] = json!(9);
    view.put(WatchedKind::DaemonSets, limited);
    NODES.iter().for_each(|name| {
        view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": name}}))))
    });
    let deleted = |plan: &ClusterPlan| {
        plan.writes
            .iter()
            .any(|w| matches!(w, ObjectWrite::Revision { write: history::RevisionWrite::Delete { .. }, .. }))
    };
    assert!(!deleted(&view.plan(NOW)));
}

#[test]
fn nothing_is_approved_without_its_controller_revision() {
    let mut view = world(json!({}));
    view.put(WatchedKind::DaemonSets, wanted("three", json!({}), json!({"conditions": []})));
    let plan = view.plan(NOW);
    assert!(approved(&plan).is_empty());
    let [ObjectWrite::Revision { write: history::RevisionWrite::Create { .. }, .. }] = plan.writes.as_slice() else {
        panic!("{:?}", plan.writes)
    };
    // The API server refuses it: that is reported, and still nothing is approved.
    let target = crate::core::cluster::requests::target(&plan.writes[0]);
    let why = crate::core::cluster::requests::SendError::Refused("exceeded quota".to_owned());
    view.state.retries.failed(target, why, NOW);
    let plan = view.plan(NOW + ms(1_000));
    assert!(approved(&plan).is_empty());
    let (status, reason, message) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NoControllerRevision"));
    assert!(message.ends_with("exceeded quota"), "{message}");
    assert_eq!(self::status(&plan).get("observedGeneration"), None, "counters follow the current revision");
    assert_eq!(plan.troubles.len(), 1, "and an event says so");
}

#[test]
fn a_node_that_cannot_take_the_revision_does_not_delay_others() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"phase": "refused", "instances": []}), json!([])));
    assert_eq!(approved(&view.plan(NOW)), [("b".to_owned(), hash("two"))], "a refuses it");
    // An agent that has not reported yet may be in the middle of a replacement for a while.
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), plan.look_again), (vec![], Some(NOW + rollout::UNCLAIMED)));
    let plan = view.plan(NOW + rollout::UNCLAIMED);
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))]);
    assert_eq!(condition(&plan, "Degraded").2, "no agent on 1 node: a");
    // The rest is done: it says for whom it stands still.
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"phase": "refused"}), json!([])));
    let (status, reason, message) = condition(&view.plan(NOW), "Progressing");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Held"));
    assert_eq!(message, "1 of 4 nodes is left: 1 node cannot take it");
}

#[test]
fn a_node_whose_agent_leaves_the_daemon_alone_does_not_delay_others() {
    let mut view = world(json!({}));
    let nothing = json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"},
        "status": {"agentVersion": "1", "daemons": []}});
    view.put(WatchedKind::NodeDaemons, nothing.clone());
    let plan = view.plan(NOW);
    assert_eq!(
        (approved(&plan), plan.look_again),
        (vec![], Some(NOW + rollout::UNCLAIMED)),
        "it may be about to start it"
    );
    let plan = view.plan(NOW + rollout::UNCLAIMED);
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))]);
    assert_eq!(condition(&plan, "Degraded").2, "left alone by its agent on 1 node: a");
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let plan = view.plan(NOW + rollout::UNCLAIMED);
    assert_eq!((released(&plan).1.as_str(), status(&plan)["numberUnavailable"].as_i64()), ("Complete", Some(1)));
    assert_eq!(condition(&plan, "Progressing").2, "1 of 4 nodes is left: 1 node cannot take it");
    // It says something of it: it is counted again, from now on.
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"phase": "waiting", "instances": []}), json!([])));
    assert_eq!(condition(&view.plan(NOW + rollout::UNCLAIMED), "Degraded").1, "AsExpected");
    view.put(WatchedKind::NodeDaemons, nothing);
    assert_eq!(condition(&view.plan(NOW + rollout::UNCLAIMED + ms(1)), "Degraded").1, "AsExpected");
}

#[test]
fn a_node_that_reports_a_deleted_daemon_set_of_that_name_or_nothing_does_not_delay_others() {
    for said in [
        report("a", "one", json!({"uid": "deleted"}), json!([])),
        json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}}),
    ] {
        let mut view = world(json!({}));
        view.put(WatchedKind::NodeDaemons, said);
        assert_eq!(approved(&view.plan(NOW)), vec![], "it may be about to say something");
        let plan = view.plan(NOW + rollout::UNCLAIMED);
        assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))]);
        assert_eq!(condition(&plan, "Degraded").2, "left alone by its agent on 1 node: a");
    }
}

/// Which of the four nodes have renewed their Lease since the beginning.
pub(super) fn renewed(names: &[&str]) -> BTreeMap<String, String> {
    let when = |name: &&str| if names.contains(name) { "y" } else { "x" };
    NODES.iter().map(|name| ((*name).to_owned(), when(name).to_owned())).collect()
}

#[test]
fn the_status_names_the_released_revision_as_it_is_named_now() {
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    let mut renamed = revision("one", 1);
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(renamed.clone())));
    renamed["metadata"]["name"] = json!("net-restored");
    view.put(WatchedKind::Revisions, renamed);
    let message = format!("ControllerRevision net-restored (hash {}) at generation", hash("one"));
    assert_eq!(released(&view.plan(NOW)), ("False".to_owned(), "Held".to_owned(), message));
}

#[test]
fn a_node_that_does_not_become_available_or_does_not_end_its_claim_is_named() {
    let deadline = json!({"daemonlet.dev/progress-deadline": "1m", "daemonlet.dev/partition": "4"});
    let fresh = json!({"instances": [{"pod": "p", "revision": hash("two"), "created": NOW.to_string()}]});
    for more in [
        report("a", "two", fresh, json!([])),
        report("a", "one", json!({"replacing": hash("two")}), approval("two", &NOW.to_string())),
    ] {
        let mut view = with_one_released(deadline.clone());
        view.put(WatchedKind::NodeDaemons, more);
        assert_eq!(view.plan(NOW).look_again, Some(NOW + ms(60_000)));
        assert_eq!(condition(&view.plan(NOW + ms(59_999)), "Degraded").1, "AsExpected");
        let causes = condition(&view.plan(NOW + ms(60_000)), "Degraded").2;
        assert_eq!(causes, "not available within the progress deadline on 1 node: a");
    }
}

#[test]
fn what_is_let_go_has_none_of_our_conditions() {
    let mut view = with_one_released(json!({}));
    let mut said = view.view.daemons.values().next().unwrap().status.clone();
    said["conditions"].as_array_mut().unwrap().push(json!({"type": "Foreign", "status": "x"}));
    let of = |mode: Option<&str>| {
        let mut daemon = wanted("two", json!({}), said.clone());
        daemon["metadata"]["labels"] =
            json!(mode.map(|mode| BTreeMap::from([("daemonlet.dev/mode", mode)])).unwrap_or_default());
        daemon
    };
    let kept = json!({"conditions": [{"type": "Foreign", "status": "x"}]});
    view.put(WatchedKind::DaemonSets, of(Some("bootstrap")));
    assert_eq!(status(&view.plan(NOW)), kept);
    // Without a label: once each agent has reported that it does not run it. An agent that has not reported may.
    let other = |name: &str| report(name, "one", json!({"mode": null}), json!([]));
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, other(name)));
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
    view.put(WatchedKind::DaemonSets, of(None));
    assert_eq!(view.plan(NOW).writes, []);
    view.put(WatchedKind::NodeDaemons, other("a"));
    assert_eq!(status(&view.plan(NOW)), kept);
    // A node without an agent is waited for only so long.
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
    view.put(WatchedKind::DaemonSets, of(None));
    assert_eq!(view.plan(NOW).writes, []);
    assert_eq!(status(&view.plan(NOW + rollout::UNCLAIMED)), kept);
}

#[test]
fn a_share_of_the_nodes_may_fail() {
    for (most, halts) in [("50%", false), ("25%", true), ("1", true), ("2", false)] {
        let mut view = with_one_released(json!({"daemonlet.dev/max-failed": most}));
        ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
        assert_eq!(halt(&view.plan(NOW)).is_some(), halts, "{most}");
    }
}

#[test]
fn a_node_whose_approvals_are_refused_is_reported_and_takes_no_slot() {
    let mut view = with_one_released(json!({}));
    assert_eq!(approved(&view.plan(NOW))[0].0, "a");
    let refuse = |view: &mut ClusterWorld, name: &str, at: Timestamp| {
        let target = RequestTarget::Approvals(name.to_owned());
        view.state.retries.failed(target, SendError::Refused("you may not".to_owned()), at);
    };
    refuse(&mut view, "a", NOW);
    let plan = view.plan(NOW + ms(1));
    assert_eq!(approved(&plan)[0].0, "b");
    let cause = "the API server refuses to keep its approvals";
    assert_eq!(condition(&plan, "Degraded").2, format!("{cause} on 1 node: a"));
    assert_eq!(plan.refused, BTreeSet::from(["a".to_owned()]), "it is not forgotten meanwhile");
    // Of those that are refused, the one that is due next comes first.
    ["b", "c", "d", "a"].iter().zip(2..).for_each(|(name, at)| refuse(&mut view, name, NOW + ms(at)));
    assert_eq!(approved(&view.plan(NOW + ms(9)))[0].0, "b");
    // A node whose turn has not come is not reported for ever.
    let plan = view.plan(NOW + ms(60_000));
    assert_eq!((condition(&plan, "Degraded").1.as_str(), approved(&plan)[0].0.as_str()), ("AsExpected", "a"));
    assert_eq!(plan.refused.len(), 4, "how long it was refused counts if it is refused again");
}

#[test]
fn a_rollout_that_stands_still_without_a_hold_is_degraded() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::Nodes, node("a", "False"));
    let plan = view.plan(NOW);
    let cause = "the budget is taken by nodes on which it failed or does not become available";
    assert_eq!(condition(&plan, "Degraded").2, format!("{cause} on 1 node: a"));
    let of = |plan: &ClusterPlan| plan.troubles.iter().map(|(t, nodes)| (t.cause.note(), *nodes)).collect::<Vec<_>>();
    assert_eq!(of(&plan), [(cause.to_owned(), 1)]);
    view.put(WatchedKind::Nodes, node("a", "True"));
    assert_eq!(of(&view.plan(NOW)), []);
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::Nodes, node(name, "Unknown")));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let plan = view.plan(NOW);
    assert_eq!(of(&plan), [("too many nodes are unreachable for the rollout to go on".to_owned(), 3)]);
    assert!(condition(&plan, "Progressing").2.ends_with("3 of 4 nodes are unreachable"));
}
