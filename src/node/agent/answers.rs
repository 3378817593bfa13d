//! Answers to `status`, `plan`, `explain`, `retry`, `approve` and `restart`; which daemons `release` may end says [`super::release`].
//!
//! All of them come from [`super::decide::decide`]: `plan` shows the decision of the very pass that follows it, and
//! `retry` and `restart` differ from that only in the state that they pass. Answers without an agent are
//! [`super::offline`]'s.

mod order;

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;

use crate::config::Config;
use crate::core::model::ObjectKey;
use crate::core::plan::Action;
use crate::core::plan::AwaitedTrigger;
use crate::core::plan::DaemonPlan;
use crate::core::record::DaemonRecord;
use crate::core::record::Fingerprint;
use crate::core::record::RestartCause;
use crate::core::record::Retried;
use crate::core::replies::ApproveReport;
use crate::core::replies::PlannedChange;
use crate::core::replies::ReleaseReport;
use crate::core::replies::RestartReport;
use crate::core::replies::RetryReport;
use crate::core::status::SCHEMA_VERSION;
use crate::core::time::Span;
use crate::node::folders::QUIET_PERIOD;
use crate::node::socket::RequestLine;
use crate::node::socket::SocketOperation;

use super::Agent;
use super::decide::decide;
use super::decision::Decision;
use super::error::AgentError;
use super::observation::Observation;
use super::release;
use super::report::changes;
use super::report::to_json;

use order::OrderFate;
use order::OrderedPass;
use order::carry_out_order;
use order::end_order;
use order::refuse_late;

impl Agent {
    /// What an agent with another configuration would hold: a line for each daemon.
    ///
    /// # Errors
    /// When no agent can start with it.
    pub(super) async fn held_with(config: Config) -> Result<Vec<String>, AgentError> {
        let mut agent = Self::to_answer(config)?;
        let observation = agent.observe().await;
        let decision = decide(&observation, &agent.state, &agent.config, &mut agent.render_cache);
        Ok(release::held(&decision.plan))
    }

    /// The decision of a first pass, without a running event loop.
    pub(super) fn decide_now(&mut self) -> Result<Decision, AgentError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AgentError::Loop)?;
        let observation = runtime.block_on(self.observe());
        let decision = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        self.last.observation = observation;
        Ok(decision)
    }

    pub(super) async fn answer(&mut self, line: &RequestLine) -> Value {
        self.answer_in_time(line).await.unwrap_or_else(|late| late)
    }

    /// The answer; an error for an order that is too old.
    async fn answer_in_time(&mut self, line: &RequestLine) -> Result<Value, Value> {
        refuse_late(line)?;
        Ok(match &line.request {
            SocketOperation::Status => to_json(&self.reporter.status(&self.view())),
            SocketOperation::Plan => self.answer_plan().await,
            SocketOperation::Explain { namespace, name } => {
                to_json(&self.view().explain(&ObjectKey::new(namespace, name)))
            }
            SocketOperation::Retry { namespace, name } => self.retry(&ObjectKey::new(namespace, name), line).await?,
            SocketOperation::Approve { namespace, name, revision } => {
                self.approve(&ObjectKey::new(namespace, name), revision.as_ref(), line).await?
            }
            SocketOperation::Recording => json!({"error": "the loop hands the recording over"}),
            SocketOperation::Release { daemons } => self.release(&daemons.iter().cloned().collect(), line).await?,
            SocketOperation::Restart { namespace, name } => {
                self.read_what_comes_to_rest().await;
                self.restart(&ObjectKey::new(namespace, name), line).await?
            }
        })
    }

    /// What the next pass does, which looks at all volume data; that pass uses the same observation.
    async fn answer_plan(&mut self) -> Value {
        let began = Instant::now();
        self.state.concerns.volume_checks.ask_for_all();
        let observation = self.observe().await;
        let decision = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        self.carry_out(observation, decision, began);
        to_json(&self.reporter.plan(&self.view()))
    }

    /// Forgets the daemon's failed revision and its back-offs, on disk first, and makes a pass.
    async fn retry(&mut self, key: &ObjectKey, line: &RequestLine) -> Result<Value, Value> {
        let record = self.state.records.get(key).cloned();
        if record.is_none() && !self.state.set_aside.knows(key) {
            return Err(json!({"error": format!("{key} has never run on this node: there is nothing to retry")}));
        }
        // Whether its turn to be worked on has come is observed.
        let before = self.state.set_aside.clone();
        let was_set_aside = self.state.set_aside.forget(key);
        self.inputs.costs.forget(key);
        let began = Instant::now();
        let observation = self.observe().await;
        let mut state = self.state.clone();
        self.state.set_aside = before.clone();
        let unordered = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        let mut retried = Retried::default();
        if let Some(mut record) = record {
            retried = record.retry(observation.now);
            state.set_record(record);
        }
        let asked = state.concerns.admission_dry_runs.forget(key);
        tracing::info!(daemonset = %key, "a retry was asked for");
        let decision = decide(&observation, &state, &self.config, &mut self.render_cache);
        let next = decision.daemon(key).map(|daemon| steps(daemon, decision.state.unlinked(&observation).is_none()));
        let pass = OrderedPass { began, observation, unordered, ordered: (state, decision) };
        let records = carry_out_order(self, pass, line)?;
        match end_order(self, key, &records) {
            OrderFate::OnDisk => {}
            OrderFate::NotTaken(why) => {
                self.state.set_aside.restore(key, &before);
                return Err(json!({"error": format!("{key}: {why}; nothing is changed")}));
            }
            fate => return Err(json!({"error": format!("{key}: the retry {}", fate.rest())})),
        }
        Ok(to_json(&RetryReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            forgotten: retried.failed,
            backoff: retried.backoff || asked || was_set_aside,
            changes: next.unwrap_or_default(),
        }))
    }

    /// Lets the revision start that waits for this, on disk first, and makes a pass. `seen`: the one that it must be.
    async fn approve(&mut self, key: &ObjectKey, seen: Option<&String>, line: &RequestLine) -> Result<Value, Value> {
        let refuse = |why: &str| json!({"error": format!("{key} is not approved: {why}")});
        let began = Instant::now();
        let observation = self.observe().await;
        let before = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        let summary = before.daemon(key).map(|daemon| daemon.summary.clone());
        let awaited = summary.as_ref().and_then(|summary| summary.awaits_approve().cloned());
        let awaited = awaited.zip(self.state.records.get(key).cloned());
        let is_seen = |waits: &AwaitedTrigger| seen.is_none_or(|seen| *seen == waits.revision);
        let (awaited, record) = match awaited {
            Some((awaited, record)) if is_seen(&awaited) => (awaited, record),
            other => {
                self.carry_out(observation, before, began);
                return Err(match (other, seen, summary) {
                    (Some((other, _)), Some(seen), _) => {
                        refuse(&format!("not {seen} but revision {} waits for this by now", other.revision))
                    }
                    (_, _, None) => refuse("no such DaemonSet is known here"),
                    (_, _, Some(summary)) if summary.reasons.is_empty() => refuse("no revision waits for this"),
                    (_, _, Some(summary)) => refuse(&summary.reasons.to_string()),
                });
            }
        };
        let mut state = self.state.clone();
        state.set_record(DaemonRecord { by_hand: Some(awaited.revision.clone()), ..record });
        let decision = decide(&observation, &state, &self.config, &mut self.render_cache);
        let linked = decision.state.unlinked(&observation).is_none();
        let next = decision.daemon(key).map(|daemon| (steps(daemon, linked), daemon.summary.reasons.to_string()));
        let pass = OrderedPass { began, observation, unordered: before, ordered: (state, decision) };
        let records = carry_out_order(self, pass, line)?;
        tracing::info!(daemonset = %key, "revision {} was approved by hand", awaited.revision);
        match end_order(self, key, &records) {
            OrderFate::OnDisk => {}
            OrderFate::NotTaken(why) => return Err(refuse(&why.to_string())),
            fate => return Err(json!({"error": format!("{key}: the approval {}", fate.rest())})),
        }
        let (changes, reason) = next.unwrap_or_default();
        Ok(to_json(&ApproveReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            revision: awaited.revision,
            changes,
            reason,
        }))
    }

    /// Releases daemons and makes a pass. `keys`: none names all that may be released.
    async fn release(&mut self, keys: &BTreeSet<ObjectKey>, line: &RequestLine) -> Result<Value, Value> {
        let began = Instant::now();
        let observation = self.observe().await;
        let before = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        let mut selected = release::select(&self.config.node_name, &self.state.records, &before.plan, keys);
        let keys: Vec<ObjectKey> = selected.records.iter().map(|record| record.key.clone()).collect();
        let mut state = self.state.clone();
        for record in selected.records {
            tracing::info!(daemonset = %record.key, "a release was asked for");
            state.set_record(record);
        }
        let decision = decide(&observation, &state, &self.config, &mut self.render_cache);
        let what = |key: &ObjectKey| {
            let changes = decision.daemon(key).into_iter().flat_map(changes::of).map(|change| change.action);
            let changes = changes.collect::<Vec<_>>().join(", ");
            if changes.is_empty() { "nothing of it is left to end".to_owned() } else { changes }
        };
        let changes: Vec<String> = keys.iter().map(what).collect();
        let pass = OrderedPass { began, observation, unordered: before, ordered: (state, decision) };
        let records = carry_out_order(self, pass, line)?;
        self.inputs.forget_vanished(&keys.iter().cloned().collect());
        for (key, changes) in keys.iter().zip(changes) {
            let ReleaseReport { released, refused, .. } = &mut selected.report;
            match end_order(self, key, &records) {
                OrderFate::OnDisk => released.push(release::entry(key, &changes)),
                OrderFate::NotTaken(why) => refused.push(release::entry(key, &why.to_string())),
                fate => released.push(release::entry(key, &format!("this {}", fate.rest()))),
            }
        }
        Ok(to_json(&selected.report))
    }

    /// Orders a new incarnation of a daemon; gives what follows, or why nothing does.
    async fn restart(&mut self, key: &ObjectKey, line: &RequestLine) -> Result<Value, Value> {
        let refuse = |why: &str| json!({"error": format!("{key} is not restarted: {why}")});
        let record = match self.restarted(key) {
            Ok(record) => record,
            Err(why) => return Err(refuse(&why)),
        };
        let can_see_the_end = self.config.runtime_endpoint.is_some() || self.config.kubelet_endpoint.is_some();
        if !can_see_the_end && self.config.kubeconfig.is_none() {
            return Err(refuse(
                "nothing here could tell when its old pod has ended, before which no new one starts: neither \
                 runtime-endpoint nor kubeconfig is set",
            ));
        }
        let began = Instant::now();
        // It shows which component can report that the old pod is gone.
        self.state.asks_runtime = true;
        let observation = self.observe().await;
        let unreadable = observation.manifests.current().is_none();
        let mut state = self.state.clone();
        let mut ordered = record;
        order(&mut ordered, observation.now);
        state.set_record(ordered);
        let unordered = decide(&observation, &self.state, &self.config, &mut self.render_cache);
        let decision = decide(&observation, &state, &self.config, &mut self.render_cache);
        let refusal = match decision.daemon(key) {
            _ if unreadable => Some(format!("{} cannot be read", self.config.manifest_dir.display())),
            None => Some("it is not known any more".to_owned()),
            Some(daemon) if daemon.summary.mode.is_none() => Some(daemon.summary.reasons.to_string()),
            Some(_) => None,
        };
        if let Some(why) = refusal {
            self.carry_out(observation, unordered, began);
            return Err(refuse(&why));
        }
        tracing::info!(daemonset = %key, "a restart was asked for");
        let unsure = (!can_see_the_end && !observation.api_answers()).then(|| {
            "runtime-endpoint is not set, and the API server, which would show it, does not answer".to_owned()
        });
        let report = decision.daemon(key).map(|daemon| {
            let ends = |action: &Action| match action {
                Action::End { pod, .. } => Some(pod.clone()),
                _ => None,
            };
            let old: Vec<String> = daemon.actions.iter().filter_map(ends).collect();
            let new = daemon.pull.as_ref().filter(|_| !old.is_empty());
            RestartReport {
                schema_version: SCHEMA_VERSION,
                node: self.config.node_name.clone(),
                new: new.map(|rendering| rendering.identity.pod_name.clone()),
                reason: daemon.summary.reasons.to_string(),
                unsure,
                old,
            }
        });
        let pass = OrderedPass { began, observation, unordered, ordered: (state, decision) };
        let records = carry_out_order(self, pass, line)?;
        match (end_order(self, key, &records), report) {
            (OrderFate::NotTaken(why), _) => Err(refuse(&why.to_string())),
            (OrderFate::OnDisk, Some(report)) => Ok(to_json(&report)),
            (OrderFate::OnDisk, None) => Err(refuse("it is not known any more")),
            (fate, _) => Err(json!({"error": format!("{key}: the restart {}", fate.rest())})),
        }
    }

    /// A file that was just written is read first: what starts anew has what it says.
    async fn read_what_comes_to_rest(&mut self) {
        self.inputs.reread_folders();
        self.pass().await;
        let Observation { folders, now, .. } = &self.last.observation;
        if let Some(at) = folders.again_at.filter(|_| folders.view.is_held) {
            tokio::time::sleep((at - *now).clamp(Span::ZERO, QUIET_PERIOD.into()).to_duration()).await;
            self.pass().await;
        }
    }

    /// The record of a daemon that can be restarted.
    fn restarted(&self, key: &ObjectKey) -> Result<crate::core::record::DaemonRecord, String> {
        let Some(record) = self.state.records.get(key) else {
            return Err("no such daemon has run on this node".to_owned());
        };
        if record.live().any(|instance| instance.orphaned) {
            return Err("its DaemonSet is gone: there is no definition for a new instance".to_owned());
        }
        match (record.live().next(), record.ending().next()) {
            (Some(_), _) => Ok(record.clone()),
            (None, Some(ending)) => Err(format!("{} is ending already", ending.pod_name)),
            (None, None) => {
                let known = self.last.plan.daemons.iter().find(|d| d.key == *key);
                let why = known.map(|d| &d.summary.reasons).filter(|reasons| !reasons.is_empty());
                Err(why.map_or_else(|| "it does not run on this node".to_owned(), ToString::to_string))
            }
        }
    }
}

/// Orders a new instance in the place of each living one, and ends their back-offs.
fn order(record: &mut crate::core::record::DaemonRecord, now: crate::core::time::Timestamp) {
    let live: Vec<String> = record.live().map(|instance| instance.uid.clone()).collect();
    for instance in record.instances.iter_mut().filter(|i| live.contains(&i.uid)) {
        instance.restart = None;
    }
    for uid in &live {
        record.order_restart(uid, RestartCause::ByHand, now, &Fingerprint::Unknown);
    }
}

/// What a pass does for a daemon, and what it requests first.
fn steps(daemon: &DaemonPlan, linked: bool) -> Vec<PlannedChange> {
    let change = |action: &str, reason: &str| PlannedChange {
        namespace: daemon.key.namespace.clone(),
        name: daemon.key.name.clone(),
        action: action.to_owned(),
        reason: reason.to_owned(),
    };
    let mut steps: Vec<PlannedChange> = changes::of(daemon).collect();
    if daemon.actions.is_empty() && daemon.question.is_some() && daemon.pull.is_none() && linked {
        steps.push(change("ask the API server about its pod", ""));
    }
    // Before anything ends for it, its images are looked for.
    if daemon.actions.is_empty() && daemon.pull.is_some() {
        steps.push(change("get its images", &daemon.summary.reasons.to_string()));
    }
    steps
}

#[cfg(test)]
mod tests;
