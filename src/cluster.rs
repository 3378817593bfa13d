//! The coordinator: does what needs the whole cluster, while it holds the Lease.
//!
//! Owns ControllerRevisions, `DaemonSet.status` and approvals. Observes ([`inputs`]), decides
//! ([`crate::core::cluster::decide`]) and writes ([`write`]); replies come with the next observation. A process that
//! takes over goes on from what the API shows, and every write is conditional on the resource version it was decided
//! from, so that two processes that both believe they hold the Lease do no harm. It watches Nodes, DaemonSets,
//! NodeDaemons, ControllerRevisions and Namespaces, and no pods: one that an agent reports is looked up.

mod health;
mod inputs;
mod lease;
mod report;
mod watch;
mod write;

use std::path::PathBuf;
use std::pin::pin;

use tokio::sync::oneshot;
use tokio::sync::watch as watch_channel;

use crate::config::Listen;
use crate::core::cluster::decide::decide;
use crate::core::cluster::pass::Settings;
use crate::core::cluster::state::CoordinatorState;
use crate::core::cluster::telemetry;
use crate::node::api::Connector;
use crate::node::api::Selection;

use inputs::ClusterInputs;
use write::Writer;

/// What the coordinator works with.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// The coordinator's own kubeconfig.
    pub kubeconfig: PathBuf,
    pub lease_namespace: String,
    pub lease_name: String,
    /// Its name, unique among the processes that stand for the Lease.
    pub identity: String,
    /// What a pass obeys.
    pub settings: Settings,
    /// Namespaces whose DaemonSets are coordinated without bounds; `*` is all.
    pub trusted_namespaces: Vec<String>,
    /// Whether requests of nodes for their identities are approved.
    pub approve_nodes: bool,
    /// Where metrics and health are served, if anywhere.
    pub metrics_listen: Option<Listen>,
}

/// Coordinates until `stop` is there: stands for the Lease, works only while it holds it, and gives it back in the
/// end, so that another goes on at once.
pub async fn run(options: CoordinatorOptions, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let connector = Connector::new(options.kubeconfig.clone());
    let client = connector.client();
    let selection = Selection::of_label(options.trusted_namespaces.clone());
    let (mut inputs, events) = ClusterInputs::new(&options, connector.client_of(selection.clone()), selection);
    tokio::spawn(connector.keep());
    let (ends, ended) = oneshot::channel();
    let (cannot_list, cannot_list_receiver) = watch_channel::channel(String::new());
    let lease =
        tokio::spawn(lease::keep(options.clone(), client.clone(), events.clone(), (cannot_list_receiver, ended)));
    let mut writer = Writer::new(client, events);
    let mut state = CoordinatorState::default();
    let mut next_look = None;
    let mut started = None;
    let recorder = options.metrics_listen.clone().and_then(|listen| {
        let served = health::HealthRecorder::serve(listen, options.kubeconfig.clone());
        served.inspect_err(|error| tracing::warn!("metrics of the coordinator are not served: {error}")).ok()
    });
    loop {
        let observation = tokio::select! {
            biased;
            () = &mut stop => break,
            observation = inputs.collect(next_look) => observation,
        };
        state.absorb(&observation);
        let decision = decide(&observation, &state, &options.settings);
        report::log(&decision.notices);
        next_look = decision.next_look;
        let unlisted = telemetry::cannot_list(&observation, &state);
        cannot_list.send_if_modified(|known| {
            *known != unlisted && {
                *known = unlisted;
                true
            }
        });
        writer.send(decision.requests.clone(), inputs.term());
        state.commit(decision, observation.now);
        if let Some(recorder) = &recorder {
            recorder.record(telemetry::facts(
                &observation,
                &state,
                &options.identity,
                *started.get_or_insert(observation.now),
            ));
        }
    }
    // Nothing is sent any more when the Lease is another's.
    drop((inputs, writer, ends));
    // It gives the Lease back within a bound of its own.
    let _ = lease.await;
}
