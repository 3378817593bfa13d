//! What the agent tells: `status`, `plan` and `explain`, log lines and events.
//!
//! Owns the words. Must not change anything.

mod changes;
mod status;
mod status_line;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::annotations;
use crate::core::explain;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::pass::Plan;
use crate::core::plan::Action;
use crate::core::plan::DaemonPlan;
use crate::core::plan::Summary;
use crate::core::policy::Covered;
use crate::core::policy::namespace_of;
use crate::core::record::FailedRevision;
use crate::core::replies::ExplainReport;
use crate::core::replies::PlanReport;
use crate::core::status::DaemonStatus;
use crate::core::status::Problem;
use crate::core::status::SCHEMA_VERSION;
use crate::core::status::State;
use crate::node::api::AgentEvent;
use crate::node::api::EventKind;
use crate::node::api::Snapshot;
use crate::node::manifests::ManifestDir;
use crate::node::socket::Request;

pub(super) use changes::changes;

use changes::held;
use status::bare;
use status::failed;

use super::Agent;
use super::apply::Failure;
use super::now;

/// What has been said, so that it is said once.
#[derive(Default)]
pub(super) struct Reported {
    daemons: BTreeMap<ObjectKey, (State, String)>,
    failures: BTreeMap<ObjectKey, String>,
    /// What nobody understands in a DaemonSet of the API, and which one that was.
    misread: BTreeMap<ObjectKey, (Option<String>, Vec<FieldError>)>,
    /// Failed revisions and whether they were rolled back.
    failed: BTreeMap<ObjectKey, (FailedRevision, bool)>,
    problems: Vec<Problem>,
}

impl Agent {
    /// Logs and sends as events what a daemon's plan did.
    pub(super) fn tell(&mut self, plan: &DaemonPlan, failure: Option<&Failure>) {
        let daemonset = plan.key.to_string();
        if let Some(failure) = failure {
            let said = self.reported.failures.insert(plan.key.clone(), failure.message.clone());
            if said.as_ref() == Some(&failure.message) {
                return;
            }
            let hint = failure.hint.as_deref();
            tracing::error!(daemonset, hint, "{}: {}; trying again", plan.key, failure.message);
            self.event(plan, EventKind::Warning, "Failed", "Apply", &failure.message);
            return;
        }
        self.reported.failures.remove(&plan.key);
        for action in &plan.actions {
            match action {
                Action::Start { rendering, reason } => {
                    let (pod, revision, uid) =
                        (&rendering.identity.pod_name, &rendering.revision, &rendering.identity.uid);
                    tracing::info!(daemonset, pod, revision, uid, "rendered {pod}: {reason}");
                    let note = format!("Rendered static pod {pod} on node {}: {reason}", self.config.node_name);
                    self.event(plan, EventKind::Normal, "Rendered", "Render", &note);
                }
                Action::Refresh { rendering, volumes, manifest } => {
                    let pod = &rendering.identity.pod_name;
                    tracing::info!(daemonset, pod, volumes, manifest, "brought {pod} up to date in place");
                }
                Action::End { pod, reason, .. } => {
                    tracing::info!(daemonset, pod, "removed {pod}: {reason}");
                    let note = format!("Removed static pod {pod} from node {}: {reason}", self.config.node_name);
                    self.event(plan, EventKind::Normal, "Removed", "Remove", &note);
                }
                Action::Finish { pod, .. } => tracing::info!(daemonset, pod, "{pod} has ended"),
                Action::Confirm { .. } | Action::Keep { .. } => {}
            }
        }
        self.tell_failed(plan);
        self.tell_misread(plan);
        let said = (plan.summary.state, plan.summary.reason.clone());
        let before = self.reported.daemons.insert(plan.key.clone(), said.clone());
        if before.as_ref() == Some(&said) {
            return;
        }
        let Summary { state, reason, .. } = &plan.summary;
        match state {
            State::Refused => {
                tracing::warn!(daemonset, "refused: {reason}");
                self.event(plan, EventKind::Warning, "Refused", "Render", reason);
            }
            State::Waiting => tracing::info!(daemonset, "{reason}"),
            _ => tracing::debug!(daemonset, state = state.as_str(), "{reason}"),
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
        // What the checkpoint remembers was said by an earlier agent.
        if before.as_ref() == Some(&now) || self.pass_number == 0 {
            return;
        }
        let (daemonset, node) = (plan.key.to_string(), &self.config.node_name);
        let why = format!("{}: {}", failed.failure.cause.as_str(), failed.failure.message);
        let revision = &failed.revision;
        if before.as_ref().map(|(failed, _)| failed) != Some(failed) {
            let note = format!("Revision {revision} did not become available on node {node} in time ({why})");
            tracing::warn!(daemonset, revision, "{note}");
            self.event(plan, EventKind::Warning, "ProgressDeadlineExceeded", "Judge", &note);
        }
        if back {
            let good = plan.record.good.as_ref().map_or("the last good one", |good| good.revision.as_str());
            let note = format!("Rolled node {node} back from revision {revision} to {good} ({why})");
            tracing::warn!(daemonset, revision, good, "{note}");
            self.event(plan, EventKind::Warning, "RolledBack", "RollBack", &note);
        }
    }

    /// Says once what nobody understands in a DaemonSet of the API: its owner looks there, not on nodes.
    fn tell_misread(&mut self, plan: &DaemonPlan) {
        let from_api = plan.summary.source == Some(Source::Api) && self.api.is_some();
        let Some(daemon_set) = self.definitions.get(&plan.key).filter(|_| from_api) else { return };
        let misread = annotations::unknown_fields(daemon_set);
        if misread.is_empty() {
            self.reported.misread.remove(&plan.key);
            return;
        }
        let now = (daemon_set.uid.clone(), misread);
        if self.reported.misread.get(&plan.key) == Some(&now) {
            return;
        }
        let note = now.1.iter().map(FieldError::with_hint).collect::<Vec<_>>().join("; ");
        tracing::warn!(daemonset = plan.key.to_string(), "{note}");
        self.event(plan, EventKind::Warning, "NotUnderstood", "Read", &note);
        self.reported.misread.insert(plan.key.clone(), now);
    }

    pub(super) fn event(&self, plan: &DaemonPlan, kind: EventKind, reason: &str, action: &str, note: &str) {
        let Some(api) = &self.api else { return };
        let uid = self.definitions.get(&plan.key).and_then(|d| d.uid.clone()).or_else(|| plan.record.api_uid.clone());
        let Some(uid) = uid else { return };
        api.events().record(AgentEvent {
            daemon_set: plan.key.clone(),
            uid,
            kind,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: note.to_owned(),
        });
    }

    /// Logs problems that are new, or gone.
    pub(super) fn report(&mut self, _snapshot: Option<&Snapshot>) {
        for problem in self.problems.iter().filter(|p| !self.reported.problems.contains(p)) {
            let hint = problem.hint.as_deref();
            tracing::warn!(object = problem.object, hint, "{}: {}", problem.object, problem.reason);
        }
        for problem in self.reported.problems.iter().filter(|p| !self.problems.contains(p)) {
            tracing::info!(object = problem.object, "{}: no longer: {}", problem.object, problem.reason);
        }
        self.reported.problems.clone_from(&self.problems);
        let planned: std::collections::BTreeSet<&ObjectKey> = self.plan.daemons.iter().map(|d| &d.key).collect();
        self.reported.daemons.retain(|key, _| planned.contains(key));
        self.reported.misread.retain(|key, _| planned.contains(key));
    }

    /// The answer to a request of the socket.
    pub(super) fn answer(&mut self, request: &Request) -> Value {
        match request {
            Request::Status => to_json(&self.status()),
            Request::Plan => self.answer_plan(),
            Request::Explain { namespace, name } => self.explain(&ObjectKey::new(namespace, name)),
            Request::Retry { namespace, name } => self.retry(&ObjectKey::new(namespace, name)),
            Request::Restart { namespace, name } => self.restart(&ObjectKey::new(namespace, name)),
        }
    }

    /// One line for systemd.
    pub(super) fn status_line(&self) -> String {
        let live = || self.plan.daemons.iter().filter(|d| d.record.live().next().is_some());
        let api = self.api.as_ref().map(|api| api.health().state);
        status_line::line(
            &status_line::StatusLine {
                daemons: live().count(),
                ready: live().filter(|d| d.summary.ready == Some(true)).count(),
                waiting: self.plan.daemons.iter().filter(|d| d.summary.state == State::Waiting).count(),
                refused: self.plan.daemons.iter().filter(|d| d.summary.state == State::Refused).count(),
                api,
                kept_configuration: self.keeps_configuration(),
            },
            now(),
        )
    }

    fn answer_plan(&mut self) -> Value {
        if !self.offline {
            // What the next pass would do: the last plan has been done.
            let snapshot = self.snapshot();
            let Some(Ok(scan)) = self.disk.manifests.as_mut().map(ManifestDir::scan) else {
                return json!({"error": format!("{}: it cannot be read", self.config.manifest_dir.display())});
            };
            let records = self.disk.records.clone();
            let plan = self.plan(&records, &scan, snapshot.as_deref());
            return self.plan_report(&plan);
        }
        self.plan_report(&self.plan)
    }

    fn plan_report(&self, plan: &Plan) -> Value {
        to_json(&PlanReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent_running: !self.offline,
            changes: changes(plan),
            held: held(plan, !self.offline),
            problems: self.all_problems().into_iter().chain(self.failures.iter().map(failed)).collect(),
        })
    }

    fn explain(&self, key: &ObjectKey) -> Value {
        let folder = self.folders.get(key);
        let from_api = self.definitions.get(key).or_else(|| self.remembered_inputs.daemon_sets.get(key));
        let planned = self.plan.daemons.iter().find(|d| d.key == *key);
        let (mut terms, mut status) = (Vec::new(), planned.and_then(|d| self.daemon_status(d)));
        if let Some(daemon_set) = from_api.or(folder) {
            let covered = match (daemon_set.source == Source::Api, folder) {
                (true, folder) => self.policy.covers(daemon_set, folder),
                (false, _) => Covered::Yes(daemon_set.mode_label().unwrap_or(Mode::Static)),
            };
            let snapshot = self.snapshot();
            let objects = self.objects(snapshot.as_deref());
            let namespace = objects.lookup(&namespace_of(daemon_set));
            let admission = self.policy.admit(daemon_set, namespace);
            let selector = self.policy.node_selector(daemon_set, namespace);
            let rules = explain::ExplainRules {
                covered: &covered,
                admission: &admission,
                namespace_selector: selector.as_ref(),
            };
            terms = explain::explain(daemon_set, &self.node, &rules);
            let answer = planned.and_then(|d| d.record.answer.as_ref()).filter(|_| self.config.dry_run_admission);
            terms.extend(answer.map(|answer| explain::answer(answer, &answer.at.to_string())));
            if let (None, Covered::No(reason)) = (&status, &covered) {
                let notes = annotations::unknown_fields(daemon_set).iter().map(FieldError::with_hint).collect();
                status = Some(DaemonStatus { notes, ..bare(key, Some(daemon_set.source.clone()), reason) });
            }
        }
        to_json(&ExplainReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent_running: !self.offline,
            terms,
            status,
            problems: self.problems_of(key),
        })
    }
}

pub(super) fn to_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}
