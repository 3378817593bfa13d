//! Nodes from which the daemon is taken away while it is not well there, as health checks do that quarantine a node.

use super::*;

/// What an agent reports if nothing of the daemon runs on its node.
fn nothing() -> Value {
    report("a", "two", json!({"previous": hash("one"), "instances": []}), json!([]))
}

/// What an agent reports that leaves the daemon alone.
fn silent() -> Value {
    json!({"metadata": {"name": "a", "uid": "a", "resourceVersion": "1"}, "spec": {},
        "status": {"agentVersion": "1", "daemons": []}})
}

fn ending() -> Value {
    let instance = json!({"pod": "p", "revision": hash("two"), "created": after(0).to_string(), "ending": true});
    report("a", "two", json!({"previous": hash("one"), "instances": [instance]}), json!([]))
}

fn tainted() -> Value {
    let mut node = node("a", "True");
    node["spec"] = json!({"taints": [{"key": "quarantine", "effect": "NoExecute"}]});
    node
}

fn relabelled() -> Value {
    let mut node = node("a", "True");
    node["metadata"]["labels"] = json!({});
    node
}

const TAKEN: &str = "the revision failed on 1 node, 1 of them not to run it any more: a";

#[test]
fn a_node_that_is_quarantined_while_it_is_not_well_with_the_revision_has_failed() {
    type Story = Vec<(i64, Value, Value)>;
    let well = || node("a", "True");
    let unready = || took("a", 0, None);
    let stories: Vec<(&str, Story, bool)> = vec![
        ("tainted", vec![(30, well(), unready()), (60, tainted(), nothing())], true),
        ("it ends first", vec![(30, well(), unready()), (60, tainted(), ending()), (70, tainted(), silent())], true),
        ("relabelled", vec![(30, well(), failing("a")), (60, relabelled(), silent())], true),
        ("it is said nothing of", vec![(30, well(), unready()), (60, well(), silent()), (125, well(), silent())], true),
        ("it starts again", vec![(30, well(), unready()), (60, well(), nothing()), (125, well(), nothing())], false),
        ("it was well", vec![(30, well(), took("a", 0, Some(5))), (60, tainted(), nothing())], false),
        (
            "it had the older one",
            vec![(30, well(), report("a", "one", json!({}), json!([]))), (60, tainted(), nothing())],
            false,
        ),
        (
            "it returned",
            vec![
                (30, well(), unready()),
                (60, well(), report("a", "one", json!({}), json!([]))),
                (70, tainted(), nothing()),
            ],
            false,
        ),
    ];
    for (name, states, counts) in stories {
        let mut view = world(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/partition": "4"}));
        let mut last = ClusterPlan::default();
        for (at, node, report) in states {
            view.put(WatchedKind::Nodes, node);
            view.put(WatchedKind::NodeDaemons, report);
            last = view.plan(after(at));
        }
        assert_eq!(halted(&last).is_some(), counts, "{name}");
        if !counts {
            assert_eq!(view.note(&last), None, "{name}");
            continue;
        }
        let degraded = condition(&last, "Degraded").2;
        assert!(degraded.contains("it was taken away after the node took the revision"), "{name}: {degraded}");
        assert_eq!(view.note(&last).map(|broken| broken.nodes.len()), Some(1), "{name}");
        // It counts once, whichever coordinator decides, and also when its Node is deleted in the end.
        view.state = CoordinatorState::default();
        view.plan(after(200));
        let plan = view.plan(after(270));
        assert_eq!((halted(&plan), view.note(&plan)), (Some(TAKEN.to_owned()), None), "{name}");
        view.delete("a");
        view.state = CoordinatorState::default();
        assert_eq!(halted(&view.plan(after(271))).as_deref(), Some(ONE), "{name}");
    }
}

#[test]
fn a_quarantined_node_counts_no_more_once_it_is_well_with_the_revision_or_retried() {
    let quarantined = || {
        let mut view = world(json!({"daemonlet.dev/max-failed": "3"}));
        view.put(WatchedKind::NodeDaemons, took("a", 0, None));
        view.plan(after(10));
        view.put(WatchedKind::Nodes, tainted());
        view.put(WatchedKind::NodeDaemons, nothing());
        let plan = view.plan(after(20));
        assert!(view.note(&plan).is_some());
        view
    };
    let mut view = quarantined();
    view.put(WatchedKind::Nodes, node("a", "True"));
    let plan = view.plan(after(30));
    assert!(!condition(&plan, "Degraded").2.contains("taken away"), "it may run there again");
    view.put(WatchedKind::NodeDaemons, took("a", 40, Some(45)));
    let plan = view.plan(after(50));
    assert_eq!(view.note(&plan), Some(BrokenNodes::default()));
    // `kubectl daemonlet retry` takes the note away.
    let mut view = quarantined();
    view.annotate(Value::Null);
    let plan = view.plan(after(30));
    assert_eq!(view.note(&plan), None);
    assert!(!condition(&plan, "Degraded").2.contains("taken away"));
}
