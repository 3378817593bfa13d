use crate::core::record::Fingerprint;
use crate::core::record::RestartCause;
use crate::core::time::ms;

use super::*;

impl Bench {
    fn order(&mut self, uid: &str, cause: RestartCause) {
        let (now, surroundings) = (self.now, self.world.surroundings.clone());
        self.record.order_restart(uid, cause, now, &surroundings);
    }

    /// The instance ends, and a new one starts.
    fn replaced(&mut self, desired: &Desired) -> Vec<String> {
        let mut actions = self.pass(desired);
        self.world.running.clear();
        self.now += GONE_AFTER;
        actions.extend(self.pass(desired));
        actions
    }
}

#[test]
fn a_deleted_pod_gives_a_new_instance_at_the_wanted_revision_also_on_delete() {
    let mut daemon_set = daemon_set("b");
    daemon_set.update_strategy = UpdateStrategy::OnDelete;
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&wanted(&daemon_set)), NONE);
    bench.order("uid-a-0", RestartCause::Deleted);
    assert_eq!(bench.replaced(&wanted(&daemon_set)), ["end uid-a-0", "finish uid-a-0", "start uid-b-1"]);
}

#[test]
fn a_failed_pod_waits_out_its_back_off() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    let mut number = 0;
    for seconds in [1, 2, 4] {
        let ordered = bench.now;
        bench.order(&format!("uid-a-{number}"), RestartCause::Failed { message: "Evicted".into() });
        assert_eq!(bench.pass(&desired), NONE);
        let plan = bench.plan(&desired);
        assert_eq!(plan.wake_at, Some(ordered + ms(seconds * 1_000)));
        assert_eq!(plan.summary.state, State::Failing);
        assert!(plan.summary.reasons.to_string().contains("its pod failed: Evicted; a new instance is tried in"));
        bench.now = ordered + ms(seconds * 1_000);
        let next = number + 1;
        let expected = [format!("end uid-a-{number}"), format!("finish uid-a-{number}"), format!("start uid-a-{next}")];
        assert_eq!(bench.replaced(&desired), expected);
        number = next;
    }
}

#[test]
fn what_the_kubelet_rejects_is_tried_again_and_at_once_when_its_reason_may_have_gone() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    bench.world.surroundings = Fingerprint::OfApi(1);
    bench.world.rejected.insert("uid-a-0".into(), "NodePorts".into());
    assert_eq!(bench.pass(&desired), NONE);
    let plan = bench.plan(&desired);
    assert!(
        plan.summary.reasons.to_string().contains("the kubelet did not accept it: NodePorts"),
        "{}",
        plan.summary.reasons
    );
    bench.now += ms(1_000);
    assert_eq!(bench.replaced(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-a-1"]);
    bench.world.rejected.insert("uid-a-1".into(), "NodePorts".into());
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.record.backoff.as_ref().unwrap().tries, 2);
    bench.world.surroundings = Fingerprint::OfApi(2);
    assert_eq!(bench.replaced(&desired), ["end uid-a-1", "finish uid-a-1", "start uid-a-2"], "2 s are not waited for");
    bench.pass(&desired);
    assert_eq!(bench.record.backoff, None, "it was taken");
}

#[test]
fn room_that_came_before_the_rejection_was_known_is_used_at_once() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    bench.world.tried_in.insert("uid-a-0".into(), Fingerprint::OfApi(1));
    bench.world.surroundings = Fingerprint::OfApi(2);
    bench.world.rejected.insert("uid-a-0".into(), "NodePorts".into());
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "1 s is not waited for");
    bench.world.running.clear();
    assert_eq!(
        bench.pass(&desired),
        ["finish uid-a-0", "start uid-a-1"],
        "nor that the kubelet may begin it after all"
    );
    bench.world.rejected.insert("uid-a-1".into(), "NodePorts".into());
    assert_eq!(bench.pass(&desired), NONE, "nothing has changed since it was written");
}

#[test]
fn an_ordered_instance_just_goes_when_a_newer_one_is_here_or_none_may_start() {
    let mut surge = daemon_set("b");
    surge.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    let mut bench = Bench::running("a");
    assert_eq!(bench.pass(&wanted(&surge)), ["start uid-b-1"]);
    bench.order("uid-a-0", RestartCause::Deleted);
    assert_eq!(bench.pass(&wanted(&surge)), ["end uid-a-0"]);

    let mut bench = Bench::running("a");
    bench.node.taints = vec![Taint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() }];
    bench.order("uid-a-0", RestartCause::ByHand);
    let desired = wanted(&daemon_set("a"));
    assert_eq!(bench.replaced(&desired), ["end uid-a-0", "finish uid-a-0"]);
}

#[test]
fn what_has_ended_to_return_does_so_on_a_node_that_is_not_ready() {
    let not_ready =
        Taint { key: "node.kubernetes.io/not-ready".into(), value: String::new(), effect: "NoSchedule".into() };
    let reserved = Taint { key: "reserved".into(), ..not_ready.clone() };
    let then = |taint: &Taint| {
        let mut bench = Bench::running("a");
        let desired = wanted(&daemon_set("b"));
        assert_eq!(bench.pass(&desired), ["end uid-a-0"], "the node is well, and it is replaced");
        bench.node.taints = vec![taint.clone()];
        assert_eq!(bench.pass(&desired), NONE, "it ends first");
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        bench.pass(&desired)
    };
    assert_eq!(then(&not_ready), ["finish uid-a-0", "start uid-b-1"]);
    assert_eq!(then(&reserved), ["finish uid-a-0"], "a taint keeps its pods away");
    let ordered = |taint: &Taint| {
        let mut bench = Bench::running("a");
        bench.node.taints = vec![taint.clone()];
        bench.order("uid-a-0", RestartCause::ByHand);
        bench.replaced(&wanted(&daemon_set("a")))
    };
    assert_eq!(ordered(&not_ready), ["end uid-a-0", "finish uid-a-0", "start uid-a-1"]);
    // What it needs is needed in the very pass that finds its manifest removed.
    let removed = |taint: &Taint| {
        let mut bench = Bench::running("a");
        bench.node.taints = vec![taint.clone()];
        bench.world.manifests.clear();
        bench.plan(&wanted(&daemon_set("a"))).summary.state
    };
    assert_eq!((removed(&not_ready), removed(&reserved)), (State::Replacing, State::Stopping));
    let mut bench = Bench::new();
    bench.node.taints = vec![not_ready.clone()];
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE, "first starts are upstream's");
    let mut bench = Bench::running("a");
    bench.node.taints = vec![not_ready];
    assert_eq!(bench.pass(&wanted(&daemon_set("b"))), NONE, "and no replacement begins");
}

#[test]
fn a_successor_waits_until_the_api_shows_that_the_old_pod_ends() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    bench.order("uid-a-0", RestartCause::Deleted);
    bench.world.mirror_pod_deletions = true;
    assert_eq!(bench.replaced(&desired), ["end uid-a-0"]);
    assert!(bench.plan(&desired).wake_at.is_some(), "it looks again");
    bench.world.mirror_pod_deletions = false;
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
}

#[test]
fn without_the_api_server_a_sandbox_that_goes_is_room_and_the_loss_itself_is_none() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    bench.world.surroundings = Fingerprint::Lacks(vec!["cpu".into()]);
    bench.world.rejected.insert("uid-a-0".into(), "OutOfcpu".into());
    assert_eq!(bench.pass(&desired), NONE);
    bench.now += ms(500);
    let before = Fingerprint::OfRuntime(1);
    (bench.world.surroundings, bench.world.tried_in) = (before.clone(), BTreeMap::from([("uid-a-0".into(), before)]));
    assert_eq!(bench.pass(&desired), NONE, "what the API server showed is not compared with sandboxes");
    bench.world.surroundings = Fingerprint::OfRuntime(2);
    assert_eq!(bench.replaced(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-a-1"]);
}

#[test]
fn what_a_node_is_no_longer_for_does_not_return_to_it() {
    let taint = |key: &str, effect: &str| vec![Taint { key: key.into(), value: String::new(), effect: effect.into() }];
    let desired = wanted(&daemon_set("a"));
    let then = |is_registered: bool| {
        let mut bench = Bench::running("a");
        bench.order("uid-a-0", RestartCause::ByHand);
        assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
        bench.node.taints = taint("reserved", "NoExecute");
        bench.node.registered = is_registered;
        bench.world.lacks_labels_until = (!is_registered).then_some(bench.now + Span::from_secs(60));
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        assert_eq!(bench.pass(&desired), ["finish uid-a-0"]);
        bench.node.taints = taint("node.kubernetes.io/not-ready", "NoSchedule");
        bench.node.registered = true;
        bench.pass(&desired)
    };
    assert_eq!(then(true), NONE, "it is new to the node");
    assert_eq!(then(false), ["start uid-a-1"], "what was read before the Node was is no evidence");
}

#[test]
fn a_successor_that_waits_for_what_it_needs_is_one_when_nothing_is_left_of_what_it_follows() {
    let taint = |key: &str, effect: &str| Taint { key: key.into(), value: String::new(), effect: effect.into() };
    let desired = wanted(&daemon_set("b"));
    let then = |taints: &[Taint]| {
        let mut bench = Bench::running("a");
        assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
        bench.world.running.clear();
        bench.now += GONE_AFTER;
        let missing = Missing { kind: "Secret".into(), namespace: "a".into(), name: "s".into(), key: String::new() };
        bench.world.waiting_for = vec![missing];
        assert_eq!(bench.pass(&desired), ["finish uid-a-0"], "its Secret is not there any more");
        for taint in taints {
            bench.node.taints = vec![taint.clone()];
            assert_eq!(bench.pass(&desired), NONE);
        }
        bench.world.waiting_for.clear();
        let started = bench.pass(&desired);
        assert!(started.is_empty() || !bench.record.returns);
        started
    };
    let (not_ready, reserved) = (taint("node.kubernetes.io/not-ready", "NoSchedule"), taint("reserved", "NoExecute"));
    assert_eq!(then(std::slice::from_ref(&not_ready)), ["start uid-b-1"]);
    assert_eq!(then(&[reserved, not_ready]), NONE, "a taint kept it away: it is new to the node");
}
