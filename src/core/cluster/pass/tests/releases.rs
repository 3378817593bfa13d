//! What is released, what is halted, who is waited for.

use super::*;
use crate::core::cluster::requests;
use crate::core::cluster::requests::RequestTarget;
use crate::core::cluster::requests::RevisionChange;
use crate::core::cluster::requests::SendError;

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
fn the_released_revision_is_known_though_somebody_writes_the_conditions_anew() {
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
    // Of another object of that name no mark counts.
    let mut other = marked("one", 1, 2);
    other["metadata"]["annotations"] = json!({"daemonlet.dev/released": "other/2"});
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::Revisions, other);
    view.put(WatchedKind::DaemonSets, wanted("two", json!({}), json!({})));
    assert_eq!(approved(&view.plan(NOW)).len(), 1);
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
fn a_halt_outlives_the_nodes_on_which_it_failed_and_is_about_one_revision() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    assert_eq!(halt(&view.plan(NOW)), None, "one may fail");
    view.put(WatchedKind::NodeDaemons, failing("b"));
    let plan = view.plan(NOW);
    let halted = halt(&plan).expect("it is noted");
    assert_eq!((halted.cause.as_str(), halted.nodes.join(",").as_str()), ("the revision failed on 2 nodes", "a,b"));
    let (status, reason, words) = condition(&plan, "Halted");
    assert_eq!((status.as_str(), reason.as_str(), words), ("True", "Failed", halted.words()));
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
    // Coming back to it finds it halted; somebody who takes the annotation away ends that.
    let status = view.view.daemons.values().next().unwrap().status.clone();
    view.put(WatchedKind::DaemonSets, wanted("two", json!({}), status));
    assert!(approved(&view.plan(NOW)).is_empty());
    let mut ended = revision("two", 4);
    ended["metadata"]["uid"] = json!("r2");
    view.put(WatchedKind::Revisions, ended);
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("two"))]);
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
    // The API server refuses it: that is told, and still nothing is approved.
    let target = crate::core::cluster::requests::target(&plan.writes[0]);
    let why = crate::core::cluster::requests::SendError::Refused("exceeded quota".to_owned());
    view.state.retries.failed(target, why, NOW);
    let plan = view.plan(NOW + ms(1_000));
    assert!(approved(&plan).is_empty());
    let (status, reason, message) = condition(&plan, "Degraded");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "NoControllerRevision"));
    assert!(message.ends_with("exceeded quota"), "{message}");
    assert_eq!(self::status(&plan).get("observedGeneration"), None, "counters follow the current revision");
}

#[test]
fn a_node_that_cannot_take_the_revision_holds_nobody_up() {
    let mut view = world(json!({}));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"phase": "refused", "instances": []}), json!([])));
    assert_eq!(approved(&view.plan(NOW)), [("b".to_owned(), hash("two"))], "a refuses it");
    // An agent that was never heard may be in the middle of a replacement for a while.
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
fn a_node_whose_agent_leaves_the_daemon_alone_holds_nobody_up() {
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
fn reports_that_go_with_their_resource_are_no_outage_for_a_minute() {
    let mut view = world(json!({}));
    view.state.liveness.follow(&view.view, NOW);
    let first = view.plan(NOW);
    assert_eq!(status(&first)["numberReady"], 4);
    live(&mut view, "two", json!({}), &first);
    let gone = |name: &str| Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": name}})));
    view.take(gone("a"));
    view.put(WatchedKind::Nodes, node("b", "Unknown"));
    let lost = view.plan(NOW + ms(1));
    assert_eq!((status(&lost), lost.troubles.len()), (json!(null), 0), "nor is anything told that changes meanwhile");
    assert!(approved(&lost).is_empty(), "it may be in the middle of a replacement");
    let plan = view.plan(NOW + ms(1) + rollout::UNCLAIMED);
    assert_eq!(status(&plan)["numberReady"], 2);
    assert_eq!(condition(&plan, "Degraded").2, "no agent on 1 node: a");
    // A node that joins has none to lose.
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    view.put(WatchedKind::Nodes, node("e", "True"));
    assert_eq!(status(&view.plan(NOW + ms(2) + rollout::UNCLAIMED))["desiredNumberScheduled"], 5);
}

#[test]
fn nothing_more_is_approved_in_a_large_outage() {
    let away = |annotations: Value, away: usize| {
        let mut view = world(annotations);
        for name in ["e", "f", "g", "h"] {
            view.put(WatchedKind::Nodes, node(name, "True"));
            view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
        }
        ["h", "g", "f", "e"].iter().take(away).for_each(|name| view.put(WatchedKind::Nodes, node(name, "Unknown")));
        let plan = view.plan(NOW);
        (approved(&plan).len(), condition(&plan, "Progressing").2)
    };
    assert_eq!(away(json!({}), 2).0, 1);
    assert_eq!(away(json!({}), 3), (0, "8 of 8 nodes are left: 3 of 8 nodes are unreachable".to_owned()));
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "50%"}), 3).0, 1);
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "50%"}), 4).0, 0);
    assert_eq!(away(json!({"daemonlet.dev/max-unreachable": "1"}), 2).0, 1, "two are never a large outage");
}

#[test]
fn without_a_mode_agents_on_most_nodes_say_whose_it_is() {
    let mut view = world(json!({}));
    let mut plain = wanted("two", json!({}), json!({}));
    plain["metadata"]["labels"] = json!({});
    view.put(WatchedKind::DaemonSets, plain);
    assert!(is_ours(&view.plan(NOW)), "all of them, in any namespace");
    let other = |name: &str| report(name, "one", json!({"mode": null}), json!([]));
    ["a", "b"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, other(name)));
    let plan = view.plan(NOW);
    assert_eq!((&plan.writes, plan.few.len()), (&vec![], 1), "half of them are not most");
    assert_eq!((plan.few[0].run, plan.few[0].should, plan.few[0].node.as_str()), (2, 4, "c"));
    ["c", "d"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, other(name)));
    assert_eq!(view.plan(NOW).few, []);
    // The label counts wherever it is; a bootstrap one is the DaemonSet controller's.
    let mut elsewhere = ClusterWorld::default();
    let mut labelled = wanted("one", json!({}), json!({}));
    labelled["metadata"]["namespace"] = json!("monitoring");
    elsewhere.put(WatchedKind::DaemonSets, labelled);
    assert_eq!(elsewhere.plan(NOW).writes.len(), 1);
    let mut bootstrap = wanted("two", json!({}), json!({}));
    bootstrap["metadata"]["labels"] = json!({"daemonlet.dev/mode": "bootstrap"});
    view.put(WatchedKind::DaemonSets, bootstrap);
    assert_eq!(view.plan(NOW).writes, []);
}

#[test]
fn a_dead_agent_is_not_believed() {
    let mut view = world(json!({}));
    let leases =
        |renewed: &str| NODES.map(|name| (name.to_owned(), if name == "a" { "x" } else { renewed }.to_owned())).into();
    for seconds in (0..=60).step_by(15) {
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&leases(&seconds.to_string()), NOW + ms(seconds * 1_000));
    }
    let now = NOW + ms(60_000);
    let plan = view.plan(now);
    assert_eq!(plan.mirrors, [MirrorPodLookup { node: "a".to_owned(), pod: ObjectKey::new("kube-system", "p") }]);
    assert_eq!(status(&plan)["numberReady"], 3, "what is not known is not ready");
    assert_eq!(condition(&plan, "Degraded").2, "agent does not renew its Lease on 1 node: a");
    assert_eq!(approved(&plan), [("b".to_owned(), hash("two"))], "it takes no slot and gets no approval");
    let look = plan.mirrors[0].clone();
    view.state.liveness.looking_up(look.clone(), now);
    view.state
        .liveness
        .looked_up(&look, Some(&json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})));
    assert_eq!(status(&view.plan(now))["numberReady"], 4);
    // One that has claimed, or has the wanted revision, keeps its slot.
    for more in [
        json!({"replacing": hash("two")}),
        json!({"instances": [{"pod": "p", "revision": hash("two"), "created": FAILED_AT}]}),
    ] {
        view.put(WatchedKind::NodeDaemons, report("a", "one", more.clone(), json!([])));
        assert!(approved(&view.plan(now)).is_empty(), "{more}");
    }
    // What it says anew brings it back to life.
    let alive = report("a", "one", json!({"message": "x"}), json!([]));
    view.put(WatchedKind::NodeDaemons, alive);
    view.state.liveness.follow(&view.view, now);
    assert_eq!((view.plan(now).mirrors, approved(&view.plan(now)).len()), (vec![], 1));
}

/// Which of the four nodes have renewed their Lease since the beginning.
pub(super) fn renewed(names: &[&str]) -> BTreeMap<String, String> {
    let when = |name: &&str| if names.contains(name) { "y" } else { "x" };
    NODES.iter().map(|name| ((*name).to_owned(), when(name).to_owned())).collect()
}

#[test]
fn who_takes_over_believes_no_agent_before_it_is_heard() {
    let mut view = with_one_released(json!({}));
    let before = view.view.daemons.values().next().unwrap().status.clone();
    let mut three = before.clone();
    // The last holder knew that the pod of `a` is not ready.
    for (field, number) in [("numberReady", 3), ("numberAvailable", 3), ("numberUnavailable", 1)] {
        three[field] = json!(number);
    }
    view.put(WatchedKind::DaemonSets, wanted("two", json!({}), three));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::NodeDaemons, report("b", "one", json!({}), approval("two", &NOW.to_string())));
    view.state.liveness.follow(&view.view, NOW);
    view.state.liveness.listed(&renewed(&[]), NOW);
    let plan = view.plan(NOW);
    let counters = ["numberReady", "numberAvailable", "numberUnavailable"].map(|field| status(&plan)[field].clone());
    assert_eq!(counters, [json!(null), json!(null), json!(null)], "they stay");
    let writes = plan.writes.iter().any(|write| matches!(write, ObjectWrite::Approvals { .. }));
    assert!(!writes, "nothing is given, and nothing is taken back: {:?}", plan.writes);
    // All but one of those who have it are heard; then the last one is, or is dead.
    NODES[1..3].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let of = |view: &mut ClusterWorld, second: i64, names: &[&str]| {
        let now = NOW + ms(second * 1_000);
        view.state.liveness.listed(&renewed(names), now);
        let plan = view.plan(now);
        (approved(&plan).len(), status(&plan)["numberReady"].clone())
    };
    assert_eq!(of(&mut view, 15, &["b", "c", "d"]), (0, json!(null)), "it may have the slot");
    let mut heard = ClusterWorld { view: view.view.clone(), state: view.state.clone() };
    assert_eq!(of(&mut heard, 30, &NODES), (1, json!(4)));
    for second in [30, 45] {
        view.state.liveness.listed(&renewed(&["b", "c", "d"]), NOW + ms(second * 1_000));
    }
    assert_eq!(of(&mut view, 60, &["b", "c", "d"]), (0, json!(null)), "it has it");
}

#[test]
fn who_takes_over_releases_nothing_and_forgets_no_broken_node_before_agents_are_heard() {
    let mut view = with_one_released(json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let lost = json!({"nodes": [{"node": "a", "uid": "a", "time": "2023-01-01T00:00:00Z"}]});
    let mut two = revision("two", 2);
    two["metadata"]["annotations"] = json!({"daemonlet.dev/broken": lost.to_string()});
    view.put(WatchedKind::Revisions, two);
    let notes = |plan: &ClusterPlan| {
        let is_note = |write: &ObjectWrite| {
            matches!(write, ObjectWrite::Revision { write: history::RevisionWrite::Broken { .. }, .. })
        };
        plan.writes.iter().any(is_note)
    };
    view.state.liveness.follow(&view.view, NOW);
    view.state.liveness.listed(&renewed(&[]), NOW);
    let plan = view.plan(NOW);
    assert_eq!((released(&plan).2, notes(&plan)), (message("one"), false));
    view.state.liveness.listed(&renewed(&NODES), NOW + ms(15_000));
    let plan = view.plan(NOW + ms(15_000));
    assert_eq!((released(&plan).2, notes(&plan)), (message("two"), true));
}

#[test]
fn steps_canaries_zones_and_first_installs_wait_until_agents_are_heard() {
    let on_first = |annotations: Value, number: usize| {
        let mut view = with_one_released(annotations);
        NODES[..number].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        let mut wide = view.view.daemons.values().next().unwrap().status.clone();
        wide["updatedNumberScheduled"] = json!(number);
        view
    };
    let steps = json!({"daemonlet.dev/steps": "1, 0s; 100%"});
    let canary = json!({"daemonlet.dev/canary": "first=yes", "daemonlet.dev/canary-hold": "0s"});
    for annotations in [steps, canary] {
        let mut view = on_first(annotations.clone(), 1);
        let mut first = node("a", "True");
        first["metadata"]["labels"]["first"] = json!("yes");
        view.put(WatchedKind::Nodes, first);
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&renewed(&[]), NOW);
        view.state.liveness.listed(&renewed(&["b", "c", "d"]), NOW + ms(15_000));
        let step = |plan: &ClusterPlan| {
            plan.writes.iter().any(|write| {
                let ObjectWrite::Revision { write, .. } = write else { return false };
                matches!(write, history::RevisionWrite::Step { state, .. } if state.step > 1)
            })
        };
        let plan = view.plan(NOW + ms(15_000));
        assert_eq!((approved(&plan).len(), step(&plan)), (0, false), "{annotations}");
        assert_eq!(released(&plan).2, message("one"));
        view.state.liveness.listed(&renewed(&NODES), NOW + ms(30_000));
        let plan = view.plan(NOW + ms(30_000));
        assert!(approved(&plan).len() == 1 || step(&plan), "{annotations}: {:?}", plan.writes);
    }
}

#[test]
fn a_few_nodes_release_nothing_while_the_others_are_silent() {
    let mut view = with_one_released(json!({}));
    let joined = "e";
    view.put(WatchedKind::Nodes, node(joined, "True"));
    view.put(WatchedKind::NodeDaemons, on_two(joined));
    let list = |view: &mut ClusterWorld, second: i64, names: &[&str]| {
        view.state.liveness.follow(&view.view, NOW);
        view.state.liveness.listed(&renewed(names), NOW + ms(second * 1_000));
    };
    (0..=60).step_by(15).for_each(|second| list(&mut view, second, &[]));
    let plan = view.plan(NOW + ms(60_000));
    assert_eq!(condition(&plan, "Degraded").2, "agent does not renew its Lease on 4 nodes: a, b, c, d");
    assert_eq!(released(&plan).2, message("one"), "one node does not speak for five");
    let mut some = ClusterWorld { view: view.view.clone(), state: view.state.clone() };
    // Two that are silent hold nothing up, as two that are unreachable do not.
    ["a", "b"].iter().for_each(|name| some.put(WatchedKind::NodeDaemons, on_two(name)));
    list(&mut some, 75, &["a", "b"]);
    assert_eq!(released(&some.plan(NOW + ms(75_000))).2, message("two"));
    // One that is unreachable is as silent.
    some.put(WatchedKind::Nodes, node("a", "Unknown"));
    assert_eq!(released(&some.plan(NOW + ms(75_000))).2, message("one"));
    view.put(
        WatchedKind::DaemonSets,
        wanted(
            "two",
            json!({"daemonlet.dev/max-unreachable": "5"}),
            view.view.daemons.values().next().unwrap().status.clone(),
        ),
    );
    assert_eq!(released(&view.plan(NOW + ms(60_000))).2, message("two"), "whoever wants that writes it");
}

#[test]
fn a_halt_that_somebody_ended_comes_back_with_the_next_failure_alone() {
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
    let said = Halted { time: NOW.to_string(), cause: "no".to_owned(), nodes: vec!["gone".to_owned()] };
    let mut told = before.clone();
    told["observedGeneration"] = json!(3);
    told["conditions"].as_array_mut().unwrap().iter_mut().filter(|c| c["type"] == "Released").for_each(|c| {
        let message = c["message"].as_str().unwrap().rsplit_once(' ').unwrap().0;
        c["message"] = json!(format!("{message} 3"));
    });
    told["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "Halted", "status": "True", "reason": "Failed", "message": said.words()}));
    let is_forgotten = |plan: &ClusterPlan| {
        let write =
            |w: &ObjectWrite| matches!(w, ObjectWrite::Revision { write: history::RevisionWrite::Retried { .. }, .. });
        plan.writes.iter().any(write)
    };
    let annotations = json!({"daemonlet.dev/max-failed": "0"});
    view.put(WatchedKind::DaemonSets, wanted("two", annotations.clone(), told));
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
    assert_eq!((halted.cause.as_str(), halted.nodes.len()), ("the revision failed on 50 nodes", 10));
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
    let told = format!("the nodes that are retried cannot be named on ControllerRevision {name}: you may not");
    assert!(condition(&plan, "Progressing").2.ends_with(&told), "{:?}", condition(&plan, "Progressing"));
    // Another coordinator has not tried yet.
    view.state = CoordinatorState::default();
    let plan = view.plan(NOW + ms(2));
    assert!(approved(&plan).is_empty() && plan.writes.iter().any(|write| requests::target(write) == target));
    assert_eq!(approved(&view.plan(NOW + ms(3))).len(), 1, "it was not refused");
}

#[test]
fn the_released_revision_is_told_by_the_name_that_it_has_now() {
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    let mut renamed = revision("one", 1);
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(renamed.clone())));
    renamed["metadata"]["name"] = json!("net-restored");
    view.put(WatchedKind::Revisions, renamed);
    let told = format!("ControllerRevision net-restored (hash {}) at generation", hash("one"));
    assert_eq!(released(&view.plan(NOW)), ("False".to_owned(), "Held".to_owned(), told));
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
        let told = condition(&view.plan(NOW + ms(60_000)), "Degraded").2;
        assert_eq!(told, "not available within the progress deadline on 1 node: a");
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
    // Without a label, once each agent has said that it does not run it; agents that are not heard may.
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
    // Its ControllerRevision is not there yet: the same is told a second later.
    let words = condition(&view.plan(NOW), "Halted").2;
    assert_eq!(condition(&view.plan(NOW + ms(1_000)), "Halted").2, words);
    view.put(WatchedKind::Revisions, of_it);
    assert_eq!(halt(&view.plan(NOW + ms(2_000))).map(|halted| halted.words()), Some(words));
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
fn nothing_is_released_while_a_node_is_not_heard_or_kept_and_what_is_released_does_not_halt() {
    let mut view = with_one_released(json!({}));
    ["b", "c", "d"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
    assert_eq!(released(&view.plan(NOW)).2, message("one"), "a may have the old one");
    assert_eq!(released(&view.plan(NOW + rollout::UNCLAIMED)).2, message("two"), "it has no agent");
    let mut view = with_one_released(json!({"daemonlet.dev/paused": "true"}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    assert_eq!(released(&view.plan(NOW)).2, message("one"), "a paused rollout releases nothing");
    // Nodes that fail what is released are told and halt nothing.
    let mut view = with_one_released(json!({}));
    view.put(
        WatchedKind::DaemonSets,
        wanted("one", json!({}), view.view.daemons.values().next().unwrap().status.clone()),
    );
    let failed = json!({"failed": {"revision": hash("one"), "cause": "image", "message": "no"}});
    ["a", "b"]
        .iter()
        .for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", failed.clone(), json!([]))));
    let plan = view.plan(NOW);
    assert_eq!((halt(&plan), condition(&plan, "Degraded").2.as_str()), (None, "image on 2 nodes: a, b"));
}

#[test]
fn a_node_that_the_revision_cuts_off_has_failed_after_its_deadline() {
    let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"}));
    let fresh = json!([{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z"}]);
    view.put(WatchedKind::NodeDaemons, report("a", "two", json!({"instances": fresh}), json!([])));
    view.plan(NOW);
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    assert_eq!(halt(&view.plan(NOW + ms(59_000))), None);
    assert_eq!(halt(&view.plan(NOW + ms(60_000))).map(|halted| halted.nodes), Some(vec!["a".to_owned()]));
    view.state = CoordinatorState::default();
    view.put(WatchedKind::Nodes, node("a", "True"));
    assert_eq!(halt(&view.plan(NOW + ms(60_000))), None, "it is heard: its agent says so itself");
}

/// A Node that has been unreachable since then.
fn away(name: &str, since: &str) -> Value {
    let mut away = node(name, "Unknown");
    away["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
    away
}

#[test]
fn a_node_that_goes_soon_after_its_update_has_failed_and_one_that_goes_later_has_not() {
    let halts = |more: Value, approvals: Value, since: &str| {
        let mut view =
            with_one_released(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"}));
        view.put(WatchedKind::NodeDaemons, report("a", "one", more, approvals));
        view.plan(NOW);
        view.put(WatchedKind::Nodes, away("a", since));
        halt(&view.plan(NOW + ms(60_000))).is_some()
    };
    let ready = json!({"instances": [{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z",
        "readySince": "2023-11-14T22:13:25Z"}]});
    assert!(halts(ready.clone(), json!([]), "2023-11-14T22:13:40Z"), "it was ready for some seconds");
    assert!(!halts(ready, json!([]), "2023-11-14T22:14:20Z"), "it goes after the progress deadline");
    let given = || approval("two", "2023-11-14T22:13:20Z");
    assert!(halts(json!({"replacing": hash("two")}), given(), "2023-11-14T22:13:40Z"), "its last word was the claim");
    assert!(!halts(json!({}), given(), "2023-11-14T22:13:40Z"), "it has not claimed it");
}

#[test]
fn a_node_that_is_cordoned_and_goes_while_it_serves_was_taken_away() {
    let halts = |trigger: Option<&str>, instance: Value, is_late: bool| {
        let mut annotations = json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"});
        trigger.into_iter().for_each(|trigger| annotations["daemonlet.dev/update"] = json!(trigger));
        let mut view = with_one_released(annotations);
        view.put(WatchedKind::NodeDaemons, report("a", "two", json!({"instances": [instance]}), json!([])));
        let taints = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        let mut cordoned = node("a", "True");
        cordoned["spec"]["taints"] = if is_late { json!([]) } else { taints.clone() };
        view.put(WatchedKind::Nodes, cordoned);
        view.plan(NOW);
        let mut away = away("a", "2023-11-14T22:13:40Z");
        away["spec"]["taints"] = taints;
        view.put(WatchedKind::Nodes, away);
        halt(&view.plan(NOW + ms(60_000))).is_some()
    };
    let fresh = || json!({"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z"});
    let ready = || {
        let mut ready = fresh();
        ready["readySince"] = json!("2023-11-14T22:13:25Z");
        ready
    };
    assert!(!halts(None, ready(), false));
    assert!(halts(None, fresh(), false), "it never served there");
    assert!(halts(None, ready(), true), "somebody cordons what broke");
    assert!(!halts(Some("boot"), ready(), false));
    assert!(halts(Some("drain"), ready(), false), "each node is cordoned that takes it");
}

#[test]
fn what_the_status_tells_of_a_halt_counts_whenever_its_nodes_are_heard() {
    let mut view = with_one_released(json!({}));
    ["a", "b"].into_iter().for_each(|name| view.put(WatchedKind::NodeDaemons, failing(name)));
    let plan = view.plan(NOW);
    let halted = halt(&plan).expect("it is noted");
    live(&mut view, "two", json!({}), &plan);
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), json!([])));
    }
    // Another coordinator has not heard yet that agents run it, and decides about others.
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
    assert_eq!((halt(&plan), approved(&plan)), (Some(halted), vec![]));
}

#[test]
fn a_node_whose_approvals_are_refused_is_told_and_takes_no_slot() {
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
    // Nobody says so for ever of a node whose turn has not come.
    let plan = view.plan(NOW + ms(60_000));
    assert_eq!((condition(&plan, "Degraded").1.as_str(), approved(&plan)[0].0.as_str()), ("AsExpected", "a"));
    assert_eq!(plan.refused.len(), 4, "how long it was refused counts if it is refused again");
}

#[test]
fn a_revision_is_not_released_while_a_node_that_went_away_with_it_may_yet_fail() {
    let mut view = with_one_released(json!({"daemonlet.dev/progress-deadline": "1m"}));
    for name in &NODES[1..] {
        view.put(WatchedKind::NodeDaemons, report(name, "two", json!({}), json!([])));
    }
    let fresh = json!({"instances": [{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z"}]});
    view.put(WatchedKind::NodeDaemons, report("a", "two", fresh, json!([])));
    view.plan(NOW);
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    let mut reason = |at| released(&view.plan(at)).1;
    assert_eq!(reason(NOW + ms(59_000)), "RollingOut");
    assert_eq!(reason(NOW + ms(60_000)), "Complete", "one node may fail");
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
    let words = condition(&plan, "Degraded").2;
    assert!(
        words.ends_with(&format!("; its halt cannot be noted on ControllerRevision {name}: you may not")),
        "{words}"
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
    assert_eq!((halt(&plan), approved(&plan)), (Some(halted.clone()), vec![]));
    let plan = view.plan(NOW + ms(4));
    assert_eq!((halt(&plan), approved(&plan)), (Some(halted), vec![]));
    // `kubectl daemonlet retry` names the nodes that count no more.
    let mut retried = revision("two", 2);
    retried["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "a,b"});
    view.put(WatchedKind::Revisions, retried);
    let plan = view.plan(NOW + ms(5));
    assert_eq!((halt(&plan), approved(&plan).len()), (None, 1));
    view.put(WatchedKind::Revisions, revision("two", 2));
    assert_eq!(approved(&view.plan(NOW + ms(6))).len(), 1, "what the status says is its own word by now");
}

#[test]
fn a_rollout_that_stands_still_though_nobody_wrote_so_is_degraded() {
    let mut view = with_one_released(json!({}));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    view.put(WatchedKind::Nodes, node("a", "False"));
    let plan = view.plan(NOW);
    let cause = "the budget is taken by nodes on which it failed or does not become available";
    assert_eq!(condition(&plan, "Degraded").2, format!("{cause} on 1 node: a"));
    let of = |plan: &ClusterPlan| plan.troubles.iter().map(|(t, nodes)| (t.cause.clone(), *nodes)).collect::<Vec<_>>();
    assert_eq!(of(&plan), [(cause.to_owned(), 1)]);
    view.put(WatchedKind::Nodes, node("a", "True"));
    assert_eq!(of(&view.plan(NOW)), []);
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::Nodes, node(name, "Unknown")));
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
    let plan = view.plan(NOW);
    assert_eq!(of(&plan), [("too many nodes are unreachable for the rollout to go on".to_owned(), 3)]);
    assert!(condition(&plan, "Progressing").2.ends_with("3 of 4 nodes are unreachable"));
}
