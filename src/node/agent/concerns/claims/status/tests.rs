use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::core::cluster::node_daemons::MissingReport;
use crate::core::cluster::node_daemons::tests::refused_by_schema;
use crate::core::model::Source;
use crate::core::record::LastRun;
use crate::core::time::at;
use crate::core::validate;

#[test]
fn what_is_not_known_stays_as_it_was_reported() {
    let reported = InstanceReport { ready_since: Some("2026-01-01T00:00:00Z".to_owned()), ..Default::default() };
    let unready = InstanceReport::default();
    let unknown = Readiness::Unknown(crate::core::plan::Unseen::NotAsked);
    assert_eq!(ready_since(&unknown, Some(&reported)), reported.ready_since);
    assert_eq!(ready_since(&Readiness::Steady { since: at(0) }, Some(&reported)), reported.ready_since);
    assert_eq!(ready_since(&unknown, Some(&unready)), None);
    assert_eq!(ready_since(&unknown, None), None);
}

#[test]
fn of_many_refused_daemons_of_a_namespace_the_first_are_reported_and_the_others_counted() {
    let report = |namespace: &str, number: usize, phase| DaemonReport {
        namespace: namespace.to_owned(),
        name: format!("d{number}"),
        phase: Some(phase),
        message: "no".to_owned(),
        ..DaemonReport::default()
    };
    let runs = DaemonReport { instances: vec![InstanceReport::default()], ..report("a", 999, State::Refused) };
    let waits = report("a", 1_000, State::Waiting);
    let many = (0..512).map(|number| report("a", number, State::Refused));
    let few = (0..20).map(|number| report("b", number, State::Refused));
    let sent = bounded(many.chain([runs.clone(), waits.clone()]).chain(few).collect(), &|_| false);
    assert_eq!(sent.len(), 20 + 2 + 20);
    assert_eq!(sent[19].message, "no; 492 more DaemonSets of this namespace are refused");
    assert_eq!(sent[20..22], [runs, waits]);
    assert!(sent.iter().enumerate().all(|(index, report)| index == 19 || report.message == "no"));
}

#[test]
fn of_many_waiting_daemons_of_a_tenant_each_is_reported_the_first_with_the_reason_and_trusted_ones_before() {
    let report = |namespace: &str, number: usize| DaemonReport {
        namespace: namespace.to_owned(),
        name: format!("d{number}"),
        phase: Some(State::Waiting),
        message: "it waits".to_owned(),
        pull_failed: Some("no".to_owned()),
        ..DaemonReport::default()
    };
    let runs = DaemonReport { instances: vec![InstanceReport::default()], ..report("a", 999) };
    let many = (0..100).map(|number| report("a", number)).chain([runs.clone()]);
    let trusted: Vec<DaemonReport> = (0..30).map(|number| report("b", number)).collect();
    let sent = bounded(many.chain(trusted.clone()).collect(), &|report| report.namespace == "b");
    assert_eq!(sent.len(), 131, "the coordinator has to know of each");
    assert_eq!(sent[..30], trusted);
    assert_eq!(sent[30..49], (0..19).map(|number| report("a", number)).collect::<Vec<_>>());
    assert_eq!(sent[49].message, "it waits; 80 more DaemonSets of this namespace wait and do not say why");
    let is_short = |report: &DaemonReport| report.message.is_empty() && report.pull_failed.as_deref() == Some("");
    assert!(sent[50..130].iter().all(is_short), "{:?}", &sent[50..130]);
    assert_eq!(sent[130], runs);
}

#[test]
fn the_schema_takes_the_longest_report() {
    // Four bytes a character, and each text longer than it may be.
    let text = "\u{1f980}".repeat(5_000);
    let instance = InstanceReport { pod: "p".repeat(507), ready_since: Some(at(0).to_string()), ..Default::default() };
    let report = |number: usize| DaemonReport {
        namespace: "n".repeat(63),
        name: format!("{number:0253}"),
        phase: Some(State::Refused),
        message: text.clone(),
        pull_failed: Some(text.clone()),
        missing: Some(MissingReport { message: text.clone(), ..Default::default() }),
        failed: Some(FailedReport { message: text.clone(), ..Default::default() }),
        instances: vec![instance.clone(); INSTANCES],
        ..DaemonReport::default()
    };
    for (count, instances) in [(1, INSTANCES), (30, 0), (3_000, INSTANCES), (3_000, 1)] {
        let short = |number| DaemonReport { instances: vec![InstanceReport::default(); instances], ..report(number) };
        let daemons = bounded((0..count).map(short).collect(), &|_| true);
        let bytes = serde_json::to_string(&daemons).map_or(usize::MAX, |json| json.len());
        assert!(bytes < REPORTS + 1024, "{bytes}");
        assert_eq!(refused_by_schema(&Status { daemons, ..Status::default() }), Vec::<String>::new(), "{count}");
    }
    let counts = |count: usize| -> Vec<RefusedCount> {
        (0..count).map(|number| RefusedCount { reason: format!("{number:03}"), count: 2 }).collect()
    };
    assert_eq!(fewer(counts(REASONS)), counts(REASONS));
    let refused = fewer(counts(REASONS + 9));
    assert_eq!(
        (refused.len(), &refused[REASONS - 1]),
        (REASONS, &RefusedCount { reason: OTHER.to_owned(), count: 20 })
    );
    assert_eq!(refused_by_schema(&Status { refused, ..Status::default() }), Vec::<String>::new());
}

#[test]
fn no_number_of_a_tenants_daemons_keeps_a_report_from_the_api_server() {
    let report = |namespace: &str, number: usize| DaemonReport {
        namespace: namespace.to_owned(),
        name: format!("{number:0253}"),
        phase: Some(State::Waiting),
        message: "host port 80 belongs to another".to_owned(),
        ..DaemonReport::default()
    };
    let trusted: Vec<DaemonReport> = (0..30).map(|number| report("b", number)).collect();
    let is_trusted = |report: &DaemonReport| report.namespace == "b";
    let one = (0..3_700).map(|number| report("a", number));
    let sent = bounded(one.chain(trusted.clone()).collect(), &is_trusted);
    assert_eq!((sent.len(), &sent[..30]), (130, &trusted[..]));
    assert_eq!(
        sent[49].message,
        "host port 80 belongs to another; 3680 more DaemonSets of this namespace wait and do not say why, of which \
         3600 are not listed: at most 100 are"
    );

    let runs = DaemonReport { instances: vec![InstanceReport::default()], ..report("zz", 0) };
    let many = (0..100).flat_map(|space| (0..100).map(move |number| (space, number)));
    let many = many.map(|(space, number)| report(&format!("n{space:03}"), number));
    let sent = bounded(many.chain([runs.clone()]).chain(trusted.clone()).collect(), &is_trusted);
    let bytes = serde_json::to_string(&sent).map_or(usize::MAX, |json| json.len());
    assert!(bytes < REPORTS + 1024, "{bytes}");
    assert_eq!(sent[..30], trusted);
    let last = sent.last().unwrap();
    assert_eq!(
        (&last.namespace, last.instances.len()),
        (&runs.namespace, 1),
        "running daemons are reported before the others"
    );
    let left_out = 10_031 - sent.len();
    let words = format!(
        "; {left_out} more DaemonSets of this node are not listed: a report has at most 1024 and 1048576 bytes"
    );
    assert!(last.message.ends_with(&words), "{}", last.message);
}

#[test]
fn no_text_of_a_tenant_keeps_a_report_from_the_api_server() {
    let long = || "x".repeat(256 << 10);
    let report = |number: usize| DaemonReport {
        namespace: "a".to_owned(),
        name: format!("d{number}"),
        phase: Some(State::Waiting),
        message: long(),
        pull_failed: Some(long()),
        missing: Some(MissingReport { revision: "r".to_owned(), message: long() }),
        failed: Some(FailedReport { revision: "r".to_owned(), cause: "image".to_owned(), message: long() }),
        ..DaemonReport::default()
    };
    for count in [1, 100, 1_000] {
        let sent = bounded((0..count).map(report).collect(), &|_| true);
        assert_eq!(sent.len(), count, "each is reported");
        assert!(sent.iter().all(|report| report.message.ends_with(" bytes more)")), "and that it is shortened");
        let bytes = serde_json::to_string(&sent).map_or(usize::MAX, |json| json.len());
        assert!(bytes < 1 << 20, "{count}: {bytes}");
    }
    let fits = DaemonReport { message: "y".repeat(LONGEST), ..report(0) };
    assert_eq!(bounded(vec![fits.clone()], &|_| true)[0].message, fits.message);
}

#[test]
fn refused_daemons_are_counted_by_the_rule_that_refuses_them() {
    let fields = ["spec.template.spec.volumes[a].hostPath", "spec.template.spec.volumes[b].hostPath", "namespace a"];
    let counted = refused_counts(fields.map(Some).into_iter().chain([None]));
    let counted: Vec<_> = counted.iter().map(|count| (count.reason.as_str(), count.count)).collect();
    assert_eq!(counted, [("other", 2), ("spec.template.spec.volumes.hostPath", 2)]);
}

#[test]
fn while_overlays_are_not_known_those_of_what_runs_are_reported() {
    let mut unpatched = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", "b"), 0));
    unpatched.overlays_digest = Some(String::new());
    unpatched.record.instances.push(Instance::new("u", "p", 0, "hash.digest", at(0)));
    assert_eq!(overlays(&unpatched), "", "its DaemonSet names none any more");
    let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
    assert_eq!(overlays(&DaemonPlan::new(record.clone())), "");
    record.instances.push(Instance::new("u", "p", 0, "hash.digest", at(0)));
    assert_eq!(overlays(&DaemonPlan::new(record)), "digest");
}

#[test]
fn what_is_known_is_said() {
    let reported = InstanceReport { ready_since: Some("2026-01-01T00:00:00Z".to_owned()), ..Default::default() };
    assert_eq!(ready_since(&Readiness::NotReady(crate::core::plan::Unready::NodeNotReady), Some(&reported)), None);
    let ready = Readiness::Ready { since: at(1_000) };
    assert_eq!(ready_since(&ready, Some(&reported)).as_deref(), Some("1970-01-01T00:00:01Z"));
}

#[test]
fn what_has_ended_to_return_is_reported_until_it_runs_again() {
    let template =
        json!({"metadata": {"labels": {"app": "net"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let value = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "net", "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"app": "net"}}, "template": template}});
    let daemon_set = Arc::new(validate::daemon_set(&value, Source::Api).unwrap());
    let mut record = DaemonRecord::new(daemon_set.key.clone(), 0);
    assert_eq!(returning(&record), None);
    record.last = Some(LastRun { revision: "r1.d1".to_owned(), daemon_set, claimed: false });
    assert_eq!(returning(&record).as_deref(), Some("r1.d1"));
    record.last.as_mut().unwrap().claimed = true;
    assert_eq!(returning(&record), None, "it never ran");
    record.last.as_mut().unwrap().claimed = false;
    record.instances.push(Instance::new("u", "p", 0, "r1.d1", at(0)));
    assert_eq!(returning(&record), None);
}
