use super::world::NOTHING_SHOWN;
use crate::core::record::AcceptanceConditions;

use super::*;

/// The kubelet of this version, with an API server that answers or not.
fn conditions(kubelet: &str, has_api: bool) -> AcceptanceConditions {
    AcceptanceConditions { kubelet: Some(kubelet.to_owned()), configuration: "c".to_owned(), has_api }
}

impl Bench {
    /// The kubelet has taken `a`, and nothing of `b` shows.
    fn with_untaken() -> Self {
        let mut bench = Self::running("a");
        bench.world.conditions = conditions("v1.36.2", true);
        bench.converge(&wanted(&daemon_set("a")));
        let desired = wanted(&daemon_set("b"));
        bench.shows_nothing(&["uid-b-1"]);
        assert_eq!(bench.converge(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-b-1"]);
        bench.is_not_taken("uid-b-1");
        bench
    }

    /// Nothing reports on these yet.
    fn shows_nothing(&mut self, uids: &[&str]) {
        self.world.unknown.extend(uids.iter().map(|uid| (*uid).to_owned()));
    }

    fn is_not_taken(&mut self, uid: &str) {
        self.world.running.remove(uid);
        self.world.not_accepted.insert(uid.to_owned());
    }
}

#[test]
fn what_the_kubelet_does_not_take_gives_way_to_the_last_revision_that_it_took() {
    let mut bench = Bench::with_untaken();
    let desired = wanted(&daemon_set("b"));
    // Its end needs no confirmation.
    bench.world.no_runtime_view = true;
    assert_eq!(bench.pass(&desired), ["end uid-b-1"], "at once, and whatever `rollback` says");
    assert_eq!(bench.pass(&desired), NONE, "the kubelet may be about to take it");
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&desired), ["finish uid-b-1", "start uid-a-2"]);
    bench.world.no_runtime_view = false;
    assert_eq!(bench.converge(&desired), NONE);
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.pod.as_str(), summary.wanted_revision.as_deref()), ("net-2", Some("b")));
    let failed = summary.failed.unwrap();
    assert_eq!((failed.revision.as_str(), failed.failure.cause), ("b", Cause::NotAccepted));
    assert!(summary.reasons.to_string().contains("back to a until its template"), "{}", summary.reasons);
    // An agent that starts knows it.
    let text = serde_json::to_string(&bench.record).unwrap();
    bench.record = serde_json::from_str(&text).unwrap();
    bench.now += ms(1_000_000_000);
    bench.world.conditions = AcceptanceConditions { kubelet: None, ..conditions("", true) };
    assert_eq!(bench.converge(&desired), NONE, "a version that is not known is no other one");
    bench.world.conditions = conditions("v1.36.2", false);
    assert_eq!(bench.converge(&desired), NONE);
    assert_eq!(bench.converge(&wanted(&daemon_set("c"))).last().unwrap(), "start uid-c-3", "another template");
    assert_eq!(bench.record.failed, None);
}

#[test]
fn what_the_kubelet_rejected_in_its_own_words_is_tried_again_when_nothing_of_the_next_one_shows() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("b"));
    bench.world.rejected.insert("uid-b-1".into(), "NodePorts".into());
    bench.converge(&desired);
    bench.now += ms(2_000);
    bench.shows_nothing(&["uid-b-2"]);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-b-2", "it waits for room");
    // The API server goes away, and with it the kubelet's words.
    bench.is_not_taken("uid-b-2");
    assert_eq!(bench.converge(&desired), NONE, "after a pause");
    assert_eq!(bench.record.failed, None);
    bench.now += ms(4_000);
    assert_eq!(bench.converge(&desired), ["end uid-b-2", "finish uid-b-2", "start uid-b-3"]);
    // That the kubelet has read it outlives the back-off.
    bench.record.retry(bench.now);
    assert_eq!(bench.record.backoff, None);
    bench.is_not_taken("uid-b-3");
    bench.converge(&desired);
    assert_eq!(bench.record.failed, None);
    // Nor does it go back when its deadline is over: it waits for room.
    let live = bench.record.live().next().unwrap().uid.clone();
    bench.is_not_taken(&live);
    let failure = Failure { cause: Cause::NotAccepted, message: "nothing of it shows".to_owned() };
    bench.world.failures.insert(live, failure);
    bench.now += ms(1_000_000);
    bench.converge(&desired);
    assert_eq!(bench.record.failed.as_ref().map(|failed| failed.failure.cause), Some(Cause::Admission));
    assert!(bench.record.live().all(|instance| instance.revision == "b"));
}

#[test]
fn what_was_not_taken_is_tried_again_by_another_kubelet_configuration_or_hand() {
    type Change = fn(&mut Bench);
    let changes: [Change; 3] = [
        |bench| bench.world.conditions = conditions("v1.37.0", true),
        |bench| bench.world.conditions.configuration = "d".to_owned(),
        |bench| assert_eq!(bench.record.retry(bench.now).failed.as_deref(), Some("b")),
    ];
    for change in changes {
        let mut bench = Bench::with_untaken();
        let desired = wanted(&daemon_set("b"));
        assert_eq!(bench.converge(&desired), ["end uid-b-1", "finish uid-b-1", "start uid-a-2"]);
        change(&mut bench);
        assert_eq!(bench.converge(&desired), ["end uid-a-2", "finish uid-a-2", "start uid-b-3"]);
        assert_eq!(bench.converge(&desired), NONE);
        assert_eq!((&bench.record.failed, bench.record.accepted.as_ref().unwrap().revision.as_str()), (&None, "b"));
    }
}

#[test]
fn where_none_was_accepted_before_it_stays_not_accepted_until_it_may_be() {
    let mut bench = Bench::new();
    bench.world.conditions = conditions("v1.36.2", true);
    let desired = wanted(&daemon_set("a"));
    bench.shows_nothing(&["uid-a-0", "uid-a-1", "uid-a-2"]);
    bench.converge(&desired);
    bench.is_not_taken("uid-a-0");
    assert_eq!(bench.converge(&desired), NONE);
    bench.now += ms(1_000_000_000);
    assert_eq!(bench.converge(&desired), NONE, "it is not tried again and again");
    let summary = bench.plan(&desired).summary;
    assert_eq!((summary.state, summary.ready), (State::NotAccepted, Some(false)));
    assert!(
        summary.reasons == [Reason::NotAccepted(NOTHING_SHOWN.to_string()), Reason::StaysNotAccepted].into(),
        "{}",
        summary.reasons
    );
    assert!(summary.state.is_bad());
    bench.record.retry(bench.now);
    assert_eq!(bench.converge(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-a-1"]);
    bench.is_not_taken("uid-a-1");
    assert_eq!(bench.converge(&desired), NONE);
    bench.world.conditions = conditions("v1.37.0", true);
    assert_eq!(bench.converge(&desired), ["end uid-a-1", "finish uid-a-1", "start uid-a-2"]);
    // The kubelet reads the file of its own accord, too.
    bench.is_not_taken("uid-a-2");
    assert_eq!(bench.converge(&desired), NONE);
    assert!(bench.record.failed.is_some());
    (bench.world.not_accepted, bench.world.unknown) = Default::default();
    assert_eq!(bench.converge(&desired), NONE);
    assert_eq!((&bench.record.failed, bench.record.instances[0].not_accepted), (&None, false));
    // Another template waits for nothing: nothing runs that it could end.
    let mut bench = Bench::new();
    bench.shows_nothing(&["uid-a-0"]);
    bench.converge(&desired);
    bench.is_not_taken("uid-a-0");
    bench.converge(&desired);
    let mut on_delete = daemon_set("b");
    on_delete.update_strategy = UpdateStrategy::OnDelete;
    assert_eq!(bench.converge(&wanted(&on_delete)), ["end uid-a-0", "finish uid-a-0", "start uid-b-1"]);
}

#[test]
fn a_rejection_that_may_have_gone_unnoticed_is_tried_once_more_when_the_api_server_answers() {
    let mut bench = Bench::new();
    bench.world.conditions = conditions("v1.36.2", false);
    bench.shows_nothing(&["uid-a-0", "uid-a-1"]);
    let desired = wanted(&daemon_set("a"));
    bench.converge(&desired);
    bench.is_not_taken("uid-a-0");
    assert_eq!(bench.converge(&desired), NONE);
    bench.world.conditions.has_api = true;
    assert_eq!(bench.converge(&desired), ["end uid-a-0", "finish uid-a-0", "start uid-a-1"]);
    bench.is_not_taken("uid-a-1");
    assert_eq!(bench.converge(&desired), NONE);
    for has_api in [false, true] {
        bench.world.conditions.has_api = has_api;
        assert_eq!(bench.converge(&desired), NONE, "now it is known");
    }
}

#[test]
fn a_revision_that_was_taken_before_is_tried_again_with_a_back_off_as_one_that_is_rejected() {
    let mut bench = Bench::running("a");
    let desired = wanted(&daemon_set("a"));
    bench.converge(&desired);
    bench.record.order_restart("uid-a-0", RestartCause::Deleted, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-1");
    bench.is_not_taken("uid-a-1");
    assert_eq!(bench.pass(&desired), NONE);
    assert_eq!(bench.record.failed, None);
    bench.now += ms(1_000);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-a-2");
    assert_eq!(bench.record.backoff.as_ref().map(|backoff| backoff.tries), None, "it was taken");
}

#[test]
fn a_rejection_at_admission_fails_no_revision() {
    let mut bench = Bench::running("a");
    bench.converge(&wanted(&daemon_set("a")));
    let desired = wanted(&daemon_set("b"));
    bench.shows_nothing(&["uid-b-1"]);
    bench.converge(&desired);
    bench.world.rejected.insert("uid-b-1".into(), "OutOfcpu".into());
    assert_eq!(bench.pass(&desired), NONE);
    bench.now += ms(1_000);
    assert_eq!(bench.converge(&desired).last().unwrap(), "start uid-b-2");
    assert_eq!(bench.record.failed, None);
}

#[test]
fn what_the_kubelet_rejects_is_to_be_replaced_though_its_definition_cannot_be_read() {
    let mut bench = Bench::running("a");
    bench.world.rejected.insert("uid-a-0".into(), "NodePorts".into());
    bench.pass(&Desired::Kept { reason: DesiredReason::NotInApi });
    assert!(bench.record.instances[0].restart.is_some(), "{:?}", bench.record);
}

#[test]
fn in_a_surge_the_old_instance_goes_on() {
    let mut surge = daemon_set("b");
    surge.update_strategy =
        UpdateStrategy::RollingUpdate { max_unavailable: IntOrPercent::Int(0), max_surge: IntOrPercent::Int(1) };
    let mut bench = Bench::running("a");
    bench.converge(&wanted(&daemon_set("a")));
    bench.world.unknown.insert("uid-b-1".into());
    assert_eq!(bench.converge(&wanted(&surge)), ["start uid-b-1"]);
    bench.is_not_taken("uid-b-1");
    assert_eq!(bench.converge(&wanted(&surge)), ["end uid-b-1", "finish uid-b-1"]);
    assert_eq!(bench.record.instances[0].uid, "uid-a-0");
}
