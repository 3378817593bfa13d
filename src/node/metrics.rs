//! Metrics and health of the agent, for Prometheus and for a supervisor that restarts a hanging process.
//!
//! Owns what the loop records after each pass, and gathers the rest on request. The loop never waits for a reader: a
//! thread of its own serves, and reports a hanging loop, too.

pub mod process;
pub mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use crate::config::Listen;
use crate::core::metrics;
use crate::core::metrics::AgentCounters;
use crate::core::metrics::Approvals;
use crate::core::metrics::MetricFacts;
use crate::core::metrics::TokenFact;
use crate::core::metrics::WatchFact;
use crate::core::policy::PodRules;
use crate::core::status::StatusReport;
use crate::core::time::Timestamp;
use crate::node::api::Api;
use crate::node::api::LinkHealth;
use crate::node::api::Scope;
use crate::node::api::ScopeHealth;
use crate::node::api::Tokens;

/// There is a pass at least every minute; one that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// What one pass records.
pub struct Pass {
    pub status: StatusReport,
    /// The rules for pods that were in force.
    pub rules: PodRules,
    /// When it ended.
    pub ended: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// Manifests written for new instances, removed, and updated; failed changes.
    pub changes: [u64; 4],
    /// Instances whose images are being pulled.
    pub pulls: usize,
    /// Replacements.
    pub approvals: Approvals,
    /// The API server, if there is one.
    pub api: Option<Api>,
    pub tokens: Tokens,
}

/// The data between passes; clones share it.
#[derive(Clone)]
pub struct MetricsRecorder {
    started: Timestamp,
    since: Instant,
    inner: Arc<Mutex<Recorded>>,
}

#[derive(Default)]
struct Recorded {
    counts: AgentCounters,
    last: Option<(Pass, Instant)>,
    complaint: Option<String>,
}

/// Whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it does.
    pub works: bool,
    pub words: String,
}

impl MetricsRecorder {
    /// Serves at `listen` for as long as the process lives.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn serve(listen: Listen, started: Timestamp) -> std::io::Result<Self> {
        let recorder = Self::unserved(started);
        server::start(listen, Arc::new(recorder.clone()))?;
        Ok(recorder)
    }

    /// Without a server: the holder of a clone asks it.
    pub fn unserved(started: Timestamp) -> Self {
        Self { started, since: Instant::now(), inner: Arc::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Recorded) -> T) -> T {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn record(&self, pass: Pass) {
        self.with(|recorded| {
            let [starts, ends, refreshes, failures] = pass.changes;
            let counts = &mut recorded.counts;
            counts.passed(pass.took.as_secs_f64());
            counts.starts += starts;
            counts.ends += ends;
            counts.refreshes += refreshes;
            counts.failures += failures;
            recorded.last = Some((pass, Instant::now()));
        });
    }

    /// Records a pass that had nothing to decide: the other metrics stay.
    pub fn rested(&self, ended: Timestamp, took: Duration) {
        self.with(|recorded| {
            recorded.counts.passed(took.as_secs_f64());
            if let Some((pass, at)) = &mut recorded.last {
                (pass.ended, pass.took, *at) = (ended, took, Instant::now());
            }
        });
    }

    /// Why nothing is served, if so.
    pub fn complaint(&self) -> Option<String> {
        self.with(|recorded| recorded.complaint.clone())
    }
}

impl server::Exposed for MetricsRecorder {
    fn complain(&self, complaint: Option<String>) {
        self.with(|recorded| recorded.complaint = complaint);
    }

    fn health(&self) -> Health {
        let last = self.with(|recorded| recorded.last.as_ref().map(|(_, ended)| *ended));
        let age = last.unwrap_or(self.since).elapsed();
        let seconds = age.as_secs();
        let words = match last {
            Some(_) => format!("the last pass ended {seconds} s ago"),
            None => format!("no pass has ended yet, {seconds} s after the start"),
        };
        Health { works: last.is_some() && age <= HANGS_AFTER, words }
    }

    fn exposition(&self) -> Option<String> {
        let process = process::fact();
        self.with(|recorded| {
            let (pass, _) = recorded.last.as_ref()?;
            let health = pass.api.as_ref().map(Api::health);
            let watches = watches(health.iter().flat_map(|health| &health.scopes));
            Some(metrics::exposition(&MetricFacts {
                status: &pass.status,
                rules: &pass.rules,
                started: self.started,
                last_pass: Some(pass.ended),
                counts: &recorded.counts,
                pulls: pass.pulls,
                connected: health.map(|health| health.state == LinkHealth::Ok),
                watches: &watches,
                tokens: &tokens(&pass.tokens),
                approvals: pass.approvals,
                process,
            }))
        })
    }
}

/// The watches. Those of what daemons name are one a kind: as many series as tenants want would be no metric.
fn watches<'a>(scopes: impl Iterator<Item = &'a ScopeHealth>) -> Vec<WatchFact> {
    let mut facts: BTreeMap<String, WatchFact> = BTreeMap::new();
    for scope in scopes {
        let name = match &scope.scope {
            Scope::Object(object) => object.kind.to_string(),
            Scope::Pending(_) => "unbound pods".to_owned(),
            of_agent => of_agent.to_string(),
        };
        let lists = scope.scope.is_of_agent().then_some(scope.lists);
        let fact = facts.entry(name.clone()).or_insert(WatchFact { name, up: true, lists });
        fact.up &= scope.error.is_none() && scope.lists > 0;
    }
    facts.into_values().collect()
}

fn tokens(tokens: &Tokens) -> Vec<TokenFact> {
    let mut facts: BTreeMap<_, TokenFact> = BTreeMap::new();
    let mut put = |request: &crate::core::model::TokenRequest, expires: Option<Timestamp>, failing: bool| {
        let account = &request.service_account;
        let fact = facts.entry(request.clone()).or_insert_with(|| TokenFact {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
            expires: None,
            failing: false,
        });
        fact.expires = fact.expires.or(expires);
        fact.failing |= failing;
    };
    tokens.expiries().iter().for_each(|(request, expires)| put(request, Some(*expires), false));
    tokens.problems().keys().for_each(|request| put(request, None, true));
    facts.into_values().collect()
}

#[cfg(test)]
mod tests;
