//! `release`: ends held daemons, which this node's configuration no longer selects.
//!
//! Owns which daemons may be released. They end by the decision of an ordinary pass; without an agent the record alone
//! is marked, and the first pass of the next agent ends them.

use std::collections::BTreeSet;

use crate::core::model::ObjectKey;
use crate::core::pass::Plan;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::replies::ReleaseReport;
use crate::core::replies::ReleasedDaemon;
use crate::core::status::SCHEMA_VERSION;

use super::records::Records;

/// What comes of a request to release daemons.
pub(super) struct Selected {
    /// The records of those that may be released, marked.
    pub(super) records: Vec<DaemonRecord>,
    pub(super) report: ReleaseReport,
}

/// Which of the daemons that `keys` name may be released, and why the others may not; no name: all that may.
pub(super) fn select(node: &str, records: &Records, plan: &Plan, keys: &BTreeSet<ObjectKey>) -> Selected {
    let marked = |daemon: &DaemonPlan| {
        let record = records.get(&daemon.key).unwrap_or(&daemon.record);
        DaemonRecord { released: true, ..record.clone() }
    };
    let report = ReleaseReport {
        schema_version: SCHEMA_VERSION,
        node: node.to_owned(),
        agent_running: true,
        released: Vec::new(),
        refused: Vec::new(),
    };
    let mut selected = Selected { records: Vec::new(), report };
    if keys.is_empty() {
        selected.records.extend(plan.daemons.iter().filter(|d| d.summary.releasable).map(marked));
    }
    for key in keys {
        match plan.daemons.iter().find(|d| d.key == *key) {
            Some(daemon) if daemon.summary.releasable => selected.records.push(marked(daemon)),
            daemon => selected.report.refused.push(entry(key, &refusal(daemon))),
        }
    }
    selected
}

/// Why a daemon is not released.
fn refusal(daemon: Option<&DaemonPlan>) -> String {
    let Some(daemon) = daemon else { return "no such daemon has run on this node".to_owned() };
    let because = match daemon.summary.reasons.is_empty() {
        true => String::new(),
        false => format!(": {}", daemon.summary.reasons),
    };
    match daemon.record.instances.is_empty() {
        false => format!("it is not held, it is {}{because}", daemon.summary.state.as_str()),
        true => format!("it does not run on this node{because}"),
    }
}

/// One line of the report.
pub(super) fn entry(key: &ObjectKey, what: &str) -> ReleasedDaemon {
    ReleasedDaemon { namespace: key.namespace.clone(), name: key.name.clone(), what: what.to_owned() }
}

/// The daemons of a plan that the configuration no longer selects, each with what lets it go. What is not seen of them is left
/// out: a plan made ahead asks no server.
pub(super) fn held(plan: &Plan) -> Vec<String> {
    let is_held = |d: &&DaemonPlan| d.summary.releasable;
    let line = |d: &DaemonPlan| {
        let reasons = d.summary.reasons.clone().without_unseen();
        format!("{} would be held: {reasons}; {}", d.key, d.summary.hint_lines().join("; "))
    };
    plan.daemons.iter().filter(is_held).map(line).collect()
}

#[cfg(test)]
mod tests {
    use crate::core::plan::Reason;
    use crate::core::plan::Reasons;
    use crate::core::plan::Unseen;
    use crate::core::record::EndConfirmation;
    use crate::core::record::Instance;
    use crate::core::record::Phase;
    use crate::core::sources::DesiredReason;
    use crate::core::status::State;
    use crate::core::time::Timestamp;

    use super::*;

    #[test]
    fn what_is_kept_for_want_of_evidence_is_told_with_what_is_held() {
        let daemon = |name: &str, state: State, releasable: bool| {
            let mut daemon = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", name), 0));
            (daemon.summary.state, daemon.summary.releasable) = (state, releasable);
            daemon
        };
        let mut daemons = vec![
            daemon("held", State::Held, true),
            daemon("kept", State::Running, true),
            daemon("runs", State::Running, false),
        ];
        let reason = Reason::Desired(DesiredReason::NoApiServer);
        daemons[1].summary.reasons = Reasons::from([reason.clone(), Reason::ReadinessUnknown(Unseen::NotAsked)]);
        let plan = Plan { daemons, removals_held: false, ..Plan::default() };
        let lines = held(&plan);
        assert!(lines[1].starts_with(&format!("a/kept would be held: {reason}; ")), "{}", lines[1]);
        assert!(lines[0].starts_with("a/held would be held") && lines[1].starts_with("a/kept would be held"));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn what_ends_for_its_next_instance_is_not_said_to_be_away() {
        let mut daemon = DaemonPlan::new(DaemonRecord::new(ObjectKey::new("a", "b"), 0));
        daemon.summary.state = State::Replacing;
        assert!(refusal(Some(&daemon)).starts_with("it does not run on this node"));
        let (since, boot) = (Timestamp::from_secs(0), String::new());
        let phase = Phase::Ending {
            since,
            reason: String::new(),
            boot,
            returns: false,
            confirmed_by: EndConfirmation::Reported,
        };
        daemon.record.instances.push(Instance { phase, ..Instance::new("u", "b-1", 0, "r", since) });
        assert_eq!(refusal(Some(&daemon)), "it is not held, it is replacing");
    }

    #[test]
    fn only_what_is_held_may_be_released() {
        let key = |name: &str| ObjectKey::new("a", name);
        let planned = |name: &str, state: State| {
            let mut daemon = DaemonPlan::new(DaemonRecord::new(key(name), 0));
            (daemon.summary.state, daemon.summary.releasable) = (state, state == State::Held);
            daemon
        };
        let daemons = vec![planned("held", State::Held), planned("runs", State::Running)];
        let plan = Plan { daemons, removals_held: false, ..Plan::default() };
        let select = |names: &[&str]| {
            let selected = select("n1", &Records::new(), &plan, &names.iter().map(|name| key(name)).collect());
            let refused: Vec<String> = selected.report.refused.into_iter().map(|daemon| daemon.name).collect();
            assert!(selected.records.iter().all(|record| record.released));
            (selected.records.into_iter().map(|record| record.key.name).collect::<Vec<_>>(), refused)
        };
        assert_eq!(select(&[]), (vec!["held".to_owned()], vec![]));
        assert_eq!(
            select(&["held", "runs", "unknown"]),
            (vec!["held".to_owned()], vec!["runs".to_owned(), "unknown".to_owned()])
        );
    }
}
