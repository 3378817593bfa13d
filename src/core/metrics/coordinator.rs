//! The coordinator's state as samples.
//!
//! Owns the source of each metric's value. The same facts give the same text.

use std::collections::BTreeMap;

use crate::core::time::Timestamp;

use super::Exposition;
use super::Id;
use super::ProcessFact;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinatorWatch {
    /// The resource.
    pub name: String,
    /// Whether it has its list and works.
    pub is_up: bool,
    /// When it last delivered an event.
    pub last_event: Option<Timestamp>,
}

/// A condition of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetCondition {
    /// The DaemonSet's namespace.
    pub namespace: String,
    /// The DaemonSet's name.
    pub name: String,
    /// The condition's type.
    pub condition: String,
    /// True, False or Unknown.
    pub status: String,
    pub reason: String,
}

/// Everything that a coordinator exposes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoordinatorFacts {
    pub identity: String,
    /// When the process started.
    pub started: Timestamp,
    /// Since when it holds the Lease.
    pub leads_since: Option<Timestamp>,
    /// Passes since the start.
    pub passes: u64,
    /// When the last one ended.
    pub last_pass: Timestamp,
    /// Its watches; none without the Lease.
    pub watches: Vec<CoordinatorWatch>,
    /// Writes since the start, by their outcome.
    pub writes: BTreeMap<&'static str, u64>,
    /// Nodes, by what is known of their agents.
    pub nodes: BTreeMap<&'static str, usize>,
    /// Its conditions of DaemonSets.
    pub conditions: Vec<DaemonSetCondition>,
    /// When its client certificate ends, if it has one.
    pub certificate_end: Option<Timestamp>,
}

/// The text for Prometheus. `process`: the process, if the kernel reports it.
pub fn coordinator(facts: &CoordinatorFacts, process: Option<ProcessFact>) -> String {
    let mut out = Exposition::default();
    let leads = f64::from(u8::from(facts.leads_since.is_some()));
    out.sample(Id::CoordinatorLeads, &[&facts.identity], leads);
    out.value(Id::CoordinatorPasses, facts.passes as f64);
    out.value(Id::CoordinatorLastPass, facts.last_pass.as_secs_f64());
    for watch in &facts.watches {
        out.sample(Id::CoordinatorWatchUp, &[&watch.name], f64::from(u8::from(watch.is_up)));
        if let Some(last_event) = watch.last_event {
            out.sample(Id::CoordinatorWatchLastEvent, &[&watch.name], last_event.as_secs_f64());
        }
    }
    for (outcome, count) in &facts.writes {
        out.sample(Id::CoordinatorWrites, &[outcome], *count as f64);
    }
    for (agent, count) in &facts.nodes {
        out.sample(Id::CoordinatorNodes, &[agent], *count as f64);
    }
    for DaemonSetCondition { namespace, name, condition, status, reason } in &facts.conditions {
        out.sample(Id::DaemonSetConditions, &[namespace, name, condition, status, reason], 1.0);
    }
    if let Some(end) = facts.certificate_end {
        out.value(Id::CoordinatorCertificateExpiry, end.as_secs_f64());
    }
    out.value(Id::ProcessStart, facts.started.as_secs_f64());
    out.process(process);
    out.text()
}
