//! The status of the node and of its daemons, and what is wrong with them.
//!
//! Owns the way from a plan to the answer of `status`. Must not change anything.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::core::annotations;
use crate::core::model::FieldError;
use crate::core::model::ObjectKey;
use crate::core::model::Source;
use crate::core::plan::DaemonPlan;
use crate::core::status::AgentStatus;
use crate::core::status::ApiLink;
use crate::core::status::ApiUse;
use crate::core::status::DaemonStatus;
use crate::core::status::FailedStatus;
use crate::core::status::LEFT_ALONE_NAMED;
use crate::core::status::LeftAlone;
use crate::core::status::LeftAloneCause;
use crate::core::status::Problem;
use crate::core::status::PullStatus;
use crate::core::status::SCHEMA_VERSION;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::core::status::TokenStatus;
use crate::core::status::TokensStatus;
use crate::core::status::refused_counts;
use crate::core::time::Span;
use crate::core::time::Timestamp;
use crate::node::api::ConnectionCounters;
use crate::node::api::LinkHealth;
use crate::node::api::Scope;
use crate::node::api::Snapshot;
use crate::node::images::PullProgress;

use super::ReportInputs;
use super::Reporter;
use super::changes;

impl Reporter {
    /// The whole status.
    pub(in crate::node::agent) fn status(&self, view: &ReportInputs<'_>) -> StatusReport {
        let (api, since) = view.api_link();
        let mut problems = view.last.problems.clone();
        problems.extend(view.api_problems());
        problems.extend(self.identity.problem());
        let daemons: Vec<_> = view.last.plan.daemons.iter().filter_map(|d| view.daemon_status(d)).collect();
        let refused = daemons.iter().filter(|daemon| daemon.state == State::Refused);
        StatusReport {
            refused: refused_counts(refused.map(|daemon| daemon.refused_field.as_deref())),
            schema_version: SCHEMA_VERSION,
            node: view.config.node_name.clone(),
            kubelet_version: view.state.node.kubelet_version.clone(),
            agent: AgentStatus {
                running: view.is_running(),
                since: view.is_running().then(|| view.state.started.to_string()),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                api,
                api_since: since,
                api_use: view.api.map(|api| api_use(api.connector().counters())),
                passes: self.passes,
                tokens: Some(view.tokens()),
                identity: self.identity.status(),
            },
            daemons,
            problems,
            notes: view.last.observation.folders.notes(),
            left_alone: view.left_alone(),
        }
    }
}

impl ReportInputs<'_> {
    pub(super) fn daemon_status(&self, plan: &DaemonPlan) -> Option<DaemonStatus> {
        let summary = &plan.summary;
        if !is_shown(plan) {
            return None;
        }
        if !self.is_running() && changes::of(plan).next().is_some() {
            return Some(self.undone(plan));
        }
        let failure = self.last.outcome.failures.get(&plan.key);
        let reason = failure.map_or_else(|| summary.reasons.to_string(), |f| f.cause.to_string());
        let mut notes: Vec<String> = summary.notes.iter().map(ToString::to_string).collect();
        let unknown = self.unknown_fields(plan);
        notes.extend(unknown.iter().map(FieldError::with_hint));
        notes.extend(self.state.concerns.preempted.note(&plan.key));
        Some(DaemonStatus {
            namespace: plan.key.namespace.clone(),
            name: plan.key.name.clone(),
            source: summary.source.clone(),
            mode: summary.mode,
            revision: summary.revision.clone(),
            pod: summary.pod.clone(),
            uid: summary.uid.clone(),
            state: if failure.is_some() { State::Failing } else { summary.state },
            ready: summary.ready,
            since: summary.since.filter(|since| *since > Timestamp::default()).map(|since| since.to_string()),
            reason,
            failed: summary.failed.as_ref().map(|failed| FailedStatus {
                revision: failed.revision.clone(),
                cause: failed.failure.cause,
                message: failed.failure.message.clone(),
                since: failed.at.to_string(),
            }),
            pull: self.pull_status(plan),
            replacing: plan.replacing.clone(),
            waiting_for: summary.waiting_for.clone(),
            stale_volumes: summary.stale.clone(),
            waiting_containers: summary.waiting_containers.clone(),
            keeps_workload_away: summary.keeps_workload_away,
            awaits_rollout: summary.awaits_approval || summary.awaits_rollout,
            awaits_approve: summary.awaits_approve().map(|awaited| awaited.revision.clone()),
            notes,
            releasable: summary.releasable,
            refused_field: summary.refused_field.clone(),
            hints: summary.hint_lines().into_iter().chain(failure.and_then(|f| f.hint.clone())).collect(),
        })
    }

    /// The DaemonSets of the API of which nothing is here because the configuration does not select them, by cause: also
    /// those that it would select if their mode were one.
    pub(super) fn left_alone(&self) -> Vec<LeftAlone> {
        let shown: BTreeSet<&ObjectKey> =
            self.last.plan.daemons.iter().filter(|plan| is_shown(plan)).map(|plan| &plan.key).collect();
        let mut groups: BTreeMap<LeftAloneCause, LeftAlone> = BTreeMap::new();
        let api = self.last.observation.snapshot();
        let mistyped = api.into_iter().flat_map(Snapshot::mistyped).map(|key| (key, LeftAloneCause::UnknownMode));
        let outlines = api.into_iter().flat_map(Snapshot::outlines);
        let outlines = outlines.filter_map(|(key, outline)| {
            Some((key, self.state.policy.mode_of(&key.namespace, &outline.labels(), None).err()?))
        });
        for (key, cause) in mistyped.chain(outlines) {
            if shown.contains(key) || self.last.observation.folders.get(key).is_some() {
                continue;
            }
            let group = groups.entry(cause).or_insert_with(|| LeftAlone {
                cause,
                count: 0,
                daemon_sets: Vec::new(),
                hint: self.state.policy.selecting(key, cause),
            });
            group.count += 1;
            if group.daemon_sets.len() < LEFT_ALONE_NAMED {
                group.daemon_sets.push(key.to_string());
            }
        }
        groups.into_values().collect()
    }

    /// The image that is being pulled for the next instance of a daemon.
    fn pull_status(&self, daemon: &DaemonPlan) -> Option<PullStatus> {
        let uid = &daemon.pull.as_ref()?.identity.uid;
        match self.last.observation.pulls.progress.get(uid)? {
            (PullProgress::Pulling { image, number, count, since, .. }, _) => {
                let (image, since) = (image.clone(), since.to_string());
                Some(PullStatus { image, number: *number, count: *count, since })
            }
            _ => None,
        }
    }

    /// The status of a daemon for which an agent, if one ran, would have something to do: what is, not what
    /// would be.
    fn undone(&self, plan: &DaemonPlan) -> DaemonStatus {
        let summary = &plan.summary;
        let there = self.state.records.get(&plan.key).and_then(|record| record.live().next());
        let changes = changes::of(plan).map(|change| format!("{} ({})", change.action, change.reason));
        let changes = changes.collect::<Vec<_>>().join(", ");
        let stale: String = summary.stale.iter().map(|stale| format!("; {stale}")).collect();
        let unknown = self.unknown_fields(plan);
        let state = if there.is_some() { State::Unknown } else { State::Waiting };
        let reason = format!("agent not running; it would {changes}{stale}");
        DaemonStatus {
            mode: summary.mode,
            revision: there.map_or_else(|| summary.revision.clone(), |instance| instance.revision.clone()),
            pod: there.map(|instance| instance.pod_name.clone()).unwrap_or_default(),
            uid: there.map(|instance| instance.uid.clone()).unwrap_or_default(),
            since: there.map(|instance| instance.created.to_string()),
            releasable: summary.releasable,
            hints: summary.hint_lines(),
            stale_volumes: summary.stale.clone(),
            notes: summary
                .notes
                .iter()
                .map(ToString::to_string)
                .chain(unknown.iter().map(FieldError::with_hint))
                .collect(),
            ..DaemonStatus::bare(&plan.key, summary.source.clone(), state, &reason)
        }
    }

    /// The unknown fields of the definition of a daemon that is in force, and what is not understood on the files' objects
    /// that it uses.
    fn unknown_fields(&self, plan: &DaemonPlan) -> Vec<FieldError> {
        let key = &plan.key;
        let of_file = matches!(plan.summary.source, Some(Source::File { .. }));
        let daemon_set = match of_file {
            true => self.last.observation.folders.get(key),
            false => self.state.definitions.get(key).or_else(|| self.state.inputs.daemon_sets.get(key)),
        };
        let mut unknown = daemon_set.map(|daemon_set| annotations::unknown_fields(daemon_set)).unwrap_or_default();
        if of_file {
            unknown.extend(self.last.observation.folders.unknown_fields_of(key));
        }
        unknown.extend(self.last.observation.folders.mistakes_on(&plan.references));
        unknown
    }

    fn tokens(&self) -> TokensStatus {
        let held = self.last.observation.tokens.issued.iter().map(|token| TokenStatus {
            namespace: token.request.service_account.namespace.clone(),
            service_account: token.request.service_account.name.clone(),
            audience: token.request.audience.clone(),
            expiration_seconds: token.request.expiration_seconds,
            expires: token.expires.to_string(),
        });
        let life = Span::from(self.config.default_token_expiration);
        TokensStatus { default_expiration_seconds: life.as_secs(), held: held.collect() }
    }

    /// The connection to the API server, and since when it fails.
    fn api_link(&self) -> (ApiLink, Option<String>) {
        let Some(api) = self.api else {
            let is_configured = self.config.kubeconfig.is_some();
            return (if is_configured { ApiLink::NotAsked } else { ApiLink::NotConfigured }, None);
        };
        match api.health().state {
            LinkHealth::Connecting => (ApiLink::Connecting, None),
            LinkHealth::Ok => (ApiLink::Connected, None),
            LinkHealth::Failing { error, since } => (ApiLink::Failing(error), Some(since.to_string())),
        }
    }

    pub(super) fn api_problems(&self) -> Vec<Problem> {
        let Some(api) = self.api else { return Vec::new() };
        let health = api.health();
        let problem = |object: String, reason: String| Problem { object, reason, hint: None };
        let kubeconfig = health.kubeconfig_error.map(|reason| Problem {
            object: "API".to_owned(),
            reason,
            hint: Some("correct it: the agent reads it again by itself".to_owned()),
        });
        let snapshot = api.store().snapshot();
        let refused = snapshot.refused();
        let is_named = |object: &_| self.last.plan.daemons.iter().any(|plan| plan.references.contains(object));
        // A refused object that a daemon names is reported with the daemon.
        let is_with_daemon =
            |scope: &Scope| matches!(scope, Scope::Object(o) if refused.contains_key(o) && is_named(o));
        let scopes = health.scopes.into_iter().filter(|health| !is_with_daemon(&health.scope));
        let scopes = scopes.filter_map(|s| Some(problem(format!("API: {}", s.scope), s.error?)));
        let tokens = self.last.observation.tokens.refused.iter().map(|(request, why)| {
            problem(format!("token of ServiceAccount {}", request.service_account), why.to_string())
        });
        kubeconfig.into_iter().chain(scopes).chain(tokens).collect()
    }

    /// What is wrong with the definitions of a daemon.
    pub(super) fn problems_of(&self, key: &ObjectKey) -> Vec<Problem> {
        let of_api = self.state.definitions.refused(key).map(|why| Problem {
            object: "API".to_owned(),
            reason: format!("DaemonSet {key}: {why}"),
            hint: None,
        });
        match of_api {
            // It has a name there: no document without one hides it.
            Some(problem) if self.last.observation.folders.get(key).is_none() => vec![problem],
            problem => problem.into_iter().chain(self.last.observation.folders.problems_of(key)).collect(),
        }
    }
}

/// Whether `status` has a line for a daemon: something of it is here, or is to be.
fn is_shown(plan: &DaemonPlan) -> bool {
    !(plan.record.instances.is_empty() && plan.summary.state.is_idle() && plan.summary.source.is_none())
}

fn api_use(counters: ConnectionCounters) -> ApiUse {
    ApiUse {
        connections_opened: counters.connections_opened,
        connections: counters.connections,
        requests: counters.requests,
        streams: counters.streams,
    }
}
