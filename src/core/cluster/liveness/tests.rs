use serde_json::json;

use super::*;
use crate::core::cluster::snapshot::WatchedKind;
use crate::core::time::at;

const SECOND: i64 = 1_000;

fn leases(renewed: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("a".to_owned(), renewed.to_owned())])
}

/// One that has looked for a minute while the Lease did not change.
fn with_a_dead() -> Liveness {
    let mut liveness = Liveness::default();
    (0..=60).step_by(15).for_each(|second| liveness.listed(&leases("x"), at(second * SECOND)));
    liveness
}

#[test]
fn a_lease_that_does_not_change_is_a_dead_agents() {
    let mut liveness = Liveness::default();
    assert!(liveness.is_due(at(0)));
    for second in (0..=60).step_by(15) {
        liveness.listed(&leases("x"), at(second * SECOND));
        assert_eq!(liveness.dead_since("a"), (second >= 60).then_some(at(0)), "{second}");
    }
    assert_eq!(liveness.dead_since("b"), None, "it never had one");
    liveness.listed(&leases("y"), at(75 * SECOND));
    assert_eq!(liveness.dead_since("a"), None);
    // No agent could renew while the API server was away.
    assert_eq!(liveness.dead_since("a"), None, "nothing is read");
    liveness.listed(&leases("y"), at(300 * SECOND));
    assert_eq!(liveness.dead_since("a"), None);
}

#[test]
fn a_dead_agent_is_found_though_every_other_list_fails_and_an_outage_kills_none() {
    let dead_at = |gap: i64, within: i64| {
        let mut liveness = Liveness::default();
        let seconds = (0..).map(|list| list * gap).take_while(|second| *second <= within);
        seconds.into_iter().find(|second| {
            liveness.listed(&leases("x"), at(second * SECOND));
            liveness.dead_since("a").is_some()
        })
    };
    assert_eq!(dead_at(15, 600), Some(60));
    assert_eq!(dead_at(26, 600), Some(4 * 26), "every other list times out");
    assert_eq!(dead_at(59, 600), Some(4 * 59));
    assert_eq!(dead_at(60, 6_000), None, "a process that is stopped again and again has seen nothing");
    // It renewed as long as it could, and has half a minute when the API server is back.
    let mut liveness = Liveness::default();
    for second in [0, 15, 70, 85] {
        liveness.listed(&leases("x"), at(second * SECOND));
        assert_eq!(liveness.dead_since("a"), None, "{second}");
    }
    liveness.listed(&leases("x"), at(100 * SECOND));
    assert!(liveness.dead_since("a").is_some());
}

#[test]
fn a_dead_agent_stays_dead_until_it_renews_or_changes_its_report() {
    let mut liveness = with_a_dead();
    let is_dead = |liveness: &Liveness, second: i64| liveness.of("a", at(second * SECOND)) == AgentLiveness::Dead;
    assert!(is_dead(&liveness, 600), "also while nothing is read");
    liveness.listed(&leases("x"), at(600 * SECOND));
    assert!(is_dead(&liveness, 600), "after a gap");
    liveness.listed(&leases("x"), at(10 * SECOND));
    assert!(is_dead(&liveness, 10), "after a clock was set back");
    liveness.listed(&BTreeMap::new(), at(25 * SECOND));
    assert!(is_dead(&liveness, 25), "after its Lease was deleted");
    liveness.listed(&leases("y"), at(40 * SECOND));
    assert_eq!(liveness.of("a", at(40 * SECOND)), AgentLiveness::Alive);
    // A report is as good.
    let mut liveness = with_a_dead();
    let mut view = ClusterSnapshot::default();
    for (second, message) in [(60, "m"), (61, "m"), (62, "n")] {
        view.put(WatchedKind::NodeDaemons, report(message));
        liveness.follow(&view, at(second * SECOND));
        assert_eq!(is_dead(&liveness, second), second < 62, "{second}");
    }
}

fn report(version: &str) -> Value {
    json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "status": {"agentVersion": version}})
}

#[test]
fn nothing_is_known_of_an_agent_before_its_lease_was_seen_to_change() {
    let mut liveness = Liveness::default();
    liveness.listed(&leases("x"), at(0));
    assert_eq!(liveness.of("a", at(0)), AgentLiveness::Unknown);
    assert_eq!(liveness.of("b", at(0)), AgentLiveness::Alive, "it has none");
    let joined = BTreeMap::from([("a", "x"), ("b", "x")].map(|(name, at)| (name.to_owned(), at.to_owned())));
    liveness.listed(&joined, at(15 * SECOND));
    assert_eq!(liveness.of("a", at(15 * SECOND)), AgentLiveness::Unknown);
    assert_eq!(liveness.of("b", at(15 * SECOND)), AgentLiveness::Alive, "it was made since");
    liveness.listed(&leases("y"), at(30 * SECOND));
    assert_eq!(liveness.of("a", at(30 * SECOND)), AgentLiveness::Alive);
    // A renewal before a long gap may be outdated, and Leases that are no longer listed prove nothing.
    liveness.listed(&leases("y"), at(91 * SECOND));
    assert_eq!(liveness.of("a", at(91 * SECOND)), AgentLiveness::Unknown);
    assert_eq!(liveness.of("a", at(152 * SECOND)), AgentLiveness::Alive);
}

#[test]
fn an_agent_that_reports_and_has_no_lease_for_a_minute_writes_none() {
    let mut view = ClusterSnapshot::default();
    view.put(WatchedKind::NodeDaemons, report("m"));
    let mut liveness = Liveness::default();
    let mut at_second = |second: i64, leases: &BTreeMap<String, String>| {
        liveness.follow(&view, at(second * SECOND));
        liveness.listed(leases, at(second * SECOND));
        liveness.of("a", at(second * SECOND))
    };
    let none = BTreeMap::new();
    for second in (0..=75).step_by(15) {
        let expected = if second < 60 { AgentLiveness::Alive } else { AgentLiveness::NoLease };
        assert_eq!(at_second(second, &none), expected, "{second}");
    }
    assert_eq!(at_second(90, &leases("x")), AgentLiveness::Alive, "it was made");
    assert_eq!(at_second(105, &none), AgentLiveness::Alive, "it was deleted, and may be made again");
    assert_eq!(at_second(300, &none), AgentLiveness::Alive, "nothing was read for long");
    for second in (315..=345).step_by(15) {
        assert_eq!(at_second(second, &none), AgentLiveness::Alive, "{second}");
    }
    assert_eq!(at_second(360, &none), AgentLiveness::NoLease);
    assert_eq!(liveness.of("a", at(421 * SECOND)), AgentLiveness::Alive, "nor is anything read now");
    assert_eq!(liveness.of("b", at(360 * SECOND)), AgentLiveness::Alive, "it has no report");
}

#[test]
fn a_lease_that_was_renewed_just_now_is_in_force_at_once() {
    let now = at(1_000 * SECOND);
    for (renewed, liveness_then) in [
        (now - JUST_NOW, AgentLiveness::Alive),
        (now - JUST_NOW - Span::from_secs(1), AgentLiveness::Unknown),
        (now + LATE, AgentLiveness::Alive),
        (now + LATE + Span::from_secs(1), AgentLiveness::Unknown),
    ] {
        let mut liveness = Liveness::default();
        liveness.listed(&leases(&renewed.to_string()), now);
        assert_eq!(liveness.of("a", now), liveness_then, "{renewed}");
    }
}

#[test]
fn a_list_that_failed_is_asked_for_again_soon() {
    let mut liveness = Liveness::default();
    assert!(!liveness.has_begun(at(0)));
    let mut now = at(0);
    for wait in [1, 2, 4, 8, 15, 15] {
        liveness.asked(now);
        liveness.failed(false, now);
        assert_eq!(liveness.due(), Some(now + Span::from_secs(wait)));
        now += Span::from_secs(wait);
    }
    assert!(!liveness.has_begun(at(59 * SECOND)));
    assert!(liveness.has_begun(at(60 * SECOND)), "it waits no longer");
    assert_eq!(liveness.progress(at(60 * SECOND)), (false, None));
    liveness.listed(&leases("x"), now);
    assert_eq!(liveness.progress(now + STALE), (true, Some(now)));
    assert_eq!(liveness.progress(now + STALE + AGAIN), (false, Some(now)));
    liveness.failed(false, now);
    assert_eq!(liveness.due(), Some(now + AGAIN), "from the beginning");
    // Without the right to list them, nothing waits.
    let mut liveness = Liveness::default();
    liveness.asked(at(0));
    liveness.failed(true, at(0));
    assert!(liveness.has_begun(at(0)));
}

#[test]
fn a_mirror_pod_is_looked_up_and_again_later() {
    let lookup = |number: u32| MirrorPodLookup { node: format!("{number:02}"), pod: ObjectKey::new("ns", "p") };
    let mut liveness = Liveness::default();
    let all: Vec<MirrorPodLookup> = (0..60).map(lookup).collect();
    let (now, next) = liveness.lookups(all.clone(), at(0));
    assert_eq!((now.len(), next), (LOOKUPS, Some(at(SECOND))));
    now.iter().for_each(|lookup| liveness.looking_up(lookup.clone(), at(0)));
    assert_eq!(liveness.is_ready(&lookup(0)), None);
    let ready = serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    liveness.looked_up(&lookup(0), Some(&ready));
    liveness.looked_up(&lookup(1), None);
    assert_eq!((liveness.is_ready(&lookup(0)), liveness.is_ready(&lookup(1))), (Some(true), Some(false)));
    assert_eq!(liveness.lookups(all.clone(), at(SECOND - 1)), (vec![], Some(at(SECOND))), "one batch a second");
    let (now, next) = liveness.lookups(all, at(SECOND));
    assert_eq!((now.len(), next), (10, Some(at(0) + LOOKUP_AGAIN)));
}
