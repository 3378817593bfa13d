//! Updates with surge.

use super::*;

#[test]
fn surge_starts_the_new_instance_beside_the_old_one_until_it_is_available() {
    let mut new = daemon_set("b");
    new.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Percent(10) };
    new.min_ready_seconds = 5;
    let mut bench = Bench::running("a");
    bench.world.ready.insert("uid-a-0".to_owned(), NOW);
    let desired = wanted(&new);
    assert_eq!(bench.pass(&desired), ["start uid-b-1"]);
    assert_eq!(bench.pass(&desired), NONE);
    bench.world.ready.insert("uid-b-1".to_owned(), NOW);
    assert_eq!(bench.pass(&desired), NONE, "ready, not yet available");
    assert_eq!(bench.plan(&desired).wake_at, Some(NOW + ms(1_000)));
    bench.now += ms(5_000);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn surge_drops_an_old_instance_that_is_not_ready() {
    let mut new = daemon_set("b");
    new.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    let mut bench = Bench::running("a");
    bench.world.not_ready.insert("uid-a-0".to_owned());
    assert_eq!(bench.pass(&wanted(&new)), ["start uid-b-1"]);
    assert_eq!(bench.pass(&wanted(&new)), NONE, "it may be the Node that is not ready");
    bench.fails("uid-a-0", Failure { cause: Cause::KubeletNotResponding, message: String::new() });
    assert_eq!(bench.pass(&wanted(&new)), NONE);
    bench.fails("uid-a-0", Failure { cause: Cause::Probe, message: String::new() });
    assert_eq!(bench.pass(&wanted(&new)), ["end uid-a-0"]);
}

#[test]
fn a_template_that_changes_during_a_surge_never_costs_the_instance_that_serves() {
    let surging = |image: &str| {
        let mut new = daemon_set(image);
        new.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        wanted(&new)
    };
    let mut bench = Bench::running("a");
    bench.world.ready.insert("uid-a-0".to_owned(), NOW);
    assert_eq!(bench.pass(&surging("b")), ["start uid-b-1"]);
    bench.world.not_ready.insert("uid-b-1".to_owned());
    assert_eq!(bench.pass(&surging("c")), ["end uid-b-1", "start uid-c-2"]);
    bench.world.running.remove("uid-b-1");
    bench.now += GONE_AFTER;
    bench.world.ready.insert("uid-c-2".to_owned(), bench.now);
    assert_eq!(bench.pass(&surging("c")), ["finish uid-b-1", "end uid-a-0"]);
}

#[test]
fn a_surge_that_has_begun_ends_as_one_whatever_the_strategy_is_by_then() {
    let with = |update_strategy| wanted(&DaemonSet { update_strategy, ..daemon_set("b") });
    let by = |unavailable, surge| UpdateStrategy::RollingUpdate {
        max_unavailable: IntOrPercent::Int(unavailable),
        max_surge: IntOrPercent::Int(surge),
    };
    for changed in [by(1, 0), UpdateStrategy::OnDelete] {
        let mut bench = Bench::running("a");
        bench.world.ready.insert("uid-a-0".to_owned(), NOW);
        assert_eq!(bench.pass(&with(by(0, 1))), ["start uid-b-1"]);
        bench.world.not_ready.insert("uid-b-1".to_owned());
        assert_eq!(bench.pass(&with(changed)), NONE, "{changed:?}: the old one serves");
        bench.world.not_ready.clear();
        bench.world.ready.insert("uid-b-1".to_owned(), NOW);
        assert_eq!(bench.pass(&with(changed)), ["end uid-a-0"], "{changed:?}");
    }
}

#[test]
fn what_waited_at_its_gate_is_not_broken_before_its_containers_can_be_reported() {
    let mut new = daemon_set("b");
    new.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    let mut bench = Bench::running("a");
    let old = &mut bench.record.instances[0];
    old.daemon_set = old.daemon_set.as_ref().map(|d| d.with_gate(StartGate::Has));
    bench.world.not_ready.insert("uid-a-0".to_owned());
    bench.fails("uid-a-0", Failure { cause: Cause::Probe, message: String::new() });
    assert_eq!(bench.pass(&wanted(&new)), ["start uid-b-1"]);
    bench.now += Span::from_secs(19);
    assert_eq!(bench.pass(&wanted(&new)), NONE, "the report may be of its gate");
    bench.now += Span::from_secs(1);
    assert_eq!(bench.pass(&wanted(&new)), ["end uid-a-0"]);
}
