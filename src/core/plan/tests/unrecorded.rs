//! What runs, or has a manifest, and of which no record says anything.

use super::*;

#[test]
fn nothing_starts_before_the_runtime_has_said_whether_one_runs_already() {
    let mut bench = Bench::new();
    let desired = wanted(&daemon_set("a"));
    let again = bench.now + Span::from_secs(1);
    bench.world.may_run_unrecorded = Some(again);
    assert_eq!(bench.pass(&desired), NONE);
    let waiting = bench.plan(&desired);
    assert_eq!((waiting.summary.state, waiting.asks_runtime), (State::Waiting, true));
    assert_eq!(waiting.wake_at, Some(again));
    bench.world.may_run_unrecorded = None;
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
}

#[test]
fn a_manifest_that_was_made_for_another_node_is_replaced_once() {
    for (uid, expected) in [("uid-a-0", vec![]), ("of-another-node", vec!["end of-another-node"])] {
        let mut bench = Bench::new();
        let same = wanted(&DaemonSet { update_strategy: UpdateStrategy::OnDelete, ..daemon_set("a") });
        bench.record.instances.push(Instance::new(uid, "net-0", 0, "a", NOW));
        bench.record.next_incarnation = 1;
        bench.world.manifests.insert(uid.to_owned(), "digest".to_owned());
        bench.world.running.insert(uid.to_owned());
        let ends = bench.pass(&same);
        assert_eq!(ends.into_iter().filter(|action| action.starts_with("end")).collect::<Vec<_>>(), expected);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        let then = bench.pass(&same);
        assert_eq!(then.iter().any(|action| action == "start uid-a-1"), !expected.is_empty(), "{then:?}");
        assert_eq!(bench.pass(&same), NONE);
    }
}

#[test]
fn what_runs_without_a_record_does_not_give_way_to_what_is_only_remembered() {
    let mut bench = Bench::new();
    let desired = wanted(&daemon_set("a"));
    bench.record.instances.push(Instance::new("uid-b-0", "net-0", 0, "b", NOW));
    bench.record.next_incarnation = 1;
    bench.world.manifests.insert("uid-b-0".to_owned(), "digest".to_owned());
    bench.world.running.insert("uid-b-0".to_owned());
    bench.world.is_remembered = true;
    assert_eq!(bench.pass(&desired), NONE);
    let waits = Reason::RevisionWaits { revision: "a".to_owned(), waits: [Reason::Unrecorded].into() };
    assert!(bench.plan(&desired).summary.reasons.contains(&waits));
    bench.world.is_remembered = false;
    assert_eq!(bench.pass(&desired), ["end uid-b-0"]);
}
