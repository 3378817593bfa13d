//! The agent's state as samples.
//!
//! Owns the source of each metric's value. The same facts give the same text.

use std::collections::BTreeMap;

use crate::core::model::Source;
use crate::core::policy::PodRules;
use crate::core::status::DaemonStatus;
use crate::core::status::RefusedCount;
use crate::core::status::State;
use crate::core::status::StatusReport;
use crate::core::status::refused_counts;
use crate::core::time::Timestamp;

use super::Exposition;
use super::Id;
use super::PASS_BOUNDS;
use super::label_value;

/// Counters of the running agent.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct AgentCounters {
    /// Passes by [`PASS_BOUNDS`]; the last number counts those above all bounds.
    pub passes: [u64; PASS_BOUNDS.len() + 1],
    /// The total duration of all passes, in seconds.
    pub pass_seconds: f64,
    pub starts: u64,
    pub ends: u64,
    /// Instances updated in place.
    pub refreshes: u64,
    /// Failed changes.
    pub failures: u64,
}

impl AgentCounters {
    /// Counts a pass of so many seconds.
    pub fn passed(&mut self, seconds: f64) {
        let at = PASS_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(PASS_BOUNDS.len());
        self.passes[at] += 1;
        self.pass_seconds += seconds;
    }
}

/// Replacements by the coordinator's decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Approvals {
    /// Approved and not yet claimed.
    pub approved: usize,
    /// Claimed, so under way.
    pub claimed: usize,
    /// Not approved yet.
    pub withheld: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFact {
    /// The scope it covers.
    pub name: String,
    /// Whether it has its first list and works.
    pub up: bool,
    /// Complete lists, of a watch that does not come and go.
    pub lists: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFact {
    /// The service account's namespace.
    pub namespace: String,
    pub name: String,
    /// When it expires; `None`: there is no token.
    pub expires: Option<Timestamp>,
    /// Whether the last request for it failed.
    pub failing: bool,
}

/// What the kernel reports about the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFact {
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open files.
    pub fds: usize,
}

/// Everything that is exposed.
#[derive(Clone, Debug)]
pub struct MetricFacts<'a> {
    /// The last pass's report.
    pub status: &'a StatusReport,
    /// Which namespaces are trusted: of the others only what has a pod is named.
    pub rules: &'a PodRules,
    /// When the agent started.
    pub started: Timestamp,
    /// When the last pass ended.
    pub last_pass: Option<Timestamp>,
    pub counts: &'a AgentCounters,
    /// Instances whose images are being pulled.
    pub pulls: usize,
    /// Whether the API server answers and the agent's own watches work; `None`: no API server is configured.
    pub connected: Option<bool>,
    pub watches: &'a [WatchFact],
    pub tokens: &'a [TokenFact],
    pub approvals: Approvals,
    /// The process, if the kernel reports it.
    pub process: Option<ProcessFact>,
}

/// The text for Prometheus.
pub fn exposition(facts: &MetricFacts<'_>) -> String {
    let mut out = Exposition::of_node(&facts.status.node);
    out.sample(Id::BuildInfo, &[&facts.status.agent.version], 1.0);
    out.value(Id::Passes, facts.counts.passes.iter().sum::<u64>() as f64);
    out.histogram(Id::PassDuration, &PASS_BOUNDS, &facts.counts.passes, facts.counts.pass_seconds);
    if let Some(last) = facts.last_pass {
        out.value(Id::LastPass, last.as_secs_f64());
    }
    daemons(&mut out, facts.status, facts.rules);
    out.value(Id::Starts, facts.counts.starts as f64);
    out.value(Id::Ends, facts.counts.ends as f64);
    out.value(Id::Refreshes, facts.counts.refreshes as f64);
    out.value(Id::ApplyFailures, facts.counts.failures as f64);
    out.value(Id::Problems, facts.status.problems.len() as f64);
    out.value(Id::Pulls, facts.pulls as f64);
    api(&mut out, facts);
    tokens(&mut out, facts.tokens);
    let expires = facts.status.agent.identity.as_ref().and_then(|identity| identity.expires.parse::<Timestamp>().ok());
    if let Some(expires) = expires {
        out.value(Id::CertificateExpiry, expires.as_secs_f64());
    }
    let approvals = facts.approvals;
    for (state, count) in
        [("approved", approvals.approved), ("claimed", approvals.claimed), ("withheld", approvals.withheld)]
    {
        out.sample(Id::Approvals, &[state], count as f64);
    }
    out.value(Id::ProcessStart, facts.started.as_secs_f64());
    out.process(facts.process);
    out.text()
}

impl Exposition {
    /// Adds what the kernel reports about the process, if it does.
    pub(super) fn process(&mut self, process: Option<ProcessFact>) {
        let Some(process) = process else { return };
        self.value(Id::ProcessCpu, process.cpu_seconds);
        self.value(Id::ProcessMemory, process.resident_bytes as f64);
        self.value(Id::ProcessFds, process.fds as f64);
    }
}

fn daemons(out: &mut Exposition, status: &StatusReport, rules: &PodRules) {
    for state in State::ALL.iter().copied() {
        let count = match state {
            // They have no line of their own.
            State::LeftAlone => status.left_alone.iter().map(|group| group.count).sum(),
            _ => status.daemons.iter().filter(|daemon| daemon.state == state).count(),
        };
        out.sample(Id::Daemons, &[&label_value(state.as_str())], count as f64);
    }
    let is_named = |daemon: &&DaemonStatus| {
        !daemon.pod.is_empty() || daemon.source != Some(Source::Api) || rules.trusts(&daemon.namespace)
    };
    for daemon in status.daemons.iter().filter(is_named) {
        let (namespace, name) = (daemon.namespace.as_str(), daemon.name.as_str());
        let state = label_value(daemon.state.as_str());
        out.sample(Id::DaemonState, &[namespace, name, &state, &daemon.revision], 1.0);
        if let Some(ready) = daemon.ready.filter(|_| !daemon.pod.is_empty()) {
            out.sample(Id::DaemonReady, &[namespace, name], f64::from(u8::from(ready)));
        }
        for stale in &daemon.stale_volumes {
            out.sample(Id::VolumeRefreshBlocked, &[namespace, name, &stale.pod, &stale.volume], 1.0);
        }
        if daemon.waits_for_daemons() {
            out.sample(Id::StartOrderWaiting, &[namespace, name], 1.0);
        }
        if daemon.awaits_rollout {
            out.sample(Id::RolloutWaiting, &[namespace, name], 1.0);
        }
        if daemon.keeps_workload_away {
            out.sample(Id::StartupTaintAwaited, &[namespace, name], 1.0);
        }
        if let Some(failed) = &daemon.failed {
            let cause = label_value(failed.cause.as_str());
            out.sample(Id::FailedRevisions, &[namespace, name, &failed.revision, &cause], 1.0);
        }
    }
    let refused = status.daemons.iter().filter(|daemon| daemon.state == State::Refused);
    for RefusedCount { reason, count } in refused_counts(refused.map(|daemon| daemon.refused_field.as_deref())) {
        out.sample(Id::Refusals, &[&reason], count as f64);
    }
}

fn api(out: &mut Exposition, facts: &MetricFacts<'_>) {
    let Some(connected) = facts.connected else { return };
    out.value(Id::ApiConnected, f64::from(u8::from(connected)));
    for watch in facts.watches {
        out.sample(Id::ApiWatchUp, &[&watch.name], f64::from(u8::from(watch.up)));
        if let Some(lists) = watch.lists {
            out.sample(Id::ApiWatchLists, &[&watch.name], lists as f64);
        }
    }
    let used = facts.status.agent.api_use.unwrap_or_default();
    out.value(Id::ApiConnections, used.connections as f64);
    out.value(Id::ApiConnectionsOpened, used.connections_opened as f64);
    out.value(Id::ApiRequests, used.requests as f64);
    out.value(Id::ApiStreams, used.streams as f64);
}

fn tokens(out: &mut Exposition, tokens: &[TokenFact]) {
    let mut accounts: BTreeMap<(&str, &str), (Option<Timestamp>, usize)> = BTreeMap::new();
    for token in tokens {
        let (expires, failing) = accounts.entry((&token.namespace, &token.name)).or_default();
        *expires = expires.iter().chain(&token.expires).min().copied();
        *failing += usize::from(token.failing);
    }
    for ((namespace, name), (expires, failing)) in accounts {
        if let Some(expires) = expires {
            out.sample(Id::TokenExpiry, &[namespace, name], expires.as_secs_f64());
        }
        out.sample(Id::TokenFailures, &[namespace, name], failing as f64);
    }
}
