//! What a deleted ControllerRevision said.

use super::*;

/// The current revision is deleted, and made anew as the plan says.
fn deleted(view: &mut ClusterWorld) {
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("two", 2))));
}

/// The ControllerRevision that takes the place of one that was deleted.
fn made_anew(halted: Option<&Halted>) -> Value {
    let mut two = revision("two", 2);
    two["metadata"]["uid"] = json!("anew");
    if let Some(halted) = halted {
        two["metadata"]["annotations"] = json!({"daemonlet.dev/halted": halted.annotation()});
    }
    two
}

/// The halt with which the plan makes the current revision anew, and whether it does at all.
fn created(plan: &ClusterPlan) -> Option<Option<Halted>> {
    plan.writes.iter().find_map(|write| match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Create { halted, .. }, .. } => Some(halted.clone()),
        _ => None,
    })
}

fn noted_halt(plan: &ClusterPlan) -> Option<Halted> {
    plan.writes.iter().find_map(|write| match write {
        ObjectWrite::Revision { write: history::RevisionWrite::Halt { halted, .. }, .. } => Some(halted.clone()),
        _ => None,
    })
}

#[test]
fn a_halt_outlives_the_controller_revision_that_says_it() {
    let by_hand = Halted::by_hand("by hand".to_owned());
    let by_failure = Halted { nodes: vec!["a".to_owned()], ..by_hand.clone() };
    for halt in [by_hand, by_failure] {
        let mut view = world(json!({}));
        let mut two = revision("two", 2);
        two["metadata"]["annotations"] = json!({"daemonlet.dev/halted": halt.annotation()});
        view.put(WatchedKind::Revisions, two.clone());
        let plan = view.plan(NOW);
        assert_eq!(approved(&plan), []);
        // Other machines came in place of those on which it failed.
        let mut said = daemon_set("two", json!({}), status(&plan));
        said["metadata"]["resourceVersion"] = json!("8");
        view.put(WatchedKind::DaemonSets, said);
        deleted(&mut view);
        let mut other = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
        for view in [&mut view, &mut other] {
            let plan = view.plan(NOW + ms(1));
            assert_eq!((created(&plan), approved(&plan)), (Some(Some(halt.clone())), vec![]), "{halt:?}");
        }
        // An earlier version made it, without the halt.
        view.put(WatchedKind::Revisions, made_anew(None));
        for at in [2, 3] {
            let plan = view.plan(NOW + ms(at));
            assert_eq!((noted_halt(&plan), approved(&plan)), (Some(halt.clone()), vec![]), "{halt:?}");
        }
        view.put(WatchedKind::Revisions, made_anew(Some(&halt)));
        let plan = view.plan(NOW + ms(4));
        assert_eq!((noted_halt(&plan), approved(&plan)), (None, vec![]));
        // It is taken away by hand from the one that is there.
        view.put(WatchedKind::Revisions, made_anew(None));
        assert_eq!(approved(&view.plan(NOW + ms(5))), [("a".to_owned(), hash("two"))], "{halt:?}");
    }
}

#[test]
fn nodes_that_were_lost_count_though_the_controller_revision_is_deleted() {
    let mut view = world(json!({"daemonlet.dev/max-failed": "2"}));
    view.put(WatchedKind::NodeDaemons, took("a", 0, None));
    view.plan(after(10));
    view.delete("a");
    let plan = view.plan(after(20));
    assert_eq!(view.note(&plan).map(|broken| broken.nodes.len()), Some(1));
    view.put(WatchedKind::NodeDaemons, took("b", 20, None));
    view.plan(after(30));
    deleted(&mut view);
    assert_eq!(created(&view.plan(after(31))), Some(None));
    // This one goes while there is none.
    view.delete("b");
    view.plan(after(32));
    view.put(WatchedKind::Revisions, made_anew(None));
    for at in [33, 34] {
        let plan = view.plan(after(at));
        let noted = plan.writes.iter().find_map(|write| match write {
            ObjectWrite::Revision { write: history::RevisionWrite::Broken { broken, .. }, .. } => Some(broken.clone()),
            _ => None,
        });
        let mut names: Vec<String> = noted.unwrap().nodes.into_iter().map(|broken| broken.node).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
    }
    view.put(WatchedKind::NodeDaemons, took("c", 30, None));
    view.plan(after(40));
    view.delete("c");
    assert!(halted(&view.plan(after(41))).is_some_and(|why| why.contains("on 3 nodes, 3 of them deleted")));
}
