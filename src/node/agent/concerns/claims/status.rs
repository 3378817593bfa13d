//! The status that an agent reports of its node's daemons.
//!
//! Owns the report as a function of a plan; it neither sends nor decides.

use crate::node::agent::failure::EffectFailure;
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

/// For how many refused daemons of one namespace, and for how many waiting ones, the report has details.
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
type Failed<'a> = dyn Fn(&ObjectKey) -> Option<(&'a DaemonRecord, &'a EffectFailure)> + 'a;

/// The report on every daemon of a plan; `live`: the status of this node in the cluster now.
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
            format!(
                "{}: {}: {}",
                d.key,
                d.summary.state.as_str(),
                escape::short(&d.summary.reasons.to_string(), LONGEST)
            )
        }),
        daemons: bounded(
            daemons.into_iter().map(|d| report(d, facts, (node, live), failed(&d.key))).collect(),
            &|report| is_trusted(&ObjectKey::new(&report.namespace, &report.name)),
        ),
    }
}

/// Bounds the reports, so that one tenant's daemons keep no report from the API server, which takes 1.5 MiB.
///
/// Of a namespace's refused daemons that do not run, the first are reported; the last of them says how many more there are.
/// Of the waiting ones of a namespace that is not trusted, the first have their reasons, and the last of them says how many
/// others have none: the coordinator has to know each that may start here. Trusted daemons come first: if there are too many
/// daemons, a coordinator takes the first. If it is still too much, untrusted daemons that do not run are left out first.
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

fn add(message: &mut String, more: &str) {
    let between = if message.is_empty() { "" } else { "; " };
    message.push_str(&format!("{between}{more}"));
}

/// Bounds the texts, which say how much of them is left out.
fn shorten(reports: &mut [DaemonReport]) {
    let most = (TEXTS / reports.len().max(1)).clamp(SHORTEST, LONGEST);
    reports.iter_mut().flat_map(texts).for_each(|text| *text = escape::short(text, most).into_owned());
}

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
    failed: Option<(&DaemonRecord, &EffectFailure)>,
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
        Some((_, why)) => why.with_hint(),
        None if is_well => String::new(),
        None => daemon.summary.reasons.to_string(),
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
        pull_failed: daemon.summary.pull_failed.as_ref().map(ToString::to_string),
        awaits_rollout: daemon.summary.awaits_rollout,
        missing: daemon.summary.missing.clone(),
        stock_pod: daemon.summary.stock_pod.clone(),
        previous: record.previous.as_ref().map(|p| template_hash(&p.revision).to_owned()),
        returning: returning(record),
    }
}

/// What starts again, while nothing runs. What was claimed and has yet to begin is not that.
fn returning(record: &DaemonRecord) -> Option<String> {
    let last = record.last.as_ref().filter(|last| record.instances.is_empty() && !last.claimed);
    last.map(|last| last.revision.clone())
}

/// The digest of the overlays that apply here. While they are not known, the running instance counts as up to date.
fn overlays(daemon: &DaemonPlan) -> String {
    let known = daemon.overlays_digest.as_deref();
    let runs = || daemon.record.live().last().map(|instance| overlays_digest(&instance.revision));
    known.or_else(runs).unwrap_or_default().to_owned()
}

/// Since when an instance is ready. What is not known now stays as it was `reported`: an agent that starts knows
/// no pod yet, and a coordinator takes a node that is not ready for one that costs nothing to replace.
fn ready_since(readiness: &Readiness, reported: Option<&InstanceReport>) -> Option<String> {
    match readiness {
        Readiness::Ready { since } => Some(since.to_string()),
        Readiness::NotReady(_) => None,
        Readiness::Steady { .. } | Readiness::Unknown(_) => reported.and_then(|t| t.ready_since.clone()),
    }
}

#[cfg(test)]
mod tests;
