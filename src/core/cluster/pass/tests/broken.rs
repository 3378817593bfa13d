//! Nodes that are lost after they took the current revision.

use super::*;
use crate::core::cluster::broken::BROKEN_ANNOTATION;
use crate::core::cluster::broken::BrokenNodes;
use crate::core::cluster::broken::NodeVerdict;

mod deleted_revision;
mod taken_away;

const SECOND: i64 = 1_000;

/// Seconds from [`NOW`] on.
fn after(seconds: i64) -> Timestamp {
    NOW + ms(seconds * SECOND)
}

/// A node that took the second revision then; since when it is ready, if it is.
fn took(name: &str, created: i64, ready: Option<i64>) -> Value {
    let instance = json!({"pod": "p", "revision": hash("two"), "created": after(created).to_string(),
        "readySince": ready.map(|ready| after(ready).to_string())});
    report(name, "two", json!({"previous": hash("one"), "instances": [instance]}), json!([]))
}

/// The node `a`, which is Ready or not, with a taint.
fn with_taint(ready: &str, taint: &str) -> Value {
    let mut node = node("a", ready);
    let taints = if taint.is_empty() { json!([]) } else { json!([{"key": taint, "effect": "NoSchedule"}]) };
    node["spec"] = json!({"taints": taints});
    node
}

impl ClusterWorld {
    fn delete(&mut self, name: &str) {
        self.take(Change::Gone(WatchedKind::Nodes, Box::new(node(name, "True"))));
        self.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(took(name, 0, None))));
    }

    /// What the plan notes on the ControllerRevision, which is carried out.
    fn note(&mut self, plan: &ClusterPlan) -> Option<BrokenNodes> {
        let of = |write: &ObjectWrite| match write {
            ObjectWrite::Revision { write: history::RevisionWrite::Broken { broken, .. }, .. } => Some(broken.clone()),
            _ => None,
        };
        let broken = plan.writes.iter().find_map(of)?;
        self.annotate(broken.annotation().map_or(Value::Null, Value::String));
        self.state.broken.values_mut().for_each(|of| of.nodes.retain(|_, s| s.verdict != NodeVerdict::Lost));
        Some(broken)
    }

    fn annotate(&mut self, annotation: Value) {
        let mut two = revision("two", 2);
        two["metadata"]["annotations"] = json!({BROKEN_ANNOTATION: annotation});
        self.put(WatchedKind::Revisions, two);
    }
}

fn halted(plan: &ClusterPlan) -> Option<String> {
    plan.halts.values().next().map(|known| format!("{}: {}", known.halted.cause, known.halted.nodes.join(" ")))
}

const ONE: &str = "the revision failed on 1 node, 1 of them deleted: a";

#[test]
fn a_node_that_is_deleted_while_it_is_not_well_with_the_revision_has_failed() {
    // What the node is, one state after the other, with the second of each; whether its deletion at the end counts.
    let ready = || took("a", 0, Some(5));
    let unready = || took("a", 0, None);
    let claims = || {
        let approved = approval("two", &NOW.to_string());
        report("a", "one", json!({"replacing": hash("two")}), approved)
    };
    let went_back = || {
        let failed = json!({"revision": hash("two"), "cause": "image", "message": "no"});
        let instance = json!({"pod": "q", "revision": hash("one"), "created": after(40).to_string()});
        report("a", "two", json!({"failed": failed, "instances": [instance]}), json!([]))
    };
    type Story = Vec<(i64, Value, Value)>;
    let well = || node("a", "True");
    let autoscaler = || with_taint("True", "ToBeDeletedByClusterAutoscaler");
    let cordoned = || with_taint("True", "node.kubernetes.io/unschedulable");
    let stories: Vec<(&str, Story, bool)> = vec![
        ("it is well", vec![(30, well(), ready())], false),
        ("it has the older one", vec![(30, well(), report("a", "one", json!({}), json!([])))], false),
        ("it claims", vec![(30, well(), claims())], true),
        ("it is not available yet", vec![(30, well(), unready())], true),
        ("its agent is silent", vec![(30, well(), ready()), (60, node("a", "Unknown"), ready())], true),
        ("it is not ready", vec![(30, well(), ready()), (60, node("a", "False"), ready())], true),
        ("it breaks long after", vec![(30, well(), ready()), (700, node("a", "False"), ready())], false),
        (
            "it broke, and much later it goes",
            vec![(60, node("a", "False"), ready()), (900, node("a", "False"), ready())],
            true,
        ),
        ("it was back", vec![(60, node("a", "False"), ready()), (90, well(), ready())], false),
        ("it is removed", vec![(30, autoscaler(), unready())], false),
        (
            "it is removed and gone",
            vec![(30, cordoned(), ready()), (60, with_taint("False", "node.kubernetes.io/unschedulable"), ready())],
            false,
        ),
        (
            "it is removed because it broke",
            vec![
                (30, node("a", "False"), ready()),
                (60, with_taint("False", "node.kubernetes.io/unschedulable"), ready()),
            ],
            true,
        ),
        ("it stays after all", vec![(30, cordoned(), ready()), (60, node("a", "False"), ready())], true),
        ("it has failed, and is removed", vec![(30, autoscaler(), failing("a"))], true),
        ("it failed and went back", vec![(30, well(), failing("a")), (60, well(), went_back())], true),
        (
            "it was removed before this coordinator looked",
            vec![(60, with_taint("Unknown", "ToBeDeletedByClusterAutoscaler"), ready())],
            false,
        ),
    ];
    for (name, states, counts) in stories {
        let mut view = world(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/partition": "4"}));
        for (at, node, report) in states {
            view.put(WatchedKind::Nodes, node);
            view.put(WatchedKind::NodeDaemons, report);
            view.plan(after(at));
        }
        view.delete("a");
        let plan = view.plan(after(901));
        let why = halted(&plan);
        assert_eq!(why.is_some(), counts, "{name}: {why:?}");
        let noted = view.note(&plan).map(|broken| broken.nodes.len());
        assert!(noted.is_some_and(|noted| noted == 1) == counts, "{name}: {noted:?}");
        // It counts once, whichever coordinator decides.
        view.state = CoordinatorState::default();
        let plan = view.plan(after(902));
        assert_eq!((halted(&plan), view.note(&plan)), (counts.then_some(ONE.to_owned()), None), "{name}");
    }
}

#[test]
fn a_drain_that_an_update_waits_for_announces_no_removal() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/update": "drain"}));
    view.put(WatchedKind::Nodes, with_taint("True", "node.kubernetes.io/unschedulable"));
    view.put(WatchedKind::NodeDaemons, took("a", 0, None));
    view.plan(after(10));
    view.delete("a");
    assert_eq!(halted(&view.plan(after(20))).as_deref(), Some(ONE));
}

#[test]
fn a_node_that_is_deleted_while_no_coordinator_runs_was_noted_before() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    view.put(WatchedKind::NodeDaemons, took("a", 0, Some(5)));
    let plan = view.plan(after(30));
    assert_eq!((view.note(&plan), plan.look_again <= Some(after(90))), (None, true));
    let plan = view.plan(after(90));
    assert_eq!(view.note(&plan).map(|broken| broken.nodes.len()), Some(1));
    assert_eq!(halted(&plan), None, "it may come back");
    view.state = CoordinatorState::default();
    let plan = view.plan(after(900));
    assert_eq!(view.note(&plan), None, "it stays noted, though it is not known since when it is not well");
    let mut back = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
    view.delete("a");
    assert_eq!(halted(&view.plan(after(901))).as_deref(), Some(ONE));
    back.put(WatchedKind::Nodes, node("a", "True"));
    let plan = back.plan(after(901));
    assert_eq!(back.note(&plan), Some(BrokenNodes::default()), "it is well");
}

#[test]
fn a_node_that_is_cut_off_has_failed_though_the_clock_of_the_coordinator_is_behind() {
    let ahead = |status: &str, at: i64| {
        let mut node = node("a", status);
        node["status"]["conditions"][0]["lastTransitionTime"] = json!(after(at + 3_600).to_string());
        node
    };
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    let taken = took("a", 3_600, Some(3_605));
    for (at, node) in [(0, ahead("True", 0)), (30, ahead("Unknown", 30)), (599, ahead("Unknown", 30))] {
        view.put(WatchedKind::Nodes, node);
        view.put(WatchedKind::NodeDaemons, taken.clone());
        assert_eq!(halted(&view.plan(after(at))), None, "{at}");
    }
    assert!(halted(&view.plan(after(601))).is_some_and(|message| message.starts_with("the revision failed on 1 node")));
}

#[test]
fn a_node_whose_clock_is_behind_has_its_progress_deadline_from_when_it_was_seen() {
    const BEHIND: i64 = -3_600;
    let most = json!({"daemonlet.dev/max-failed": "0"});
    let begun = || {
        let mut view = world(most.clone());
        NODES.iter().for_each(|name| {
            let mut one = report(name, "one", json!({"previous": hash("one")}), json!([]));
            one["status"]["agentVersion"] = json!("1");
            view.put(WatchedKind::NodeDaemons, one);
        });
        view.plan(after(0));
        view
    };
    let unready = || took("a", BEHIND, None);
    let ready = || took("a", BEHIND, Some(BEHIND + 5));
    // It breaks soon after its update, and is deleted.
    let mut view = begun();
    for (at, node, report) in
        [(10, node("a", "True"), unready()), (20, node("a", "True"), ready()), (60, node("a", "False"), ready())]
    {
        view.put(WatchedKind::Nodes, node);
        view.put(WatchedKind::NodeDaemons, report);
        view.plan(after(at));
    }
    view.delete("a");
    assert_eq!(halted(&view.plan(after(90))).as_deref(), Some(ONE));
    // It goes away for a moment before it is ready: it is not cut off yet.
    let mut view = begun();
    for (at, node, is_halted) in [
        (10, node("a", "True"), false),
        (20, node("a", "Unknown"), false),
        (609, node("a", "Unknown"), false),
        (610, node("a", "Unknown"), true),
    ] {
        view.put(WatchedKind::Nodes, node);
        view.put(WatchedKind::NodeDaemons, unready());
        assert_eq!(halted(&view.plan(after(at))).is_some(), is_halted, "{at}");
    }
    // Nothing is released while it may yet fail.
    let mut view = begun();
    NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, took(name, 0, Some(5))));
    view.put(WatchedKind::NodeDaemons, unready());
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    let is_released = |plan: &ClusterPlan| status(plan)["conditions"].to_string().contains("Released");
    assert!(!is_released(&view.plan(after(10))));
    assert!(!is_released(&view.plan(after(600))));
}

#[test]
fn a_new_report_clears_no_node() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    view.put(WatchedKind::NodeDaemons, took("a", 0, Some(5)));
    view.plan(after(30));
    let plan = view.plan(after(90));
    assert_eq!(view.note(&plan).map(|broken| broken.nodes.len()), Some(1));
    // It says nothing yet.
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(took("a", 0, None))));
    view.put(
        WatchedKind::NodeDaemons,
        json!({"metadata": {"name": "a", "uid": "n", "resourceVersion": "9"}, "spec": {}}),
    );
    let plan = view.plan(after(91));
    assert_eq!(view.note(&plan), None, "it stays noted");
    view.delete("a");
    assert_eq!(halted(&view.plan(after(92))).as_deref(), Some(ONE));
}

#[test]
fn a_machine_of_the_same_name_is_another_node() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    view.put(WatchedKind::NodeDaemons, took("a", 0, None));
    view.plan(after(10));
    let mut new = node("a", "True");
    new["metadata"]["uid"] = json!("another");
    view.put(WatchedKind::Nodes, new);
    view.put(WatchedKind::NodeDaemons, took("a", 20, Some(25)));
    assert_eq!(halted(&view.plan(after(30))).as_deref(), Some(ONE));
}

#[test]
fn reports_that_go_before_their_nodes_hide_nothing() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    view.put(WatchedKind::NodeDaemons, took("a", 0, None));
    view.plan(after(10));
    view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(took("a", 0, None))));
    view.plan(after(20));
    view.take(Change::Gone(WatchedKind::Nodes, Box::new(node("a", "True"))));
    assert_eq!(halted(&view.plan(after(30))).as_deref(), Some(ONE));
}

#[test]
fn each_lost_node_counts_once_and_only_some_are_named() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "50"}));
    let names: Vec<String> = (0..51).map(|number| format!("n{number:02}")).collect();
    for name in &names {
        view.put(WatchedKind::Nodes, node(name, "True"));
        view.put(WatchedKind::NodeDaemons, took(name, 0, None));
    }
    view.plan(after(10));
    names[..50].iter().for_each(|name| view.delete(name));
    let plan = view.plan(after(20));
    let degraded = condition(&plan, "Degraded").2;
    assert!(degraded.starts_with("its Node was deleted after it took the revision"), "{degraded}");
    // The write fails, and it is decided once more.
    view.plan(after(21));
    let plan = view.plan(after(22));
    let noted = view.note(&plan).unwrap();
    assert_eq!((noted.nodes.len(), noted.more), (32, 18));
    let plan = view.plan(after(23));
    assert_eq!((view.note(&plan), halted(&plan)), (None, None));
    view.delete(&names[50]);
    let halted = halted(&view.plan(after(24))).unwrap();
    assert!(
        halted.starts_with("the revision failed on 51 nodes, 51 of them deleted or not to run it any more: n00 n01"),
        "{halted}"
    );
}

#[test]
fn a_released_revision_has_broken_no_node_and_another_revision_begins_anew() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    let lost = json!({"nodes": [{"node": "gone", "uid": "gone", "time": "2023-01-01T00:00:00Z"}]});
    view.annotate(json!(lost.to_string()));
    assert!(halted(&view.plan(NOW)).is_some());
    let mut other = daemon_set("one", json!({"daemonlet.dev/max-failed": "0"}), json!({}));
    other["metadata"]["generation"] = json!(4);
    view.put(WatchedKind::DaemonSets, other);
    assert_eq!(halted(&view.plan(NOW)), None);
    let message = format!("ControllerRevision net-{0} (hash {0}) at generation 3", hash("two"));
    let released =
        json!({"conditions": [{"type": "Released", "status": "True", "reason": "Complete", "message": message}]});
    view.put(WatchedKind::DaemonSets, daemon_set("two", json!({"daemonlet.dev/max-failed": "0"}), released));
    let plan = view.plan(NOW);
    assert_eq!((halted(&plan), view.note(&plan)), (None, Some(BrokenNodes::default())));
    view.annotate(json!("by hand"));
    assert_eq!(BrokenNodes::of("by hand").annotation(), None);
}

#[test]
fn a_failure_that_is_forgiven_stays_forgiven_when_its_node_goes() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "0"}));
    let mut two = revision("two", 2);
    two["metadata"]["annotations"] = json!({"daemonlet.dev/retried": "a"});
    view.put(WatchedKind::Revisions, two);
    let retried = |plan: &ClusterPlan| {
        plan.writes.iter().any(|write| {
            let ObjectWrite::Revision { write, .. } = write else { return false };
            matches!(write, history::RevisionWrite::Retried { nodes, .. } if nodes.is_empty())
        })
    };
    // Until its Node is Ready, and no longer.
    view.put(WatchedKind::Nodes, node("a", "False"));
    view.put(WatchedKind::NodeDaemons, took("a", 0, Some(5)));
    assert!(!retried(&view.plan(after(5))));
    view.put(WatchedKind::Nodes, node("a", "True"));
    assert!(retried(&view.plan(after(6))));
    view.put(WatchedKind::NodeDaemons, failing("a"));
    let plan = view.plan(after(10));
    assert_eq!((halted(&plan), retried(&plan)), (None, false));
    view.delete("a");
    assert_eq!(halted(&view.plan(after(20))), None);
}

#[test]
fn a_node_that_the_revision_cut_off_keeps_its_slot_when_its_report_is_lost() {
    for is_another in [false, true] {
        let mut view = world(json!({"daemonlet.dev/max-failed": "3"}));
        view.put(WatchedKind::NodeDaemons, took("a", 0, None));
        view.put(WatchedKind::Nodes, node("a", "Unknown"));
        let plan = view.plan(after(1));
        assert_eq!(approved(&plan), vec![]);
        // It is noted on the ControllerRevision, where another coordinator finds it.
        let plan = view.plan(after(120));
        assert!(view.note(&plan).is_some());
        view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(took("a", 0, None))));
        if is_another {
            view.state = CoordinatorState::default();
        }
        view.plan(after(121));
        assert_eq!(approved(&view.plan(after(300))), vec![], "another coordinator: {is_another}");
    }
}
