//! Nodes that are cut off, go away or are taken away after their update.

use super::*;

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
    assert_eq!(halt(&view.plan(NOW + ms(60_000))), None, "its agent is alive and reports that itself");
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
    assert!(halts(json!({"replacing": hash("two")}), given(), "2023-11-14T22:13:40Z"), "its last report was the claim");
    assert!(!halts(json!({}), given(), "2023-11-14T22:13:40Z"), "it has not claimed it");
}

#[test]
fn nodes_that_are_not_ready_for_a_reason_of_their_own_halt_nothing() {
    // A node takes the revision at NOW. Its Node has this condition since then, and the agent reports the pod as not ready.
    let halts = |status: &str, since: i64, is_old: bool| {
        let mut view =
            with_one_released(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"}));
        let second = |seconds: i64| (NOW + ms(seconds * 1_000)).to_string();
        let instance = |is_ready: bool| {
            let ready = (is_ready && !is_old).then(|| second(0));
            json!({"instances": [{"pod": "p", "revision": hash("two"), "created": second(0), "readySince": ready}]})
        };
        let mut broken = node("a", status);
        broken["status"]["conditions"][0]["lastTransitionTime"] = json!(second(since));
        view.put(WatchedKind::NodeDaemons, report("a", "two", instance(true), json!([])));
        if is_old {
            view.put(WatchedKind::Nodes, broken.clone());
        }
        view.plan(NOW);
        let seen = since.max(1);
        view.put(WatchedKind::Nodes, broken);
        view.put(WatchedKind::NodeDaemons, report("a", "two", instance(false), json!([])));
        let passes = [seen, seen + 1, seen + 59, seen + 61, seen + 600];
        passes.into_iter().any(|at| halt(&view.plan(NOW + ms(at * 1_000))).is_some())
    };
    assert!(!halts("Unknown", 3_600, false), "its kubelet stops an hour after");
    assert!(!halts("False", 3_600, false), "it breaks an hour after");
    assert!(!halts("False", -3_600, true), "it was broken before");
    assert!(halts("Unknown", 20, false), "the revision may have cut it off");
    assert!(halts("False", 20, false), "the revision may have broken it");
}

#[test]
fn a_node_is_judged_by_the_clock_of_the_term_though_the_wall_clock_was_set_back() {
    // A node takes the revision at NOW, and its Node has this condition so many seconds after. By other clocks, and by that of
    // this coordinator since it was set back, all this happens an hour earlier, or it was right before it was set back.
    const SET_BACK: i64 = 3_600;
    let halts = |status: &str, since: i64, others: i64| {
        let mut view =
            with_one_released(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"}));
        view.state.ahead = ms(-SET_BACK * 1_000);
        let second = |seconds: i64| NOW + ms(seconds * 1_000);
        let theirs = |seconds: i64| second(seconds + others).to_string();
        let instance = |ready: Option<i64>| {
            let ready = ready.map(theirs);
            json!({"instances": [{"pod": "p", "revision": hash("two"), "created": theirs(0), "readySince": ready}]})
        };
        view.plan(second(-1));
        for (at, ready) in [(0, None), (5, Some(5))] {
            view.put(WatchedKind::NodeDaemons, report("a", "two", instance(ready), json!([])));
            view.plan(second(at));
        }
        let mut broken = node("a", status);
        broken["status"]["conditions"][0]["lastTransitionTime"] = json!(theirs(since));
        view.put(WatchedKind::Nodes, broken);
        let ready = (status == "Unknown").then_some(5);
        view.put(WatchedKind::NodeDaemons, report("a", "two", instance(ready), json!([])));
        let passes = [since, since + 1, since + 59, since + 61, since + 600];
        passes.into_iter().any(|at| halt(&view.plan(second(at))).is_some())
    };
    for others in [-SET_BACK, 0] {
        assert!(halts("False", 20, others), "the revision has broken it");
        assert!(halts("Unknown", 20, others), "the revision has cut it off");
        assert!(!halts("False", SET_BACK, others), "it breaks long after");
        assert!(!halts("Unknown", SET_BACK, others), "its kubelet stops long after");
    }
}

#[test]
fn a_node_that_was_never_ready_with_it_counts_though_it_goes_long_after() {
    let mut view = with_one_released(json!({"daemonlet.dev/progress-deadline": "1m"}));
    let fresh = json!({"instances": [{"pod": "p", "revision": hash("two"), "created": NOW.to_string()}]});
    for name in ["a", "b"] {
        view.put(WatchedKind::NodeDaemons, report(name, "two", fresh.clone(), json!([])));
        view.plan(NOW);
        view.put(WatchedKind::Nodes, away(name, &(NOW + ms(90_000)).to_string()));
    }
    assert!(halt(&view.plan(NOW + ms(90_000))).is_some());
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
    assert!(halts(None, ready(), true), "a broken node is cordoned by hand");
    assert!(!halts(Some("boot"), ready(), false));
    assert!(halts(Some("drain"), ready(), false), "each node is cordoned that takes it");
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
fn the_time_that_the_old_pod_takes_to_end_is_no_part_of_the_deadline() {
    let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/progress-deadline": "1m"}));
    let old = json!({"pod": "o", "revision": hash("one"), "created": NOW.to_string(), "ending": true});
    let ends = json!({"instances": [old], "replacing": hash("two")});
    view.put(WatchedKind::NodeDaemons, report("a", "one", ends, approval("two", &NOW.to_string())));
    let mut at = |seconds: i64| {
        let plan = view.plan(NOW + ms(seconds * 1_000));
        (halt(&plan).is_some(), condition(&plan, "Degraded").2)
    };
    // Its grace period is 30 s, and the kubelet has as many more.
    for seconds in [0, 59, 61, 119] {
        assert_eq!(at(seconds), (false, String::new()), "{seconds}");
    }
    assert!(at(121).0, "it began to count at 61 s");
}
