//! A revision that is claimed here, and undone before anything of it has started.

use super::*;

/// `a` is wanted again, as the status of `rollout` says; `name` is released.
fn again(name: &str, rollout: RolloutStatus) -> Desired {
    let released = Some(Released { name: format!("net-{name}"), hash: name.to_owned(), generation: 1 });
    wanted(&DaemonSet { rollout: RolloutStatus { released, ..rollout }, ..of_api("a") })
}

/// What takes the place of `a`, which has ended for a claimed `b`, where `desired` comes before that started.
fn starts(desired: &Desired, has_finished: bool) -> (Vec<String>, Bench) {
    let (mut bench, to_b) = bench(Permission::Claimed);
    assert_eq!(bench.pass(&to_b), ["end uid-a-0"]);
    bench.world.approved = Some("b".to_owned());
    bench.world.permission = Some(withheld());
    if !has_finished {
        bench.pass(desired);
    }
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let mut done = bench.pass(desired);
    assert_eq!(done.remove(0), "finish uid-a-0");
    (done, bench)
}

#[test]
fn what_is_wanted_again_takes_the_place_of_a_claimed_revision_that_was_undone() {
    let crashed = || RolloutStatus { halted: Some("b: it failed".to_owned()), ..RolloutStatus::default() };
    for has_finished in [false, true] {
        let (done, bench) = starts(&again("a", RolloutStatus::default()), has_finished);
        assert_eq!(done, ["start uid-a-1"], "{has_finished}");
        let plan = bench.plan(&again("a", RolloutStatus::default()));
        assert_eq!((plan.replacing, plan.actions.len()), (None, 0), "its claim is given back");
        let behind = RolloutStatus { is_behind: true, ..crashed() };
        assert_eq!(starts(&again("a", behind), has_finished).0, ["start uid-a-1"], "the undone one was halted");
        let (done, _) = starts(&wanted(&of_api("a")), has_finished);
        assert_eq!(done, ["start uid-a-1"], "none was ever released");
    }
    // The claim goes on where another is wanted, or where what ended is not what nodes are to have.
    assert_eq!(starts(&wanted(&of_api("c")), true).0, ["start uid-b-1"], "another");
    assert_eq!(starts(&again("b", RolloutStatus::default()), true).0, ["start uid-b-1"], "it is not released any more");
    assert_eq!(starts(&again("a", crashed()), true).0, ["start uid-b-1"], "it is halted itself");
}

#[test]
fn a_claim_that_was_given_back_is_made_anew_before_its_revision_starts() {
    let (mut bench, to_b) = bench(Permission::Claimed);
    bench.pass(&to_b);
    bench.world.permission = Some(withheld());
    bench.pass(&again("a", RolloutStatus::default()));
    assert_eq!(bench.plan(&again("a", RolloutStatus::default())).replacing, None);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&to_b), ["finish uid-a-0", "start uid-a-1"]);
    bench.world.permission = Some(Permission::Approved);
    assert_eq!(bench.plan(&to_b).replacing.as_deref(), Some("b"));
}
