//! What the agent tells: `status`, `plan` and `explain`, log lines and events.
//!
//! Owns the words. Must not change anything.

mod changes;
mod words;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::json;

use crate::core::explain;
use crate::core::model::DaemonSet;
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
use crate::core::record::Millis;
use crate::core::replies::ExplainReport;
use crate::core::replies::PlanReport;
use crate::core::status::AgentStatus;
use crate::core::status::ApiUse;
use crate::core::status::DaemonStatus;
use crate::core::status::FailedStatus;
use crate::core::status::Problem;
use crate::core::status::SCHEMA_VERSION;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::node::api::AgentEvent;
use crate::node::api::ApiState;
use crate::node::api::Counters;
use crate::node::api::EventKind;
use crate::node::api::Snapshot;
use crate::node::manifests::ManifestDir;
use crate::node::socket::Request;

pub(super) use changes::changes;

use changes::held;

use super::Agent;
use super::apply::Failure;

/// What has been said, so that it is said once.
#[derive(Default)]
pub(super) struct Told {
    daemons: BTreeMap<ObjectKey, (State, String)>,
    failures: BTreeMap<ObjectKey, String>,
    /// Failed revisions and whether they were rolled back.
    failed: BTreeMap<ObjectKey, (FailedRevision, bool)>,
    problems: Vec<Problem>,
}

impl Agent {
    /// Logs and sends as events what a daemon's plan did.
    pub(super) fn tell(&mut self, plan: &DaemonPlan, failure: Option<&Failure>) {
        let daemonset = plan.key.to_string();
        if let Some(failure) = failure {
            let said = self.told.failures.insert(plan.key.clone(), failure.message.clone());
            if said.as_ref() == Some(&failure.message) {
                return;
            }
            let hint = failure.hint.as_deref();
            tracing::error!(daemonset, hint, "{}: {}; trying again", plan.key, failure.message);
            self.event(plan, EventKind::Warning, "Failed", "Apply", &failure.message);
            return;
        }
        self.told.failures.remove(&plan.key);
        for action in &plan.actions {
            match action {
                Action::Start { outcome, reason } => {
                    let (pod, revision, uid) = (&outcome.identity.pod_name, &outcome.revision, &outcome.identity.uid);
                    tracing::info!(daemonset, pod, revision, uid, "rendered {pod}: {reason}");
                    let note = format!("Rendered static pod {pod} on node {}: {reason}", self.config.node_name);
                    self.event(plan, EventKind::Normal, "Rendered", "Render", &note);
                }
                Action::Refresh { outcome, volumes, manifest } => {
                    let pod = &outcome.identity.pod_name;
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
        let said = (plan.summary.state, plan.summary.reason.clone());
        let before = self.told.daemons.insert(plan.key.clone(), said.clone());
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
            self.told.failed.remove(&plan.key);
            return;
        };
        let back = plan.summary.wanted_revision.as_ref() == Some(&failed.revision);
        let now = (failed.clone(), back);
        let before = self.told.failed.insert(plan.key.clone(), now.clone());
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
        for problem in self.problems.iter().filter(|p| !self.told.problems.contains(p)) {
            let hint = problem.hint.as_deref();
            tracing::warn!(object = problem.object, hint, "{}: {}", problem.object, problem.reason);
        }
        for problem in self.told.problems.iter().filter(|p| !self.problems.contains(p)) {
            tracing::info!(object = problem.object, "{}: no longer: {}", problem.object, problem.reason);
        }
        self.told.problems.clone_from(&self.problems);
        let planned: std::collections::BTreeSet<&ObjectKey> = self.plan.daemons.iter().map(|d| &d.key).collect();
        self.told.daemons.retain(|key, _| planned.contains(key));
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

    /// The whole status.
    pub(super) fn status(&self) -> StatusReport {
        let (api, since) = self.api_words();
        let mut problems = self.problems.clone();
        problems.extend(self.api_problems());
        problems.extend(self.identity.problem());
        StatusReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent: AgentStatus {
                running: !self.offline,
                since: (!self.offline).then(|| time(self.started)),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                api,
                api_since: since,
                api_use: self.api.as_ref().map(|api| api_use(api.connector().counters())),
                passes: self.passes,
                identity: self.identity.status(),
            },
            daemons: self.plan.daemons.iter().filter_map(|d| self.daemon_status(d)).collect(),
            problems,
        }
    }

    fn daemon_status(&self, plan: &DaemonPlan) -> Option<DaemonStatus> {
        let summary = &plan.summary;
        let idle = plan.record.instances.is_empty() && summary.state == State::NotSelected;
        if idle && summary.source.is_none() {
            return None;
        }
        let failure = self.failures.get(&plan.key);
        let reason = failure.map_or_else(|| summary.reason.clone(), |f| f.message.clone());
        let mut notes = summary.notes.clone();
        notes.extend(self.preempted.note(&plan.key));
        notes.extend(failure.and_then(|f| f.hint.clone()).map(|hint| format!("hint: {hint}")));
        Some(DaemonStatus {
            namespace: plan.key.namespace.clone(),
            name: plan.key.name.clone(),
            source: summary.source.clone().unwrap_or(Source::Api),
            mode: summary.mode,
            revision: summary.revision.clone(),
            pod: summary.pod.clone(),
            uid: summary.uid.clone(),
            state: if failure.is_some() { State::Failing } else { summary.state },
            ready: summary.ready,
            since: summary.since.filter(|since| *since > 0).map(time),
            reason,
            failed: summary.failed.as_ref().map(|failed| FailedStatus {
                revision: failed.revision.clone(),
                cause: failed.failure.cause,
                message: failed.failure.message.clone(),
                since: time(failed.at),
            }),
            pull: self.pull_status(plan),
            replacing: plan.replacing.clone(),
            waiting_for: summary.waiting_for.clone(),
            notes,
        })
    }

    /// `connected`, `none`, or why not, and since when.
    fn api_words(&self) -> (String, Option<String>) {
        let Some(api) = &self.api else { return ("none".to_owned(), None) };
        match api.health().state {
            ApiState::NotConfigured => ("none".to_owned(), None),
            ApiState::Connecting => ("connecting".to_owned(), None),
            ApiState::Ok => ("connected".to_owned(), None),
            ApiState::Failing { error, since } => (error, Some(since.to_string())),
        }
    }

    fn api_problems(&self) -> Vec<Problem> {
        let Some(api) = &self.api else { return Vec::new() };
        let health = api.health();
        let problem = |object: String, reason: String| Problem { object, reason, hint: None };
        let kubeconfig = health.kubeconfig_error.map(|error| problem("kubeconfig".to_owned(), error));
        let scopes = health.scopes.into_iter().filter_map(|s| Some(problem(format!("API: {}", s.scope), s.error?)));
        let tokens =
            self.tokens.problems().into_iter().map(|(request, (why, _))| {
                problem(format!("token of ServiceAccount {}", request.service_account), why)
            });
        kubeconfig.into_iter().chain(scopes).chain(tokens).collect()
    }

    /// One line for systemd.
    pub(super) fn status_line(&self) -> String {
        let live = || self.plan.daemons.iter().filter(|d| d.record.live().next().is_some());
        let api = self.api.as_ref().map(|api| api.health().state);
        words::line(
            &words::Words {
                daemons: live().count(),
                ready: live().filter(|d| d.summary.ready == Some(true)).count(),
                waiting: self.plan.daemons.iter().filter(|d| d.summary.state == State::Waiting).count(),
                refused: self.plan.daemons.iter().filter(|d| d.summary.state == State::Refused).count(),
                api,
                kept_configuration: self.keeps_configuration(),
            },
            jiff::Timestamp::now(),
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
            held: held(plan),
        })
    }

    fn explain(&self, key: &ObjectKey) -> Value {
        let folder = self.folders.get(key);
        let from_api = self.definitions.get(key).or_else(|| self.memory.daemon_sets.get(key));
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
            let rules =
                explain::Rules { covered: &covered, admission: &admission, namespace_selector: selector.as_ref() };
            terms = explain::explain(daemon_set, &self.node, &rules);
            if let (None, Covered::No(reason)) = (&status, &covered) {
                status = Some(left_alone(daemon_set, reason));
            }
        }
        to_json(&ExplainReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent_running: !self.offline,
            terms,
            status,
        })
    }
}

fn api_use(counters: Counters) -> ApiUse {
    ApiUse {
        connections_opened: counters.connections_opened,
        connections: counters.connections,
        requests: counters.requests,
        streams: counters.streams,
    }
}

/// The status of a DaemonSet that is known and not ours.
fn left_alone(daemon_set: &DaemonSet, reason: &str) -> DaemonStatus {
    DaemonStatus {
        namespace: daemon_set.key.namespace.clone(),
        name: daemon_set.key.name.clone(),
        source: daemon_set.source.clone(),
        mode: None,
        revision: String::new(),
        pod: String::new(),
        uid: String::new(),
        state: State::NotSelected,
        ready: None,
        since: None,
        reason: reason.to_owned(),
        failed: None,
        pull: None,
        replacing: None,
        waiting_for: Vec::new(),
        notes: Vec::new(),
    }
}

pub(super) fn to_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}

/// RFC 3339, whole seconds, UTC.
fn time(millis: Millis) -> String {
    let timestamp = jiff::Timestamp::from_millisecond(millis).unwrap_or_default();
    jiff::Timestamp::from_second(timestamp.as_second()).unwrap_or_default().to_string()
}
