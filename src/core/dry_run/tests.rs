use super::*;
use crate::core::knowledge::Unlinked;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::policy::same_template;
use crate::core::time::Timestamp;
use crate::core::time::ms;
use crate::core::validate;
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LINK: Option<Unlinked> = None;

fn daemon_set() -> DaemonSet {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": "team", "name": "net", "uid": "u-1", "annotations": {GENERATION_ANNOTATION: "7"}},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": {
            "metadata": {"labels": {"app": "net"}, "annotations": {"a": "b"}},
            "spec": {
                "hostNetwork": true,
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                                 {"matchExpressions": [{"key": "own", "operator": "Exists"}]}]}},
                             "podAffinity": {}},
                "tolerations": [{"key": "mine", "operator": "Exists"}],
                "containers": [{"name": "c", "image": "x:1"}],
            },
        }},
    });
    validate::daemon_set(&object, Source::Api).expect("a DaemonSet")
}

fn status(code: u16, message: &str, names_object: bool) -> DryRunVerdict {
    judge(&daemon_set(), &DryRunReply::Status { code, message: message.to_owned(), names_object })
}

#[test]
fn the_pod_is_the_stock_controllers() {
    let pod = pod(&daemon_set(), "abc", "n1");
    assert_eq!(
        pod["metadata"],
        json!({
            "generateName": "net-", "namespace": "team",
            "labels": {"app": "net", "controller-revision-hash": "abc", "pod-template-generation": "7"},
            "annotations": {"a": "b"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "net", "uid": "u-1", "controller": true}],
        })
    );
    assert_eq!(
        pod["spec"]["affinity"],
        json!({
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}},
            "podAffinity": {},
        })
    );
    let tolerations = pod["spec"]["tolerations"].as_array().expect("a list");
    assert!(tolerations[0]["key"] == "mine" && tolerations.len() == 8, "with those of every daemon: {tolerations:?}");
    assert!(pod["spec"].get("nodeName").is_none());
}

#[test]
fn another_instance_another_template_and_another_namespace_are_other_questions() {
    let question = |change: fn(&mut DaemonSet), incarnation, namespace: &Value| {
        let mut daemon_set = daemon_set();
        change(&mut daemon_set);
        Question::new(&Arc::new(daemon_set), "abc", "n1", incarnation, Lookup::Present(namespace)).about
    };
    let namespace = json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "1"}});
    let first = question(|_| {}, 0, &namespace);
    assert_eq!(first, question(|_| {}, 0, &json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "2"}})));
    assert_ne!(first, question(|d| d.template["spec"]["hostPID"] = true.into(), 0, &namespace));
    assert_ne!(first, question(|_| {}, 1, &namespace));
    assert_ne!(first, question(|_| {}, 0, &json!({"metadata": {"labels": {"a": "c"}}})));
}

#[test]
fn what_is_no_word_on_the_pod_is_no_refusal() {
    let refusals = [
        (403, r#"pods "net-" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"#),
        (403, r#"pods "net-" is forbidden: violates PodSecurity "baseline:latest": privileged"#),
        (403, r#"pods "net-" is forbidden: error looking up service account team/x: serviceaccount "x" not found"#),
        (403, r#"pods "net-" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'b' denied request: no"#),
        (400, r#"admission webhook "w.example.org" denied the request: not here"#),
        (500, r#"admission webhook "w.example.org" denied the request: with a code of its own"#),
        (422, r#"Pod "net-x" is invalid: spec.containers[0].image: Required value"#),
    ];
    for (code, message) in refusals {
        assert_eq!(status(code, message, true), DryRunVerdict::Refused(message.to_owned()));
    }
    let permanent = [
        (
            403,
            r#"pods is forbidden: User "daemonlet:node:n1" cannot create resource "pods" in API group "" in the namespace "team""#,
            false,
        ),
        (
            403,
            r#"pods "net-" is forbidden: ValidatingAdmissionPolicy 'daemonlet-agent-writes' with binding 'daemonlet-agent-writes' denied request: an agent of a node has no business with: CREATE /pods"#,
            true,
        ),
        (400, r#"admission webhook "w.example.org" does not support dry run"#, true),
    ];
    for (code, message, names_object) in permanent {
        let DryRunVerdict::Unanswered(why) = status(code, message, names_object) else { panic!("{message}") };
        assert!(!why.passing && why.hint.is_some() && why.why == message, "{why:?}");
    }
    for (code, message) in [
        (500, r#"Internal error occurred: failed calling webhook "w": context deadline exceeded"#),
        (429, "too many requests"),
        (401, "Unauthorized"),
        (404, "page not found"),
        (409, "Operation cannot be fulfilled on resourcequotas \"q\""),
    ] {
        assert!(matches!(status(code, message, true), DryRunVerdict::Unanswered(why) if why.passing), "{message}");
    }
    assert!(
        matches!(judge(&daemon_set(), &DryRunReply::NoAnswer("reset".into())), DryRunVerdict::Unanswered(why) if why.passing)
    );
}

#[test]
fn an_answer_loses_what_differs_by_chance_and_keeps_what_admission_did() {
    let ds = daemon_set();
    let mut answered = pod(&ds, "abc", "n1");
    answered["metadata"]["name"] = "net-x7k2p".into();
    answered["metadata"]["uid"] = "by chance".into();
    answered["metadata"]["labels"]["injected"] = "yes".into();
    answered["status"] = json!({"phase": "Pending"});
    answered["spec"]["nodeName"] = "n1".into();
    answered["spec"]["containers"] = json!([
        {"name": "c", "image": "mirror.example.org/x:1", "volumeMounts": [{"name": "kube-api-access-9s8dk", "mountPath": "/t"}]},
        {"name": "sidecar", "image": "s:1"},
    ]);
    answered["spec"]["volumes"] =
        json!([{"name": "kube-api-access-9s8dk", "projected": {}}, {"name": "other", "emptyDir": {}}]);
    let DryRunVerdict::Admitted(template) = judge(&ds, &DryRunReply::Pod(answered.clone())) else { panic!("a pod") };
    assert_eq!(
        template["metadata"]["labels"],
        json!({"app": "net", "injected": "yes"}),
        "the revision's are each rendering's"
    );
    assert_eq!(template["metadata"]["annotations"], json!({"a": "b"}));
    assert!(template["spec"].get("nodeName").is_none() && template["metadata"].get("name").is_none());
    assert_eq!(template["spec"]["volumes"][0]["name"], "kube-api-access-token");
    assert_eq!(template["spec"]["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-token");
    assert_eq!(template["spec"]["containers"][1]["name"], "sidecar");
    let text = template.to_string().replace("kube-api-access-token", "kube-api-access-zzzzz");
    answered["spec"] = serde_json::from_str::<Value>(&text).expect("JSON")["spec"].clone();
    assert_eq!(
        judge(&ds, &DryRunReply::Pod(answered)),
        DryRunVerdict::Admitted(template),
        "another suffix gives the same"
    );
    assert!(matches!(judge(&ds, &DryRunReply::Pod(json!({"kind": "Status"}))), DryRunVerdict::Unanswered(_)));
    let wrong = json!({"spec": {"containers": "none"}});
    assert!(
        matches!(judge(&ds, &DryRunReply::Pod(wrong)), DryRunVerdict::Unanswered(why) if why.why.contains("containers"))
    );
}

#[test]
fn a_token_volume_of_the_templates_own_keeps_its_name() {
    let mut ds = daemon_set();
    ds.template["spec"]["volumes"] = json!([{"name": "kube-api-access-mine", "emptyDir": {}}]);
    let DryRunVerdict::Admitted(template) = judge(&ds, &DryRunReply::Pod(pod(&ds, "abc", "n1"))) else {
        panic!("a pod")
    };
    assert_eq!(template["spec"]["volumes"][0]["name"], "kube-api-access-mine");
}

#[test]
fn what_admission_made_is_no_part_of_the_definition() {
    let plain = Arc::new(daemon_set());
    let admitted = plain.with_admitted(Some(&Arc::new(json!({"spec": {"containers": []}}))));
    assert!(plain.defines_the_same(&admitted) && same_template(&plain, &admitted) && plain != admitted);
    assert_eq!(admitted.pod_template(), &json!({"spec": {"containers": []}}));
    assert!(Arc::ptr_eq(&admitted, &admitted.with_admitted(admitted.admitted.as_ref())));
    let other = DaemonSet { key: ObjectKey::new("team", "other"), labels: BTreeMap::new(), ..daemon_set() };
    assert!(!plain.defines_the_same(&other));
}

fn put() -> AdmissionDryRun {
    let mut admission_dry_run = AdmissionDryRun::new("abc", NOW);
    assert_eq!(
        admission_dry_run.request_state(NOW, "n1", LINK),
        RequestState { answer: DryRunAnswer::Open, due: true, again: Some(NOW + ms(12_000)) }
    );
    admission_dry_run.put(NOW);
    assert!(!admission_dry_run.request_state(NOW, "n1", LINK).due, "once");
    admission_dry_run
}

#[test]
fn an_answer_is_waited_for_a_while_and_counts_for_a_while() {
    let mut admission_dry_run = put();
    assert_eq!(admission_dry_run.request_state(NOW + ms(11_999), "n1", LINK).answer, DryRunAnswer::Open);
    let late = admission_dry_run.request_state(NOW + ms(12_000), "n1", LINK);
    assert!(matches!(late.answer, DryRunAnswer::Unanswered(why) if why.why.contains("within 12 s")) && !late.due);
    let template = Arc::new(json!({}));
    admission_dry_run.answered(DryRunVerdict::Admitted(Arc::clone(&template)), NOW + ms(13_000));
    let request_state = admission_dry_run.request_state(NOW + ms(13_000) + FRESH - ms(1), "n1", LINK);
    assert_eq!((request_state.answer, request_state.due), (DryRunAnswer::Admitted(template), false));
    assert!(admission_dry_run.request_state(NOW + ms(13_000) + FRESH, "n1", LINK).due);
}

#[test]
fn what_passes_is_tried_again_in_time_and_then_counts_as_no_answer() {
    let mut admission_dry_run = put();
    admission_dry_run.answered(DryRunVerdict::Unanswered(Unanswered::passing("busy")), NOW + ms(100));
    let request_state = admission_dry_run.request_state(NOW + ms(200), "n1", LINK);
    assert_eq!((request_state.answer, request_state.due), (DryRunAnswer::Open, false));
    let again = request_state.again.expect("a time");
    assert!((NOW + ms(1_100)..NOW + ms(1_600)).contains(&again), "{again}");
    assert!(admission_dry_run.request_state(again, "n1", LINK).due);
    let answer = admission_dry_run.request_state(NOW + ms(12_000), "n1", LINK).answer;
    assert_eq!(answer, DryRunAnswer::Unanswered(Unanswered::passing("busy")));
    let permanent = Unanswered { why: "forbidden".into(), hint: Some("grant it".into()), passing: false };
    admission_dry_run.answered(DryRunVerdict::Unanswered(permanent.clone()), NOW + ms(300));
    assert_eq!(
        admission_dry_run.request_state(NOW + ms(301), "n1", LINK).answer,
        DryRunAnswer::Unanswered(permanent),
        "no use in waiting"
    );
}

#[test]
fn a_refusal_stands_and_is_asked_about_ever_more_rarely() {
    let mut admission_dry_run = put();
    let (mut now, mut waits) = (NOW, Vec::new());
    for _ in 0..12 {
        admission_dry_run.answered(DryRunVerdict::Refused("no".into()), now);
        let again = admission_dry_run.request_state(now, "n1", LINK).again.expect("a time");
        waits.push(again - now);
        assert_eq!(
            admission_dry_run.request_state(again - ms(1), "n1", LINK),
            RequestState { answer: DryRunAnswer::Refused("no".into()), due: false, again: Some(again) }
        );
        assert!(admission_dry_run.request_state(again, "n1", LINK).due);
        now = again;
        admission_dry_run.put(now);
        assert_eq!(
            admission_dry_run.request_state(now, "n1", LINK).answer,
            DryRunAnswer::Refused("no".into()),
            "while it is asked again, too"
        );
    }
    assert!((ms(5_000)..ms(7_500)).contains(&waits[0]), "{waits:?}");
    assert!(
        waits.windows(2).all(|w| w[1] >= w[0]) && waits[11] < ms(15 * 60_000) && waits[11] >= ms(10 * 60_000),
        "{waits:?}"
    );
}

#[test]
fn nodes_ask_again_at_different_times() {
    let mut admission_dry_run = put();
    admission_dry_run.answered(DryRunVerdict::Refused("no".into()), NOW);
    let times: std::collections::BTreeSet<_> =
        (0..50).filter_map(|n| admission_dry_run.request_state(NOW, &format!("n{n}"), LINK).again).collect();
    assert!(times.len() > 40, "{times:?}");
}

#[test]
fn without_a_connection_nobody_is_asked_and_the_last_word_counts() {
    let away = Some(Unlinked::NoConnection);
    let mut admission_dry_run = AdmissionDryRun::new("abc", NOW);
    let request_state = admission_dry_run.request_state(NOW, "n1", away);
    assert_eq!(
        request_state,
        RequestState {
            answer: DryRunAnswer::Unanswered(Unanswered::passing("there is no connection to it")),
            due: false,
            again: None
        }
    );
    admission_dry_run.put(NOW);
    admission_dry_run.answered(DryRunVerdict::Refused("no".into()), NOW);
    assert_eq!(
        admission_dry_run.request_state(NOW + ms(3_600_000), "n1", away).answer,
        DryRunAnswer::Refused("no".into())
    );
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up() {
    let mut admission_dry_run = put();
    admission_dry_run.answered(DryRunVerdict::Refused("no".into()), NOW);
    assert!(admission_dry_run.request_state(NOW - ms(86_400_000), "n1", LINK).due);
}
