//! Data that is good with a revision, and data that is not.

use crate::core::model::RESTART_ON;

use super::*;

#[test]
fn a_roll_back_brings_the_data_of_then_and_changes_data_no_more_until_the_template_is_another() {
    let mut bench = Bench::good(&rolling_back("a"));
    bench.world.data_version = "new".into();
    let desired = wanted(&rolling_back("b"));
    bench.converge(&desired);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    bench.converge(&desired);
    assert_eq!(bench.world.manifests["uid-a-2"], "a@", "the old data");
    bench.world.ready.insert("uid-a-2".into(), bench.now);
    bench.world.data_version = "newer".into();
    assert_eq!(bench.converge(&desired), NONE);
    let back = wanted(&rolling_back("a"));
    assert_eq!(bench.converge(&back), ["refresh uid-a-2 volumes=false manifest=true"], "today's data, no restart");
}

#[test]
fn data_becomes_good_only_when_the_instance_lived_with_it() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("a"));
    bench.world.data_version = "new".into();
    bench.pass(&desired);
    assert_eq!(bench.record.good.as_ref().unwrap().data_version, "");
    bench.now = bench.plan(&desired).wake_at.unwrap();
    assert_eq!(bench.pass(&desired), ["keep uid-a-0"]);
    assert_eq!(bench.record.good.as_ref().unwrap().data_version, "new");
}

#[test]
fn changed_data_that_restarts_is_rolled_back_under_the_same_template() {
    let mut daemon_set = rolling_back("a");
    daemon_set.annotations.insert(RESTART_ON.into(), "config".into());
    let desired = wanted(&daemon_set);
    let mut bench = Bench::new();
    bench.world.data_version = "fine".into();
    bench.pass(&desired);
    bench.world.ready.insert("uid-a-0".into(), NOW);
    bench.now += STEADY;
    bench.pass(&desired);
    bench.world.data_version = "bad".into();
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-1");
    bench.fails("uid-a-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-a-1", "finish uid-a-1", "start uid-a-2"]);
    assert_eq!(bench.world.manifests["uid-a-2"], "a@fine");
    assert_eq!(bench.converge(&desired), NONE);
    bench.world.data_version = "better".into();
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-3", "other data is another try");
}

#[test]
fn data_that_changes_while_another_revision_is_wanted_does_not_become_good() {
    let surge = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        daemon_set
    };
    let mut bench = Bench::good(&surge("a"));
    let desired = wanted(&surge("b"));
    bench.world.data_version = "new".into();
    assert_eq!(bench.converge(&desired), ["refresh uid-a-0 volumes=false manifest=true", "start uid-b-1"]);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(
        bench.converge(&desired),
        ["refresh uid-a-0 volumes=false manifest=true", "end uid-b-1", "finish uid-b-1"]
    );
    assert_eq!(bench.world.manifests["uid-a-0"], "a@", "it runs with the data of then again");
    assert_eq!(bench.record.good.as_ref().unwrap().data_version, "");
}

#[test]
fn a_good_template_that_does_not_start_with_other_data_gets_the_data_of_then() {
    let desired = wanted(&rolling_back("a"));
    let mut bench = Bench::good(&rolling_back("a"));
    bench.world.data_version = "bad".into();
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-1");
    bench.fails("uid-a-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-a-1", "finish uid-a-1", "start uid-a-2"]);
    assert_eq!(bench.world.manifests["uid-a-2"], "a@");
    bench.world.data_version = "better".into();
    assert_eq!(bench.converge(&desired), ["refresh uid-a-2 volumes=false manifest=true"], "other data is another try");
    assert_eq!(bench.record.failed, None);
}

#[test]
fn data_that_is_not_known_is_no_other_data() {
    let mut daemon_set = rolling_back("a");
    daemon_set.annotations.insert(RESTART_ON.into(), "config".into());
    let desired = wanted(&daemon_set);
    let mut bench = Bench::new();
    bench.world.data_version = "fine".into();
    bench.pass(&desired);
    bench.world.ready.insert("uid-a-0".into(), NOW);
    bench.now += STEADY;
    bench.pass(&desired);
    bench.world.data_version = "bad".into();
    bench.converge(&desired);
    bench.fails("uid-a-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-2");
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    bench.converge(&desired);
    assert!(bench.record.failed.is_some());
}
