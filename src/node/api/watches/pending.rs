//! Watches of pods that the scheduler could not bind: a stock controller's pod for this node may be among
//! them, kept out by the very instance that it is to replace (its host ports).
//!
//! Owns which are open: one for each daemon that bridges, and only while it does. Such a pod names its node
//! in an affinity alone, which no selector of the API finds: every node that bridges sees the pods of all.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::node::api::object;
use crate::node::api::store::Scope;

use super::WatchTask;
use super::Watches;
use super::config;

impl Watches {
    /// Watches the unbound pods of exactly these DaemonSets from now on, by label selector.
    pub(in crate::node::api) fn set_pending(&mut self, wanted: &BTreeMap<ObjectKey, String>) {
        self.pending.retain(|key, task| {
            let keep = wanted.contains_key(key);
            if !keep {
                task.abort();
                self.context.store.close(&Scope::Pending(key.clone()));
            }
            keep
        });
        for (key, selector) in wanted {
            if self.pending.contains_key(key) {
                continue;
            }
            let config = config().fields("spec.nodeName=");
            let task = WatchTask {
                scope: Scope::Pending(key.clone()),
                resource: object::api_resource("", "Pod", "pods"),
                namespace: Some(key.namespace.clone()),
                config: if selector.is_empty() { config } else { config.labels(selector) },
                keep: object::keep_pending,
            };
            self.pending.insert(key.clone(), task.spawn(&self.context));
        }
    }
}
