//! Nodes whose clocks are ahead or behind.

use super::*;

#[test]
fn a_node_whose_clock_is_ahead_counts_from_when_it_was_seen() {
    const AHEAD: &str = "2023-11-14T22:33:20Z"; // 20 minutes after NOW
    let mut view = world(json!({}));
    let fresh = || {
        let instance = json!([{"pod": "p", "revision": hash("two"), "created": AHEAD, "readySince": AHEAD}]);
        report("a", "two", json!({"instances": instance}), approval("two", AHEAD))
    };
    let min_ready = |seconds: u32| {
        let mut daemon = daemon_set("two", json!({}), json!({}));
        daemon["metadata"]["generation"] = json!(10 + seconds);
        daemon["spec"]["minReadySeconds"] = json!(seconds);
        daemon
    };
    view.put(WatchedKind::NodeDaemons, fresh());
    let plan = view.plan(NOW);
    assert_eq!(status(&plan)["numberAvailable"], 4);
    assert_eq!((approved(&plan), plan.look_again), (vec![], Some(NOW + rollout::HOLD)), "its slot is kept for a while");
    view.put(WatchedKind::NodeDaemons, fresh());
    assert_eq!(approved(&view.plan(NOW + rollout::HOLD)), [("b".to_owned(), hash("two"))]);
    // The seconds count from when it was first reported, however often that is.
    view.put(WatchedKind::DaemonSets, min_ready(10));
    for at in [ms(5_000), ms(9_999)] {
        view.put(WatchedKind::NodeDaemons, fresh());
        let plan = view.plan(NOW + at);
        assert_eq!(
            (status(&plan)["numberAvailable"].as_i64(), plan.look_again),
            (Some(3), Some(NOW + ms(10_000))),
            "{at:?}"
        );
    }
    assert_eq!(status(&view.plan(NOW + ms(10_000)))["numberAvailable"], 4);
    view.put(WatchedKind::NodeDaemons, fresh());
    assert_eq!(status(&view.plan(NOW + ms(2_000_000)))["numberAvailable"], 4, "and never back");
}

#[test]
fn what_becomes_ready_by_a_clock_that_is_behind_is_ready_since_it_was_seen() {
    let behind = |seconds: i64| (NOW - ms(600_000) + ms(seconds * 1_000)).to_string();
    let fresh = |uid: &str, ready: Option<i64>| {
        let ready = ready.map(behind);
        let instance = json!([{"pod": "p", "revision": hash("two"), "created": behind(0), "readySince": ready}]);
        let mut report = report("a", "two", json!({"instances": instance}), json!([]));
        report["metadata"]["uid"] = json!(uid);
        report
    };
    let begun = || {
        let mut view = world(json!({}));
        let mut daemon = daemon_set("two", json!({}), json!({}));
        daemon["metadata"]["generation"] = json!(10);
        daemon["spec"]["minReadySeconds"] = json!(30);
        view.put(WatchedKind::DaemonSets, daemon);
        view.plan(NOW);
        view
    };
    let available = |view: &mut ClusterWorld, at: i64| {
        let plan = view.plan(NOW + ms(at));
        (
            status(&plan)["numberAvailable"].as_i64(),
            plan.look_again.filter(|at| (NOW + ms(20_001)..NOW + ms(100_000)).contains(at)),
        )
    };
    let mut view = begun();
    view.put(WatchedKind::NodeDaemons, fresh("a", None));
    assert_eq!(available(&mut view, 1_000), (Some(3), None));
    for at in [5_000, 20_000, 34_999] {
        // It is reported again and again, and twice between two passes.
        view.put(WatchedKind::NodeDaemons, fresh("a", Some(5)));
        view.put(WatchedKind::NodeDaemons, fresh("a", Some(5)));
        assert_eq!(available(&mut view, at), (Some(3), Some(NOW + ms(35_000))), "{at}");
        assert_eq!(available(&mut view, at), (Some(3), Some(NOW + ms(35_000))), "{at}");
    }
    assert_eq!(available(&mut view, 35_000).0, Some(4));
    // It is not ready for a moment, and ready anew.
    view.put(WatchedKind::NodeDaemons, fresh("a", Some(40)));
    assert_eq!(available(&mut view, 40_000), (Some(3), Some(NOW + ms(70_000))));
    // What another coordinator finds ready counts by its node's clock, and so does what is reported anew.
    let mut other = begun();
    other.put(WatchedKind::NodeDaemons, fresh("another", Some(5)));
    assert_eq!(available(&mut other, 5_000).0, Some(4));
    let mut other = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
    other.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(fresh("a", None))));
    other.put(WatchedKind::NodeDaemons, fresh("b", Some(40)));
    assert_eq!(available(&mut other, 41_000).0, Some(4));
    // A report that is late by a second changes nothing.
    let mut view = begun();
    view.put(WatchedKind::NodeDaemons, fresh("a", Some(604)));
    assert_eq!(available(&mut view, 5_000), (Some(3), Some(NOW + ms(34_000))));
}

#[test]
fn an_approval_that_was_given_by_a_clock_ahead_is_withdrawn_as_any_other() {
    let mut view = world(json!({}));
    let early = || report("a", "one", json!({}), approval("two", "2023-11-14T23:59:59Z"));
    view.put(WatchedKind::NodeDaemons, early());
    assert_eq!(view.plan(NOW).look_again, Some(NOW + rollout::UNCLAIMED));
    view.put(WatchedKind::NodeDaemons, early());
    assert_eq!(view.plan(NOW + rollout::UNCLAIMED).unclaimed.len(), 1);
}

#[test]
fn a_coordinator_that_takes_over_with_a_clock_behind_replaces_no_more_than_the_budget() {
    // By the nodes' clocks all have been ready for 50 s, and the coordinator's is 60 s behind.
    let since = (NOW + ms(10_000)).to_string();
    let counters =
        json!({"desiredNumberScheduled": 4, "numberReady": 4, "numberAvailable": 4, "updatedNumberScheduled": 1});
    let running = |name: &str, image: &str| {
        let instance = json!([{"pod": "p", "revision": hash(image), "created": since, "readySince": since}]);
        report(name, image, json!({"instances": instance}), json!([]))
    };
    let taken_over = |first: &str| {
        let mut view = world(json!({}));
        let mut daemon = daemon_set("two", json!({}), counters.clone());
        daemon["spec"]["minReadySeconds"] = json!(45);
        daemon["metadata"]["generation"] = json!(10);
        view.put(WatchedKind::DaemonSets, daemon);
        for name in NODES {
            let found = running(name, if name == "a" { first } else { "one" });
            view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(found.clone())));
            view.put(WatchedKind::NodeDaemons, found);
        }
        view
    };
    let available = |plan: &ClusterPlan| status(plan)["numberAvailable"].clone();
    let mut view = taken_over("one");
    let plan = view.plan(NOW);
    assert_eq!((approved(&plan).len(), available(&plan)), (1, Value::Null), "4 are available, as the status says");
    // The same is reported again.
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, running(name, "one")));
    assert_eq!(approved(&view.plan(NOW + ms(1_000))).len(), 1);
    // The new one on the first node has to be available for its time, whatever it had of that.
    let mut view = taken_over("two");
    for (at, given) in [(0, 0), (44_999, 0), (45_000, 1)] {
        view.put(WatchedKind::NodeDaemons, running("a", "two"));
        let plan = view.plan(NOW + ms(at));
        assert_eq!((approved(&plan).len(), available(&plan)), (given, Value::Null), "{at}");
    }
    // What becomes ready by a clock that is ahead, as this coordinator sees, is not available before its time is over.
    let mut view = world(json!({}));
    let mut daemon = daemon_set("two", json!({"daemonlet.dev/paused": "true"}), counters.clone());
    daemon["spec"]["minReadySeconds"] = json!(45);
    daemon["metadata"]["generation"] = json!(10);
    view.put(WatchedKind::DaemonSets, daemon);
    view.plan(NOW - ms(10_000));
    for at in [0, 44_999, 45_000] {
        view.put(WatchedKind::NodeDaemons, running("a", "one"));
        let counted = available(&view.plan(NOW + ms(at)));
        assert_eq!(counted, if at < 45_000 { json!(3) } else { Value::Null }, "{at}");
    }
}

#[test]
fn an_approval_of_a_former_holder_has_its_minute_from_when_it_was_seen() {
    let given = (NOW - ms(3_600_000)).to_string();
    let held = |more: Value| report("a", "one", more, approval("two", &given));
    let mut view = world(json!({}));
    let mut taken_over = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
    taken_over.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(held(json!({})))));
    for at in [ms(0), ms(59_999)] {
        taken_over.put(WatchedKind::NodeDaemons, held(json!({})));
        let plan = taken_over.plan(NOW + at);
        assert_eq!((plan.unclaimed.len(), plan.look_again), (0, Some(NOW + rollout::UNCLAIMED)), "{at:?}");
    }
    assert_eq!(taken_over.plan(NOW + rollout::UNCLAIMED).unclaimed.len(), 1);
    // One that is claimed already has its deadline from when it was given.
    taken_over.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(held(json!({})))));
    taken_over.put(WatchedKind::NodeDaemons, held(json!({"replacing": hash("two")})));
    assert_eq!(taken_over.plan(NOW).delays.len(), 1);
    let of_a = taken_over.view.report("a").unwrap().approvals[0].2.at;
    assert_eq!(of_a, NOW - ms(3_600_000));
    // What this holder gives is seen at once.
    view.plan(NOW);
    let own = report("a", "one", json!({}), approval("two", &(NOW - ms(30_000)).to_string()));
    view.put(WatchedKind::NodeDaemons, own);
    assert_eq!(view.plan(NOW + ms(30_000)).unclaimed.len(), 1);
}

#[test]
fn what_is_ready_in_the_first_report_of_an_object_that_is_made_anew_was_ready_before() {
    let mut view = world(json!({}));
    let mut daemon = daemon_set("two", json!({}), json!({}));
    daemon["metadata"]["generation"] = json!(10);
    daemon["spec"]["minReadySeconds"] = json!(45);
    view.put(WatchedKind::DaemonSets, daemon);
    let anew = |name: &str| {
        let mut anew = report(name, "one", json!({}), json!([]));
        anew["metadata"]["uid"] = json!(format!("{name}-2"));
        anew
    };
    for name in NODES {
        view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(anew(name))));
        // An agent makes the object, and reports then.
        let mut empty = anew(name);
        empty.as_object_mut().unwrap().remove("status");
        view.put(WatchedKind::NodeDaemons, empty);
    }
    assert_eq!(approved(&view.plan(NOW)), []);
    NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, anew(name)));
    assert_eq!(approved(&view.plan(NOW)).len(), 1, "no old instance is free to replace");
}

#[test]
fn a_coordinator_that_takes_over_replaces_no_more_than_the_budget_of_what_became_ready_lately() {
    let running = |name: &str, since: i64| {
        let since = (NOW + ms(since)).to_string();
        let instance = json!([{"pod": "p", "revision": hash("one"), "created": since, "readySince": since}]);
        report(name, "one", json!({"instances": instance}), json!([]))
    };
    let mut view = world(json!({}));
    let mut daemon = daemon_set("two", json!({}), json!({}));
    daemon["spec"]["minReadySeconds"] = json!(45);
    daemon["metadata"]["generation"] = json!(10);
    view.put(WatchedKind::DaemonSets, daemon);
    for name in NODES {
        view.take(Change::Gone(WatchedKind::NodeDaemons, Box::new(running(name, 0))));
    }
    // By their clocks, which may be behind, they have been ready for 5 s.
    for at in [0, 1_000, 39_000] {
        NODES.iter().for_each(|name| view.put(WatchedKind::NodeDaemons, running(name, -5_000)));
        let plan = view.plan(NOW + ms(at));
        assert_eq!((approved(&plan), condition(&plan, "Degraded").0.as_str()), (vec![], "False"), "{at}");
    }
    // What begins anew after that is not available yet, as everybody sees.
    let mut others = ClusterWorld { view: view.view.clone(), state: CoordinatorState::default() };
    ["c", "d"].iter().for_each(|name| others.put(WatchedKind::NodeDaemons, running(name, 39_500)));
    let plan = others.plan(NOW + ms(39_500));
    assert_eq!(approved(&plan), ["c", "d"].map(|name| (name.to_owned(), hash("two"))));
    assert_eq!(approved(&view.plan(NOW + ms(40_000))).len(), 1);
}

#[test]
fn duplicates_of_a_revision_are_merged_by_the_clock_that_is_right_though_the_term_is_ahead_of_it() {
    let mut view = world(json!({}));
    view.state.ahead = ms(-3_600_000);
    let mut duplicate = revision("two", 3);
    duplicate["metadata"]["name"] = json!("net-duplicate");
    duplicate["metadata"]["uid"] = json!("another");
    duplicate["metadata"]["creationTimestamp"] = json!((NOW - ms(3_600_000)).to_string());
    view.put(WatchedKind::Revisions, duplicate);
    let is_deletion = |write: &ObjectWrite| {
        matches!(write, ObjectWrite::Revision { write: history::RevisionWrite::Delete { .. }, .. })
    };
    for (at, deletions) in [(0, 0), (29_999, 0), (30_000, 1)] {
        let plan = view.plan(NOW + ms(at));
        assert_eq!(plan.writes.iter().filter(|write| is_deletion(write)).count(), deletions, "{at}");
        assert!(deletions == 1 || plan.look_again <= Some(NOW + ms(30_000)), "{at}: {:?}", plan.look_again);
    }
}
