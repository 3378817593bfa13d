use crate::core::dry_run::DryRunAnswer as ApiSays;
use crate::core::dry_run::Unanswered;
use crate::core::record::AdmissionVerdict;
use crate::core::time::ms;

use super::*;

fn of_api(image: &str) -> DaemonSet {
    DaemonSet { source: Source::Api, uid: Some("u".into()), ..daemon_set(image) }
}

/// What admission makes of a template: another image.
fn mirrored(image: &str) -> ApiSays {
    ApiSays::Admitted(Arc::new(json!({"spec": {"containers": [{"name": "c", "image": image}]}})))
}

fn silent() -> ApiSays {
    ApiSays::Unanswered(Unanswered { why: "away".into(), hint: Some("wait".into()), passing: true })
}

fn asking(says: ApiSays) -> Bench {
    let mut bench = Bench::new();
    bench.world.says = Some(says);
    bench
}

/// The image that the newest instance was made with.
fn made_of(bench: &Bench) -> &str {
    let newest = bench.record.instances.last().and_then(|i| i.daemon_set.as_ref()).expect("an instance");
    newest.pod_template()["spec"]["containers"][0]["image"].as_str().expect("an image")
}

fn notes(plan: &DaemonPlan) -> String {
    plan.summary.notes.iter().map(ToString::to_string).chain(plan.summary.hint_lines()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_new_instance_waits_for_the_answer_is_made_of_it_and_keeps_it() {
    let mut bench = asking(ApiSays::Open);
    let desired = wanted(&of_api("a"));
    let plan = bench.plan(&desired);
    assert!(plan.actions.is_empty() && plan.question.is_some());
    assert_eq!((plan.summary.state, plan.summary.reasons), (State::Waiting, [Reason::AsksAdmission].into()));
    bench.world.says = Some(mirrored("m/a"));
    assert_eq!(bench.pass(&desired), ["start uid-a-0"], "identity is the template's");
    assert_eq!(made_of(&bench), "m/a");
    // A webhook that answers otherwise today, a definition that changes outside the template, and no API server at all.
    for says in [mirrored("m2/a"), ApiSays::Refused("no".into()), silent()] {
        bench.world.says = Some(says);
        let labelled = DaemonSet { labels: BTreeMap::from([("x".into(), bench.now.to_string())]), ..of_api("a") };
        bench.now += ms(3_600_000);
        assert_eq!(bench.pass(&wanted(&labelled)), NONE);
        let own = bench.record.instances[0].daemon_set.as_ref().expect("it");
        assert!(made_of(&bench) == "m/a" && own.labels == labelled.labels, "it follows the definition, too");
        assert!(bench.plan(&desired).question.is_none(), "what runs is not asked about");
    }
    let text = serde_json::to_string(&bench.record).expect("JSON");
    assert_eq!(serde_json::from_str::<DaemonRecord>(&text).expect("a record"), bench.record, "also after a boot");
}

#[test]
fn it_is_asked_once_for_an_instance_and_anew_for_the_next() {
    let mut bench = asking(mirrored("m/a"));
    bench.world.images = Some(Images::Pulling(ImageReason::Reported("pulls".into())));
    let desired = wanted(&of_api("a"));
    assert_eq!(bench.pass(&desired), NONE);
    let answer = bench.record.answer.clone().expect("remembered");
    bench.world.says = Some(mirrored("m2/a"));
    let plan = bench.plan(&desired);
    assert!(plan.question.is_none() && plan.pull.is_some(), "while its images are pulled");
    assert_eq!(plan.record.answer, Some(answer));
    bench.world.images = None;
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    assert_eq!(made_of(&bench), "m/a");
    bench.world.images = Some(Images::Pulling(ImageReason::Reported("pulls".into())));
    assert!(bench.pass(&wanted(&of_api("b"))).is_empty() && bench.plan(&wanted(&of_api("b"))).question.is_none());
    bench.now += crate::core::dry_run::FRESH;
    assert!(bench.plan(&wanted(&of_api("b"))).question.is_some(), "an old answer is no answer");
    bench.world.images = None;
    bench.world.says = Some(mirrored("m3/b"));
    assert_eq!(bench.pass(&wanted(&of_api("b"))), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += ms(86_400_000);
    bench.world.says = Some(ApiSays::Refused("second thoughts".into()));
    assert_eq!(
        bench.pass(&wanted(&of_api("b"))),
        ["finish uid-a-0", "start uid-b-1"],
        "the old one ended for its sake"
    );
    assert_eq!(made_of(&bench), "m3/b");
}

#[test]
fn a_refusal_starts_nothing_ends_nothing_and_outlasts_the_connection_and_the_agent() {
    let mut bench = asking(ApiSays::Refused("exceeded quota: q".into()));
    let desired = wanted(&of_api("a"));
    for says in [None, Some(silent()), Some(ApiSays::Open)] {
        bench.world.says = says.or(bench.world.says);
        let plan = bench.plan(&desired);
        assert_eq!((plan.summary.state, plan.actions.len()), (State::Refused, 0));
        assert_eq!(plan.summary.reasons.to_string(), "pod: the API server refuses it: exceeded quota: q");
        assert!(notes(&plan).contains("leave room for one more pod"), "{}", notes(&plan));
        assert_eq!(bench.pass(&desired), NONE);
        assert!(!bench.record.is_empty(0), "or it would not be on disk");
    }
    bench.world.says = Some(mirrored("m/a"));
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    bench.world.says = Some(ApiSays::Refused("not b".into()));
    let plan = bench.plan(&wanted(&of_api("b")));
    assert_eq!((plan.summary.state, plan.actions.len()), (State::Refused, 0));
    assert!(
        plan.summary
            .reasons
            .to_string()
            .contains("revision b cannot start, the old instance stays: pod: the API server refuses it: not b"),
        "{}",
        plan.summary.reasons
    );
    assert_eq!(bench.pass(&wanted(&of_api("b"))), NONE);
    bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    bench.pass(&Desired::Gone { reason: DesiredReason::Deleted, by_list: false, ignore_file: None });
    assert_eq!(bench.record.answer, None, "another DaemonSet of that name is another");
}

#[test]
fn a_first_instance_does_not_wait_for_an_api_server_that_is_away() {
    let mut bench = asking(silent());
    let desired = wanted(&of_api("a"));
    let plan = bench.plan(&desired);
    assert!(
        notes(&plan).contains("could not be asked about it: away; it starts as its template says (hint: wait)"),
        "{}",
        notes(&plan)
    );
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    assert_eq!(made_of(&bench), "a");
    bench.world.says = Some(mirrored("m/a"));
    let plan = bench.plan(&desired);
    assert!(
        plan.actions.is_empty() && notes(&plan).contains("`daemonlet restart kube-system/net`"),
        "{}",
        notes(&plan)
    );
    bench.world.says = None;
    assert_eq!(notes(&bench.plan(&desired)), "");
}

#[test]
fn what_it_last_said_of_a_revision_counts_while_it_is_away() {
    let mut bench = asking(mirrored("m/a"));
    let desired = wanted(&of_api("a"));
    bench.pass(&desired);
    bench.world.says = Some(silent());
    bench.world.manifests.clear();
    assert_eq!(bench.pass(&desired), ["end uid-a-0"], "its manifest was removed");
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    let plan = bench.plan(&desired);
    assert!(notes(&plan).contains("its last answer for this revision applies"), "{}", notes(&plan));
    assert_eq!(bench.pass(&desired), ["finish uid-a-0", "start uid-a-1"]);
    assert_eq!(made_of(&bench), "m/a");
}

#[test]
fn a_replacement_waits_for_the_answer_and_a_restart_does_not() {
    let mut bench = asking(mirrored("m/a"));
    bench.pass(&wanted(&of_api("a")));
    bench.world.says = Some(silent());
    let plan = bench.plan(&wanted(&of_api("b")));
    assert!(plan.actions.is_empty() && plan.question.is_some());
    assert!(
        plan.summary.reasons.to_string().contains("could not be asked about it: away; what runs stays"),
        "{}",
        plan.summary.reasons
    );
    let uid = bench.record.instances[0].uid.clone();
    bench.record.order_restart(&uid, RestartCause::ByHand, bench.now, &Fingerprint::Unknown);
    assert_eq!(bench.pass(&wanted(&of_api("a"))), ["end uid-a-0"]);
}

#[test]
fn a_roll_back_asks_nobody() {
    let mut bench = asking(mirrored("m/a"));
    let auto = |image| DaemonSet {
        annotations: BTreeMap::from([
            ("daemonlet.dev/rollback".into(), "auto".into()),
            ("daemonlet.dev/progress-deadline".into(), "10s".into()),
        ]),
        ..of_api(image)
    };
    bench.pass(&wanted(&auto("a")));
    bench.world.ready.insert("uid-a-0".into(), bench.now);
    bench.now += ms(60_000);
    bench.pass(&wanted(&auto("a")));
    assert_eq!(bench.record.good.as_ref().expect("good").revision, "a");
    bench.world.says = Some(mirrored("m/b"));
    assert_eq!(bench.pass(&wanted(&auto("b"))), ["end uid-a-0"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    bench.pass(&wanted(&auto("b")));
    bench.world.says = Some(silent());
    bench.world.not_ready.insert("uid-b-1".into());
    bench.world.failures.insert("uid-b-1".into(), Failure { cause: Cause::CrashLoop, message: "exit 1".into() });
    bench.now += ms(60_000);
    assert_eq!(bench.pass(&wanted(&auto("b"))), ["end uid-b-1"]);
    bench.world.running.clear();
    bench.now += GONE_AFTER;
    assert_eq!(bench.pass(&wanted(&auto("b"))), ["finish uid-b-1", "start uid-a-2"]);
    assert_eq!(made_of(&bench), "m/a");
}

#[test]
fn changed_data_of_what_admission_added_restarts_nothing_by_itself() {
    let mut bench = asking(mirrored("m/a"));
    bench.world.data_of_admitted = "with the sidecar's".into();
    let by_config = DaemonSet {
        annotations: BTreeMap::from([("daemonlet.dev/restart-on".into(), "config".into())]),
        ..of_api("a")
    };
    let desired = wanted(&by_config);
    assert_eq!(bench.pass(&desired), ["start uid-a-0"]);
    assert_eq!(bench.pass(&desired), NONE, "the template alone has other data");
    bench.world.data_of_admitted = "changed".into();
    assert_eq!(bench.pass(&desired), ["end uid-a-0"]);
}

#[test]
fn the_nodes_owner_judges_what_admission_made() {
    let mut bench = asking(mirrored("evil/a"));
    let plan = bench.plan(&wanted(&of_api("a")));
    assert_eq!((plan.summary.state, plan.actions.len()), (State::Refused, 0));
    assert!(notes(&plan).contains("as the API server's admission changed it"), "{}", notes(&plan));
    assert!(matches!(plan.record.answer.expect("remembered").said, AdmissionVerdict::Admitted(_)));
    bench.world.says = Some(mirrored("m/a"));
    bench.now += ms(1);
    bench.record.answer = None;
    assert_eq!(bench.pass(&wanted(&of_api("a"))), ["start uid-a-0"]);
}

#[test]
fn what_waits_for_something_is_not_asked_about() {
    let mut bench = asking(ApiSays::Open);
    let missing =
        Missing { kind: "ServiceAccount".into(), namespace: "x".into(), name: "y".into(), key: String::new() };
    bench.world.waiting_for.push(missing);
    let plan = bench.plan(&wanted(&of_api("a")));
    assert!(
        plan.question.is_none() && plan.summary.reasons.to_string().contains("waits for ServiceAccount"),
        "{}",
        plan.summary.reasons
    );
}

#[test]
fn folders_ask_nobody() {
    let mut bench = asking(ApiSays::Refused("no".into()));
    assert_eq!(bench.pass(&wanted(&daemon_set("a"))), ["start uid-a-0"]);
    let plan = bench.plan(&wanted(&daemon_set("a")));
    assert!(plan.question.is_none() && notes(&plan).is_empty());
}

#[test]
fn nothing_is_claimed_before_the_answer() {
    let mut bench = asking(mirrored("m/a"));
    bench.pass(&wanted(&of_api("a")));
    bench.world.permission = Some(Permission::Approved);
    bench.world.says = Some(ApiSays::Open);
    assert_eq!(bench.plan(&wanted(&of_api("b"))).replacing, None);
    bench.world.says = Some(mirrored("m/b"));
    assert_eq!(bench.plan(&wanted(&of_api("b"))).replacing.as_deref(), Some("b"));
}

#[test]
fn what_stands_against_an_approved_revision_is_said_once() {
    let mut bench = asking(mirrored("m/a"));
    bench.pass(&wanted(&of_api("a")));
    bench.world.permission = Some(Permission::Approved);
    bench.world.says = Some(ApiSays::Refused("no".into()));
    let plan = bench.plan(&wanted(&of_api("b")));
    assert_eq!(plan.replacing, None, "it is not claimed");
    assert_eq!(
        plan.summary.reasons.to_string().matches("the API server refuses it").count(),
        1,
        "{}",
        plan.summary.reasons
    );
    assert_eq!(notes(&plan).matches("correct what it says").count(), 1, "{}", notes(&plan));
}
