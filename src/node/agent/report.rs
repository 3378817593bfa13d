//! What the agent reports: `status`, `plan` and `explain`, log lines, events, metrics and the line for systemd.
//!
//! Owns the texts. Changes nothing of the agent's state.

pub(super) mod changes;
mod metrics;
mod news;
mod status;
mod status_line;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::config::Config;
use crate::core::annotations;
use crate::core::bounds;
use crate::core::explain;
use crate::core::model::FieldError;
use crate::core::model::Mode;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectSource;
use crate::core::model::Source;
use crate::core::overlays;
use crate::core::policy::Covered;
use crate::core::policy::namespace_of;
use crate::core::replies::ExplainReport;
use crate::core::replies::HeldDaemon;
use crate::core::replies::PlanReport;
use crate::core::status::DaemonStatus;
use crate::core::status::LeftAloneCause;
use crate::core::status::Passes;
use crate::core::status::Problem;
use crate::core::status::SCHEMA_VERSION;
use crate::core::status::State;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::UnselectedDaemonSet;
use crate::node::enrolment::AgentIdentity;
use crate::node::metrics::MetricsRecorder;
use crate::node::notify;
use crate::node::notify::Notifier;
use crate::node::notify::Watchdog;

use super::decision::Decision;
use super::failure::EffectFailure;
use super::last_pass::LastPass;
use super::objects::Objects;
use super::outcome::EffectOutcome;
use super::recorder::Recorder;
use super::state::AgentState;
use super::state::Purpose;

use changes::changes;
use changes::held;
use news::Reported;

/// Where reports go, and what has been reported.
pub(super) struct Reporter {
    node: String,
    notifier: Arc<Notifier>,
    watchdog: Watchdog,
    metrics: Option<MetricsRecorder>,
    identity: AgentIdentity,
    passes: Passes,
    reported: Reported,
    pub(super) recorder: Recorder,
}

#[derive(Clone, Copy)]
pub(super) struct ReportInputs<'a> {
    pub(super) config: &'a Config,
    pub(super) state: &'a AgentState,
    pub(super) last: &'a LastPass,
    pub(super) api: Option<&'a Api>,
}

impl Reporter {
    /// For this node.
    pub(super) fn new(config: &Config, notifier: Arc<Notifier>) -> Self {
        Self {
            node: config.node_name.clone(),
            watchdog: Watchdog::new(Arc::clone(&notifier), notify::watchdog_interval()),
            notifier,
            metrics: None,
            identity: AgentIdentity::default(),
            passes: Passes::default(),
            reported: Reported::default(),
            recorder: Recorder::off(),
        }
    }

    /// From now on there is an API server.
    pub(super) fn connect(&mut self, config: &Config, api: &Api) {
        self.identity.start(config, api.connector().clone());
    }

    /// systemd's notifications.
    pub(super) fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// systemd's watchdog.
    pub(super) fn watchdog(&mut self) -> &mut Watchdog {
        &mut self.watchdog
    }

    /// Logs and sends as events what a pass decided and did.
    pub(super) fn log(&mut self, decision: &Decision, outcome: &EffectOutcome, api: Option<&Api>, now: Timestamp) {
        self.reported.pass(decision, outcome, api, &self.node, now);
    }

    /// Logs problems that are new, or gone, and what of the folders is newly ignored.
    pub(super) fn log_problems(&mut self, problems: &[Problem], ignored: Vec<String>) {
        self.reported.problems(problems);
        self.reported.ignored(ignored);
    }

    /// A pass has ended.
    pub(super) fn passed(&mut self, took: Duration) {
        self.passes.count += 1;
        self.passes.last_micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    }

    /// A pass has ended that had nothing to decide.
    pub(super) fn rested(&mut self, ended: Timestamp, took: Duration) {
        self.passed(took);
        if let Some(metrics) = &self.metrics {
            metrics.rested(ended, took);
        }
    }
}

impl Reporter {
    /// What a plan would change, with the problems of the status.
    pub(in crate::node::agent) fn plan(&self, view: &ReportInputs<'_>) -> PlanReport {
        let mut report = view.plan_report();
        report.problems.extend(self.identity.problem());
        report
    }
}

impl ReportInputs<'_> {
    /// Whether an agent runs, and this is its view.
    fn is_running(&self) -> bool {
        self.state.purpose == Purpose::Work
    }

    /// One line for systemd.
    pub(super) fn status_line(&self) -> String {
        let daemons = &self.last.plan.daemons;
        let live = || daemons.iter().filter(|d| d.record.live().next().is_some());
        let counted = |state: State| daemons.iter().filter(|d| d.summary.state == state).count();
        status_line::line(
            &status_line::StatusLine {
                daemons: live().count(),
                ready: live().filter(|d| d.summary.ready == Some(true)).count(),
                waiting: counted(State::Waiting),
                refused: counted(State::Refused),
                api: self.api.map(|api| api.health().state),
                kept_configuration: !self.state.unusable_configuration.is_empty(),
            },
            self.last.observation.now,
        )
    }

    /// What the last decision changes, and what keeps daemons from running.
    pub(super) fn plan_report(&self) -> PlanReport {
        let (plan, observation) = (&self.last.plan, &self.last.observation);
        let tokens = changes::tokens(plan, observation, self.state.node.uid.as_deref());
        let outcome = &self.last.outcome;
        let failures = outcome.failures.iter().filter(|(key, _)| !outcome.held_up.contains(key)).map(failed);
        let is_other = |held: &HeldDaemon| {
            !outcome.held_up.iter().any(|key| key.namespace == held.namespace && key.name == held.name)
        };
        let others = held(plan, self.is_running()).into_iter().filter(is_other);
        let waiting = tokens.into_iter().chain(changes::pulls(plan, observation)).chain(changes::files(observation));
        PlanReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent_running: self.is_running(),
            changes: changes(plan, outcome).into_iter().chain(waiting).collect(),
            held: others.chain(changes::held_up(plan, outcome)).collect(),
            problems: self.last.problems.iter().cloned().chain(self.api_problems()).chain(failures).collect(),
            notes: observation.folders.notes(),
            left_alone: self.left_alone(),
        }
    }

    /// Why one daemon does or does not run here.
    pub(super) fn explain(&self, key: &ObjectKey) -> ExplainReport {
        let folder = self.last.observation.folders.get(key);
        let from_api = self.state.definitions.get(key).or_else(|| self.state.inputs.daemon_sets.get(key));
        let planned = self.last.plan.daemons.iter().find(|d| d.key == *key);
        let (mut terms, mut status) = (Vec::new(), planned.and_then(|d| self.daemon_status(d)));
        let overlays = planned.and_then(|planned| planned.overlays.clone());
        // What is planned says which of the two counts.
        let counts = planned.and_then(|planned| planned.summary.source.as_ref());
        let of_folder = folder.filter(|_| counts.is_some_and(|source| *source != Source::Api));
        let overlaid = of_folder.or(from_api).or(folder).map(|daemon_set| overlays::with(daemon_set, overlays));
        if let Some(daemon_set) = &overlaid {
            let covered = match (daemon_set.source == Source::Api, folder) {
                (true, folder) => self.state.policy.covers(daemon_set, folder),
                (false, _) => Covered::Yes(daemon_set.mode_label().unwrap_or(Mode::Static)),
            };
            let objects = Objects::today(&self.last.observation, &self.state.inputs, &self.state.policy);
            let namespace = objects.lookup(&namespace_of(daemon_set));
            let admission = self.state.policy.admit(daemon_set, namespace);
            let selector = self.state.policy.node_selector(daemon_set, namespace);
            let rules = explain::ExplainRules {
                covered: &covered,
                admission: &admission,
                namespace_selector: selector.as_ref(),
            };
            terms = explain::explain(daemon_set, &self.state.node, &rules);
            let answer = planned.and_then(|d| d.record.answer.as_ref()).filter(|_| self.config.dry_run_admission);
            terms.extend(answer.map(|answer| explain::answer(answer, &answer.at.to_string())));
            let inherited = folder.map(|folder| folder.mode_label().unwrap_or(Mode::Static));
            let mode = self.state.policy.mode_of(&key.namespace, &daemon_set.labels, inherited);
            if let (None, Covered::No(_), Err(cause)) = (&status, &covered, mode) {
                let notes = annotations::unknown_fields(daemon_set).iter().map(FieldError::with_hint).collect();
                status = Some(DaemonStatus { notes, ..self.left_alone_status(key, cause) });
            }
        }
        let api = self.last.observation.snapshot();
        if folder.is_none() && status.is_none() && api.is_some_and(|api| api.is_mistyped(key)) {
            status = Some(self.left_alone_status(key, LeftAloneCause::UnknownMode));
        }
        let outline = api.and_then(|api| api.outline(key));
        if let (None, Some(labels)) = (from_api.or(folder), outline.map(UnselectedDaemonSet::labels))
            && let Err(cause) = self.state.policy.mode_of(&key.namespace, &labels, None)
            && let Covered::No(reason) = self.state.policy.covers_labels(&key.namespace, &labels, None)
        {
            terms = explain::not_selected(&reason);
            status = Some(self.left_alone_status(key, cause));
        }
        if outline.is_some_and(UnselectedDaemonSet::is_beyond) {
            let reason = format!("its namespace has more than {} DaemonSets for the agents", bounds::KNOWN_DAEMON_SETS);
            terms = explain::not_selected(&reason);
        }
        let is_unseen = status.is_none() && terms.is_empty();
        let selector = Some(self.config.selector.as_str()).filter(|text| is_unseen && !text.is_empty());
        terms.extend(explain::not_seen(selector));
        ExplainReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            agent_running: self.is_running(),
            terms,
            status,
            problems: self.problems_of(key),
        }
    }
}

impl ReportInputs<'_> {
    /// The status of a DaemonSet of the API that the configuration does not select.
    fn left_alone_status(&self, key: &ObjectKey, cause: LeftAloneCause) -> DaemonStatus {
        let hints = vec![self.state.policy.selecting(key, cause)];
        DaemonStatus { hints, ..DaemonStatus::bare(key, Some(Source::Api), State::LeftAlone, cause.as_str()) }
    }
}

pub(super) fn to_json(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_else(|error| json!({"error": error.to_string()}))
}

/// What could not be done for a daemon, as a problem.
fn failed((key, failure): (&ObjectKey, &EffectFailure)) -> Problem {
    Problem { object: key.to_string(), reason: failure.cause.to_string(), hint: failure.hint.clone() }
}

#[cfg(test)]
mod tests;
