//! The progress deadline: from when it counts.

use super::*;

#[test]
fn what_does_not_become_available_within_the_deadline_has_failed_though_its_agent_says_nothing() {
    let deadline = ms(600_000);
    let starts = |image: &str, more: Value| {
        let mut of_it = json!({"instances": [{"pod": "p", "revision": hash(image), "created": NOW.to_string()}]});
        more.as_object().into_iter().flatten().for_each(|(field, value)| of_it[field] = value.clone());
        report("a", image, of_it, json!([]))
    };
    let begun = |report: Value| {
        let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0"}));
        view.put(WatchedKind::NodeDaemons, report);
        view.plan(NOW);
        view
    };
    let is_halted = |view: &mut ClusterWorld, at: Timestamp| !view.plan(at).halts.is_empty();
    for report in [starts("two", json!({})), starts("one", json!({"replacing": hash("two")}))] {
        let mut view = begun(report);
        assert!(!is_halted(&mut view, NOW + deadline - ms(1)));
        assert!(is_halted(&mut view, NOW + deadline));
    }
    // The node claims the revision that was wanted before: that says nothing about this one.
    assert!(!is_halted(&mut begun(starts("one", json!({"replacing": hash("three")}))), NOW + deadline));
    // One that was ready meanwhile begins anew, and of one that runs nothing yet no revision is to blame.
    let mut view = begun(starts("two", json!({})));
    view.put(WatchedKind::NodeDaemons, report("a", "two", json!({}), json!([])));
    view.plan(NOW + ms(1));
    view.put(WatchedKind::NodeDaemons, starts("two", json!({})));
    assert!(!is_halted(&mut view, NOW + deadline));
    let mut view = begun(report("a", "two", json!({"instances": [], "phase": "waiting"}), json!([])));
    let plan = view.plan(NOW + deadline);
    let (_, reason, message) = condition(&plan, "Progressing");
    assert_eq!(reason, "Held");
    assert!(message.ends_with("on which it failed or does not become available: a"), "{message}");
}

#[test]
fn the_time_that_a_node_waited_is_no_part_of_its_progress_deadline() {
    let deadline = ms(600_000);
    let waits = |name: &str| report(name, "two", json!({"instances": [], "phase": "waiting"}), json!([]));
    let starts =
        || json!({"instances": [{"pod": "p", "revision": hash("two"), "created": (NOW + ms(600_000)).to_string()}]});
    for begins in
        [report("a", "two", starts(), json!([])), report("a", "two", json!({"replacing": hash("two")}), json!([]))]
    {
        let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0"}));
        view.put(WatchedKind::NodeDaemons, waits("a"));
        view.plan(NOW);
        view.plan(NOW + deadline);
        let mut begins = begins;
        begins["status"]["daemons"][0]["instances"][0].as_object_mut().map(|i| i.remove("readySince"));
        view.put(WatchedKind::NodeDaemons, begins);
        for (at, halts) in [(deadline, false), (deadline + deadline - ms(1), false), (deadline + deadline, true)] {
            assert_eq!(!view.plan(NOW + at).halts.is_empty(), halts, "{at:?}");
        }
    }
    // A node that is held is not reported as late; if nothing holds it, the condition says that it waits.
    for (annotations, message) in [
        (json!({"daemonlet.dev/paused": "true"}), ""),
        (json!({}), "waits to start, and NodeDaemons says for what, on 1 node: a"),
    ] {
        let mut view = with_one_released(annotations);
        let mut held = waits("a");
        held["status"]["daemons"][0]["awaitsRollout"] = json!(true);
        view.put(WatchedKind::NodeDaemons, held);
        NODES[1..].iter().for_each(|name| view.put(WatchedKind::NodeDaemons, on_two(name)));
        view.plan(NOW);
        assert_eq!(condition(&view.plan(NOW + deadline), "Degraded").2, message);
    }
}

#[test]
fn a_ready_instance_is_not_late_however_long_no_pass_was_made() {
    let mut view = with_one_released(json!({"daemonlet.dev/max-failed": "0"}));
    let starts = json!({"instances": [{"pod": "p", "revision": hash("two"), "created": NOW.to_string()}]});
    let mut begins = report("a", "two", starts, json!([]));
    begins["status"]["daemons"][0]["instances"][0].as_object_mut().map(|i| i.remove("readySince"));
    view.put(WatchedKind::NodeDaemons, begins.clone());
    view.plan(NOW);
    view.put(WatchedKind::NodeDaemons, on_two("a"));
    assert!(view.plan(NOW + ms(1_200_000)).halts.is_empty());
    view.put(WatchedKind::NodeDaemons, begins);
    view.plan(NOW + ms(1_200_001));
    assert!(!view.plan(NOW + ms(1_800_001)).halts.is_empty(), "it has its deadline again");
}

#[test]
fn a_claim_has_its_progress_deadline_from_when_it_is_seen_however_old_its_approval_is() {
    let given = (NOW - ms(3_600_000)).to_string();
    let approvals = json!([{"namespace": "kube-system", "name": "net", "uid": "u", "revision": hash("two"),
        "approvedAt": given, "when": "drain"}]);
    let annotations = json!({"daemonlet.dev/max-failed": "0", "daemonlet.dev/update": "drain"});
    let mut view = with_one_released(annotations);
    view.put(WatchedKind::NodeDaemons, report("a", "one", json!({"replacing": hash("two")}), approvals));
    assert_eq!(condition(&view.plan(NOW), "Degraded").1, "AsExpected");
    view.put(WatchedKind::Nodes, node("a", "Unknown"));
    for (at, halts) in [(1, false), (599_999, false), (600_000, true)] {
        assert_eq!(!view.plan(NOW + ms(at)).halts.is_empty(), halts, "{at}");
    }
}
