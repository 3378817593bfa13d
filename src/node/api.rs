//! The API server: one HTTP/2 connection, a store of what it said, and requests of our own.
//!
//! Owns everything that speaks to it. Must not decide: it tells what is known and how well, and an
//! error never turns into an absence. Nothing here blocks the agent's loop; every request is bounded
//! in time.

mod backoff;
mod body;
mod confirm;
mod connector;
mod dial;
mod error;
mod events;
#[cfg(any(fuzzing, debug_assertions))]
pub mod fuzzing;
mod health;
pub(in crate::node) mod kubeconfig;
mod object;
mod reports;
mod store;
mod tls;
mod tokens;
mod watches;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::core::dry_run::DryRunReply;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::render::Endpoint;

pub(in crate::node) use backoff::random;
pub use confirm::GetResult;
pub use connector::ConnectionCounters;
pub use connector::Connector;
pub use connector::Link;
pub use error::ApiFailure;
pub use error::FailureKind;
pub use error::words;
pub use events::AgentEvent;
pub use events::EventKind;
pub use events::Events;
pub use health::ApiHealth;
pub use health::LinkHealth;
pub use health::ScopeHealth;
pub use kubeconfig::FileError;
pub use kubeconfig::KubeconfigError;
pub use kubeconfig::endpoint;
#[cfg(test)]
pub(crate) use kubeconfig::parse as parse_kubeconfig;
pub(crate) use kubeconfig::read as read_kubeconfig;
pub use reports::PodEvent;
pub use store::Converted;
pub use store::Definition;
pub use store::Entry;
pub use store::EtcdRollback;
pub use store::EtcdRollbackDetection;
pub use store::Presence;
pub use store::Scope;
pub use store::ScopeState;
pub use store::Sighting;
pub use store::Snapshot;
pub use store::Store;
pub use store::convert;
pub use tokens::IssuedToken;
pub use tokens::TokenSnapshot;
pub use tokens::Tokens;

use watches::EtcdRollbackProbe;
use watches::WatchContext;
use watches::Watches;

/// TLS that takes every certificate: for asking whether anybody answers, and nothing else.
///
/// # Errors
/// The TLS library's.
pub(crate) fn tls_that_trusts_anybody() -> Result<rustls::ClientConfig, tls::TlsError> {
    tls::client_config(&tls::TlsInput { insecure: true, ..Default::default() })
}

/// A client for one command of a person, by a kubeconfig that was read already. Needs a running tokio runtime.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn client_of(kubeconfig: kube::config::Kubeconfig) -> Result<kube::Client, KubeconfigError> {
    Ok(Connector::of(kubeconfig::ApiCredentials::of(kubeconfig)?).client())
}

/// What is watched, and as whom.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The kubeconfig. It may be missing or bad at the start; it is read again.
    pub kubeconfig: PathBuf,
    /// The own node's name.
    pub node_name: String,
    /// Label selector for DaemonSets; `None`: all of them.
    pub selector: Option<String>,
    /// What is remembered of an earlier time. A list of it never comes from the API server's cache: what that has may
    /// be older.
    pub known: BTreeSet<ObjectRef>,
    /// Whether a Namespace without a node selector of its own has one all the same, so that what it lacks can end what
    /// runs (`policy.default-node-selector`): then no list of it comes from the API server's cache.
    pub namespaces_bind: bool,
}

/// The API server as the agent sees it; clones share everything. The tasks end with the last clone.
#[derive(Clone)]
pub struct Api {
    shared: Arc<SharedApi>,
}

struct SharedApi {
    connector: Connector,
    client: kube::Client,
    store: Store,
    watches: Mutex<Watches>,
    tokens: Tokens,
    events: Events,
    tasks: [AbortHandle; 4],
}

impl Drop for SharedApi {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Api {
    /// Starts connecting and watching. Never fails and never waits; trouble shows in
    /// [`Api::health`]. Needs a running tokio runtime.
    pub fn start(options: ApiOptions) -> Self {
        let connector = Connector::new(options.kubeconfig);
        let client = connector.client();
        let store = Store::default();
        let tokens = Tokens::default();
        let events = Events::new(&options.node_name);
        let node = options.node_name;
        let (etcd_rollback, look) = EtcdRollbackProbe::new(connector.clone());
        let tasks = [
            tokio::spawn(look).abort_handle(),
            tokio::spawn(connector.clone().keep()).abort_handle(),
            tokio::spawn(tokens.clone().keep(client.clone(), store.clone(), connector.link(), node.clone()))
                .abort_handle(),
            tokio::spawn(events.clone().keep(client.clone(), connector.link())).abort_handle(),
        ];
        let context = WatchContext {
            client: client.clone(),
            store: store.clone(),
            link: connector.link(),
            etcd_rollback,
            known: options.known,
            namespaces_bind: options.namespaces_bind,
        };
        let watches = Mutex::new(Watches::start(context, &node, options.selector));
        Self { shared: Arc::new(SharedApi { connector, client, store, watches, tokens, events, tasks }) }
    }

    /// What is known: [`Store::snapshot`] for a pass, [`Store::changed`] to be woken.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The client, for other requests to the same server.
    pub fn client(&self) -> &kube::Client {
        &self.shared.client
    }

    /// The connections: counters and the link's state.
    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// The server that the kubeconfig names, once it was read: the default of `api-endpoint`.
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.shared.connector.endpoint()
    }

    fn with_watches<T>(&self, f: impl FnOnce(&mut Watches) -> T) -> T {
        f(&mut self.shared.watches.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Watches exactly the objects that daemons name.
    pub fn set_wanted(&self, wanted: &BTreeSet<ObjectRef>) {
        self.with_watches(|watches| watches.set_wanted(wanted));
    }

    /// Watches the pods of exactly these DaemonSets that the scheduler could not bind, by label selector.
    pub fn set_pending(&self, wanted: &BTreeMap<ObjectKey, String>) {
        self.with_watches(|watches| watches.set_pending(wanted));
    }

    /// Service-account tokens: [`Tokens::set_wanted`] for what daemons need, [`Tokens::import`] once at
    /// the start. A new token wakes [`Store::changed`].
    pub fn tokens(&self) -> &Tokens {
        &self.shared.tokens
    }

    /// Events on DaemonSets.
    pub fn events(&self) -> &Events {
        &self.shared.events
    }

    /// Sends the events that wait, for up to `bound`: what is not sent then goes with the agent.
    pub async fn flush_events(&self, bound: Duration) {
        if *self.shared.connector.link().borrow() == Link::Up {
            self.shared.events.flush(bound).await;
        }
    }

    /// Lists the DaemonSets anew over a new connection (R8). That list is complete once
    /// [`Snapshot::lists`] of [`Scope::DaemonSets`] is greater than the returned number.
    pub fn relist_fresh(&self) -> u64 {
        self.with_watches(|watches| {
            self.shared.connector.retire();
            watches.relist();
            self.shared.store.lists(&Scope::DaemonSets)
        })
    }

    /// Asks the API server for one DaemonSet, now.
    pub async fn get_daemon_set(&self, key: &ObjectKey) -> GetResult {
        confirm::get_daemon_set(&self.shared.client, key).await
    }

    /// Asks the API server for one pod, now.
    pub async fn get_pod(&self, key: &ObjectKey) -> GetResult {
        confirm::get_pod(&self.shared.client, key).await
    }

    /// Has the API server judge the creation of `pod` as a dry run: it creates nothing.
    pub async fn dry_run_pod(&self, namespace: &str, pod: serde_json::Value) -> DryRunReply {
        confirm::dry_run_pod(&self.shared.client, namespace, pod).await
    }

    /// Asks the API server for one Node, now.
    pub async fn get_node(&self, name: &str) -> GetResult {
        confirm::get_unnamespaced(&self.shared.client, ("Node", "nodes"), name).await
    }

    /// Asks the API server for one Namespace, now.
    pub async fn get_namespace(&self, name: &str) -> GetResult {
        confirm::get_unnamespaced(&self.shared.client, ("Namespace", "namespaces"), name).await
    }

    /// Events about the pod of that UID, oldest first.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn events_about(&self, namespace: &str, uid: &str) -> Result<Vec<PodEvent>, ApiFailure> {
        reports::about(&self.shared.client, namespace, uid).await
    }

    /// Events of the cluster that say that a pod was ended to make room, oldest first.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn preemptions(&self) -> Result<Vec<PodEvent>, ApiFailure> {
        reports::preemptions(&self.shared.client).await
    }

    /// Deletes the pod of that name and UID with `grace` seconds; one that has gone is no error.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn delete_pod(&self, key: &ObjectKey, uid: &str, grace: u32) -> Result<(), ApiFailure> {
        confirm::delete_pod(&self.shared.client, key, uid, grace).await
    }

    /// Patches one pod by JSON merge.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn patch_pod(&self, key: &ObjectKey, patch: &serde_json::Value) -> Result<(), ApiFailure> {
        confirm::patch_pod(&self.shared.client, key, patch).await
    }

    /// Creates this node's NodeDaemons, owned by the Node with this UID.
    ///
    /// # Errors
    /// What the API server, or the way to it, said.
    pub async fn create_node_daemons(&self, node: &str, uid: &str) -> Result<(), ApiFailure> {
        confirm::create_node_daemons(&self.shared.client, node, uid).await
    }

    /// Patches the status of this node's NodeDaemons by JSON merge.
    ///
    /// # Errors
    /// What the API server, or the way to it, said: among it that the resource version in the patch is
    /// not the live one.
    pub async fn patch_node_daemons(&self, node: &str, patch: &serde_json::Value) -> Result<(), ApiFailure> {
        confirm::patch_node_daemons(&self.shared.client, node, patch).await
    }

    /// UID of the namespace `kube-system`: which cluster this is.
    pub async fn cluster_uid(&self) -> Result<String, ApiFailure> {
        confirm::cluster_uid(&self.shared.client).await
    }

    /// How everything is.
    pub fn health(&self) -> ApiHealth {
        let snapshot = self.shared.store.snapshot();
        let connector = &self.shared.connector;
        let link = connector.link().borrow().clone();
        health::summary(&link, connector, &snapshot)
    }
}
