//! The watches: DaemonSets, the own Node, this node's pods, and each object that a daemon refers to.
//!
//! Owns what is watched. Must not decide what an absence means.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Weak;

use kube::runtime::watcher::Config;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::core::model::Kind;
use crate::core::model::ObjectKey;
use crate::core::model::ObjectRef;
use crate::core::placement::NamespaceSelector;
use crate::node::api::backoff;
use crate::node::api::connector::Link;
use crate::node::api::object;
use crate::node::api::store::Scope;
use crate::node::api::store::Store;

mod etcd_rollback;
mod lines;
mod named;
mod outlines;
mod pending;
mod retry;
mod task;

pub(super) use etcd_rollback::EtcdRollbackProbe;
pub(super) use etcd_rollback::WatchProgress;
pub(super) use lines::Turns;
use named::CacheReadPolicy;
pub(super) use retry::WatchOrder;
use task::WatchTask;

/// Objects per page: a page is in memory twice while it is read.
const PAGE: u32 = 50;
/// Pods per page: of each no more than 128 KiB are read, and no more than 4,096 values.
const PODS_PAGE: u32 = 25;
/// DaemonSets per page: each may have 1.5 MiB, and half of one where what is kept is bounded.
const DAEMON_SETS_PAGE: u32 = 20;

/// Everything that a watch needs.
pub(super) struct WatchContext {
    pub(super) client: kube::Client,
    pub(super) store: Store,
    pub(super) link: watch::Receiver<Link>,
    pub(super) etcd_rollback: EtcdRollbackProbe,
    pub(super) order: WatchOrder,
    /// In which large objects are read.
    pub(super) turns: Turns,
    /// Objects remembered from the checkpoint ([`ApiOptions::known`]).
    ///
    /// [`ApiOptions::known`]: super::ApiOptions::known
    pub(super) known: BTreeMap<ObjectRef, Weak<Value>>,
    /// Whether a default node selector applies to Namespaces without one ([`ApiOptions::namespaces_bind`]).
    ///
    /// [`ApiOptions::namespaces_bind`]: super::ApiOptions::namespaces_bind
    pub(super) namespaces_bind: bool,
}

impl WatchContext {
    /// `value`, or what is remembered of the object if that is the same.
    fn known_or(&self, scope: &Scope, value: Arc<Value>) -> Arc<Value> {
        let Scope::Object(object) = scope else { return value };
        let known = self.known.get(object).and_then(Weak::upgrade);
        known.filter(|known| *known == value).unwrap_or(value)
    }

    /// While nothing is known of an object: which answers from the API server's cache, at most a moment old, are good
    /// enough. Consistent reads would make a thousand agents that wait for the same object wait for etcd, too.
    fn cache_read_policy(&self, scope: &Scope) -> Option<CacheReadPolicy> {
        match scope {
            Scope::Object(object) if self.known.contains_key(object) => None,
            // The API server's own admission uses the same cache.
            Scope::Object(object) if object.kind == Kind::ServiceAccount => Some(|_| true),
            // Admission reads its PodSecurity level from the same cache. But its node selector ends what runs.
            Scope::Object(object) if object.kind == Kind::Namespace && !self.namespaces_bind => {
                Some(|namespace| !NamespaceSelector::is_in(namespace))
            }
            // Other objects are data that a daemon runs with.
            _ => None,
        }
    }
}

/// The running watches. Dropping it ends them.
pub(super) struct Watches {
    context: Arc<WatchContext>,
    node: String,
    selector: Option<String>,
    daemon_sets: AbortHandle,
    fixed: Vec<AbortHandle>,
    wanted: BTreeMap<ObjectRef, AbortHandle>,
    pending: BTreeMap<ObjectKey, AbortHandle>,
    reads: BTreeMap<ObjectKey, AbortHandle>,
}

impl Watches {
    /// Starts the watches that always run. Needs a running tokio runtime.
    pub(super) fn start(context: WatchContext, node: &str, selector: Option<String>) -> Self {
        let context = Arc::new(context);
        let daemon_sets = spawn_daemon_sets(&context, selector.clone());
        let (fixed, wanted, pending, reads) = Default::default();
        let mut watches = Self { context, node: node.into(), selector, daemon_sets, fixed, wanted, pending, reads };
        watches.start_fixed();
        watches
    }

    fn start_fixed(&mut self) {
        let by_name = format!("metadata.name={}", self.node);
        let of_node = format!("spec.nodeName={}", self.node);
        let node = WatchTask {
            scope: Scope::Node,
            resource: object::api_resource("", "Node", "nodes"),
            namespace: None,
            config: config().fields(&by_name),
            keep: Box::new(object::keep_node),
        };
        let pods = WatchTask {
            scope: Scope::Pods,
            resource: object::api_resource("", "Pod", "pods"),
            namespace: None,
            config: config().fields(&of_node).page_size(PODS_PAGE),
            keep: Box::new(object::keep_pod),
        };
        let node_daemons = WatchTask {
            scope: Scope::NodeDaemons,
            resource: object::node_daemons(),
            namespace: None,
            config: config().fields(&by_name),
            keep: Box::new(object::keep_all),
        };
        for task in [node, pods, node_daemons] {
            self.fixed.push(task.spawn(&self.context));
        }
    }

    /// Watches exactly these objects from now on.
    pub(super) fn set_wanted(&mut self, wanted: &BTreeSet<ObjectRef>) {
        if self.wanted.keys().eq(wanted) {
            return;
        }
        self.wanted.retain(|reference, task| {
            let keep = wanted.contains(reference);
            if !keep {
                task.abort();
                self.context.store.close(&Scope::Object(reference.clone()));
            }
            keep
        });
        for reference in wanted {
            if !self.wanted.contains_key(reference) {
                let task = WatchTask {
                    scope: Scope::Object(reference.clone()),
                    resource: object::resource(reference.kind),
                    namespace: Some(reference.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                    config: config().fields(&format!("metadata.name={}", reference.key.name)),
                    keep: Box::new(object::keep_all),
                };
                self.wanted.insert(reference.clone(), task.spawn(&self.context));
            }
        }
    }

    /// Lists and watches the DaemonSets again.
    pub(super) fn relist(&mut self) {
        self.daemon_sets.abort();
        self.daemon_sets = spawn_daemon_sets(&self.context, self.selector.clone());
    }

    /// Lists and watches everything again.
    pub(super) fn relist_all(&self) {
        self.context.etcd_rollback.relist_all();
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.daemon_sets.abort();
        let all = self.fixed.iter().chain(self.wanted.values()).chain(self.pending.values()).chain(self.reads.values());
        all.for_each(AbortHandle::abort);
    }
}

fn spawn_daemon_sets(context: &Arc<WatchContext>, selector: Option<String>) -> AbortHandle {
    let config = match selector.filter(|selector| !selector.is_empty()) {
        Some(selector) => config().labels(&selector),
        None => config(),
    };
    let config = config.page_size(DAEMON_SETS_PAGE);
    let resource = object::api_resource("apps", "DaemonSet", "daemonsets");
    let keep = Box::new(object::keep_daemon_set);
    let task = WatchTask { scope: Scope::DaemonSets, resource, namespace: None, config, keep };
    task.spawn(context)
}

/// Watches end after four to five minutes, not all at the same time. (kube accepts at most 294 s.)
fn config() -> Config {
    Config::default().page_size(PAGE).timeout(240 + (backoff::random() * 50.0) as u32)
}
