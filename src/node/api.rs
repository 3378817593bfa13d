//! The API server: one HTTP/2 connection, a store of its objects, and the agent's own requests.
//!
//! Owns all communication with it. Must not decide: it reports what is known and how well, and an error never becomes
//! an absence. Nothing here blocks the agent's loop; every request has a timeout.

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
mod leases;
mod node_conditions;
mod node_daemons;
mod node_taint;
mod object;
mod own_node;
mod reports;
mod selection;
pub(in crate::node) mod shortening;
mod single_requests;
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
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;

use serde_json::Value;
use tokio::task::AbortHandle;

use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::policy::Policy;
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
pub use events::EventRecorder;
pub use events::Regarding;
pub use health::ApiHealth;
pub use health::LinkHealth;
pub use health::ScopeHealth;
pub use kubeconfig::FileError;
pub use kubeconfig::KubeconfigError;
pub(crate) use kubeconfig::certificate_end;
pub(crate) use kubeconfig::cluster as cluster_of_kubeconfig;
pub use kubeconfig::endpoint;
#[cfg(test)]
pub(crate) use kubeconfig::parse as parse_kubeconfig;
pub(crate) use kubeconfig::read as read_kubeconfig;
pub use node_daemons::NotWritten;
pub use node_taint::TaintChange;
pub use own_node::NodeWriteResult;
pub use reports::PodEvent;
pub use selection::Selection;
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
pub use store::UnselectedDaemonSet;
pub use store::Unusable;
pub use store::convert;
pub use store::node_owner;
#[cfg(test)]
pub(in crate::node) use tls::TlsError;
pub use tokens::IssuedToken;
pub use tokens::TokenSnapshot;
pub use tokens::Tokens;

use watches::EtcdRollbackProbe;
use watches::Turns;
use watches::WatchContext;
use watches::WatchOrder;
use watches::Watches;

/// TLS that accepts every certificate: only for checking whether a server answers.
///
/// # Errors
/// The TLS library's.
pub(crate) fn tls_that_trusts_anybody() -> Result<rustls::ClientConfig, tls::TlsError> {
    tls::client_config(&tls::TlsInput { insecure: true, ..Default::default() })
}

/// Whether a client can be made of the kubeconfig at `path` and the files that it names, as they are now.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn check_kubeconfig(path: &Path) -> Result<(), KubeconfigError> {
    kubeconfig::ApiCredentials::load(path).map(drop)
}

/// A client for one command-line request, from a kubeconfig that is already read, at `path`. Needs a running tokio runtime.
///
/// # Errors
/// Why the kubeconfig cannot be used.
pub fn client_of(path: &Path, kubeconfig: kube::config::Kubeconfig) -> Result<kube::Client, KubeconfigError> {
    Ok(Connector::of(kubeconfig::ApiCredentials::of(path, kubeconfig)?).client())
}

/// What is watched, and with which identity.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// The kubeconfig. It may be missing or invalid at the start; it is read again.
    pub kubeconfig: PathBuf,
    /// The own node's name.
    pub node_name: String,
    /// Label selector for DaemonSets; `None`: all.
    pub selector: Option<String>,
    /// Objects remembered from the checkpoint. They are never listed from the API server's cache, whose content may be
    /// older. One that comes as it is remembered is not kept twice.
    pub known: BTreeMap<ObjectRef, Weak<Value>>,
    /// Whether a default node selector applies to Namespaces without one (`policy.default-node-selector`). Then a
    /// Namespace's missing annotation can end a daemon, so Namespaces are never listed from the API server's cache.
    pub namespaces_bind: bool,
    /// Which DaemonSets may run here: others are not read whole.
    pub policy: Arc<Policy>,
    /// DaemonSets that are read whole, whatever the policy: those that run, those that are remembered, and those that folders
    /// have under the same name.
    pub daemon_sets: BTreeSet<ObjectKey>,
    /// Those of which something runs.
    pub running: BTreeSet<ObjectKey>,
}

/// The agent's access to the API server; clones share it. Its tasks end with the last clone.
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
    events: EventRecorder,
    /// Held by the write of the taint that is under way: the last one that is asked for is the last one made.
    taint: tokio::sync::Mutex<()>,
    tasks: [AbortHandle; 4],
}

impl Drop for SharedApi {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Api {
    /// Starts connecting and watching. Never fails or blocks; [`Api::health`] shows problems. Needs a running tokio
    /// runtime.
    pub fn start(options: ApiOptions) -> Self {
        let connector = Connector::new(options.kubeconfig);
        let client = connector.client();
        let selection = Selection::of_policy(options.policy, options.daemon_sets, options.running);
        let store = Store::new(selection.clone());
        let tokens = Tokens::default();
        let events = EventRecorder::new(&options.node_name);
        let node = options.node_name;
        let (etcd_rollback, look) = EtcdRollbackProbe::new(connector.clone(), store.clone());
        let tasks = [
            tokio::spawn(look).abort_handle(),
            tokio::spawn(connector.clone().keep()).abort_handle(),
            tokio::spawn(tokens.clone().keep(client.clone(), store.clone(), connector.clone(), node.clone()))
                .abort_handle(),
            tokio::spawn(events.clone().keep(client.clone(), connector.link())).abort_handle(),
        ];
        let context = WatchContext {
            client: connector.client_of(selection),
            store: store.clone(),
            link: connector.link(),
            etcd_rollback,
            order: WatchOrder::new(),
            turns: Turns::new(),
            known: options.known,
            namespaces_bind: options.namespaces_bind,
        };
        let watches = Mutex::new(Watches::start(context, &node, options.selector));
        let taint = tokio::sync::Mutex::default();
        Self { shared: Arc::new(SharedApi { connector, client, store, watches, tokens, events, taint, tasks }) }
    }

    /// [`Store::snapshot`] for a pass, [`Store::changed`] to be woken.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The client, for other requests to the same server.
    pub fn client(&self) -> &kube::Client {
        &self.shared.client
    }

    /// The connections: counters and link state.
    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// The server for pods: the one that the newest connection leads to, before the first one the kubeconfig's. The
    /// default of `api-endpoint`.
    pub fn endpoint(&self) -> Option<Endpoint> {
        self.shared.connector.connected_endpoint_for_pods()
    }

    fn with_watches<T>(&self, f: impl FnOnce(&mut Watches) -> T) -> T {
        f(&mut self.shared.watches.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Watches exactly the objects that daemons refer to.
    pub fn set_wanted(&self, wanted: &BTreeSet<ObjectRef>) {
        self.with_watches(|watches| watches.set_wanted(wanted));
    }

    /// Watches the unschedulable pods of exactly these DaemonSets, by label selector.
    pub fn set_pending(&self, wanted: &BTreeMap<ObjectKey, String>) {
        self.with_watches(|watches| watches.set_pending(wanted));
    }

    /// Reads these DaemonSets whole from now on, of which no more is known than that they exist.
    pub fn read_daemon_sets(&self, keys: &BTreeSet<ObjectKey>) {
        self.with_watches(|watches| watches.read_daemon_sets(keys));
    }

    /// ServiceAccount tokens: [`Tokens::set_wanted`] for what daemons need, [`Tokens::import`] once at the start. A
    /// new token wakes [`Store::changed`].
    pub fn tokens(&self) -> &Tokens {
        &self.shared.tokens
    }

    /// Events about DaemonSets.
    pub fn events(&self) -> &EventRecorder {
        &self.shared.events
    }

    /// Sends the waiting events for up to `bound`; events not sent by then are lost.
    pub async fn flush_events(&self, bound: Duration) {
        if *self.shared.connector.link().borrow() == Link::Up {
            self.shared.events.flush(bound).await;
        }
    }

    /// Lists the DaemonSets again over a new connection (R8). That list is complete once [`Snapshot::lists`] of
    /// [`Scope::DaemonSets`] exceeds the returned number.
    pub fn relist_fresh(&self) -> u64 {
        self.with_watches(|watches| {
            self.shared.connector.retire();
            watches.relist();
            self.shared.store.lists(&Scope::DaemonSets)
        })
    }

    /// Forgets what the API server has shown, and lists everything over a new connection.
    pub fn forget_view(&self) {
        self.with_watches(|watches| {
            self.shared.connector.retire();
            self.shared.store.forget();
            watches.relist_all();
        });
    }

    /// The state of the link and of every watch.
    pub fn health(&self) -> ApiHealth {
        let snapshot = self.shared.store.snapshot();
        let connector = &self.shared.connector;
        let link = connector.link().borrow().clone();
        health::summary(&link, connector, &snapshot)
    }
}
