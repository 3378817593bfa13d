//! The coordinator: what needs the whole cluster, done by the one who holds the Lease.
//!
//! Owns ControllerRevisions, `DaemonSet.status` and approvals. It has no state: whoever takes over goes
//! on from what the API shows, and every write is conditional on the resource version it was decided
//! from, so that two who both believe to hold the Lease do no harm. It watches Nodes, DaemonSets,
//! NodeDaemons and ControllerRevisions, and no pods: one that an agent tells of is looked up. Must not decide: that is `core::cluster`'s.

mod approve;
mod lease;
mod look;
mod watch;
mod write;

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::now;
use crate::core::cluster::pass;
use crate::core::cluster::view::View;
use crate::node::api::Connector;

use lease::Lease;
use write::Writer;

/// How long changes are gathered before a pass: a burst of them is one.
const GATHER: Duration = Duration::from_millis(20);
/// A pass is made at least this often, whatever happens.
const PERIOD: Duration = Duration::from_secs(30);

/// What the coordinator works with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The coordinator's own kubeconfig.
    pub kubeconfig: PathBuf,
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// Name of the Lease.
    pub lease_name: String,
    /// Who it is: unique among those that stand for the Lease.
    pub identity: String,
    /// What a pass obeys.
    pub pass: pass::Options,
    /// Whether requests of nodes for their identities are approved.
    pub approve_nodes: bool,
}

/// Coordinates until `stop` is there: stands for the Lease, works only while it holds it, and gives it back in the
/// end, so that another goes on at once.
pub async fn run(options: Options, stop: impl Future<Output = ()>) {
    let connector = Connector::new(options.kubeconfig.clone());
    let client = connector.client();
    let keep = tokio::spawn(connector.keep());
    let mut lease = Lease::new(&options);
    tokio::select! {
        biased;
        () = stop => {}
        () = work(&options, &client, &mut lease, &keep) => {}
    }
    lease.release(&client).await;
}

async fn work(options: &Options, client: &kube::Client, lease: &mut Lease, keep: &JoinHandle<()>) {
    loop {
        lease.acquire(client).await;
        tracing::info!(lease = options.lease_name, "{} coordinates now", options.identity);
        // What an earlier term still had to say is nothing to this one.
        let (changes, mut changed) = mpsc::channel(1024);
        let watches = watch::start(client, &changes);
        let approver = options.approve_nodes.then(|| tokio::spawn(approve::keep(client.clone())));
        let mut view = View::new(options.pass.policy.default_node_selector().to_owned());
        let mut writer = Writer::new(client.clone());
        let mut next = Instant::now() + PERIOD;
        while lease.holds() {
            tokio::select! {
                biased;
                // To its end: a renewal that every change could cut short would never come through.
                () = tokio::time::sleep_until(lease.next_renewal()) => {
                    lease.renew(client).await;
                    continue;
                }
                change = changed.recv() => {
                    let Some(change) = change else { return };
                    view.take(change);
                    let until = Instant::now() + GATHER;
                    while let Ok(Some(change)) = tokio::time::timeout_at(until, changed.recv()).await {
                        view.take(change);
                    }
                }
                () = tokio::time::sleep_until(next) => {}
            }
            next = Instant::now() + PERIOD;
            if !view.is_complete() {
                continue;
            }
            let at = now();
            let plan = pass::plan(&mut view, &options.pass, at);
            for (key, node) in &plan.unclaimed {
                tracing::warn!(daemonset = %key, "the approval for node {node} was not claimed and is withdrawn");
            }
            look::up(client, plan.doubted, &changes);
            let due = writer.apply(plan.writes, &mut view, lease, at).await;
            for due in [plan.look_again, due].into_iter().flatten() {
                next = next.min(Instant::now() + (due - at).to_duration());
            }
        }
        tracing::warn!(lease = options.lease_name, "{} does not hold the Lease any more", options.identity);
        watches.abort();
        approver.iter().for_each(JoinHandle::abort);
        if keep.is_finished() {
            return;
        }
    }
}
