//! Watches of unschedulable pods: among them may be a DaemonSet controller's pod for this node that the instance it should
//! replace keeps out (by its host ports).
//!
//! Owns which watches are open: one for each `bootstrap` daemon that runs. Such a pod names its node only in an
//! affinity, which no selector of the API can match, so every such node reads the pods of all nodes, and keeps its own.

use std::collections::BTreeMap;

use crate::core::model::ObjectKey;
use crate::node::api::object;
use crate::node::api::store::Scope;

use super::PODS_PAGE;
use super::WatchTask;
use super::Watches;
use super::config;

impl Watches {
    /// Watches the unschedulable pods of exactly these DaemonSets from now on, by label selector.
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
            let config = config().fields("spec.nodeName=").page_size(PODS_PAGE);
            let (daemon, node) = (key.clone(), self.node.clone());
            let task = WatchTask {
                scope: Scope::Pending(key.clone()),
                resource: object::api_resource("", "Pod", "pods"),
                namespace: Some(key.namespace.clone()),
                config: if selector.is_empty() { config } else { config.labels(selector) },
                keep: Box::new(move |pod| object::pending::keep_pending(&pod, &daemon, &node)),
            };
            self.pending.insert(key.clone(), task.spawn(&self.context));
        }
    }
}
