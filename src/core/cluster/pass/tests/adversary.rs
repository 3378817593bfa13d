//! Unusual input: odd values, annotations at the wrong time, machines that are replaced in between.

use super::releases::released;
use super::releases::with_one_released;
use super::*;

const BUDGET: usize = 1;

/// The world with the second revision wanted, as its DaemonSet has these annotations.
fn rolling(annotations: &Value) -> ClusterWorld {
    with_one_released(annotations.clone())
}

#[test]
fn a_value_that_is_not_understood_holds_and_is_shown() {
    let numbers = ["", " ", "-1", "101%", "1.5", "1e3", "50 %", "\u{0665}", "%", "99999999999", "all", "\u{0}"];
    let durations = ["", "-1s", "10", "soon", "1y", "3000000h", "\u{221e}"];
    let flags = ["", "True", "yes", "1", "TRUE ", "on"];
    let many = "1; ".repeat(10_000) + "100%";
    let long = "1, ".to_owned() + &"9".repeat(100_000);
    let steps = ["", "0", "0%", "101%", "-1", "1; 1", "5%; 5%", "1, -1s", "1,,", ";", "\u{0661}", &many, &long];
    let selectors = ["", " ", "a in b", "-", "a in (b"];
    let with = |name, values: &[&str]| values.iter().map(|value| (name, (*value).to_owned())).collect::<Vec<_>>();
    let all = [
        with("partition", &numbers),
        with("max-failed", &numbers),
        with("max-unreachable", &numbers),
        with("canary-hold", &durations),
        with("paused", &flags),
        with("rollback", &flags),
        with("steps", &steps),
        with("canary", &selectors),
        with("topology-key", &["", "z ", "??", "no such label"]),
        with("spread-key", &["", "\u{1f4a5}", "a/b/c"]),
        with("progress-deadline", &["", "0s", "5 m", "soon"]),
        with("update", &["", "Drain", "never"]),
        with("window", &["", ";", "Mon Mon", "25:00-26:00", "02:00-02:00", "Mon-Fri 02:00", "\u{6708}", &many]),
    ];
    for (name, value) in all.into_iter().flatten() {
        let name = format!("daemonlet.dev/{name}");
        let plan = rolling(&json!({&name: value})).plan(NOW);
        let shown = value.chars().take(20).collect::<String>();
        assert_eq!((approved(&plan), released(&plan).1.as_str()), (vec![], "Held"), "{name}: {shown:?}");
        let message = condition(&plan, "Progressing").2;
        assert!(message.contains(&format!("the annotation {name} is not understood")), "{name}: {message}");
        assert!(message.len() < 400, "{name}: a condition is no place for all of it");
    }
}

#[test]
fn what_is_odd_and_understood_keeps_the_budget() {
    for (name, value, wanted) in [
        ("partition", "0", 1),
        ("partition", "100%", 0),
        ("partition", "4294967295", 0),
        ("max-failed", "0", 1),
        ("max-failed", "0%", 1),
        ("max-unreachable", "0", 1),
        ("canary-hold", "0", 1),
        ("canary-hold", "2000000h", 1),
        ("paused", "false", 1),
        ("steps", "4294967295", 1),
        ("steps", "1", 1),
        ("steps", "50%; 1", 1),
        ("steps", "100%, 2000000h", 1),
        ("topology-key", "no.such/label", 0),
        ("spread-key", "no.such/label", 1),
    ] {
        let plan = rolling(&json!({format!("daemonlet.dev/{name}"): value})).plan(NOW);
        assert_eq!(approved(&plan).len(), wanted, "{name}: {value}");
    }
}

/// The name that the second revision has, with more behind it.
fn name_of_two(more: &str) -> String {
    format!("net-{}{more}", hash("two"))
}

#[test]
fn annotations_that_come_at_the_wrong_time_are_void() {
    let steps = "1, 1h; 50%, 1h; 100%";
    let (promoted, aborted) = ("daemonlet.dev/promoted", "daemonlet.dev/aborted");
    for (annotation, value) in [
        (promoted, name_of_two("/2/3/100%")),
        (promoted, name_of_two("/2/1")),
        (promoted, name_of_two("/2/1/2")),
        (promoted, name_of_two("/2/18446744073709551616/1")),
        (promoted, name_of_two("/2/-1/1")),
        (promoted, name_of_two("/2/")),
        (promoted, name_of_two("/2/canary")),
        (promoted, name_of_two("/1/1/1")),
        (promoted, name_of_two("")),
        (promoted, "/".to_owned()),
        (promoted, String::new()),
        (aborted, String::new()),
        (aborted, "net-gone".to_owned()),
        (aborted, name_of_two("/2")),
    ] {
        let mut view = rolling(&json!({"daemonlet.dev/steps": steps, annotation: value}));
        view.put(WatchedKind::NodeDaemons, on_two("a"));
        let plan = view.plan(NOW);
        assert!(approved(&plan).is_empty(), "{annotation}: {value:?} does not end this hold");
        let message = condition(&plan, "Progressing").2;
        assert!(message.contains("step 1 of 3 (1 of 4 nodes) holds until"), "{annotation}: {value:?}: {message}");
    }
    // The hold of a step that is paused or aborted is not ended by its promotion.
    for (other, value) in [("daemonlet.dev/paused", "true".to_owned()), (aborted, name_of_two(""))] {
        let mut view = rolling(&json!({"daemonlet.dev/steps": steps, promoted: name_of_two("/2/1/1"), other: value}));
        view.put(WatchedKind::NodeDaemons, on_two("a"));
        let two = hash("two");
        assert!(approved(&view.plan(NOW)).iter().all(|(_, revision)| *revision != two), "{other}");
    }
}

#[test]
fn an_abort_that_is_written_again_takes_nothing_back_that_is_released() {
    let mut view = rolling(&json!({}));
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
    let plan = view.plan(NOW);
    assert_eq!(released(&plan).1, "Complete");
    let mut daemon = daemon_set("two", json!({"daemonlet.dev/aborted": name_of_two("")}), status(&plan));
    daemon["metadata"]["generation"] = json!(9);
    view.put(WatchedKind::DaemonSets, daemon);
    // One that comes back from repair has the older one.
    view.put(WatchedKind::NodeDaemons, report("d", "one", json!({}), json!([])));
    let plan = view.plan(NOW);
    assert_eq!(approved(&plan), [("d".to_owned(), hash("two"))]);
    let halted = status(&plan)["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "Halted");
    assert!(!halted, "{plan:?}");
}

#[test]
fn a_machine_that_is_replaced_in_the_middle_gives_no_slot_away() {
    let claimed = || {
        let more = json!({"replacing": hash("two"), "instances": []});
        report("a", "one", more, approval("two", "2023-11-14T22:13:20Z"))
    };
    let given = || report("a", "one", json!({}), approval("two", "2023-11-14T22:13:20Z"));
    let unready = || {
        let instances = json!([{"pod": "p", "revision": hash("two"), "created": "2023-11-14T22:13:20Z"}]);
        report("a", "two", json!({"instances": instances}), json!([]))
    };
    for (what, before, annotations) in [
        ("approved", given(), json!({})),
        ("claimed", claimed(), json!({})),
        ("new", unready(), json!({})),
        ("failed", failing("a"), json!({"daemonlet.dev/max-failed": "2"})),
        ("in a step", unready(), json!({"daemonlet.dev/steps": "1, 1h; 100%"})),
        ("a canary", unready(), json!({"daemonlet.dev/canary": "run=yes"})),
    ] {
        let mut view = rolling(&annotations);
        view.put(WatchedKind::NodeDaemons, before);
        view.plan(NOW);
        // The Node and its report go, one after the other, and both come back.
        view.take(Change::Gone(WatchedKind::Nodes, Box::new(json!({"metadata": {"name": "a"}}))));
        assert!(approved(&view.plan(NOW + ms(1))).len() <= BUDGET, "{what}: the Node is gone");
        view.put(WatchedKind::Nodes, node("a", "False"));
        view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(json!({"metadata": {"name": "a"}}))));
        let plan = view.plan(NOW + ms(2));
        assert!(approved(&plan).is_empty(), "{what}: the new machine is not available: {:?}", approved(&plan));
        view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"instances": []}), json!([])));
        assert!(approved(&view.plan(NOW + ms(3))).is_empty(), "{what}: nor has it started what it is to run");
        view.put(WatchedKind::Nodes, node("a", "True"));
        view.put(WatchedKind::NodeDaemons, report("a", "one", json!({}), json!([])));
        assert_eq!(approved(&view.plan(NOW + ms(4))).len(), BUDGET, "{what}: it goes on");
    }
}

#[test]
fn what_two_coordinators_gave_at_once_is_taken_back_to_the_budget() {
    let mut view = rolling(&json!({}));
    let at = NOW.to_string();
    for name in ["a", "b", "c"] {
        view.put(WatchedKind::NodeDaemons, report(name, "one", json!({}), approval("two", &at)));
    }
    let more = json!({"replacing": hash("two")});
    view.put(WatchedKind::NodeDaemons, report("d", "one", more, approval("two", &at)));
    let withdrawn = view.plan(NOW).writes.into_iter().filter_map(|write| match write {
        ObjectWrite::Approvals { node, spec } if spec.approvals.is_empty() => Some(node),
        _ => None,
    });
    assert_eq!(withdrawn.collect::<Vec<_>>(), ["a", "b", "c"], "nodes that have claimed finish");
}

#[test]
fn a_revision_that_a_later_version_halted_in_another_format_is_halted() {
    for mark in ["", "{}", "null", "[1]", "{\"time\": 5}", "halted by v9"] {
        let mut view = rolling(&json!({}));
        let mut two = revision("two", 2);
        two["metadata"]["annotations"] = json!({"daemonlet.dev/halted": mark});
        view.put(WatchedKind::Revisions, two);
        let plan = view.plan(NOW);
        assert_eq!((approved(&plan), released(&plan).1.as_str()), (vec![], "Held"), "{mark}");
        assert_eq!(condition(&plan, "Halted").0, "True", "{mark}");
    }
    // A step that cannot be read is the first.
    for mark in ["", "9", "{\"step\": -1}", "{\"step\": 0, \"number\": 2}", "{\"step\": 3, \"number\": 1}"] {
        let mut view = rolling(&json!({"daemonlet.dev/steps": "1, 1h; 100%"}));
        view.put(WatchedKind::NodeDaemons, on_two("a"));
        let mut two = revision("two", 2);
        two["metadata"]["annotations"] = json!({"daemonlet.dev/step": mark});
        view.put(WatchedKind::Revisions, two);
        assert!(approved(&view.plan(NOW)).is_empty(), "{mark}");
    }
}
