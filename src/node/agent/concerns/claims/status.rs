//! What an agent says of its node's daemons.
//!
//! Owns the report as a function of a plan; it neither sends nor decides.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::bounds::DAEMON_SETS;
use crate::core::cluster::node_daemons::DAEMONS;
use crate::core::cluster::node_daemons::DaemonReport;
use crate::core::cluster::node_daemons::FailedReport;
use crate::core::cluster::node_daemons::INSTANCES;
use crate::core::cluster::node_daemons::InstanceReport;
use crate::core::cluster::node_daemons::REASONS;
use crate::core::cluster::node_daemons::Status;
use crate::core::escape;
use crate::core::identity::overlays_digest;
use crate::core::identity::template_hash;
use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Facts;
use crate::core::plan::Readiness;
use crate::core::record::DaemonRecord;
use crate::core::record::Instance;
use crate::core::record::Phase;
use crate::core::status::RefusedCount;
use crate::core::status::State;
use crate::core::status::refused_counts;
use crate::node::agent::evidence::mirror_key;

/// Of how many daemons of one namespace that are refused, and of how many that wait, details are told.
const DETAILED: usize = 20;

/// How many bytes the reports of all daemons have as JSON at most: the API server takes 1.5 MiB, and what else a patch has is
/// less than the rest.
const REPORTS: usize = 1 << 20;

/// How many bytes the texts of one kind may have in a whole report, and each of them at least and at most.
const TEXTS: usize = 144 << 10;
const SHORTEST: usize = 128;
const LONGEST: usize = 1024;

/// What daemons count as that are refused for reasons beyond the first ones.
const OTHER: &str = "other";

/// The record that is in force of a daemon of which effects of the last pass failed, and why they did.
type Failed<'a> = dyn Fn(&ObjectKey) -> Option<(&'a DaemonRecord, &'a str)> + 'a;

/// What is said of every daemon of a plan; `live`: what the cluster reads of this node now.
pub(in crate::node::agent) fn status(
    plan: &Plan,
    facts: &dyn Facts,
    node: &str,
    live: &Status,
    (is_trusted, failed): (&dyn Fn(&ObjectKey) -> bool, &Failed<'_>),
) -> Status {
    let stands_by = |d: &DaemonPlan| d.summary.state == State::StandingBy;
    let reported = |d: &&DaemonPlan| {
        d.summary.mode.is_some()
            && (!d.record.instances.is_empty() || d.summary.state.is_bad() || waits(d) || stands_by(d))
    };
    let daemons: Vec<&DaemonPlan> = plan.daemons.iter().filter(reported).collect();
    let own = daemons.iter().filter(|d| !stands_by(d)).count();
    let ready = daemons.iter().filter(|d| d.summary.ready == Some(true)).count();
    let runs = daemons.iter().filter(|d| !d.record.instances.is_empty());
    // The first of those that are trusted, if there is one.
    let is_of_tenant = |d: &&&DaemonPlan| !is_trusted(&d.key);
    let bad = runs.chain(&daemons).filter(|d| d.summary.state.is_bad()).min_by_key(is_of_tenant);
    let trouble = bad.or_else(|| daemons.iter().filter(|d| waits(d)).min_by_key(is_of_tenant));
    let refused = daemons.iter().filter(|d| d.summary.state == State::Refused);
    Status {
        refused: fewer(refused_counts(refused.map(|d| d.summary.refused_field.as_deref()))),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: format!("{ready}/{own}"),
        worst: trouble.map_or_else(String::new, |d| {
            format!("{}: {}: {}", d.key, d.summary.state.as_str(), escape::short(&d.summary.reason, LONGEST))
        }),
        daemons: bounded(
            daemons.into_iter().map(|d| report(d, facts, (node, live), failed(&d.key))).collect(),
            &|report| is_trusted(&ObjectKey::new(&report.namespace, &report.name)),
        ),
    }
}

/// Bounds the reports, so that what one tenant's daemons say keeps no report from the API server, which takes 1.5 MiB.
///
/// Of a namespace's refused daemons that do not run the first are told; the last of them says how many there are more.
/// Of the waiting ones of a namespace that is not trusted the first say why, and the last of them how many others do
/// not: that they wait, the coordinator has to know, of as many as may start here. What is trusted comes first: of too many
/// daemons, a coordinator takes the first. Of what is still too much, what is not trusted and does not run goes first.
fn bounded(mut reports: Vec<DaemonReport>, is_trusted: &dyn Fn(&DaemonReport) -> bool) -> Vec<DaemonReport> {
    let is_bounded = |report: &DaemonReport, state: State| {
        let is_waiting = state == State::Waiting;
        report.phase == Some(state) && report.instances.is_empty() && !(is_waiting && is_trusted(report))
    };
    reports.sort_by_key(|report| !is_trusted(report));
    let (mut refused, mut waiting) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    let counted = |counts: &mut BTreeMap<String, usize>, report: &DaemonReport| {
        let count = counts.entry(report.namespace.clone()).or_default();
        *count += 1;
        *count
    };
    reports.retain_mut(|report| {
        if is_bounded(report, State::Waiting) {
            let count = counted(&mut waiting, report);
            if count > DETAILED {
                texts(report).for_each(String::clear);
            }
            return count <= DAEMON_SETS;
        }
        !is_bounded(report, State::Refused) || counted(&mut refused, report) <= DETAILED
    });
    shorten(&mut reports);
    let counts = [(refused, State::Refused, "are refused"), (waiting, State::Waiting, "wait and do not say why")];
    for (mut counts, state, words) in counts {
        counts.retain(|_, count| *count > DETAILED);
        for report in reports.iter_mut().rev().filter(|report| is_bounded(report, state) && !report.message.is_empty())
        {
            let Some(count) = counts.remove(&report.namespace) else { continue };
            report.message.push_str(&format!("; {} more DaemonSets of this namespace {words}", count - DETAILED));
            if state == State::Waiting && count > DAEMON_SETS {
                let unlisted = count - DAEMON_SETS;
                report.message.push_str(&format!(", of which {unlisted} are not listed: at most {DAEMON_SETS} are"));
            }
        }
    }
    fitting(reports, is_trusted)
}

/// The counts of at most [`REASONS`] reasons: those of the last ones by name count as `other`.
fn fewer(mut counts: Vec<RefusedCount>) -> Vec<RefusedCount> {
    if counts.len() <= REASONS {
        return counts;
    }
    let beyond: usize = counts.split_off(REASONS - 1).iter().map(|one| one.count).sum();
    let mut counts: BTreeMap<String, usize> = counts.into_iter().map(|one| (one.reason, one.count)).collect();
    *counts.entry(OTHER.to_owned()).or_default() += beyond;
    counts.into_iter().map(|(reason, count)| RefusedCount { reason, count }).collect()
}

/// At most [`DAEMONS`] of the reports, and as many as have at most [`REPORTS`] bytes, in their order: first those that are
/// trusted, of these and of the others first those that run. The last of them says how many are left out.
fn fitting(reports: Vec<DaemonReport>, is_trusted: &dyn Fn(&DaemonReport) -> bool) -> Vec<DaemonReport> {
    let size = |report: &DaemonReport| serde_json::to_string(report).map_or(0, |json| json.len() + 1);
    let mut order: Vec<usize> = (0..reports.len()).collect();
    order.sort_by_key(|number| (!is_trusted(&reports[*number]), reports[*number].instances.is_empty()));
    let fits = order.iter().take(DAEMONS).scan(0, |sum, number| {
        *sum += size(&reports[*number]);
        (*sum <= REPORTS).then_some(*number)
    });
    let kept: BTreeSet<usize> = fits.collect();
    let left_out = reports.len() - kept.len();
    let numbered = reports.into_iter().enumerate().filter(|(number, _)| kept.contains(number));
    let mut kept: Vec<DaemonReport> = numbered.map(|(_, report)| report).collect();
    if let Some(last) = kept.last_mut().filter(|_| left_out > 0) {
        let more = format!(
            "{left_out} more DaemonSets of this node are not listed: a report has at most {DAEMONS} and {REPORTS} bytes"
        );
        add(&mut last.message, &more);
    }
    kept
}

/// Adds to what is said.
fn add(message: &mut String, more: &str) {
    let between = if message.is_empty() { "" } else { "; " };
    message.push_str(&format!("{between}{more}"));
}

/// Bounds the texts, which say how much of them is left out.
fn shorten(reports: &mut [DaemonReport]) {
    let most = (TEXTS / reports.len().max(1)).clamp(SHORTEST, LONGEST);
    reports.iter_mut().flat_map(texts).for_each(|text| *text = escape::short(text, most).into_owned());
}

/// What a report says in words.
fn texts(report: &mut DaemonReport) -> impl Iterator<Item = &mut String> {
    let failed = report.failed.as_mut().map(|failed| &mut failed.message);
    let missing = report.missing.as_mut().map(|missing| &mut missing.message);
    [&mut report.message].into_iter().chain(&mut report.pull_failed).chain(failed).chain(missing)
}

fn waits(daemon: &DaemonPlan) -> bool {
    daemon.summary.state == State::Waiting
}

fn report(
    daemon: &DaemonPlan,
    facts: &dyn Facts,
    (node, live): (&str, &Status),
    failed: Option<(&DaemonRecord, &str)>,
) -> DaemonReport {
    let record = failed.map_or(&daemon.record, |(record, _)| record);
    let uid = record.api_uid.clone().unwrap_or_default();
    let before = live.daemon(&daemon.key.namespace, &daemon.key.name, &uid);
    let instance = |i: &Instance| {
        let pod = mirror_key("", &i.pod_name, node).name;
        let reported = before.and_then(|d| d.instances.iter().find(|t| t.pod == pod));
        InstanceReport {
            revision: template_hash(&i.revision).to_owned(),
            overlays: overlays_digest(&i.revision).to_owned(),
            created: i.created.to_string(),
            ready_since: ready_since(&facts.readiness(i), reported),
            ending: i.phase != Phase::Live,
            pod,
        }
    };
    let summary = &daemon.summary;
    let is_well = summary.state == State::Running && summary.pull_failed.is_none() && summary.missing.is_none();
    // The newest are what counts.
    let older = record.instances.len().saturating_sub(INSTANCES);
    let mut message = match failed {
        Some((_, why)) => why.to_owned(),
        None if is_well => String::new(),
        None => daemon.summary.reason.clone(),
    };
    if older > 0 {
        add(&mut message, &format!("{older} older instances are not listed: at most {INSTANCES} are"));
    }
    DaemonReport {
        namespace: daemon.key.namespace.clone(),
        name: daemon.key.name.clone(),
        uid,
        mode: daemon.summary.mode,
        phase: Some(if failed.is_some() { State::Failing } else { daemon.summary.state }),
        message,
        instances: record.instances.iter().skip(older).map(instance).collect(),
        overlays: overlays(daemon),
        replacing: daemon.replacing.clone(),
        staged: daemon.staging.clone(),
        failed: record.failed.as_ref().map(|f| FailedReport {
            revision: template_hash(&f.revision).to_owned(),
            cause: f.failure.cause.as_str().to_owned(),
            message: f.failure.message.clone(),
        }),
        pull_failed: daemon.summary.pull_failed.clone(),
        awaits_rollout: daemon.summary.awaits_rollout,
        missing: daemon.summary.missing.clone(),
        stock_pod: daemon.summary.stock_pod.clone(),
        previous: record.previous.as_ref().map(|p| template_hash(&p.revision).to_owned()),
    }
}

/// The digest of the overlays that apply here. While they are not known, what runs is as it is to be.
fn overlays(daemon: &DaemonPlan) -> String {
    let known = daemon.overlays_digest.as_deref();
    let runs = || daemon.record.live().last().map(|instance| overlays_digest(&instance.revision));
    known.or_else(runs).unwrap_or_default().to_owned()
}

/// Since when an instance is ready. What is not known now stays as it was `reported`: an agent that starts has heard of
/// no pod yet, and a coordinator takes a node that is not ready for one that costs nothing to replace.
fn ready_since(readiness: &Readiness, reported: Option<&InstanceReport>) -> Option<String> {
    match readiness {
        Readiness::Ready { since } => Some(since.to_string()),
        Readiness::NotReady(_) => None,
        Readiness::Steady { .. } | Readiness::Unknown(_) => reported.and_then(|t| t.ready_since.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::cluster::node_daemons::MissingReport;
    use crate::core::cluster::node_daemons::tests::refused_by_schema;
    use crate::core::time::at;

    #[test]
    fn what_is_not_known_stays_as_it_was_told() {
        let reported = InstanceReport { ready_since: Some("2026-01-01T00:00:00Z".to_owned()), ..Default::default() };
        let unready = InstanceReport::default();
        let unknown = Readiness::Unknown("no pod has been listed".to_owned());
        assert_eq!(ready_since(&unknown, Some(&reported)), reported.ready_since);
        assert_eq!(ready_since(&Readiness::Steady { since: at(0) }, Some(&reported)), reported.ready_since);
        assert_eq!(ready_since(&unknown, Some(&unready)), None);
        assert_eq!(ready_since(&unknown, None), None);
    }

    #[test]
    fn of_many_refused_daemons_of_a_namespace_the_first_are_told_and_the_others_counted() {
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
        let told = bounded(many.chain([runs.clone(), waits.clone()]).chain(few).collect(), &|_| false);
        assert_eq!(told.len(), 20 + 2 + 20);
        assert_eq!(told[19].message, "no; 492 more DaemonSets of this namespace are refused");
        assert_eq!(told[20..22], [runs, waits]);
        assert!(told.iter().enumerate().all(|(index, report)| index == 19 || report.message == "no"));
    }

    #[test]
    fn of_many_waiting_daemons_of_a_tenant_each_is_told_the_first_with_the_reason_and_trusted_ones_before() {
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
        let told = bounded(many.chain(trusted.clone()).collect(), &|report| report.namespace == "b");
        assert_eq!(told.len(), 131, "the coordinator has to know of each");
        assert_eq!(told[..30], trusted);
        assert_eq!(told[30..49], (0..19).map(|number| report("a", number)).collect::<Vec<_>>());
        assert_eq!(told[49].message, "it waits; 80 more DaemonSets of this namespace wait and do not say why");
        let is_short = |report: &DaemonReport| report.message.is_empty() && report.pull_failed.as_deref() == Some("");
        assert!(told[50..130].iter().all(is_short), "{:?}", &told[50..130]);
        assert_eq!(told[130], runs);
    }

    #[test]
    fn the_schema_takes_the_longest_report() {
        // Four bytes a character, and each text longer than it may be.
        let text = "\u{1f980}".repeat(5_000);
        let instance =
            InstanceReport { pod: "p".repeat(507), ready_since: Some(at(0).to_string()), ..Default::default() };
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
            let short =
                |number| DaemonReport { instances: vec![InstanceReport::default(); instances], ..report(number) };
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
        let told = bounded(one.chain(trusted.clone()).collect(), &is_trusted);
        assert_eq!((told.len(), &told[..30]), (130, &trusted[..]));
        assert_eq!(
            told[49].message,
            "host port 80 belongs to another; 3680 more DaemonSets of this namespace wait and do not say why, of which \
             3600 are not listed: at most 100 are"
        );

        let runs = DaemonReport { instances: vec![InstanceReport::default()], ..report("zz", 0) };
        let many = (0..100).flat_map(|space| (0..100).map(move |number| (space, number)));
        let many = many.map(|(space, number)| report(&format!("n{space:03}"), number));
        let told = bounded(many.chain([runs.clone()]).chain(trusted.clone()).collect(), &is_trusted);
        let bytes = serde_json::to_string(&told).map_or(usize::MAX, |json| json.len());
        assert!(bytes < REPORTS + 1024, "{bytes}");
        assert_eq!(told[..30], trusted);
        let last = told.last().unwrap();
        assert_eq!(
            (&last.namespace, last.instances.len()),
            (&runs.namespace, 1),
            "what runs is told before the others"
        );
        let left_out = 10_031 - told.len();
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
            let told = bounded((0..count).map(report).collect(), &|_| true);
            assert_eq!(told.len(), count, "each is told");
            assert!(told.iter().all(|report| report.message.ends_with(" bytes more)")), "and that it is shortened");
            let bytes = serde_json::to_string(&told).map_or(usize::MAX, |json| json.len());
            assert!(bytes < 1 << 20, "{count}: {bytes}");
        }
        let fits = DaemonReport { message: "y".repeat(LONGEST), ..report(0) };
        assert_eq!(bounded(vec![fits.clone()], &|_| true)[0].message, fits.message);
    }

    #[test]
    fn refused_daemons_are_counted_by_the_rule_that_refuses_them() {
        let fields =
            ["spec.template.spec.volumes[a].hostPath", "spec.template.spec.volumes[b].hostPath", "namespace a"];
        let counted = refused_counts(fields.map(Some).into_iter().chain([None]));
        let counted: Vec<_> = counted.iter().map(|count| (count.reason.as_str(), count.count)).collect();
        assert_eq!(counted, [("other", 2), ("spec.template.spec.volumes.hostPath", 2)]);
    }

    #[test]
    fn while_overlays_are_not_known_those_of_what_runs_are_reported() {
        let mut unpatched = crate::core::plan::empty(DaemonRecord::new(ObjectKey::new("a", "b"), 0));
        unpatched.overlays_digest = Some(String::new());
        unpatched.record.instances.push(Instance::new("u", "p", 0, "hash.digest", at(0)));
        assert_eq!(overlays(&unpatched), "", "its DaemonSet names none any more");
        let mut record = DaemonRecord::new(ObjectKey::new("a", "b"), 0);
        assert_eq!(overlays(&crate::core::plan::empty(record.clone())), "");
        record.instances.push(Instance::new("u", "p", 0, "hash.digest", at(0)));
        assert_eq!(overlays(&crate::core::plan::empty(record)), "digest");
    }

    #[test]
    fn what_is_known_is_said() {
        let reported = InstanceReport { ready_since: Some("2026-01-01T00:00:00Z".to_owned()), ..Default::default() };
        assert_eq!(ready_since(&Readiness::NotReady("a probe fails".to_owned()), Some(&reported)), None);
        let ready = Readiness::Ready { since: at(1_000) };
        assert_eq!(ready_since(&ready, Some(&reported)).as_deref(), Some("1970-01-01T00:00:01Z"));
    }
}
