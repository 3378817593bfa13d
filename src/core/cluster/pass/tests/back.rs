//! The way back, and to which revision it leads.

use super::*;

/// Three revisions: the first is released, two nodes run the second and two the third, which is wanted and fails on them.
/// `halted`: whether the second is.
fn with_three(halted: bool, more: Value) -> ClusterWorld {
    let mut view = ClusterWorld::default();
    let message = format!("ControllerRevision net-{0} (hash {0}) at generation 3", hash("one"));
    let released = json!({"conditions": [
        {"type": "Released", "status": "False", "reason": "Held", "message": message}]});
    view.put(WatchedKind::DaemonSets, daemon_set("three", more, released));
    let mut two = revision("two", 2);
    if halted {
        two["metadata"]["annotations"] = json!({"daemonlet.dev/halted": "by hand"});
    }
    [revision("one", 1), two, revision("three", 3)].into_iter().for_each(|r| view.put(WatchedKind::Revisions, r));
    for name in NODES {
        view.put(WatchedKind::Nodes, node(name, "True"));
        let failed = json!({"revision": hash("three"), "cause": "image", "message": "no"});
        let report = match name {
            "a" | "b" => report(name, "three", json!({"previous": hash("two"), "failed": failed}), json!([])),
            _ => report(name, "two", json!({"previous": hash("one")}), json!([])),
        };
        view.put(WatchedKind::NodeDaemons, report);
    }
    view
}

fn gone(view: &mut ClusterWorld, image: &str, number: i64) {
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision(image, number))));
}

#[test]
fn a_halted_rollout_goes_back_to_the_released_revision_and_never_to_one_that_is_halted() {
    let auto = || json!({"daemonlet.dev/rollback": "auto"});
    for halted in [true, false] {
        let mut view = with_three(halted, auto());
        let plan = view.plan(NOW);
        assert_eq!(condition(&plan, "Halted").1, "Failed");
        assert_eq!(approved(&plan), [("a".to_owned(), hash("one"))], "most run the second");
        // If the released one does not exist, nodes that ran another one that is not halted can return to that.
        gone(&mut view, "one", 1);
        let plan = view.plan(NOW);
        let wanted = if halted { vec![] } else { vec![("a".to_owned(), hash("two"))] };
        assert_eq!(approved(&plan), wanted, "{halted}");
    }
    // Without a released one, too.
    let mut view = with_three(true, auto());
    view.put(WatchedKind::DaemonSets, daemon_set("three", auto(), json!({})));
    assert_eq!(approved(&view.plan(NOW)), []);
}

#[test]
fn an_abort_finds_the_released_revision_though_no_node_speaks_of_it() {
    let aborted = || json!({"daemonlet.dev/aborted": format!("net-{}", hash("two"))});
    let message = format!("ControllerRevision net-{0} (hash {0}) at generation 3", hash("one"));
    let released = json!({"conditions": [
        {"type": "Released", "status": "False", "reason": "RollingOut", "message": message}]});
    // The status comes with the DaemonSet, or later.
    for is_later in [false, true] {
        let mut view = ClusterWorld::default();
        if is_later {
            view.put(WatchedKind::DaemonSets, daemon_set("two", aborted(), json!({})));
        }
        view.put(WatchedKind::DaemonSets, daemon_set("two", aborted(), released.clone()));
        view.put(WatchedKind::Revisions, revision("one", 1));
        view.put(WatchedKind::Revisions, revision("two", 2));
        for name in NODES {
            view.put(WatchedKind::Nodes, node(name, "True"));
            view.put(WatchedKind::NodeDaemons, report(name, "two", json!({}), json!([])));
        }
        for (index, name) in NODES.into_iter().enumerate() {
            let plan = view.plan(NOW);
            assert_eq!(approved(&plan), [(name.to_owned(), hash("one"))]);
            let message = condition(&plan, "Progressing").2;
            let left = NODES.len() - index;
            assert!(message.starts_with(&format!("it was aborted: {left} node")), "{message}");
            view.put(WatchedKind::NodeDaemons, report(name, "one", json!({"previous": hash("two")}), json!([])));
        }
        let plan = view.plan(NOW);
        assert_eq!((approved(&plan), condition(&plan, "Progressing").1), (vec![], "RolledBack".to_owned()));
        // Without its ControllerRevision only nodes that ran it can return.
        view.put(WatchedKind::NodeDaemons, report("a", "two", json!({}), json!([])));
        view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("one", 1))));
        let plan = view.plan(NOW);
        let (status, reason, message) = condition(&plan, "Progressing");
        assert_eq!((approved(&plan), status.as_str(), reason.as_str()), (vec![], "False", "Held"));
        assert!(message.starts_with("it was aborted: 1 node cannot go back to revision"), "{message}");
        view.put(WatchedKind::Revisions, revision("one", 1));
    }
}

#[test]
fn an_abort_takes_nothing_from_nodes_that_never_had_what_is_aborted() {
    // `c` and `d` run the second revision, which was replaced before it was released.
    let mut view = with_three(false, json!({"daemonlet.dev/aborted": format!("net-{}", hash("three"))}));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("a".to_owned(), hash("one"))]);
    let message = condition(&plan, "Progressing").2;
    assert_eq!(message, format!("it was aborted: 2 nodes left to go back to revision {}", hash("one")));
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({"previous": hash("three")}), json!([])));
    }
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), []);
    let (_, reason, message) = condition(&plan, "Progressing");
    let others = "it was aborted: no node has it any more; 2 nodes with an older revision than it keep that";
    assert_eq!((reason.as_str(), message.as_str()), ("RolledBack", others));
    // Two that have nothing are not back.
    let empty = |image: &str| json!({"instances": [], "phase": "waiting", "previous": hash(image)});
    ["c", "d"].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, report(name, "one", empty("one"), json!([]))));
    let message = condition(&view.plan(NOW), "Progressing").2;
    assert_eq!(message, "it was aborted: no node has it any more; nothing runs on 2 nodes");
    view.put(WatchedKind::NodeDaemons, report("d", "two", json!({"previous": hash("one")}), json!([])));
    // One that claimed it in the last moment goes back, too.
    let claims = json!({"replacing": hash("three")});
    view.put(WatchedKind::NodeDaemons, report("c", "two", claims, approval("three", "2023-11-14T22:13:20Z")));
    assert_eq!(condition(&view.plan(NOW), "Progressing").1, "RollingBack");
    view.put(WatchedKind::NodeDaemons, report("c", "three", json!({"previous": hash("two")}), json!([])));
    assert_eq!(approved(&view.plan(NOW)), [("c".to_owned(), hash("one"))]);
}

#[test]
fn nodes_that_have_nothing_to_go_back_from_are_not_counted_among_those_that_cannot() {
    // `c` and `d` run the second revision; `a` and `b` are to leave the third, and their agents refuse that.
    let mut view = with_three(false, json!({"daemonlet.dev/aborted": format!("net-{}", hash("three"))}));
    for name in ["a", "b"] {
        let refused = json!({"previous": hash("two"), "phase": "refused"});
        view.put(WatchedKind::NodeDaemons, report(name, "three", refused, json!([])));
    }
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), []);
    let message = condition(&plan, "Progressing").2;
    let wanted = format!("it was aborted: 2 nodes left to go back to revision {}: 2 nodes cannot take it", hash("one"));
    assert_eq!(message, wanted);
}

#[test]
fn a_node_that_left_what_was_taken_back_and_starts_nothing_is_on_no_way() {
    let mut view = with_three(false, json!({"daemonlet.dev/aborted": format!("net-{}", hash("three"))}));
    let given = approval("one", &NOW.to_string());
    let ending = json!({"pod": "p", "revision": hash("three"), "created": FAILED_AT, "ending": true});
    for (name, instances, replacing) in [("a", json!([ending]), hash("one")), ("b", json!([]), String::new())] {
        let mut left = json!({"phase": "waiting", "instances": instances, "awaitsRollout": true});
        if !replacing.is_empty() {
            left = json!({"phase": "stopping", "instances": instances, "replacing": replacing});
        }
        view.put(WatchedKind::NodeDaemons, report(name, "three", left, given.clone()));
    }
    let plan = view.plan(NOW);
    assert_eq!(condition(&plan, "Progressing").1, "RollingBack");
    let withdrawn = |node: &str| {
        plan.writes.iter().any(|write| {
        matches!(write, ObjectWrite::Approvals { node: of, spec } if of == node && spec.approvals.is_empty())
    })
    };
    assert_eq!((withdrawn("a"), withdrawn("b")), (false, true));
    for name in ["a", "b"] {
        let left = json!({"phase": "waiting", "instances": [], "awaitsRollout": true});
        view.put(WatchedKind::NodeDaemons, report(name, "three", left, json!([])));
    }
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan), condition(&plan, "Progressing").1), (vec![], "RolledBack".to_owned()));
}
