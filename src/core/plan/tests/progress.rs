use crate::core::model::PROGRESS_DEADLINE;
use crate::core::model::ROLLBACK;
use crate::core::record::RestartCause;
use crate::core::time::ms;

use super::*;

mod data;

const DEADLINE: Span = Span::from_secs(60);
const STEADY: Span = Span::from_secs(30);

fn rolling_back(image: &str) -> DaemonSet {
    let mut daemon_set = daemon_set(image);
    daemon_set.annotations.insert(PROGRESS_DEADLINE.into(), "1m".into());
    daemon_set.annotations.insert(ROLLBACK.into(), "auto".into());
    daemon_set
}

fn crash() -> Failure {
    Failure { cause: Cause::CrashLoop, message: "exit code 1: no such file".into() }
}

impl Bench {
    /// `image` runs and is ready.
    fn good(daemon_set: &DaemonSet) -> Self {
        let mut bench = Self::new();
        let uid = format!("uid-{}-0", image(daemon_set));
        bench.pass(&wanted(daemon_set));
        bench.world.ready.insert(uid.clone(), NOW);
        bench.pass(&wanted(daemon_set));
        assert_eq!(bench.record.good, None, "it may crash in a moment");
        bench.now += STEADY;
        bench.pass(&wanted(daemon_set));
        assert_eq!(bench.record.good.as_ref().unwrap().revision, image(daemon_set));
        bench
    }

    /// Passes until nothing is left to do; sandboxes end at once.
    pub(super) fn converge(&mut self, desired: &Desired) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let ending: Vec<String> = self.record.ending().map(|i| i.uid.clone()).collect();
            self.world.running.retain(|uid| !ending.contains(uid));
            self.now += GONE_AFTER;
            match self.pass(desired) {
                actions if actions.is_empty() => return all,
                actions => all.extend(actions),
            }
        }
    }

    pub(super) fn fails(&mut self, uid: &str, failure: Failure) {
        self.world.not_ready.insert(uid.to_owned());
        self.world.failures.insert(uid.to_owned(), failure);
    }
}

#[test]
fn a_revision_that_is_not_available_in_time_gives_way_to_the_last_good_one() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("b"));
    assert_eq!(bench.converge(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-b-1"]);
    bench.fails("uid-b-1", crash());
    assert_eq!(bench.pass(&desired), NONE, "it still has time");
    assert!(bench.plan(&desired).wake_at.unwrap() <= bench.record.instances[0].created + DEADLINE);
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-b-1", "finish uid-b-1", "start uid-a-2"]);
    let plan = bench.plan(&desired);
    assert!(plan.summary.reasons.to_string().contains("crash loop: exit code 1"), "{}", plan.summary.reasons);
    assert_eq!(plan.summary.wanted_revision.as_deref(), Some("b"));
    bench.now += DEADLINE * 100;
    assert_eq!(bench.converge(&desired), NONE, "it is not tried again");
    assert_eq!(bench.converge(&wanted(&rolling_back("c"))).last().unwrap(), "start uid-c-3", "another template is");
    assert_eq!(bench.record.failed, None);
}

#[test]
fn a_daemon_set_does_not_go_back_to_what_a_deleted_one_of_its_name_ran() {
    let of = |uid: &str, image| DaemonSet { source: Source::Api, uid: Some(uid.into()), ..rolling_back(image) };
    let mut bench = Bench::good(&of("deleted", "a"));
    bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    let desired = wanted(&of("new", "b"));
    bench.pass(&desired);
    assert_eq!((&bench.record.good, &bench.record.accepted), (&None, &None));
    assert_eq!(bench.converge(&desired), ["finish uid-a-0", "start uid-b-1"]);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), NONE);
    assert!(bench.record.failed.is_some());
}

#[test]
fn without_the_annotation_the_failure_is_reported_and_the_revision_stays() {
    let strip = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.annotations.remove(ROLLBACK);
        daemon_set
    };
    let mut bench = Bench::good(&strip("a"));
    let desired = wanted(&strip("b"));
    bench.converge(&desired);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert!(
        summary.reasons.to_string().contains("did not become available in time (crash loop"),
        "{}",
        summary.reasons
    );
    assert_eq!(summary.failed.unwrap().failure, crash());
    bench.world.not_ready.clear();
    bench.world.ready.insert("uid-b-1".into(), bench.now);
    bench.now += STEADY;
    bench.pass(&desired);
    assert_eq!(bench.record.failed, None, "it became available after all");
    assert_eq!(bench.record.good.as_ref().unwrap().revision, "b");
}

#[test]
fn what_nobody_sees_never_fails() {
    for failure in [None, Some(Failure { cause: Cause::KubeletNotResponding, message: String::new() })] {
        let mut bench = Bench::good(&rolling_back("a"));
        let desired = wanted(&rolling_back("b"));
        bench.converge(&desired);
        if let Some(failure) = failure {
            bench.world.failures.insert("uid-b-1".into(), failure);
        }
        bench.now += DEADLINE * 10;
        assert_eq!(bench.converge(&desired), NONE);
        assert_eq!(bench.record.failed, None);
        assert!(bench.plan(&desired).wake_at.is_some(), "it is looked at again");
    }
}

#[test]
fn the_time_that_the_node_was_off_does_not_count() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("b"));
    bench.converge(&desired);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE * 10;
    bench.booted = bench.now - ms(1_000);
    assert_eq!(bench.converge(&desired), NONE);
    bench.now = bench.booted + DEADLINE;
    assert_eq!(bench.converge(&desired)[0], "end uid-b-1");
}

#[test]
fn in_a_surge_the_old_instance_stays_and_the_failed_one_goes() {
    let surge = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        daemon_set
    };
    let mut bench = Bench::good(&surge("a"));
    let desired = wanted(&surge("b"));
    assert_eq!(bench.converge(&desired), ["start uid-b-1"]);
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-b-1", "finish uid-b-1"]);
    assert_eq!(bench.plan(&desired).summary.pod, "net-0");
}

#[test]
fn a_return_from_a_surge_ends_what_serves_only_when_what_returns_is_available() {
    let surge = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        daemon_set
    };
    let mut bench = Bench::good(&surge("a"));
    assert_eq!(bench.pass(&wanted(&surge("b"))), ["start uid-b-1"]);
    bench.world.ready.insert("uid-b-1".to_owned(), bench.now);
    assert_eq!(bench.converge(&wanted(&surge("b"))), ["end uid-a-0", "finish uid-a-0"]);
    let desired = wanted(&surge("c"));
    assert_eq!(bench.converge(&desired), ["start uid-c-2"]);
    assert_eq!(bench.record.good.as_ref().unwrap().revision, "a", "no other one has been ready for long");
    bench.world.ready.remove("uid-b-1");
    bench.world.not_ready.insert("uid-b-1".to_owned());
    bench.fails("uid-c-2", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-c-2", "start uid-a-3", "finish uid-c-2"]);
    bench.world.ready.insert("uid-a-3".to_owned(), bench.now);
    assert_eq!(bench.converge(&desired), ["end uid-b-1", "finish uid-b-1"]);
}

#[test]
fn images_that_cannot_be_pulled_leave_the_old_instance_and_hold_no_first_one_up() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    for images in [
        Images::Pulling(ImageReason::Reported("pulls image 1 of 2".into())),
        Images::Failed(ImageReason::Reported("no such image".into())),
    ] {
        bench.world.images = Some(images);
        assert_eq!(bench.converge(&desired), NONE);
        let plan = bench.plan(&desired);
        assert!(plan.summary.reasons.to_string().contains("revision b cannot start, the old instance stays"));
        assert!(plan.pull.is_some(), "they are asked for");
    }
    bench.world.images = Some(Images::Handed(ImageReason::Reported("the agent does not pull here".into())));
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);

    let mut first = Bench::new();
    first.world.images = Some(Images::Pulling(ImageReason::Reported("pulls image 1 of 1".into())));
    assert_eq!(first.pass(&desired), NONE);
    first.world.images = Some(Images::Failed(ImageReason::Reported("no registry".into())));
    assert_eq!(first.pass(&desired), ["start uid-b-0"]);
}

#[test]
fn the_time_counts_over_all_instances_of_a_revision() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("b"));
    bench.converge(&desired);
    let began = bench.record.instances[0].created;
    bench.pass(&desired);
    let mut number = 1;
    while bench.now < began + DEADLINE {
        let uid = format!("uid-b-{number}");
        bench.fails(&uid, Failure { cause: Cause::Admission, message: "NodePorts".into() });
        let (now, surroundings) = (bench.now, bench.world.surroundings.clone());
        bench.record.order_restart(&uid, RestartCause::Deleted, now, &surroundings);
        bench.now += ms(10_000);
        bench.converge(&desired);
        number += 1;
    }
    assert!(number > 2);
    bench.converge(&desired);
    assert_eq!(bench.record.failed.as_ref().unwrap().failure.cause, Cause::Admission);
    assert_eq!(bench.record.instances[0].revision, "a");
}

#[test]
fn retry_forgets_the_failure_and_waits_for_nobodys_turn() {
    let on_delete = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.update_strategy = UpdateStrategy::OnDelete;
        daemon_set
    };
    let mut bench = Bench::good(&on_delete("a"));
    let desired = wanted(&on_delete("b"));
    assert_eq!(bench.converge(&desired), NONE);
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-b-1");
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired), ["end uid-b-1", "finish uid-b-1", "start uid-a-2"]);
    assert_eq!(bench.record.retry(bench.now).failed.as_deref(), Some("b"));
    assert_eq!(bench.converge(&desired), ["end uid-a-2", "finish uid-a-2", "start uid-b-3"]);
    bench.fails("uid-b-3", crash());
    assert_eq!(bench.converge(&desired), NONE, "it has its time again");
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-4");
    assert_eq!(bench.record.by_hand, None);
}

#[test]
fn an_order_of_the_cluster_to_try_again_is_followed_once() {
    let ordered = |image, order: &str| {
        let mut daemon_set = rolling_back(image);
        daemon_set.annotations.insert("daemonlet.dev/retry".to_owned(), order.to_owned());
        wanted(&daemon_set)
    };
    let mut bench = Bench::good(&rolling_back("a"));
    bench.converge(&ordered("b", "b/1"));
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    assert_eq!(
        bench.converge(&ordered("b", "b/1")).last().unwrap(),
        "start uid-a-2",
        "it was ordered before it failed"
    );
    for order in ["b/1", "c/2", "b"] {
        assert_eq!(bench.converge(&ordered("b", order)), NONE, "{order}");
    }
    assert_eq!(bench.converge(&ordered("b", "b/2")), ["end uid-a-2", "finish uid-a-2", "start uid-b-3"]);
    bench.fails("uid-b-3", crash());
    bench.now += DEADLINE;
    assert_eq!(bench.converge(&ordered("b", "b/2")).last().unwrap(), "start uid-a-4");
    assert_eq!(bench.converge(&ordered("b", "b/2")), NONE, "once");
}

#[test]
fn retry_ends_a_back_off() {
    let mut bench = Bench::running("a");
    bench.record.order_restart("uid-a-0", RestartCause::Succeeded, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), NONE);
    assert_eq!(bench.record.retry(bench.now), crate::core::record::Retried { failed: None, backoff: true });
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["end uid-a-0"]);
    assert_eq!(bench.record.retry(bench.now), crate::core::record::Retried { failed: None, backoff: false });
}

#[test]
fn where_nobody_tells_readiness_running_steadily_lets_a_surge_go_on_and_becomes_good_in_time() {
    let surge = |image| {
        let mut daemon_set = rolling_back(image);
        daemon_set.update_strategy =
            UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
        daemon_set
    };
    let mut bench = Bench::new();
    bench.pass(&wanted(&surge("a")));
    bench.world.steady.insert("uid-a-0".into(), NOW);
    bench.pass(&wanted(&surge("a")));
    assert_eq!(bench.record.good, None);
    bench.now = bench.plan(&wanted(&surge("a"))).wake_at.unwrap();
    while bench.now < NOW + ms(30_000) {
        bench.pass(&wanted(&surge("a")));
        bench.now = bench.plan(&wanted(&surge("a"))).wake_at.unwrap();
    }
    assert_eq!(bench.pass(&wanted(&surge("a"))), ["keep uid-a-0"], "the first good one");
    let desired = wanted(&surge("b"));
    assert_eq!(bench.pass(&desired), ["start uid-b-1"]);
    let began = bench.now;
    bench.world.steady.insert("uid-b-1".into(), began);
    bench.now = began + ms(29_000);
    assert_eq!(bench.pass(&desired), NONE);
    bench.now = began + ms(30_000);
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "the surge goes on");
    bench.converge(&desired);
    assert_eq!(bench.record.good.as_ref().unwrap().revision, "a", "evidence against it may still come");
    bench.now = began + DEADLINE;
    assert_eq!(bench.converge(&desired), ["keep uid-b-1"]);
    assert_eq!(bench.record.good.as_ref().unwrap().revision, "b");
    bench.world.steady.clear();
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE * 10;
    assert_eq!(bench.converge(&desired), NONE, "it was taken for available");
}

#[test]
fn what_runs_steadily_and_turns_out_not_to_be_ready_is_rolled_back() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("b"));
    bench.converge(&desired);
    bench.world.steady.insert("uid-b-1".into(), bench.now);
    bench.now += DEADLINE - ms(10_000);
    bench.converge(&desired);
    bench.world.steady.clear();
    bench.fails("uid-b-1", Failure { cause: Cause::Probe, message: "HTTP probe failed".into() });
    bench.now += ms(10_000);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-2");
}

#[test]
fn a_daemon_that_is_gone_leaves_no_judgement_behind() {
    let mut bench = Bench::good(&rolling_back("a"));
    bench.converge(&wanted(&rolling_back("b")));
    bench.fails("uid-b-1", crash());
    bench.now += DEADLINE;
    bench.converge(&wanted(&rolling_back("b")));
    assert!(bench.record.failed.is_some());
    bench.converge(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    assert_eq!((&bench.record.failed, &bench.record.good), (&None, &None));
}

#[test]
fn a_crash_loop_that_is_ready_for_moments_is_none_the_better() {
    let mut bench = Bench::good(&rolling_back("a"));
    let desired = wanted(&rolling_back("b"));
    bench.converge(&desired);
    let began = bench.now;
    while bench.now < began + DEADLINE {
        bench.world.ready.insert("uid-b-1".into(), bench.now);
        bench.now += ms(1_000);
        bench.pass(&desired);
        bench.world.ready.remove("uid-b-1");
        bench.fails("uid-b-1", crash());
        bench.now += ms(4_000);
        bench.pass(&desired);
    }
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-2");
}
