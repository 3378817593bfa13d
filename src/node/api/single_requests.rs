//! Single requests to the API server, each answered once.
//!
//! Owns no state. Must not retry: the callers do.

use crate::core::cluster::node_daemons::ClaimWrite;
use crate::core::cluster::node_daemons::Status;
use crate::core::cluster::node_daemons::StatusPatch;
use crate::core::dry_run::DryRunReply;
use crate::core::model::ObjectKey;
use crate::core::node_conditions::ConditionChanges;
use crate::core::time::Timestamp;

use super::Api;
use super::confirm;
use super::confirm::GetResult;
use super::error::ApiFailure;
use super::leases;
use super::node_conditions;
use super::node_daemons;
use super::node_daemons::NotWritten;
use super::node_taint;
use super::node_taint::TaintChange;
use super::own_node::NodeWriteResult;
use super::reports;
use super::reports::PodEvent;

impl Api {
    /// Gets one DaemonSet from the API server now.
    pub async fn get_daemon_set(&self, key: &ObjectKey) -> GetResult {
        confirm::get_daemon_set(&self.shared.client, key).await
    }

    /// Gets one pod from the API server now.
    pub async fn get_pod(&self, key: &ObjectKey) -> GetResult {
        confirm::get_pod(&self.shared.client, key).await
    }

    /// Dry-runs the creation of `pod`; nothing is created.
    pub async fn dry_run_pod(&self, namespace: &str, pod: serde_json::Value) -> DryRunReply {
        confirm::dry_run_pod(&self.shared.client, namespace, pod).await
    }

    /// Gets one Node from the API server now.
    pub async fn get_node(&self, name: &str) -> GetResult {
        confirm::get_unnamespaced(&self.shared.client, ("Node", "nodes"), name).await
    }

    /// Gets one Namespace from the API server now.
    pub async fn get_namespace(&self, name: &str) -> GetResult {
        confirm::get_unnamespaced(&self.shared.client, ("Namespace", "namespaces"), name).await
    }

    /// Events about the pod with that UID, oldest first.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn events_about(&self, namespace: &str, uid: &str) -> Result<Vec<PodEvent>, ApiFailure> {
        reports::about(&self.shared.client, namespace, uid).await
    }

    /// The cluster's events about pods that were preempted, oldest first.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn preemptions(&self) -> Result<Vec<PodEvent>, ApiFailure> {
        reports::preemptions(&self.shared.client).await
    }

    /// Deletes the pod with that name and UID with `grace` seconds; a missing pod is no error.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn delete_pod(&self, key: &ObjectKey, uid: &str, grace: u32) -> Result<(), ApiFailure> {
        confirm::delete_pod(&self.shared.client, key, uid, grace).await
    }

    /// Patches one pod with a JSON merge patch.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn patch_pod(&self, key: &ObjectKey, patch: &serde_json::Value) -> Result<(), ApiFailure> {
        confirm::patch_pod(&self.shared.client, key, patch).await
    }

    /// Creates this node's NodeDaemons, owned by the Node with this UID.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn create_node_daemons(&self, node: &str, uid: &str) -> Result<(), ApiFailure> {
        node_daemons::create(&self.shared.client, node, uid).await
    }

    /// Writes the status of this node's NodeDaemons. What is a `claim` is made once it is read that the Leases of its
    /// approvals are held as they are there, and also on the versions of the object that follow the one that was read.
    /// Gives the status that was written then in place of the one that was asked for.
    ///
    /// # Errors
    /// As [`NotWritten`].
    pub async fn write_status(
        &self,
        node: &str,
        patch: StatusPatch,
        claim: Option<&ClaimWrite>,
    ) -> Result<Option<Status>, NotWritten> {
        node_daemons::write_status(&self.shared.client, node, patch, claim).await
    }

    /// Renews this node's Lease as of `at`, or makes it, owned by its Node of UID `uid`. Gives its version.
    ///
    /// # Errors
    /// The error of the API server or the connection.
    pub async fn renew_lease(
        &self,
        node: &str,
        uid: &str,
        version: Option<String>,
        at: Timestamp,
    ) -> Result<String, ApiFailure> {
        leases::renew(&self.shared.client, node, uid, version, at).await
    }

    /// Sets or takes away the taint of a node that waits for its daemons, on the Node of UID `uid`,
    /// where that is known.
    pub async fn change_taint(&self, node: &str, uid: Option<&str>, change: TaintChange) -> NodeWriteResult {
        let _turn = self.shared.taint.lock().await;
        node_taint::change(&self.shared.client, node, uid, change).await
    }

    /// Writes conditions of the Node of UID `uid`, where that is known.
    pub async fn change_conditions(
        &self,
        node: &str,
        uid: Option<&str>,
        changes: Option<&ConditionChanges>,
        now: Timestamp,
    ) -> NodeWriteResult {
        node_conditions::change(&self.shared.client, node, uid, changes, now).await
    }

    /// UID of the namespace `kube-system`, which identifies the cluster.
    pub async fn cluster_uid(&self) -> Result<String, ApiFailure> {
        confirm::cluster_uid(&self.shared.client).await
    }
}
