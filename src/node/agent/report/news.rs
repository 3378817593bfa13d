//! Log lines and events: each piece of news once.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::annotations;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::model::joined_with_hints;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Reasons;
use crate::core::plan::Summary;
use crate::core::record::Cause;
use crate::core::record::FailedRevision;
use crate::core::status::Problem;
use crate::core::status::StaleVolume;
use crate::core::status::State;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::log::STATE;
use crate::node::agent::decision::Decision;
use crate::node::agent::failure::EffectFailure;
use crate::node::agent::outcome::EffectOutcome;
use crate::node::api::AgentEvent;
use crate::node::api::Api;
use crate::node::api::EventKind;
use crate::node::api::Regarding;

/// What has been reported, so that it is reported once.
#[derive(Default)]
pub(super) struct Reported {
    daemons: BTreeMap<ObjectKey, (State, Reasons)>,
    failures: BTreeMap<ObjectKey, EffectFailure>,
    /// The fields that are not understood in a DaemonSet of the API, and which one that was.
    unknown_fields: BTreeMap<ObjectKey, (Option<String>, Vec<FieldError>)>,
    /// Failed revisions and whether they were rolled back.
    failed: BTreeMap<ObjectKey, (FailedRevision, bool)>,
    /// Volumes that keep their last data: pod, volume and why.
    stale: BTreeMap<ObjectKey, BTreeSet<(String, String, String)>>,
    waits: Waits,
    /// Daemons that have begun on this node and have not left it.
    here: BTreeSet<ObjectKey>,
    problems: Vec<Problem>,
    ignored: Vec<String>,
}

/// The last text about each waiting daemon, and when it was written. The missing objects change with every answer of the
/// API server: a new text follows no sooner than [`Waits::PACE`].
#[derive(Default)]
struct Waits {
    said: BTreeMap<ObjectKey, (Timestamp, Reasons)>,
}

impl Waits {
    const PACE: Span = Span::from_secs(2);

    /// Whether `reasons` are to be written at `now`.
    fn is_news(&mut self, key: &ObjectKey, reasons: &Reasons, now: Timestamp) -> bool {
        let is_paced = |at: Timestamp| (Span::ZERO..Self::PACE).contains(&(now - at));
        match self.said.get(key) {
            Some((at, before)) if before == reasons || is_paced(*at) => false,
            _ => {
                self.said.insert(key.clone(), (now, reasons.clone()));
                true
            }
        }
    }
}

/// Where the news of one pass goes.
struct NewsReporter<'a> {
    reported: &'a mut Reported,
    decision: &'a Decision,
    api: Option<&'a Api>,
    node: &'a str,
    now: Timestamp,
}

impl Reported {
    /// Logs and sends as events what a pass decided and did.
    pub(super) fn pass(
        &mut self,
        decision: &Decision,
        outcome: &EffectOutcome,
        api: Option<&Api>,
        node: &str,
        now: Timestamp,
    ) {
        decision.log.0.iter().for_each(crate::node::agent::log::LogLine::write);
        let mut news = NewsReporter { reported: self, decision, api, node, now };
        for daemon in &decision.plan.daemons {
            news.tell(daemon, outcome);
        }
        for event in &decision.events {
            if let Some(daemon) = decision.daemon(&event.daemon) {
                news.event(daemon, event.kind, (event.reason, event.action), &event.note, On::DaemonSet(""));
            }
        }
        let planned: BTreeSet<&ObjectKey> = decision.plan.daemons.iter().map(|d| &d.key).collect();
        self.daemons.retain(|key, _| planned.contains(key));
        self.unknown_fields.retain(|key, _| planned.contains(key));
        self.stale.retain(|key, _| planned.contains(key));
        self.waits.said.retain(|key, _| planned.contains(key));
        self.here.retain(|key| planned.contains(key));
    }

    /// Whether a daemon that starts has not been on this node before. That another instance takes the place of one is a
    /// rollout's success: the DaemonSet's conditions have it, and no event.
    fn begins(&mut self, plan: &DaemonPlan) -> bool {
        if plan.summary.state == State::Stopping || plan.summary.state.is_idle() {
            self.here.remove(&plan.key);
            return false;
        }
        let ends = |action: &Action| matches!(action, Action::Finish { .. } | Action::End { .. });
        let is_only = plan.record.instances.len() == 1 && !plan.actions.iter().any(ends);
        !plan.record.instances.is_empty() && self.here.insert(plan.key.clone()) && is_only
    }

    /// Logs problems that are new, or gone.
    pub(super) fn problems(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|p| !self.problems.contains(p)) {
            let hint = problem.hint.as_deref();
            tracing::warn!(target: STATE, object = problem.object, hint, "{}: {}", problem.object, problem.reason);
        }
        for problem in self.problems.iter().filter(|p| !problems.contains(p)) {
            tracing::info!(target: STATE, object = problem.object, "{}: no longer: {}", problem.object, problem.reason);
        }
        self.problems = problems.to_vec();
    }

    /// Logs what of the folders is newly ignored.
    pub(super) fn ignored(&mut self, ignored: Vec<String>) {
        for note in ignored.iter().filter(|note| !self.ignored.contains(note)) {
            tracing::info!(target: STATE, "{note}");
        }
        self.ignored = ignored;
    }
}

impl NewsReporter<'_> {
    /// Logs and sends as events what a daemon's plan did.
    fn tell(&mut self, plan: &DaemonPlan, outcome: &EffectOutcome) {
        let daemonset = plan.key.to_string();
        if let Some(failure) = outcome.failures.get(&plan.key) {
            let reported = self.reported.failures.insert(plan.key.clone(), failure.clone());
            if reported.as_ref() == Some(failure) {
                return;
            }
            let hint = failure.hint.as_deref();
            tracing::error!(target: STATE, daemonset, hint, "{}; trying again", failure.cause);
            self.event(plan, EventKind::Warning, ("Failed", "Apply"), &failure.cause.to_string(), On::Node);
            return;
        }
        self.reported.failures.remove(&plan.key);
        let begins = self.reported.begins(plan);
        for action in &plan.actions {
            match action {
                Action::Start { rendering, reason } => {
                    let (pod, revision, uid) =
                        (&rendering.identity.pod_name, &rendering.revision, &rendering.identity.uid);
                    tracing::info!(daemonset, pod, revision, uid, "rendered {pod}: {reason}");
                    if begins {
                        let note = format!("Rendered static pod {pod}: {reason}");
                        self.event(plan, EventKind::Normal, ("Rendered", "Render"), &note, On::Node);
                    }
                }
                Action::Refresh { rendering, volumes, manifest, .. }
                    if outcome.refreshed.contains(&rendering.identity.uid) =>
                {
                    let pod = &rendering.identity.pod_name;
                    tracing::info!(daemonset, pod, volumes, manifest, "brought {pod} up to date in place");
                }
                Action::End { pod, reason, .. } => {
                    tracing::info!(daemonset, pod, "removed {pod}: {reason}");
                    if plan.summary.state == State::Stopping {
                        let note = format!("Removed static pod {pod}: {reason}");
                        self.event(plan, EventKind::Normal, ("Removed", "Remove"), &note, On::Node);
                    }
                }
                Action::Finish { pod, .. } => tracing::info!(daemonset, pod, "{pod} has ended"),
                Action::CloseGate { pod, .. } => tracing::info!(daemonset, pod, "{pod} waits at its gate"),
                Action::OpenGate { pod, reason, .. } => {
                    tracing::info!(daemonset, pod, "opened the gate of {pod}: {reason}");
                    let note = format!("Opened the gate of static pod {pod}: {reason}");
                    self.event(plan, EventKind::Normal, ("GateOpened", "Start"), &note, On::Node);
                }
                Action::Confirm { .. } | Action::Keep { .. } | Action::Verify { .. } | Action::Refresh { .. } => {}
            }
        }
        self.tell_failed(plan);
        self.tell_stale(plan);
        self.tell_unknown_fields(plan);
        let Summary { state, reasons, .. } = &plan.summary;
        if *state != State::Waiting {
            self.reported.waits.said.remove(&plan.key);
        } else if self.reported.waits.is_news(&plan.key, reasons, self.now) {
            tracing::info!(target: STATE, daemonset, "{reasons}");
        }
        let said = (*state, reasons.clone());
        if self.reported.daemons.insert(plan.key.clone(), said.clone()) == Some(said) {
            return;
        }
        match state {
            State::Refused => {
                tracing::warn!(target: STATE, daemonset, "refused: {reasons}");
                // The text may name this node's pod.
                let text = &reasons.to_string();
                let cause = plan.summary.refused_field.as_ref().unwrap_or(text);
                self.event(plan, EventKind::Warning, ("Refused", "Render"), text, On::DaemonSet(cause));
            }
            State::Held => {
                tracing::warn!(target: STATE, daemonset, hint = plan.summary.hints.first().map(ToString::to_string), "held: {reasons}");
                self.event(plan, EventKind::Warning, ("Held", "Select"), &reasons.to_string(), On::Node);
            }
            _ => tracing::debug!(daemonset, state = state.as_str(), "{reasons}"),
        }
    }

    /// Says once that a revision failed, and once that another runs in its stead.
    fn tell_failed(&mut self, plan: &DaemonPlan) {
        let Some(failed) = &plan.summary.failed else {
            self.reported.failed.remove(&plan.key);
            return;
        };
        let back = plan.summary.wanted_revision.as_ref() == Some(&failed.revision);
        let now = (failed.clone(), back);
        let before = self.reported.failed.insert(plan.key.clone(), now.clone());
        // An earlier agent reported what the checkpoint remembers.
        if before.as_ref() == Some(&now) || self.decision.state.passes == 0 {
            return;
        }
        let (daemonset, node, revision) = (plan.key.to_string(), self.node, &failed.revision);
        let why = format!("{}: {}", failed.failure.cause.as_str(), failed.failure.message);
        let cause = format!("{revision} {}", failed.failure.cause.as_str());
        if before.as_ref().map(|(failed, _)| failed) != Some(failed) {
            let (reason, note) = match failed.failure.cause {
                Cause::NotAccepted => {
                    ("NotAccepted", format!("Node {node} does not accept revision {revision} ({why})"))
                }
                _ => {
                    let note = format!("Revision {revision} did not become available on node {node} in time ({why})");
                    ("ProgressDeadlineExceeded", note)
                }
            };
            tracing::warn!(daemonset, revision, "{note}");
            self.event(plan, EventKind::Warning, (reason, "Judge"), &note, On::DaemonSet(&cause));
        }
        if back {
            let good = match (failed.failure.cause, &plan.record.accepted, &plan.record.good) {
                (Cause::NotAccepted, Some(accepted), _) => accepted.revision.as_str(),
                (_, _, Some(good)) => good.revision.as_str(),
                _ => "the last good one",
            };
            let note = format!("Rolled node {node} back from revision {revision} to {good} ({why})");
            tracing::warn!(daemonset, revision, good, "{note}");
            self.event(plan, EventKind::Warning, ("RolledBack", "RollBack"), &note, On::DaemonSet(&cause));
        }
    }

    /// Says once which volumes keep their last data, and once that they are up to date again.
    fn tell_stale(&mut self, plan: &DaemonPlan) {
        let name = |stale: &StaleVolume| (stale.pod.clone(), stale.volume.clone(), stale.reason.clone());
        let now: BTreeSet<_> = plan.summary.stale.iter().map(name).collect();
        let before = self.reported.stale.remove(&plan.key).unwrap_or_default();
        let daemonset = plan.key.to_string();
        // An earlier agent reported what the checkpoint remembers.
        let known = self.decision.state.records.get(&plan.key).filter(|_| self.decision.state.passes == 0);
        let is_new = |stale: &&StaleVolume| {
            let mut instances = known.iter().flat_map(|record| &record.instances).filter(|i| i.pod_name == stale.pod);
            let is_remembered = instances.any(|instance| instance.stale.contains_key(&stale.volume));
            !before.contains(&name(stale)) && !is_remembered
        };
        for stale in plan.summary.stale.iter().filter(is_new) {
            tracing::warn!(target: STATE, daemonset, pod = stale.pod, volume = stale.volume, "{stale}");
            let (note, cause) = (format!("Node {}: {stale}", self.node), format!("{} {}", stale.volume, stale.reason));
            self.event(plan, EventKind::Warning, ("VolumeStale", "Refresh"), &note, On::DaemonSet(&cause));
        }
        let is_over = |(pod, volume, _): &&(_, _, _)| !now.iter().any(|(p, v, _)| p == pod && v == volume);
        for (pod, volume, _) in before.iter().filter(is_over) {
            tracing::info!(daemonset, pod, volume, "{volume} of {pod} is kept up to date again");
        }
        if !now.is_empty() {
            self.reported.stale.insert(plan.key.clone(), now);
        }
    }

    /// Reports once the unknown fields of a DaemonSet of the API, as an event: its owner reads events there, not on nodes.
    fn tell_unknown_fields(&mut self, plan: &DaemonPlan) {
        let from_api = plan.summary.source == Some(Source::Api) && self.api.is_some();
        let Some(daemon_set) = self.decision.state.definitions.get(&plan.key).filter(|_| from_api) else { return };
        let unknown_fields = annotations::unknown_fields(daemon_set);
        if unknown_fields.is_empty() {
            self.reported.unknown_fields.remove(&plan.key);
            return;
        }
        let now = (daemon_set.uid.clone(), unknown_fields);
        if self.reported.unknown_fields.get(&plan.key) == Some(&now) {
            return;
        }
        let note = joined_with_hints(&now.1);
        tracing::warn!(target: STATE, daemonset = plan.key.to_string(), "{note}");
        self.event(plan, EventKind::Warning, ("NotUnderstood", "Read"), &note, On::DaemonSet(&note));
        self.reported.unknown_fields.insert(plan.key.clone(), now);
    }

    fn event(&self, plan: &DaemonPlan, kind: EventKind, (reason, action): (&str, &str), note: &str, on: On) {
        let Some(api) = &self.api else { return };
        let definition = self.decision.state.definitions.get(&plan.key);
        let Some(uid) = definition.and_then(|d| d.uid.clone()).or_else(|| plan.record.api_uid.clone()) else { return };
        let (regarding, note) = match on {
            On::DaemonSet(cause) => {
                let generation = definition.and_then(|d| d.generation).unwrap_or_default();
                (Regarding::DaemonSet { cause: format!("{generation} {cause}") }, note.to_owned())
            }
            On::Node => {
                // A kubelet's own events have the name for want of the UID; `kubectl describe node` looks for both.
                let uid = self.decision.state.node.uid.clone().unwrap_or_else(|| self.node.to_owned());
                (Regarding::Node { name: self.node.to_owned(), uid }, format!("DaemonSet {}: {note}", plan.key))
            }
        };
        api.events().record(AgentEvent {
            regarding,
            daemon_set: plan.key.clone(),
            uid,
            kind,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note,
        });
    }
}

/// The object of an event.
enum On<'a> {
    /// The DaemonSet; the cause is the same on each node that meets it.
    DaemonSet(&'a str),
    /// What concerns this node alone.
    Node,
}

#[cfg(test)]
mod tests {
    use crate::core::record::DaemonRecord;
    use crate::core::record::Instance;
    use crate::core::time::at;

    use super::*;

    /// A plan with these instances after it, and one that has ended.
    fn plan(state: State, instances: &[&str], ended: Option<&str>) -> DaemonPlan {
        let key = ObjectKey::new("a", "b");
        let mut record = DaemonRecord::new(key, 0);
        record.instances = instances.iter().map(|uid| Instance::new(uid, uid, 0, "r", at(0))).collect();
        let finish = |uid: &str| Action::Finish { uid: uid.to_owned(), pod: uid.to_owned() };
        DaemonPlan {
            actions: ended.map(finish).into_iter().collect(),
            summary: Summary { state, ..Summary::default() },
            ..DaemonPlan::new(record)
        }
    }

    #[test]
    fn a_daemon_begins_once_until_it_leaves_however_often_it_is_replaced() {
        let mut reported = Reported::default();
        let mut begins = |state, instances: &[&str], ended| reported.begins(&plan(state, instances, ended));
        assert!(!begins(State::Waiting, &[], None), "nothing has started");
        assert!(begins(State::Starting, &["1"], None));
        assert!(!begins(State::Running, &["1"], None));
        assert!(!begins(State::Replacing, &["1"], None), "it ends for a new one");
        assert!(!begins(State::Waiting, &[], Some("1")), "its successor waits");
        assert!(!begins(State::Starting, &["2"], None));
        assert!(!begins(State::Stopping, &["2"], None));
        assert!(!begins(State::NotSelected, &[], Some("2")));
        assert!(begins(State::Starting, &["3"], None), "it is back");
        assert!(!begins(State::StandingBy, &[], Some("3")));
        assert!(begins(State::Starting, &["4"], None), "the DaemonSet controller's pod is gone");
    }

    #[test]
    fn what_an_agent_finds_at_its_start_has_begun_before() {
        let begins = |instances: &[&str], ended| Reported::default().begins(&plan(State::Starting, instances, ended));
        assert!(begins(&["2"], None));
        assert!(!begins(&["1", "2"], None), "beside the old one");
        assert!(!begins(&["2"], Some("1")), "in its place");
    }

    #[test]
    fn what_a_daemon_waits_for_is_said_once_while_answers_come_in_and_again_when_it_lasts() {
        let (mut waits, key) = (Waits::default(), ObjectKey::new("a", "b"));
        let reasons = |what: &str| [crate::core::plan::Reason::Recorded(what.to_owned())].into();
        let mut said = |what, now| waits.is_news(&key, &reasons(what), at(now));
        assert!(said("waits for A, B, C", 0));
        assert!(!said("waits for B, C", 5) && !said("waits for C", 15));
        assert!(said("waits for C", 2_000), "that is what it still waits for");
        assert!(!said("waits for C", 60_000));
        assert!(said("waits for B", 1_000), "the clock was set back");
    }
}
