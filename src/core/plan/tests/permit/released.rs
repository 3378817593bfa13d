//! First instances while nodes are kept on the released revision.

use super::*;

#[test]
fn a_first_instance_has_the_released_revision_while_nodes_are_kept_on_it() {
    let held = || RolloutStatus { is_held: true, ..RolloutStatus::default() };
    let first = |daemon_set: &DaemonSet| {
        let mut bench = Bench::new();
        bench.world.permission = Some(withheld());
        bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("a"))));
        bench.pass(&wanted(daemon_set))
    };
    for rollout in [
        held(),
        RolloutStatus { is_behind: true, ..RolloutStatus::default() },
        RolloutStatus { halted: Some("x".to_owned()), ..RolloutStatus::default() },
    ] {
        assert_eq!(first(&kept(rollout)), ["start uid-a-0"]);
    }
    for (name, value) in [("daemonlet.dev/paused", "true"), ("daemonlet.dev/partition", "10%")] {
        let mut daemon_set = kept(RolloutStatus::default());
        daemon_set.annotations.insert(name.to_owned(), value.to_owned());
        assert_eq!(first(&daemon_set), ["start uid-a-0"], "{name}");
    }
    assert_eq!(first(&kept(RolloutStatus::default())), ["start uid-b-0"], "an open rollout keeps no node back");
    assert_eq!(first(&DaemonSet { update_strategy: UpdateStrategy::OnDelete, ..kept(held()) }), ["start uid-b-0"]);
    assert_eq!(first(&DaemonSet { rollout: held(), ..of_api("b") }), ["start uid-b-0"], "nothing was ever released");
    // It has the newer one once that is approved.
    let mut bench = Bench::new();
    bench.world.permission = Some(withheld());
    bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("a"))));
    let desired = wanted(&kept(held()));
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    assert_eq!(bench.plan(&desired).summary.wanted_revision.as_deref(), Some("b"));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    bench.world.permission = Some(withheld());
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-b-1"], "the replacement was no first instance");
}

#[test]
fn a_node_that_the_newest_revision_selects_and_the_released_one_does_not_waits_for_the_rollout() {
    let with = |name: &str| {
        let mut daemon_set = kept(RolloutStatus::default());
        daemon_set.annotations.insert(name.to_owned(), "1".to_owned());
        daemon_set
    };
    let mut narrow = of_api("a");
    narrow.template["spec"]["nodeSelector"] = json!({"pool": "a"});
    for daemon_set in [
        with("daemonlet.dev/paused"),
        with("daemonlet.dev/partition"),
        kept(RolloutStatus { is_held: true, ..RolloutStatus::default() }),
        kept(RolloutStatus { is_behind: true, ..RolloutStatus::default() }),
        kept(RolloutStatus { halted: Some("x".to_owned()), ..RolloutStatus::default() }),
    ] {
        let mut bench = Bench::new();
        bench.world.permission = Some(withheld());
        bench.world.released = Some(ReleasedDefinition::Known(Arc::new(narrow.clone())));
        assert_eq!(bench.pass(&wanted(&daemon_set)), NONE);
        let plan = bench.plan(&wanted(&daemon_set));
        assert_eq!((plan.summary.state, plan.summary.awaits_rollout), (State::Waiting, true));
        assert!(
            plan.summary.reasons.to_string().contains("is not for this node (nodeSelector"),
            "{}",
            plan.summary.reasons
        );
        assert_eq!(bench.pass(&wanted(&kept(RolloutStatus::default()))), ["start uid-b-0"], "it is open");
        // One for which the newest is not, either, waits for nothing.
        let mut bench = Bench::new();
        bench.node.taints = vec![Taint { key: "reserved".into(), value: String::new(), effect: "NoSchedule".into() }];
        bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("a"))));
        let plan = bench.plan(&wanted(&daemon_set));
        assert_eq!((plan.summary.state, plan.summary.awaits_rollout), (State::NotSelected, false));
    }
}

#[test]
fn what_was_released_counts_while_the_status_says_nothing_of_it() {
    let put_back = |uid: &str| DaemonSet { uid: Some(uid.to_owned()), ..of_api("b") };
    let released = |uid: &str| DaemonSet { uid: Some(uid.to_owned()), ..kept(RolloutStatus::default()) };
    let left = Desired::Left { reason: DesiredReason::NotSelected, taken_away: true };
    let gone = Desired::Gone { reason: DesiredReason::NotSelected, by_list: false, ignore_file: None };
    for (uid, starts) in [("u", "start uid-a-1"), ("another DaemonSet", "start uid-b-1")] {
        let mut bench = Bench::new();
        bench.world.permission = Some(withheld());
        bench.world.released = Some(ReleasedDefinition::Known(Arc::new(of_api("a"))));
        assert_eq!(bench.pass(&wanted(&released("u"))), ["start uid-b-0"]);
        // Without the label the instance ends as one that is gone; after that, the DaemonSet is left alone.
        assert_eq!(bench.pass(&gone), ["end uid-b-0"]);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&gone), ["finish uid-b-0"]);
        bench.record.ended.clear();
        bench.pass(&left);
        assert!(bench.record.is_bare(), "it can be forgotten: {:?}", bench.record);
        assert_eq!(bench.pass(&wanted(&put_back(uid))), [starts]);
    }
}

#[test]
fn a_released_revision_that_cannot_be_had_is_waited_for_or_passed_over() {
    let held = |halted: bool| {
        let halted = halted.then(|| "it failed on 2 nodes".to_owned());
        wanted(&kept(RolloutStatus { is_held: true, halted, ..RolloutStatus::default() }))
    };
    let mut bench = Bench::new();
    bench.world.permission = Some(withheld());
    let plan = bench.plan(&held(false));
    assert_eq!(plan.summary.state, State::Waiting);
    assert!(plan.summary.reasons.to_string().ends_with("lets agents read it"), "{plan:?}");
    assert!(plan.references.iter().any(|r| r.kind == Kind::ControllerRevision && r.key.name == "net-a"));
    assert_eq!(bench.pass(&held(false)), NONE);
    bench.world.released = Some(ReleasedDefinition::Gone);
    assert_eq!(bench.pass(&held(true)), NONE, "a halted one starts nowhere");
    assert_eq!(bench.pass(&held(false)), ["start uid-b-0"]);
}

#[test]
fn a_node_that_the_released_revision_is_not_for_leaves_what_is_taken_back_and_starts_nothing() {
    let halted = RolloutStatus { halted: Some("it failed on 2 nodes".to_owned()), ..RolloutStatus::default() };
    let desired = wanted(&kept(halted));
    let mut narrow = kept(RolloutStatus::default());
    narrow.template = of_api("a").template;
    narrow.template["spec"]["nodeSelector"] = json!({"pool": "a"});
    let mut bench = Bench::new();
    bench.world.released = Some(ReleasedDefinition::Known(Arc::new(narrow)));
    assert_eq!(bench.pass(&wanted(&kept(RolloutStatus::default()))), ["start uid-b-0"], "the rollout was open");
    bench.world.approved = Some("a".into());
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.pass(&desired), NONE, "no claim, no end");
    assert_eq!(bench.plan(&desired).replacing.as_deref(), Some("a"));
    bench.world.permission = Some(Permission::Claimed);
    assert_eq!(bench.pass(&desired), ["end uid-b-0"]);
    let plan = bench.plan(&desired);
    assert_eq!((plan.replacing.as_deref(), plan.summary.state), (Some("a"), State::Stopping));
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-b-0"]);
    for approved in [Some("a".to_owned()), None] {
        bench.world.permission = Some(if approved.is_some() { Permission::Claimed } else { withheld() });
        bench.world.approved = approved;
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!((plan.replacing, plan.summary.state, plan.summary.awaits_rollout), (None, State::Waiting, true));
    }
    bench.world.permission = Some(withheld());
    assert_eq!(bench.pass(&wanted(&kept(RolloutStatus::default()))), ["start uid-b-1"], "it is open again");
}
