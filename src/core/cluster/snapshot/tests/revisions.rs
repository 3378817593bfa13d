//! How much is kept of ControllerRevisions.

use crate::core::cluster::history::RevisionHolder;

use super::*;

/// A revision of the DaemonSet of this UID; an orphan if that is empty.
fn revision(name: &str, owner: &str, version: &str, labels: Value) -> Value {
    let owners = match owner {
        "" => json!([]),
        uid => json!([{"kind": "DaemonSet", "name": "d", "uid": uid, "controller": true}]),
    };
    json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version, "labels": labels,
            "annotations": {"daemonlet.dev/halted": "no good"}, "ownerReferences": owners},
        "data": {"spec": {"template": {}}}, "revision": 1})
}

fn labels(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("label-{number}"), json!("x")));
    Value::Object(labels.chain([("app".to_owned(), json!("d"))]).collect())
}

fn put(view: &mut ClusterSnapshot, revision: Value) {
    view.take(Change::Present(WatchedKind::Revisions, Box::new(revision), false));
}

fn read(view: &mut ClusterSnapshot, revision: Value) {
    view.take(Change::Read(WatchedKind::Revisions, Box::new(revision)));
}

fn unread(view: &ClusterSnapshot) -> Vec<&str> {
    view.unread().map(|(_, key)| key.name.as_str()).collect()
}

/// How many bytes it takes to write everything down that is known.
fn size(view: &ClusterSnapshot) -> usize {
    format!("{view:?}").len()
}

#[test]
fn labels_and_annotations_of_a_template_that_is_not_ours_are_not_kept() {
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    let before = size(&view);
    for number in 0..10 {
        for (owner, name) in [("stock", "a"), ("", "b")] {
            let mut revision = revision(&format!("{name}-{number}"), owner, "1", labels(6_000));
            revision["metadata"]["annotations"]["daemonlet.dev/retried"] = json!("a,".repeat(100_000));
            put(&mut view, revision);
        }
    }
    assert!(view.revisions.is_empty(), "an orphan with so many labels is not taken over");
    assert!(size(&view) - before < 20 * 500, "{} bytes", size(&view) - before);
    // The names are known: no other revision may have them.
    assert_eq!(view.others_revisions(&ObjectKey::new("n", "a-")).count(), 10);
    assert_eq!(unread(&view), Vec::<&str>::new());
}

#[test]
fn of_ours_no_label_is_kept_and_of_an_annotation_its_beginning() {
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    let mut long = revision("one", "u", "1", labels(6_000));
    long["metadata"]["annotations"]["daemonlet.dev/step"] = json!("ä".repeat(100_000));
    put(&mut view, long);
    let known = view.revisions.values().next().unwrap();
    assert!(known.is_selected_by(view.daemons.values().next().unwrap()));
    assert_eq!(known.revision.step.as_ref().map(String::len), Some(64 << 10));
    assert!(size(&view) < 70_000, "{} bytes", size(&view));
}

#[test]
fn the_revisions_of_a_daemon_set_that_comes_to_be_known_are_read() {
    let mut view = ClusterSnapshot::default();
    put(&mut view, revision("orphan", "", "3", labels(1)));
    put(&mut view, revision("other", "", "3", json!({"app": "other"})));
    put(&mut view, revision("own", "u", "3", labels(1)));
    put(&mut view, revision("stock", "stock", "3", labels(1)));
    assert_eq!(unread(&view), Vec::<&str>::new());
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    assert_eq!(unread(&view), ["orphan", "own"]);
    let is_unread = |view: &ClusterSnapshot| !view.with_unread_revisions().is_empty();
    read(&mut view, revision("own", "u", "2", labels(1)));
    assert_eq!(unread(&view), ["orphan", "own"], "the watch has come further");
    read(&mut view, revision("own", "u", "3", labels(1)));
    read(&mut view, revision("stock", "u", "2", labels(1)));
    assert!(is_unread(&view) && view.revisions.len() == 1);
    read(&mut view, revision("orphan", "", "3", labels(1)));
    assert!(!is_unread(&view) && unread(&view).is_empty() && view.revisions.len() == 2);
    assert!(view.revisions.values().all(|known| known.revision.halted.is_some()));
    // What is known is not read again when another definition comes.
    let mut changed = daemon(json!({"zone": "b"}));
    changed["metadata"]["generation"] = json!(2);
    view.put(WatchedKind::DaemonSets, changed);
    assert!(unread(&view).is_empty() && view.revisions.len() == 2);
    // Another DaemonSet takes its name, and the old one's revisions wait for the garbage collector.
    let mut again = daemon(json!({}));
    again["metadata"]["uid"] = json!("v");
    view.put(WatchedKind::DaemonSets, again.clone());
    assert_eq!((unread(&view), view.revisions.len()), (vec![], 1), "the orphan is selected still");
    let key = ObjectKey::new("n", "d");
    let mut own = revision("d-1", "u", "3", labels(1));
    put(&mut view, own.clone());
    assert_eq!(view.others_revisions(&key).collect::<Vec<_>>(), [("d-1", RevisionHolder::Former)]);
    own["metadata"]["ownerReferences"][0]["uid"] = json!("v");
    put(&mut view, own);
    assert_eq!(view.others_revisions(&key).count(), 0);
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(again)));
    assert!(view.revisions.is_empty() && unread(&view).is_empty());
    view.take(Change::Begin(WatchedKind::Revisions));
    view.take(Change::Complete(WatchedKind::Revisions));
    assert_eq!(view.others_revisions(&ObjectKey::new("n", "")).count(), 0, "a list shows what is gone");
}

#[test]
fn what_is_not_wanted_any_more_is_not_read() {
    let mut view = ClusterSnapshot::default();
    put(&mut view, revision("one", "u", "3", labels(1)));
    put(&mut view, revision("two", "u", "3", labels(1)));
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    assert_eq!(unread(&view).len(), 2);
    view.take(Change::Gone(WatchedKind::Revisions, Box::new(revision("one", "u", "4", labels(1)))));
    assert_eq!(unread(&view), ["two"]);
    view.take(Change::Gone(WatchedKind::DaemonSets, Box::new(daemon(json!({})))));
    assert_eq!(unread(&view), Vec::<&str>::new());
}

/// As a list of all has it.
fn metadata_of(revision: &Value) -> Value {
    json!({"metadata": revision["metadata"]})
}

#[test]
fn of_a_list_without_data_what_is_of_a_known_daemon_set_is_read_before_anything_is_decided() {
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    let (own, orphan) = (revision("own", "u", "3", labels(1)), revision("orphan", "", "3", labels(1)));
    let list = |view: &mut ClusterSnapshot| {
        view.take(Change::Begin(WatchedKind::Revisions));
        for one in [&own, &orphan, &revision("stock", "stock", "3", labels(1))] {
            view.take(Change::Present(WatchedKind::Revisions, Box::new(metadata_of(one)), true));
        }
        view.take(Change::Complete(WatchedKind::Revisions));
    };
    list(&mut view);
    let with_unread = |view: &ClusterSnapshot| view.with_unread_revisions().len();
    assert_eq!((unread(&view), with_unread(&view), view.revisions.len()), (vec!["orphan", "own"], 1, 0));
    read(&mut view, own.clone());
    read(&mut view, orphan.clone());
    assert_eq!((unread(&view), with_unread(&view), view.revisions.len()), (vec![], 0, 2));
    // What has not changed is not read again, what has is.
    list(&mut view);
    assert_eq!((unread(&view), view.revisions.len()), (vec![], 2));
    let mut changed = metadata_of(&own);
    changed["metadata"]["resourceVersion"] = json!("4");
    put(&mut view, changed);
    assert_eq!((unread(&view), with_unread(&view), view.revisions.len()), (vec!["own"], 1, 1));
    read(&mut view, own);
    assert_eq!(unread(&view), ["own"], "the watch has come further");
}

#[test]
fn what_is_too_large_may_be_anybodys_until_it_is_read_whole() {
    let large = |name: &str| json!({"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": "3"}, "tooLarge": true});
    let mut view = ClusterSnapshot::default();
    put(&mut view, large("own"));
    assert_eq!(unread(&view), Vec::<&str>::new(), "there is no DaemonSet");
    view.put(WatchedKind::DaemonSets, daemon(json!({})));
    put(&mut view, large("stock"));
    assert_eq!((unread(&view), view.with_unread_revisions().len()), (vec!["own", "stock"], 1));
    read(&mut view, revision("own", "u", "3", labels(1)));
    read(&mut view, revision("stock", "stock", "3", labels(1)));
    assert_eq!((unread(&view), view.revisions.len()), (vec![], 1));
}

#[test]
fn what_is_of_trusted_namespaces_is_read_first() {
    let mut view = ClusterSnapshot::default().trusting(vec!["m".to_owned(), "z".to_owned()]);
    for namespace in ["a", "m", "n", "z"] {
        let mut daemon = daemon(json!({}));
        daemon["metadata"]["namespace"] = json!(namespace);
        view.put(WatchedKind::DaemonSets, daemon);
        for name in ["one", "two"] {
            let mut revision = metadata_of(&revision(name, "u", "3", labels(1)));
            revision["metadata"]["namespace"] = json!(namespace);
            put(&mut view, revision);
        }
    }
    let order: Vec<_> = view.unread().map(|(_, key)| key.to_string()).collect();
    assert_eq!(order, ["m/one", "m/two", "z/one", "z/two", "a/one", "a/two", "n/one", "n/two"]);
}
