//! A DaemonSet that was deleted without its ControllerRevisions and created again.

use super::*;

/// The revision as a former DaemonSet of that name left it, which released it at this generation.
fn left(image: &str, number: i64, generation: Option<i64>) -> Value {
    let mut revision = revision(image, number);
    revision["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let mark = generation.map(|generation| format!("former/{generation}"));
    revision["metadata"]["annotations"] = json!({"daemonlet.dev/released": mark});
    revision
}

fn adopted(mut revision: Value) -> Value {
    revision["metadata"]["ownerReferences"] = self::revision("one", 1)["metadata"]["ownerReferences"].clone();
    revision
}

#[test]
fn what_the_former_one_had_released_is_released() {
    let mut view = world(json!({}));
    let all = [left("three", 1, Some(4)), left("one", 2, Some(7)), left("two", 3, None)];
    all.iter().for_each(|revision| view.put(WatchedKind::Revisions, revision.clone()));
    let first = json!({"daemonlet.dev/first-install": "1"});
    view.put(WatchedKind::DaemonSets, wanted("two", first.clone(), json!({})));
    // They are not adopted yet.
    let plan = view.plan(NOW);
    assert_eq!(released(&plan), ("False".to_owned(), "Held".to_owned(), message("one")));
    assert_eq!((approved(&plan), marks(&plan)), (vec![], vec![]));
    live(&mut view, "two", first.clone(), &plan);
    all.into_iter().for_each(|revision| view.put(WatchedKind::Revisions, adopted(revision)));
    let plan = view.plan(NOW);
    let name = format!("net-{}", hash("one"));
    assert_eq!(marks(&plan), [(name.as_str(), 3)], "it is marked as its own");
    assert_eq!(released(&plan).2, message("one"));
    assert_eq!(approved(&plan), [("a".to_owned(), hash("two"))], "the rollout goes on within the budget");
    // Its own mark counts before those of others, however high these are.
    view.put(WatchedKind::Revisions, adopted(left("three", 1, Some(99))));
    view.put(WatchedKind::Revisions, marked("one", 2, 3));
    view.put(WatchedKind::DaemonSets, wanted("two", first, json!({})));
    view.state = CoordinatorState::default();
    assert_eq!(released(&view.plan(NOW)).2, message("one"));
}

#[test]
fn an_abort_goes_back_to_what_the_former_one_had_released() {
    let mut view = world(json!({}));
    let aborted = json!({"daemonlet.dev/aborted": format!("net-{}", hash("two"))});
    view.put(WatchedKind::Revisions, adopted(left("one", 1, Some(7))));
    view.put(WatchedKind::DaemonSets, wanted("two", aborted.clone(), json!({})));
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    let plan = view.plan(NOW);
    live(&mut view, "two", aborted, &plan);
    assert_eq!(approved(&view.plan(NOW)), [("a".to_owned(), hash("one"))]);
}
