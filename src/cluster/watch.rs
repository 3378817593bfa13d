//! The coordinator's watches: Nodes, DaemonSets, NodeDaemons, ControllerRevisions of the whole cluster.
//!
//! Owns their streams. An error never removes anything: a stream that fails is taken up again, and only
//! the end of a complete list tells what is gone.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use kube::runtime::watcher::Config;
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::core::cluster::node_daemons;

/// Objects a page.
const PAGE: u32 = 500;
/// A watch that cannot be opened is tried again after this.
const AGAIN: Duration = Duration::from_secs(2);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Nodes,
    DaemonSets,
    NodeDaemons,
    Revisions,
}

/// All kinds.
pub(super) const KINDS: [Kind; 4] = [Kind::Nodes, Kind::DaemonSets, Kind::NodeDaemons, Kind::Revisions];

impl Kind {
    /// Its resource.
    pub(super) fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Kind::Nodes => ("", "v1", "Node", "nodes"),
            Kind::DaemonSets => ("apps", "v1", "DaemonSet", "daemonsets"),
            Kind::NodeDaemons => (node_daemons::GROUP, node_daemons::VERSION, node_daemons::KIND, node_daemons::PLURAL),
            Kind::Revisions => ("apps", "v1", "ControllerRevision", "controllerrevisions"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

/// Something that a watch told.
pub(super) enum Change {
    /// A list begins.
    Begin(Kind),
    /// An object exists; `listed`: as part of the list.
    Present(Kind, Box<DynamicObject>, bool),
    /// An object is gone.
    Gone(Kind, Box<DynamicObject>),
    /// The list is complete.
    Complete(Kind),
}

/// The running watches.
pub(super) struct Watches(Vec<AbortHandle>);

impl Watches {
    pub(super) fn abort(self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Starts all watches.
pub(super) fn start(client: &kube::Client, changes: &mpsc::Sender<Change>) -> Watches {
    let one = |kind: Kind| tokio::spawn(follow(kind, client.clone(), changes.clone())).abort_handle();
    Watches(KINDS.into_iter().map(one).collect())
}

async fn follow(kind: Kind, client: kube::Client, changes: mpsc::Sender<Change>) {
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource());
    let config = Config::default().page_size(PAGE);
    let mut stream = pin!(watcher(api, config).default_backoff());
    let mut said = String::new();
    while let Some(event) = stream.next().await {
        let change = match event {
            Ok(Event::Init) => Change::Begin(kind),
            Ok(Event::InitApply(object)) => Change::Present(kind, Box::new(object), true),
            Ok(Event::InitDone) => {
                said.clear();
                Change::Complete(kind)
            }
            Ok(Event::Apply(object)) => Change::Present(kind, Box::new(object), false),
            Ok(Event::Delete(object)) => Change::Gone(kind, Box::new(object)),
            Err(error) => {
                let words = error.to_string();
                if words != said {
                    tracing::warn!(?kind, "the coordinator's watch failed: {words}; trying again");
                    said = words;
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}
