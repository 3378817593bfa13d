//! `daemonlet retry`: forgets what failed, and says what happens next.

use serde_json::Value;
use serde_json::json;

use crate::core::model::ObjectKey;
use crate::core::plan::DaemonPlan;
use crate::core::replies::PlannedChange;
use crate::core::replies::RetryReport;
use crate::core::status::SCHEMA_VERSION;
use crate::node::manifests::ManifestDir;

use super::Agent;
use super::now;
use super::report;

impl Agent {
    /// Forgets the daemon's failed revision and its back-offs, on disk first, and wakes the loop.
    pub(super) fn retry(&mut self, key: &ObjectKey) -> Value {
        if self.offline {
            return json!({"error": "the agent does not run: nothing is changed"});
        }
        let Some(mut record) = self.disk.records.get(key).cloned() else {
            return json!({"error": format!("{key} has never run on this node: there is nothing to retry")});
        };
        let retried = record.retry(now());
        if let Err(failure) = self.disk.save(&record) {
            return json!({"error": format!("{key}: {}; nothing is changed", failure.message)});
        }
        let asked = self.admission_dry_runs.forget(key);
        tracing::info!(daemonset = %key, "somebody asked to retry {key}");
        let snapshot = self.snapshot();
        let scan = self.disk.manifests.as_mut().map(ManifestDir::scan);
        let mut changes = Vec::new();
        if let Some(Ok(scan)) = scan {
            let records = self.disk.records.clone();
            let mut plan = self.plan(&records, &scan, snapshot.as_deref());
            plan.daemons.retain(|d| d.key == *key);
            changes = report::changes(&plan);
            let linked = self.unlinked().is_none();
            let next = |d: &&DaemonPlan| d.actions.is_empty() && d.question.is_some() && d.pull.is_none();
            let asks = plan.daemons.iter().filter(next).filter(|_| linked);
            changes.extend(asks.map(|_| PlannedChange {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                action: "ask the API server about its pod".to_owned(),
                reason: String::new(),
            }));
            // Before anything ends for it, its images are looked for.
            let prepared = plan.daemons.iter().filter(|d| d.actions.is_empty() && d.pull.is_some());
            changes.extend(prepared.map(|d| PlannedChange {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                action: "get its images".to_owned(),
                reason: d.summary.reason.clone(),
            }));
        }
        self.wake.notify_one();
        report::to_json(&RetryReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            forgotten: retried.failed,
            backoff: retried.backoff || asked,
            changes,
        })
    }
}
