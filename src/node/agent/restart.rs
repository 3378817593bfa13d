//! `daemonlet restart`: somebody on this node wants a new instance.
//!
//! Owns the answer. Needs no API server: the order is in the record before it is answered.

use serde_json::Value;
use serde_json::json;

use crate::core::model::ObjectKey;
use crate::core::plan::Action;
use crate::core::record::RestartCause;
use crate::core::replies::RestartReport;
use crate::core::status::SCHEMA_VERSION;
use crate::node::manifests::ManifestDir;

use super::Agent;
use super::now;
use super::report::to_json;

impl Agent {
    /// Orders a new incarnation of a daemon; gives what follows, or why nothing does.
    pub(super) fn restart(&mut self, key: &ObjectKey) -> Value {
        let refuse = |why: &str| json!({"error": format!("{key} is not restarted: {why}")});
        if self.offline {
            return refuse("no agent is running here");
        }
        let Some(record) = self.disk.records.get(key) else {
            return refuse("no such daemon has run on this node");
        };
        let mut record = record.clone();
        let live: Vec<(String, bool)> = record.live().map(|i| (i.uid.clone(), i.orphaned)).collect();
        if live.iter().any(|(_, orphaned)| *orphaned) {
            return refuse("its DaemonSet is gone: nothing says what a new instance would be");
        }
        if let (true, Some(ending)) = (live.is_empty(), record.ending().next()) {
            return refuse(&format!("{} is ending already", ending.pod_name));
        }
        if live.is_empty() {
            let known = self.plan.daemons.iter().find(|d| d.key == *key);
            let why = known.map(|d| d.summary.reason.as_str()).filter(|reason| !reason.is_empty());
            return refuse(why.unwrap_or("it does not run on this node"));
        }
        for instance in record.instances.iter_mut().filter(|i| live.iter().any(|(uid, _)| *uid == i.uid)) {
            // Somebody who asks does not wait for a back-off.
            instance.restart = None;
        }
        for (uid, _) in &live {
            record.order_restart(uid, RestartCause::ByHand, now(), "");
        }
        let snapshot = self.snapshot();
        let no_runtime_view = self.pod_status_source.is_none();
        if no_runtime_view && !self.api_is_configured() {
            return refuse(
                "nobody here could tell when its old pod has ended, before which no new one starts: neither \
                 runtime-endpoint nor kubeconfig is set",
            );
        }
        let Some(Ok(scan)) = self.disk.manifests.as_mut().map(ManifestDir::scan) else {
            return refuse(&format!("{} cannot be read", self.config.manifest_dir.display()));
        };
        let mut records = self.disk.records.clone();
        records.insert(key.clone(), record.clone());
        let plan = self.plan(&records, &scan, snapshot.as_deref());
        let Some(plan) = plan.daemons.into_iter().find(|d| d.key == *key) else {
            return refuse("it is not known any more");
        };
        if plan.summary.mode.is_none() {
            return refuse(&plan.summary.reason);
        }
        if let Err(failure) = self.disk.save(&record) {
            return refuse(&failure.message);
        }
        self.wake.notify_one();
        let ends = |action: &Action| match action {
            Action::End { pod, .. } => Some(pod.clone()),
            _ => None,
        };
        let old: Vec<String> = plan.actions.iter().filter_map(ends).collect();
        tracing::info!(daemonset = %key, "somebody asked for a restart of {key}");
        let unsure = (no_runtime_view && !self.api_answers(snapshot.as_deref())).then(|| {
            "runtime-endpoint is not set, and the API server, which would show it, does not answer".to_owned()
        });
        to_json(&RestartReport {
            schema_version: SCHEMA_VERSION,
            node: self.config.node_name.clone(),
            new: plan.pull.as_ref().filter(|_| !old.is_empty()).map(|rendering| rendering.identity.pod_name.clone()),
            reason: plan.summary.reason,
            unsure,
            old,
        })
    }
}
