//! First installs, which start with a claimed approval.

use super::*;

fn first_install(daemon_set: DaemonSet) -> DaemonSet {
    let annotations = [("daemonlet.dev/first-install".to_owned(), "10%".to_owned())].into();
    DaemonSet { annotations, ..daemon_set }
}

#[test]
fn a_first_install_starts_only_with_a_claimed_approval() {
    let desired = wanted(&first_install(of_api("a")));
    let mut bench = Bench::new();
    for (permission, why) in [
        (None, "the cluster has no NodeDaemons"),
        (
            Some(withheld()),
            "first instance here waits for the coordinator's approval (daemonlet.dev/first-install): the coo",
        ),
        (Some(Permission::Withheld(Withheld::Paused)), "daemonlet.dev/paused holds it"),
        (Some(Permission::Approved), "its approval is being claimed"),
    ] {
        bench.world.permission = permission.clone();
        assert_eq!(bench.pass(&desired), NONE, "{permission:?}");
        let plan = bench.plan(&desired);
        assert!(plan.summary.reasons.to_string().contains(why), "{}", plan.summary.reasons);
        let is_hinted = plan.summary.hints.contains(&Hint::InstallCoordinator);
        assert_eq!(is_hinted, permission.is_none(), "{:?}", plan.summary.hints);
        let claims = permission == Some(Permission::Approved);
        assert_eq!((plan.summary.state, plan.replacing.is_some()), (State::Waiting, claims), "{permission:?}");
        bench.now += ms(3_600_000);
    }
    bench.world.permission = Some(Permission::Claimed);
    bench.world.waiting_for =
        vec![Missing { kind: "ConfigMap".into(), namespace: "a".into(), name: "b".into(), key: String::new() }];
    assert_eq!((bench.pass(&desired), bench.plan(&desired).replacing), (vec![], None), "it is given back");
    bench.world.waiting_for.clear();
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    assert_eq!(bench.plan(&desired).replacing, None);
    bench.world.permission = Some(withheld());
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    bench.pass(&desired);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"], "it ran here");
}

#[test]
fn images_of_a_first_install_are_pulled_ahead_each_at_a_moment_of_its_own() {
    let desired = wanted(&first_install(of_api("a")));
    let mut bench = Bench::new();
    bench.world.permission = Some(withheld());
    bench.pass(&desired);
    assert!(bench.plan(&desired).pull.is_none());
    bench.now += ms(600_000);
    bench.pass(&desired);
    assert!(bench.plan(&desired).pull.is_some());
}

#[test]
fn a_folder_and_what_was_released_need_no_approval() {
    let start = |daemon_set: DaemonSet| {
        let mut bench = Bench::new();
        bench.world.permission = Some(withheld());
        bench.pass(&wanted(&first_install(daemon_set)))
    };
    assert_eq!(start(daemon_set("a")), ["start uid-a-0"]);
    let released = Released { name: "net-a".to_owned(), hash: "a".to_owned(), generation: 1 };
    let rollout = RolloutStatus { released: Some(released), ..RolloutStatus::default() };
    assert_eq!(start(DaemonSet { rollout, ..of_api("a") }), ["start uid-a-0"]);
}

#[test]
fn a_daemon_set_with_the_name_of_a_deleted_one_is_new_though_that_still_ends() {
    let new = |image| wanted(&first_install(DaemonSet { uid: Some("new".into()), ..of_api(image) }));
    let gone = Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None };
    for has_seen_it_gone in [true, false] {
        let mut bench = Bench::new();
        bench.pass(&wanted(&of_api("a")));
        bench.pass(&wanted(&of_api("a")));
        bench.world.permission = Some(withheld());
        if has_seen_it_gone {
            bench.pass(&gone);
        } else {
            // It is being restarted just then.
            bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
            bench.pass(&wanted(&of_api("a")));
        }
        assert!(bench.record.accepted.is_some());
        assert_eq!(bench.pass(&new("a")), NONE);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&new("a")), ["finish uid-a-0"], "no node of it has run it: {has_seen_it_gone}");
        assert!(bench.plan(&new("a")).summary.reasons.to_string().contains("waits for the coordinator's approval"));
        bench.world.permission = Some(Permission::Claimed);
        assert_eq!(bench.pass(&new("a")), ["start uid-a-1"]);
    }
    // What runs is adopted, and so is what is remembered of it.
    let mut bench = Bench::new();
    bench.pass(&wanted(&of_api("a")));
    bench.pass(&wanted(&of_api("a")));
    bench.world.permission = Some(withheld());
    assert_eq!((bench.pass(&new("a")), bench.record.accepted.is_some()), (vec![], true));
}
